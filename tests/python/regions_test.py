#!/usr/bin/env python3
"""Regions on CPU threads: changes in and out, tensors that share the memory, and their ends."""
import contextlib
import ctypes
import fcntl
import gc
import os
import signal
import threading
import time
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402


class regions(common.Case):
    def setUp(self):
        super().setUp()
        self.rt = self.runtime(writable=True)
        self.path = self.folder / "matrix.bin"
        self.content = np.arange(3000 * 5, dtype=np.float32).reshape(3000, 5)
        self.content.tofile(self.path)

    def open(self, mode="r", **options):
        return ps.open_region(self.path, mode, "float32", (-1, 5), runtime=self.rt, **options)

    def test_memory_is_that_of_the_file_and_is_shared(self):
        with self.open() as region:
            self.assertEqual((region.shape, region.dtype, region.nbytes),
                             ((3000, 5), "float32", 60000))
            seen = np.asarray(region)
            self.assertEqual(seen.__array_interface__["data"][0], region.address)
            self.assertFalse(seen.flags.writeable)
            self.assertEqual(seen.tobytes(), self.content.tobytes())
            exchanged = np.from_dlpack(region)
            self.assertEqual(exchanged.__array_interface__["data"][0], region.address)
            self.assertEqual(region.placement[0], "filled")
            self.assertEqual(region.__dlpack_device__(), (1, 0))
            self.assertFalse(hasattr(region, "__cuda_array_interface__"))

    def test_traffic_lets_other_threads_run_while_a_release_waits(self):
        lease = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, lease)
        with self.open("r+") as region:
            np.asarray(region)[7] = 1
            try:
                fcntl.fcntl(lease, fcntl.F_SETSIG, signal.SIGURG)  # which is ignored
                fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except OSError as error:
                self.skipTest(f"no leases here: {error}")
            given_back, before = threading.Event(), []

            def release():
                region.release()
                before.append(given_back.is_set())

            releasing = threading.Thread(target=release)
            releasing.start()
            while fcntl.fcntl(lease, fcntl.F_GETLEASE) == fcntl.F_RDLCK:
                time.sleep(0.001)  # until the release waits for the lease
            asking = threading.Thread(target=region.traffic)
            asking.start()
            time.sleep(0.1)
            given_back.set()
            with contextlib.suppress(OSError):  # it is gone
                fcntl.fcntl(lease, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            releasing.join()
            asking.join()
            self.assertEqual(before, [True])  # else the system took the lease away, after 45 s

    def test_changes_go_out_on_a_clean_exit_and_stay_after_an_exception(self):
        with self.open("r+") as region:
            memory = np.asarray(region)
            with region.acquired() as inside:
                self.assertIs(inside, region)
                memory[7] = 1
            self.assertEqual(np.fromfile(self.path, np.float32)[35:40].tolist(), [1] * 5)
            with self.assertRaisesRegex(RuntimeError, "mine"), region.acquired():
                memory[8] = 2
                raise RuntimeError("mine")
            self.assertEqual(np.fromfile(self.path, np.float32)[40:45].tolist(),
                             self.content[8].tolist())
            self.assertEqual(region.release(), 1)
            self.assertEqual(np.fromfile(self.path, np.float32)[40:45].tolist(), [2] * 5)
            region.sync()
            traffic = region.traffic()
            self.assertEqual(traffic["bytes_written"] > 0, True)

    def test_what_others_write_comes_in(self):
        with self.open() as region:
            with open(self.path, "r+b") as file:
                file.write(np.full(5, 9, np.float32).tobytes())
            region.acquire()
            self.assertEqual(np.asarray(region)[0].tolist(), [9] * 5)

    def test_an_offset_within_a_page_and_npy_headers(self):
        with ps.open_region(self.path, dtype="float32", shape=(10, 5), offset=20,
                            runtime=self.rt) as region:
            self.assertEqual(np.asarray(region).tobytes(), self.content[1:11].tobytes())
            self.assertEqual(np.from_dlpack(region).tobytes(), self.content[1:11].tobytes())
        np.save(self.folder / "m.npy", self.content)
        with ps.open_region(self.folder / "m.npy", runtime=self.rt) as region:
            self.assertEqual(np.asarray(region).tobytes(), self.content.tobytes())

    def test_no_elements_read_no_file(self):
        long = self.folder / "long.bin"
        with open(long, "wb") as file:
            file.truncate(64 << 20)
        for shape in ((0, 8), (8, 0), (0,)):
            for offset in (0, 4096, 4104):
                with self.subTest(shape=shape, offset=offset), \
                        ps.open_region(long, "r+", "uint8", shape, offset,
                                       runtime=self.rt) as region:
                    self.assertEqual((region.shape, region.nbytes), (shape, 0))
                    self.assertEqual(np.asarray(region).shape, shape)
                    self.assertEqual(np.from_dlpack(region).shape, shape)
                    self.assertLessEqual(region.traffic()["pages_fetched"], 1)
        with self.assertRaisesRegex(ValueError, "^shape: .* rows of 0 bytes"):
            ps.open_region(long, "r", "uint8", (-1, 0), runtime=self.rt)

    def test_tensors_outlive_the_region_and_the_runtime(self):
        for share in (np.asarray, np.from_dlpack):
            with self.subTest(share=share):
                rt = common.small_runtime()
                region = ps.open_region(self.path, "r", "float32", (-1, 5), runtime=rt)
                kept = [share(region)]
                region.close()
                region.close()
                self.assertTrue(region.closed)
                with self.assertRaisesRegex(ValueError, "closed"):
                    region.acquire()
                with self.assertRaisesRegex(ValueError, "closed"):
                    np.asarray(region)
                rt.close()
                del region, rt
                gc.collect()
                np.ones(1 << 20).sum()  # memory that was given back would be other's by now
                self.assertEqual(kept[0].tobytes(), self.content.tobytes())
                ended = threading.Thread(target=kept.clear)  # the last use, on another thread
                ended.start()
                ended.join()

    def test_a_tensor_that_outlives_its_region_changes_no_file(self):
        for share in (np.asarray, np.from_dlpack):
            with self.subTest(share=share):
                region = self.open("r+")
                kept = [np.asarray(region)]
                kept[0][3] = 1
                if share is np.from_dlpack:
                    kept.append(share(region))
                region.close()
                kept[0][3] = 2
                kept[0][7] = 2
                del region
                kept.clear()
                gc.collect()
                with self.open() as later:  # after the end of the former, which may be on a thread
                    self.assertEqual(np.asarray(later)[3].tolist(), [1] * 5)
                time.sleep(0.3)
                found = np.fromfile(self.path, np.float32).reshape(3000, 5)
                self.assertEqual(found[3].tolist(), [1] * 5)
                self.assertEqual(found[7].tolist(), self.content[7].tolist())

    def test_a_place_is_free_again_once_the_last_use_has_ended(self):
        """Eight regions of a file have a place; a loop that opens one at a time needs one."""
        for share in (np.asarray, np.from_dlpack):
            with self.subTest(share=share):
                for _ in range(500):
                    region = self.open()
                    seen = share(region)
                    region.close()
                    del seen, region
        with contextlib.ExitStack() as all_open:
            for _ in range(8):
                all_open.enter_context(self.open())
            with self.assertRaisesRegex(OSError, "as many regions share the file as can"):
                self.open()

    def test_capsules(self):
        name_of = ctypes.pythonapi.PyCapsule_GetName
        name_of.argtypes, name_of.restype = [ctypes.py_object], ctypes.c_char_p
        with self.open("r+") as region:
            self.assertEqual(name_of(region.__dlpack__()), b"dltensor")
            self.assertEqual(name_of(region.__dlpack__(max_version=(0, 8))), b"dltensor")
            self.assertEqual(name_of(region.__dlpack__(max_version=(1, 0), stream=-1)),
                             b"dltensor_versioned")
            for wrong in ({"copy": True}, {"dl_device": (2, 0)}):
                with self.assertRaises(BufferError):
                    region.__dlpack__(**wrong)
            unused = [region.__dlpack__() for _ in range(100)]
            del unused  # capsules that no consumer took

    def test_memory_that_may_only_be_read_is_not_handed_out_as_writable(self):
        """By a capsule of before DLPack 1.0, as PyTorch 1.13 takes it."""
        for placement in ("filled", "in_place", "system"):
            with self.subTest(placement), \
                    ps.open_region(self.path, "r", runtime=self.rt, placement=placement) as region:
                for options in ({}, {"max_version": None}, {"max_version": (0, 8)}):
                    with self.assertRaisesRegex(BufferError, r'mode="r\+"'):
                        region.__dlpack__(**options)
                self.assertIsNotNone(region.__dlpack__(max_version=(1, 0)))
                for shared in (np.asarray(region), np.from_dlpack(region)):
                    self.assertFalse(shared.flags.writeable)

    def test_errors_name_the_file(self):
        region = self.open("r+")
        os.truncate(self.path, 100)
        np.asarray(region)[:] = 1
        calls = {"acquire": region.acquire, "release": region.release, "closing": region.close}
        for text, call in calls.items():
            with self.subTest(text), self.assertRaises(OSError) as caught:
                call()
            self.assertEqual(caught.exception.filename, str(self.path))
            self.assertRegex(str(caught.exception), f"{text}.*matrix.bin'$")

    def test_its_path_is_absolute(self):
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(self.folder)
        with ps.open_region("matrix.bin", runtime=self.rt) as region:
            os.chdir(before)
            self.assertEqual(region.path, str(self.path))

    def test_what_is_refused(self):
        for arguments, kind in [
            (("w",), ValueError), (("r", "float99"), ValueError),
            (("r", "float32", (-1, 7)), ValueError), (("r", "float32", (3, -1)), ValueError),
            (("r", "float32", (1 << 40, 5)), ValueError), (("r", "float32", None, -4), ValueError),
        ]:
            with self.subTest(arguments=arguments), self.assertRaises(kind):
                ps.open_region(self.path, *arguments, runtime=self.rt)
        with self.assertRaises(FileNotFoundError):
            ps.open_region(self.folder / "none", runtime=self.rt)
        with self.assertRaises(OSError):
            ps.open_region(self.path, "r+", runtime=self.runtime())
        region = self.open()
        self.assertEqual(region.prefer(slice(0, 4096)), 4096)
        self.rt.close()
        self.assertTrue(region.closed)


if __name__ == "__main__":
    unittest.main()
