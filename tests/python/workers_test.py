#!/usr/bin/env python3
"""Workers of multiprocessing that end with an array open: what they wrote is in its file. Those
that are forked leave by os._exit, where atexit does not run."""
import concurrent.futures
import multiprocessing
import os
import sys
import threading
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

METHODS = ("fork", "forkserver", "spawn")
ROWS = 1 << 12
kept = []  # until the worker ends


def open_rows(path):
    return ps.open_array(path, dtype="int64", shape=(ROWS, 8), mode="r+",
                         runtime=ps.default(writable=True))


def write(path, begin=0, end=ROWS):
    if not kept:
        kept.append(open_rows(path))
    kept[0].scatter(np.arange(begin, end), np.full((end - begin, 8), 42))
    return os.getpid()


def write_and_exit(path):
    write(path)
    sys.exit(0)


def write_and_fail(path):
    sys.stderr = open(os.devnull, "w", encoding="ascii")
    write(path)
    raise RuntimeError("mine")


def write_late(path):
    """A thread that is no daemon ends after the worker's function, as does a pool of threads."""
    kept.append(open_rows(path))

    def work():
        time.sleep(0.3)
        write(path, 0, ROWS // 2)

    threading.Thread(target=work).start()
    kept.append(concurrent.futures.ThreadPoolExecutor(1))
    kept[1].submit(write, path, ROWS // 2)


def write_late_alone(path):
    """The worker's first array is opened after its function has ended."""
    def work():
        time.sleep(0.3)
        write(path)

    threading.Thread(target=work).start()


def write_in_thread(path):
    """The first array is opened beside the function, which uses it after that thread."""
    thread = threading.Thread(target=write, args=(path, 0, ROWS // 2))
    thread.start()
    thread.join()
    time.sleep(0.3)
    write(path, ROWS // 2)


def write_in_child(path):
    """A child of the worker is no worker itself, and closes what it opened."""
    write(path, 0, ROWS // 2)
    child = os.fork()
    if child == 0:
        kept.clear()
        write(path, ROWS // 2)
        return
    os.waitpid(child, 0)


class workers(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.bin")

    def empty(self):
        np.zeros((ROWS, 8), np.int64).tofile(self.path)

    def missing(self):
        return int((np.fromfile(self.path, np.int64).reshape(ROWS, 8) != 42).any(1).sum())

    def test_a_process(self):
        for method in METHODS:
            for work, code in ((write, 0), (write_and_exit, 0), (write_and_fail, 1),
                               (write_late, 0), (write_late_alone, 0), (write_in_thread, 0),
                               (write_in_child, 0)):
                with self.subTest(method=method, work=work.__name__):
                    self.empty()
                    worker = multiprocessing.get_context(method).Process(target=work,
                                                                         args=(self.path,))
                    worker.start()
                    worker.join(120)
                    self.assertEqual((worker.exitcode, self.missing()), (code, 0))

    def test_a_pool_that_is_closed(self):
        """Each worker with a task of its own, and the last with the end of the pool."""
        for method in METHODS:
            with self.subTest(method=method):
                self.empty()
                pool = multiprocessing.get_context(method).Pool(1, maxtasksperchild=2)
                parts = [(self.path, at, at + ROWS // 8) for at in range(0, ROWS, ROWS // 8)]
                self.assertGreater(len(set(pool.starmap(write, parts[:7], chunksize=1))), 1)
                pool.starmap(write, parts[7:])
                pool.close()
                pool.join()
                self.assertEqual(self.missing(), 0)

    def test_an_executor(self):
        for method in METHODS:
            with self.subTest(method=method):
                self.empty()
                context = multiprocessing.get_context(method)
                with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as executor:
                    executor.submit(write, self.path).result()
                self.assertEqual(self.missing(), 0)


if __name__ == "__main__":
    unittest.main()
