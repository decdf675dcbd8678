#!/usr/bin/env python3
"""Calls of many threads at once, and ends beside them. On a Python without a GIL they do run at
once, and the package keeps it off."""
import sys
import threading
import unittest

import common

common.need("numpy")
GIL_WAS_OFF = not getattr(sys, "_is_gil_enabled", lambda: True)()

import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

THREADS = 8


def at_once(work):
    """Runs the work with the numbers 0 to 7 on as many threads, which begin together. The
    exceptions of all of them."""
    gate, failed = threading.Barrier(THREADS), []

    def run(number):
        try:
            gate.wait(600)
            work(number)
        except Exception as error:  # pylint: disable=broad-except  # any is a failure
            failed.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failed


class threads(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.bin")
        self.rows = np.arange(3200, dtype=np.int64).reshape(-1, 8)
        self.rows.tofile(self.path)

    def open(self, rt, mode="r"):
        return ps.open_array(self.path, dtype="int64", shape=(-1, 8), mode=mode, runtime=rt)

    @unittest.skipUnless(GIL_WAS_OFF, "this Python has a GIL")
    def test_the_gil_stays_off(self):
        self.assertFalse(sys._is_gil_enabled())

    def test_a_canary_of_the_tests_below(self):
        def fails(number):
            if number == 3:
                raise KeyError(number)

        self.assertEqual([type(error) for error in at_once(fails)], [KeyError])

    def test_arrays_and_regions_of_one_runtime(self):
        rt = self.runtime()

        def work(number):
            rng = np.random.default_rng([self.seed, number])
            for turn in range(15):
                ids = rng.integers(0, 400, 30)
                with self.open(rt) as array:
                    assert array.gather(ids).tobytes() == self.rows[ids].tobytes(), turn
                rt.check()
                ps.stats(rt)
                with ps.open_region(self.path, dtype="int64", shape=(-1, 8), runtime=rt) as region:
                    assert np.asarray(region).tobytes() == self.rows.tobytes(), turn

        self.assertEqual(at_once(work), [])

    def test_one_array_of_all(self):
        rt = self.runtime(writable=True)
        array = self.open(rt, "r+")

        def work(number):  # rows of its own
            own = np.arange(number, 400, THREADS)
            for turn in range(15):
                array.scatter(own, np.full((len(own), 8), turn * 10 + number))
                assert (array.gather(own) == turn * 10 + number).all(), turn
                array.prefetch(own)
                array.check()

        self.assertEqual(at_once(work), [])

    def test_a_call_raises_its_own_error_and_no_other(self):
        """Half of the threads ask for a row that there is not, and one only looks for errors."""
        rt = self.runtime(writable=True)
        array = self.open(rt, "r+")

        def work(number):
            own = np.tile(np.arange(number, 400, THREADS), 20)  # as many as take a while
            if number % 2:
                own[500] = 1000 + number
            values = np.full((len(own), 8), number)
            verbs = {"scatter": lambda: array.scatter(own, values),
                     "gather": lambda: array.gather(own),
                     "prefetch": lambda: array.prefetch(own)}
            for turn in range(60):
                for name, verb in verbs.items():
                    if number == 0:
                        rt.check()
                        array.check()
                    elif number % 2:
                        try:
                            verb()
                        except IndexError as error:
                            assert f"number {1000 + number} at place 500 " in str(error), error
                        else:
                            raise AssertionError(f"{name}, turn {turn}: no error")
                    else:
                        got = verb()
                        assert name != "gather" or (got == number).all(), turn

        self.assertEqual(at_once(work), [])

    def test_each_ends_once_if_many_close_it(self):
        for _ in range(5):
            rt = common.small_runtime(log="logging")
            array = self.open(rt)
            region = ps.open_region(self.path, dtype="int64", shape=(-1, 8), runtime=rt)
            kept = []

            def work(number, rt=rt, array=array, region=region, kept=kept):
                try:
                    kept.append(np.from_dlpack(region))
                    array.gather([number])
                    (array.close, region.close, rt.close)[number % 3]()
                    array.gather([number])
                    region.acquire()
                except ValueError as error:
                    assert "closed" in str(error), error

            self.assertEqual(at_once(work), [])
            rt.close()
            self.assertTrue(array.closed and region.closed and rt.closed)
            for tensor in kept:
                self.assertEqual(tensor.tobytes(), self.rows.tobytes())

    def test_runtimes_of_each_thread(self):
        def work(number):
            for _ in range(3):
                with common.small_runtime(cache_memory=bytearray(1 << 20), cache=None) as rt:
                    assert self.open(rt).gather([number]).tolist() == [self.rows[number].tolist()]
            made = ps.default("8KiB")
            assert self.open(made).gather([number]).tolist() == [self.rows[number].tolist()]

        self.assertEqual(at_once(work), [])
        ps.default("8KiB").close()


if __name__ == "__main__":
    unittest.main()
