#!/usr/bin/env python3
"""Signals that come at any moment: a runtime stays usable, and a handler may call the package."""
import errno
import signal
import threading
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

# Far more signals than the first late wake-up of the watching thread took.
SIGNALS = 4000

IN_A_HANDLER = """
import signal, sys, threading, os, penstock as ps
rows = []
signal.signal(signal.SIGUSR1, lambda number, frame: rows.append(
    ps.open_array(sys.argv[1]).gather([1])[0, 0]))
for turn in range(30):
    timer = threading.Timer(0.0003 * turn, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    ps.default(512 << turn % 8).close()
    timer.join()
assert rows == [4.0] * 30, rows
page = ps.describe(sys.argv[1]).page_bytes
assert ps.default(page) is ps.default(page)
"""

AS_A_CALL_BEGINS = common.GATHER_AS_A_SIGNAL_COMES + """
import os, sys

def caught():
    with open("/proc/self/status") as status:
        line, = [line for line in status if line.startswith("SigCgt:")]
    return bool(int(line.split()[1], 16) >> signal.SIGINT - 1 & 1)

runtime = ps.Runtime("cpu", cache="2MiB", page="4KiB", log=None)
array = ps.open_array(sys.argv[1], runtime=runtime)
seen = []
"""


class signals(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.npy")
        self.rows = np.arange(400.0).reshape(100, 4)
        np.save(self.path, self.rows)

    def test_an_interrupt_is_of_the_call_that_it_came_to(self):
        """The handler only counts, so no call may fail, and none after the last signal."""
        seen = []
        before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
        self.addCleanup(signal.signal, signal.SIGINT, before)
        main, ended = threading.main_thread().ident, threading.Event()

        def kick():
            while not ended.is_set():
                time.sleep(0.0003)
                signal.pthread_kill(main, signal.SIGINT)

        runtimes = [self.runtime(), self.runtime()]
        arrays = [ps.open_array(self.path, runtime=rt) for rt in runtimes]
        ids = np.arange(64)
        kicker = threading.Thread(target=kick, daemon=True)
        kicker.start()
        try:
            until = time.monotonic() + 120
            while len(seen) < SIGNALS and time.monotonic() < until:
                for array in arrays:
                    np.testing.assert_array_equal(array.gather(ids), self.rows[:64])
        finally:
            ended.set()
            kicker.join()
        self.assertGreater(len(seen), 0)
        for array in arrays:
            np.testing.assert_array_equal(array.gather(ids), self.rows[:64])

    def test_an_interrupt_gives_a_call_beside_it_an_error_or_its_rows(self):
        """The handler does not raise. The call of another thread may fail, and says so."""
        path = self.folder / "large.bin"  # larger than the cache, so that calls wait
        rows = np.random.default_rng(self.seed).integers(1, 256, (40000, 512), dtype=np.uint8)
        rows.tofile(path)
        before = signal.signal(signal.SIGINT, lambda number, frame: None)
        self.addCleanup(signal.signal, signal.SIGINT, before)
        rt = self.runtime(cache="1MiB", windows=0)
        array = ps.open_array(str(path), dtype="uint8", shape=(-1, 512), runtime=rt)
        main, ended, failed = threading.main_thread().ident, threading.Event(), []

        def kick():
            while not ended.is_set():
                time.sleep(0.003)
                signal.pthread_kill(main, signal.SIGINT)

        def gather(seed, may_fail):
            ids = np.random.default_rng([self.seed, seed]).integers(0, len(rows), 2000)
            try:
                if not np.array_equal(array.gather(ids), rows[ids]):
                    failed.append("wrong rows")
            except OSError as error:
                if not may_fail or error.errno != errno.ECANCELED:
                    failed.append(str(error))

        def beside():
            for turn in range(1000):
                if ended.is_set():
                    break
                gather(turn, True)

        others = [threading.Thread(target=work, daemon=True) for work in (kick, beside)]
        for other in others:
            other.start()
        try:
            until = time.monotonic() + 5
            while others[1].is_alive() and not failed and time.monotonic() < until:
                gather(int(time.monotonic() * 1e6), False)
        finally:
            ended.set()
            for other in others:
                other.join()
        self.assertEqual(failed, [])

    def test_a_handler_that_gives_ctrl_c_back_to_the_system_has_given_it_back(self):
        done = self.child(AS_A_CALL_BEGINS + """
signal.signal(signal.SIGINT, lambda *_: (seen.append(caught()),
                                         signal.signal(signal.SIGINT, signal.SIG_DFL)))
gather_as_a_signal_comes(array)
assert seen == [True], seen
assert not caught(), "the choice of the handler was undone"
array.gather([1])
assert not caught()
os.kill(os.getpid(), signal.SIGINT)
""", self.path)
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""))

    def test_a_handler_that_chooses_another_and_calls_or_raises(self):
        """What it chose stays, and the runtime is not left interrupted."""
        done = self.child(AS_A_CALL_BEGINS + """
class Over(Exception):
    pass

def last(*_):
    raise Over

def first(*_):
    seen.append("first")
    signal.signal(signal.SIGINT, second)
    array.gather([1])

def second(*_):
    seen.append("second")
    signal.signal(signal.SIGINT, signal.SIG_IGN if len(seen) > 2 else last)
    if len(seen) > 2:
        raise Over

def ends_by_over():
    try:
        gather_as_a_signal_comes(array)
    except Over:
        seen.append("over")

signal.signal(signal.SIGINT, first)
gather_as_a_signal_comes(array)
assert signal.getsignal(signal.SIGINT) is second and caught()
gather_as_a_signal_comes(array)
ends_by_over()
assert seen == ["first", "second", "over"], seen
signal.signal(signal.SIGINT, second)
ends_by_over()
assert seen[3:] == ["second", "over"], seen
assert not caught(), "the choice of the handler was undone"
assert array.gather([1])[0, 0] == 4.0
""", self.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_handler_may_ask_for_the_default_runtime(self):
        done = self.child(IN_A_HANDLER, self.path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
