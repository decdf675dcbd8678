#!/usr/bin/env python3
"""Many runtimes made and closed in one process leave nothing behind: no descriptor, no thread, no
memory. 100 of them, or 1,000 if PENSTOCK_LONG_TESTS is set. The counts are of this process alone,
so a busy machine changes none of them."""
import ctypes
import gc
import mmap
import os
import sys
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

TURNS = 1000 if os.environ.get("PENSTOCK_LONG_TESTS") else 100
# The first runtimes fill what the C library, Python and the kernel keep for the next.
WARM_UP = 20


class heap_counts(ctypes.Structure):
    """mallinfo2 of the C library."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
        "fordblks", "keepcost")]


def give_back_free_heap():
    """Gives free pages of the heap back to the kernel. The C library keeps those below a block in
    use, and which they are depends on the order in which threads ask: 10 MB more or less."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def heap_bytes():
    """Bytes that malloc gave and did not get back; 0 with a C library that does not count them."""
    count = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if count is None:
        return 0
    count.restype = heap_counts
    counts = count()
    return counts.uordblks + counts.hblkhd


def status_of_process(name):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


def held():
    """What this process holds, by name."""
    gc.collect()
    give_back_free_heap()
    return {"descriptors": len(os.listdir("/proc/self/fd")),
            "threads": status_of_process("Threads"), "heap bytes": heap_bytes(),
            "resident KiB": status_of_process("VmRSS"),
            "blocks of Python": sys.getallocatedblocks()}


# What the same work may differ by from one moment to another: the heap was seen to vary by 6 KB,
# Python's blocks by 150.
ALLOWED = {"descriptors": 0, "threads": 0, "heap bytes": 64 << 10, "resident KiB": 8 << 10,
           "blocks of Python": 1000}


def growth(turn, turns, seconds=300):
    """What more the process holds after so many turns than after the first of them, by name. The
    last use of a tensor ends its region on a thread of its own, for which this waits so long."""
    for i in range(WARM_UP):
        turn(i)
    before = held()
    for i in range(WARM_UP, turns):
        turn(i)
    end = time.monotonic() + seconds
    while True:
        after = held()
        grown = {name: after[name] - before[name] for name in after
                 if after[name] - before[name] > ALLOWED[name]}
        if not grown or time.monotonic() >= end:
            return grown
        time.sleep(0.05)


class many_runtimes(common.Case):
    def setUp(self):
        super().setUp()
        self.path = str(self.folder / "rows.bin")
        self.rows = np.arange(400, dtype=np.int64).reshape(-1, 8)
        self.rows.tofile(self.path)

    def use(self, i):
        """A runtime with an array, a region and a tensor, which end in different orders."""
        rt = common.small_runtime(log=None if i % 4 else "logging", writable=True)
        array = ps.open_array(self.path, dtype="int64", shape=(-1, 8), runtime=rt)
        self.assertEqual(array.gather([i % 50]).tolist(), [self.rows[i % 50].tolist()])
        region = ps.open_region(self.path, "r+", "int64", (-1, 8), runtime=rt)
        shared = np.from_dlpack(region)
        self.assertEqual(shared[7].tolist(), self.rows[7].tolist())
        if i % 2:
            array.close()
            del shared
            region.close()
        rt.close()

    def test_one_after_the_other(self):
        self.assertEqual(growth(self.use, TURNS), {})

    def test_runtimes_that_fail_to_start(self):
        def turn(_):
            with self.assertRaises(ValueError):
                common.small_runtime(cache="64KiB", page="64KiB")
            rt = common.small_runtime()
            with self.assertRaises(FileNotFoundError):
                ps.open_array(self.path + ".none", dtype="int64", runtime=rt)
            with self.assertRaises(FileNotFoundError):
                ps.open_region(self.path + ".none", runtime=rt)
            rt.close()

        self.assertEqual(growth(turn, WARM_UP + TURNS // 5), {})

    def test_at_once(self):
        at_once = [common.small_runtime() for _ in range(20)]
        for rt in at_once:
            rt.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            rt.check()

    def test_canary_a_runtime_that_stays_is_seen(self):
        stays = []
        self.addCleanup(lambda: [rt.close() for rt in stays])
        seen = growth(lambda i: stays.append(common.small_runtime()) if i == WARM_UP else None,
                      WARM_UP + 1, seconds=0)
        self.assertLessEqual({"descriptors", "threads", "heap bytes"}, set(seen))

    def test_canary_memory_that_stays_mapped_is_seen(self):
        stays = []

        def turn(i):
            if i == WARM_UP:
                stays.append(mmap.mmap(-1, 16 << 20))
                stays[0].write(b"x" * len(stays[0]))

        self.addCleanup(lambda: [each.close() for each in stays])
        self.assertEqual({"resident KiB"}, set(growth(turn, WARM_UP + 1, seconds=0)))


if __name__ == "__main__":
    unittest.main()
