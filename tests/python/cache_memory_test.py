#!/usr/bin/env python3
"""A cache in memory of the caller: what may be given, what is refused, and that the memory is held
as long as the runtime uses it and no longer."""
import array as arrays
import gc
import mmap
import sys
import threading
import unittest
import weakref

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _cache_memory  # noqa: E402

PAGE = 4096


class exchanged:
    """An array that offers DLPack alone, of before version 1.0 or of it."""

    def __init__(self, of, versioned=True):
        self.of, self.versioned = of, versioned

    def __dlpack__(self, **arguments):
        if "max_version" in arguments and not self.versioned:
            raise TypeError("max_version")
        return self.of.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self.of.__dlpack_device__()


class held(np.ndarray):
    """numpy's arrays have no weak references without a class."""


class cache_memory(common.Case):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "rows.bin"
        self.rows = np.random.default_rng(self.seed).integers(0, 256, (4000, 64), np.uint8)
        self.rows.tofile(self.path)

    def make(self, memory, **options):
        made = ps.Runtime(cache_memory=memory, **{"page": PAGE, "log": None, "worker_threads": 2,
                                                  **options})
        self.addCleanup(made.close)
        return made

    def reads(self, rt):
        """All rows, twice, in part through the cache, which is smaller."""
        with ps.open_array(self.path, dtype="uint8", shape=(-1, 64), runtime=rt) as array:
            for _ in range(2):
                ids = np.array(self.random.sample(range(4000), 4000))
                array.prefetch(ids[:1000])
                self.assertEqual(array.gather(ids).tobytes(), self.rows[ids].tobytes())

    def test_memory_of_many_kinds_has_the_pages(self):
        kinds = {
            "numpy": lambda: np.zeros(20 * PAGE, np.uint8),
            "numbers": lambda: np.zeros((5, 4, PAGE // 4), np.float32),
            "bytes": lambda: bytearray(20 * PAGE),
            "a list of bytes": lambda: arrays.array("q", bytes(20 * PAGE)),
            "a mapping": lambda: mmap.mmap(-1, 20 * PAGE),
            "a part": lambda: memoryview(bytearray(40 * PAGE))[PAGE + 1:21 * PAGE],
            "DLPack": lambda: exchanged(np.zeros(20 * PAGE, np.uint8)),
            "DLPack of old": lambda: exchanged(np.zeros(20 * PAGE, np.uint8), False),
        }
        for name, make in kinds.items():
            with self.subTest(name=name):
                memory = make()
                rt = self.make(memory)
                self.assertEqual(rt.backend, "cpu")
                self.reads(rt)
                self.assertGreater(ps.stats(rt).evictions, 100)
                rt.close()
                plain = memory.of if isinstance(memory, exchanged) else memory
                pages = np.frombuffer(plain, np.uint8)
                first_rows = self.rows[::PAGE // 64]  # of each page
                found = sum(row.tobytes() in pages.tobytes() for row in first_rows)
                self.assertGreater(found, 5, "the pages lay somewhere else")
                del pages

    def test_no_byte_beside_the_frames_changes(self):
        whole = np.full(64 * PAGE, 0xa5, np.uint8)
        for begin, size in ((0, 30 * PAGE), (1, 30 * PAGE), (255, 8 * PAGE + 255), (777, 100001)):
            with self.subTest(begin=begin, size=size):
                whole[:] = 0xa5
                rt = self.make(whole[begin:begin + size])
                self.reads(rt)
                rt.close()
                self.assertTrue((whole[:begin] == 0xa5).all())
                self.assertTrue((whole[begin + size:] == 0xa5).all())
                self.assertFalse((whole == 0xa5).all(), "a canary: the cache lies there")

    def test_a_part_of_it(self):
        whole = np.full(64 * PAGE, 0xa5, np.uint8)
        rt = self.make(whole, cache="64KiB")
        self.assertEqual(rt.settings()["cache_bytes"], "64 KiB")
        self.reads(rt)
        rt.close()
        self.assertTrue((whole[17 * PAGE:] == 0xa5).all())

    def test_what_is_refused(self):
        memory = np.zeros(20 * PAGE, np.uint8)
        read_only = memory.copy()
        read_only.flags.writeable = False
        for given, options, text in [
            (memory[::2], {}, "contiguous"), (memory.reshape(20, -1)[:, :8], {}, "contiguous"),
            (exchanged(memory[::2]), {}, "contiguous"), (read_only, {}, "cannot be written"),
            (bytes(PAGE * 20), {}, "cannot be written"),
            (exchanged(read_only), {}, "be written|not share"),  # older numpy shares none
            (7, {}, "int is no memory"), ("text", {}, "str is no memory"),
            (object(), {}, "object is no memory"), (np.zeros(0, np.uint8), {}, "8 pages"),
            (np.zeros(100, np.uint8), {}, "8 pages|less than"), (memory[:PAGE], {}, "8 pages"),
            (memory, {"cache": "1MiB"}, "cache wants 1048576"), (memory, {"cache": -1}, "8 pages"),
            (memory, {"cache": "much"}, "cache: 'much'|cache: much"),
            (memory, {"device": "gpu"}, "lies on cpu"), (memory, {"device": "cuda:1"}, "on cpu"),
            (memory, {"device": [0, 1]}, "on cpu"), (memory, {"share": "a"}, "cannot be shared"),
        ]:
            with self.subTest(text=text, given=type(given), options=options), \
                    self.assertRaisesRegex((ValueError, BufferError), text):
                self.make(given, **options)
        self.reads(self.make(memory))

    def test_memory_of_a_gpu_by_its_interface(self):
        """Looked at, and not given to CPU threads, which would not reach it."""
        class on_gpu:
            def __init__(self, strides=None, read_only=False, shape=(20, PAGE)):
                self.__cuda_array_interface__ = {
                    "shape": shape, "typestr": "|u1", "strides": strides, "version": 3,
                    "data": (0x7f0000000100, read_only)}

            def __dlpack_device__(self):
                return 2, 1

        memory = on_gpu()
        found = _cache_memory.memory_of(memory, None)
        self.assertEqual(found, (0x7f0000000100, 20 * PAGE, 1, memory))
        for given, options, text in [
            (memory, {"device": "cpu"}, "lies on cuda:1"), (on_gpu((1, 20)), {}, "contiguous"),
            (on_gpu((2 * PAGE, 1)), {}, "contiguous"), (on_gpu(read_only=True), {}, "be written"),
            (on_gpu(shape=(0,)), {}, "8 pages"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                self.make(given, **options)

    def test_it_is_held_until_the_runtime_ends_and_no_longer(self):
        memory = np.zeros(20 * PAGE, np.uint8).view(held)
        gone = weakref.ref(memory)
        rt = self.make(memory)
        del memory
        gc.collect()
        self.assertIsNotNone(gone())
        self.reads(rt)
        rt.close()
        self.assertIsNone(gone())
        buffer = bytearray(20 * PAGE)
        rt = self.make(buffer)
        with self.assertRaises(BufferError):
            buffer.clear()
        rt.close()
        buffer.clear()

    def test_it_is_held_by_calls_of_other_threads_that_go_on(self):
        for _ in range(10):
            memory = np.zeros(20 * PAGE, np.uint8).view(held)
            gone = weakref.ref(memory)
            rt = self.make(memory)
            del memory
            opened = ps.open_array(self.path, dtype="uint8", shape=(-1, 64), runtime=rt)
            wrong = []

            def read(opened=opened, wrong=wrong):
                try:
                    while True:
                        if opened.gather([5, 3999]).tobytes() != self.rows[[5, 3999]].tobytes():
                            wrong.append("rows")
                except ValueError:
                    pass

            readers = [threading.Thread(target=read) for _ in range(3)]
            for reader in readers:
                reader.start()
            rt.close()
            for reader in readers:
                reader.join()
            self.assertEqual(wrong, [])
            self.assertIsNone(gone())

    def test_a_runtime_that_cannot_be_made_holds_nothing(self):
        memory = np.zeros(20 * PAGE, np.uint8).view(held)
        gone = weakref.ref(memory)
        with self.assertRaises(ValueError):
            self.make(memory, worker_threads=-5)
        with self.assertRaises(ValueError):
            self.make(memory, table_bytes=1 << 60)
        before = sys.getrefcount(memory)
        del memory
        self.assertIsNone(gone(), before)

    def test_what_was_written_reaches_the_file(self):
        memory = bytearray(20 * PAGE)
        rt = self.make(memory, writable=True)
        opened = ps.open_array(self.path, dtype="uint8", shape=(-1, 64), mode="r+", runtime=rt)
        opened.scatter(np.arange(4000), self.rows[::-1].copy())
        rt.close()
        self.assertEqual(self.path.read_bytes(), self.rows[::-1].tobytes())

    def test_ends_of_the_process(self):
        for code in ("", "del rt, m", "rt.close()", "t.gather([1])"):
            done = self.child("""
import sys, numpy as np, penstock as ps
m = np.zeros(1 << 20, np.uint8)
rt = ps.Runtime(cache_memory=m, page="4KiB", log=None)
t = ps.open_array(sys.argv[1], dtype="uint8", shape=(-1, 64), runtime=rt)
""" + code, str(self.path))
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_tensors_of_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        memory = torch.zeros(20 * PAGE, dtype=torch.uint8)
        rt = self.make(memory, device=torch.device("cpu"))
        self.reads(rt)
        rt.close()
        self.assertTrue(memory.any())
        self.reads(self.make(torch.zeros(20, PAGE // 2, dtype=torch.bfloat16)))
        for wrong in (memory[::2], memory.reshape(20, PAGE).T, memory.to_sparse()):
            with self.assertRaisesRegex(ValueError, "contiguous"):
                self.make(wrong)
        with self.assertRaisesRegex(ValueError, "meta"):
            self.make(memory.to("meta"))


if __name__ == "__main__":
    unittest.main()
