#!/usr/bin/env python3
"""cupy, numba and jax on a GPU: rows come back as their arrays, and regions are theirs without a
copy, freed in any order. What is not installed is left out and said."""
import concurrent.futures
import ctypes
import gc
import os
import sys
import threading
import unittest

import common

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # jax would take most of the memory
common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402


def found(name):
    try:
        return __import__(name)
    except ImportError:
        return None


cupy, numba, jax, torch = (found(name) for name in ("cupy", "numba", "jax", "torch"))


class libcuda:
    """The driver, for what no framework tells."""

    calls = None

    @classmethod
    def ask(cls, name, kind, *arguments):
        cls.calls = cls.calls or ctypes.CDLL("libcuda.so.1")
        out = kind()
        code = getattr(cls.calls, name)(ctypes.byref(out), *arguments)
        if code != 0:
            raise OSError(f"{name}: {code}")
        return out.value

    @classmethod
    def gpus(cls):
        return cls.ask("cuDeviceGetCount", ctypes.c_int)


def in_a_thread(call):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(timeout=60)


class frameworks(common.Case):
    def setUp(self):
        super().setUp()
        self.rt = self.runtime(device="gpu", cache="64MiB", writable=True)
        self.content = np.arange(2000 * 16, dtype=np.float32).reshape(2000, 16)
        self.path = self.folder / "rows.npy"
        np.save(self.path, self.content)
        self.array = ps.open_array(self.path, runtime=self.rt)
        self.numbers = np.array([7, 0, 1999, 7], np.int64)

    def region(self):
        return ps.open_region(self.path, "r+", runtime=self.rt)

    @unittest.skipUnless(cupy, "cupy is not installed")
    def test_cupy(self):
        ids = cupy.asarray(self.numbers)
        got = self.array.gather(ids)
        self.assertIsInstance(got, cupy.ndarray)
        self.assertEqual(got.get().tobytes(), self.content[self.numbers].tobytes())
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            inside = self.array.gather(ids)
        beside = self.array.gather(ids, out=cupy.empty((4, 16), np.float32), stream=stream)
        stream.synchronize()
        for rows in (inside, beside):
            self.assertEqual(rows.get().tobytes(), self.content[self.numbers].tobytes())
        region = self.region()
        for made in (cupy.asarray(region), cupy.from_dlpack(region)):
            self.assertEqual(made.data.ptr, region.address)
            self.assertEqual(made.get().tobytes(), self.content.tobytes())

    @unittest.skipUnless(cupy, "cupy is not installed")
    def test_a_cache_in_an_array_of_cupy(self):
        memory = cupy.zeros(8 << 20, cupy.uint8)
        cupy.cuda.Device().synchronize()
        with ps.Runtime(cache_memory=memory, page="4KiB", log=None) as rt, \
                ps.open_array(self.path, runtime=rt) as array:
            ids = cupy.asarray(self.numbers)
            array.prefetch(ids)
            self.assertEqual(array.gather(ids).get().tobytes(),
                             self.content[self.numbers].tobytes())
            cupy.cuda.Device().synchronize()
            array.check()
        self.assertTrue(bool(memory.any()))

    @unittest.skipUnless(numba, "numba is not installed")
    def test_numba(self):
        from numba import cuda

        ids = cuda.to_device(self.numbers)
        got = self.array.gather(ids)
        self.assertEqual(got.copy_to_host().tobytes(), self.content[self.numbers].tobytes())
        stream = cuda.stream()
        out = cuda.device_array((4, 16), np.float32)
        self.array.gather(ids, out=out, stream=stream)
        stream.synchronize()
        self.assertEqual(out.copy_to_host().tobytes(), self.content[self.numbers].tobytes())
        region = self.region()
        made = cuda.as_cuda_array(region)
        self.assertEqual(made.__cuda_array_interface__["data"][0], region.address)
        self.assertEqual(made.copy_to_host().tobytes(), self.content.tobytes())

    @unittest.skipUnless(jax, "jax is not installed")
    def test_jax(self):
        import jax.numpy as jnp

        if jax.default_backend() != "gpu":
            self.skipTest("jax uses no GPU")
        got = self.array.gather(jnp.asarray(self.numbers.astype(np.int32)))
        self.assertIsInstance(got, jax.Array)
        self.assertEqual(np.asarray(got).tobytes(), self.content[self.numbers].tobytes())
        region = self.region()
        made = jax.dlpack.from_dlpack(region)
        self.assertEqual(made.unsafe_buffer_pointer(), region.address)
        self.assertEqual(np.asarray(made).tobytes(), self.content.tobytes())

    def same(self, rows, numbers=None):
        """Rows of the array, of numpy, are those of the file."""
        numbers = self.numbers if numbers is None else numbers
        self.assertEqual(np.asarray(rows).tobytes(), self.content[numbers].tobytes())

    @unittest.skipUnless(jax, "jax is not installed")
    def test_values_of_jax(self):
        import jax.numpy as jnp

        if jax.default_backend() != "gpu":
            self.skipTest("jax uses no GPU")
        array = ps.open_array(self.path, mode="r+", runtime=self.rt)
        ids = jnp.arange(2000, dtype=jnp.int32)

        @jax.jit
        def late(x, rows):
            for _ in range(12):
                x = x @ x / x.shape[0]
            return x[0, 0] * rows

        start = jnp.ones((4096, 4096), jnp.float32)
        late(start, jnp.asarray(self.content)).block_until_ready()  # compiled
        for number in range(20):
            wanted = self.content + np.float32(number)
            array.scatter(ids, late(start, jnp.asarray(wanted)))
            # What had the values goes to other arrays, which are written at once.
            kept = [jnp.full((2000, 16), -1, jnp.float32) for _ in range(8)]
            self.assertEqual(np.asarray(array.gather(ids)).tobytes(), wanted.tobytes())
            del kept
        for name in ("prefetch", "will_need"):
            getattr(array, name)(jnp.arange(2000, dtype=jnp.int32))

    @unittest.skipUnless(jax, "jax is not installed")
    def test_layouts_of_jax(self):
        import jax.numpy as jnp

        if jax.default_backend() != "gpu":
            self.skipTest("jax uses no GPU")
        try:
            from jax.experimental.layout import Format, Layout
        except ImportError:
            self.skipTest("this jax has no layouts")
        where = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        columns = Format(Layout(major_to_minor=(1, 0)), where)
        array = ps.open_array(self.path, mode="r+", runtime=self.rt)
        numbers = np.arange(2000, dtype=np.int32)
        array.scatter(jnp.asarray(numbers), jax.device_put(-self.content, columns))
        self.content = -self.content
        self.same(array.gather(jnp.asarray(numbers)), numbers)
        numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
        self.same(array.gather(jax.device_put(numbers, columns)), numbers)
        out = jnp.zeros((4, 16), jnp.float32)
        with self.assertRaisesRegex(ValueError, "cannot be written"):
            array.gather(jnp.asarray(self.numbers.astype(np.int32)), out=out)
        self.assertFalse(bool(out.any()))

    @unittest.skipUnless(torch and torch.cuda.is_available(), "torch finds no GPU")
    def test_host_numbers_come_after_the_default_stream(self):
        array = ps.open_array(self.path, mode="r+", runtime=self.rt)
        ids = torch.arange(2000, device="cuda")
        for number in range(8):
            values = torch.full((2000, 16), float(number), device="cuda")
            torch.cuda._sleep(20_000_000)
            array.scatter(ids, values)
            self.assertEqual(array[5].tolist(), [number] * 16)
            self.assertTrue((array.gather([1, 1999]) == number).all())

    @unittest.skipUnless(cupy, "cupy is not installed")
    def test_host_numbers_beside_a_capture(self):
        memory = cupy.zeros(64, cupy.float32)
        for kind in ({"non_blocking": True}, {}):
            stream = cupy.cuda.Stream(**kind)
            memory += 1  # compiled, and all is there that a capture may not make
            cupy.cuda.Device().synchronize()
            with stream:
                stream.begin_capture(cupy.cuda.runtime.streamCaptureModeGlobal)
                memory += 1
                row = in_a_thread(lambda: self.array[7])
                graph = stream.end_capture()
                graph.launch(stream)
            stream.synchronize()
            self.same(row, 7)
        self.assertEqual(float(memory[0]), 4.0)

    def test_a_thread_keeps_its_context(self):
        def current():
            return libcuda.ask("cuCtxGetCurrent", ctypes.c_void_p)

        def work():
            before = current()
            self.same(self.array[7], 7)
            self.array.prefetch([1, 2])
            return before, current()

        self.assertEqual(in_a_thread(work), (None, None))

    def test_a_gpu_that_is_not_used_gets_no_context(self):
        if libcuda.gpus() < 2:
            self.skipTest("needs two GPUs")
        done = self.child("import ctypes, sys, threading, penstock as ps\n"
                          "rt = ps.Runtime(1, cache='64MiB', log=None)\n"
                          "t = ps.open_array(sys.argv[1], runtime=rt)\n"
                          "beside = threading.Thread(target=lambda: t[7])\n"
                          "beside.start()\n"
                          "beside.join()\n"
                          "flags, active = ctypes.c_uint(), ctypes.c_int()\n"
                          "ctypes.CDLL('libcuda.so.1').cuDevicePrimaryCtxGetState(\n"
                          "    0, ctypes.byref(flags), ctypes.byref(active))\n"
                          "print(active.value)\n", str(self.path))
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "0"), done.stderr)

    def test_the_second_gpu_while_the_first_is_current(self):
        if libcuda.gpus() < 2:
            self.skipTest("needs two GPUs")
        rt = self.runtime(device=[0, 1], cache="64MiB", writable=True)
        array = ps.open_array(self.path, mode="r+", runtime=rt)
        if numba:
            from numba import cuda

            with cuda.gpus[1]:
                ids, out = cuda.to_device(self.numbers), cuda.device_array((4, 16), np.float32)
                cuda.synchronize()
            array.gather(ids, out=out)
            got = array.gather(ids)
            address = out.__cuda_array_interface__["data"][0]
            self.assertEqual(in_a_thread(lambda: ps._core.gpu_of_memory(address)), 1)
            with cuda.gpus[1]:
                cuda.synchronize()
                self.same(out.copy_to_host())
                self.same(got.copy_to_host())
        if cupy:
            with cupy.cuda.Device(1):
                ids = cupy.asarray(self.numbers)
                stream = cupy.cuda.Stream(non_blocking=True)
                cupy.cuda.Device().synchronize()
            for got in (array.gather(ids), array.gather(ids, stream=stream)):
                self.assertEqual(got.device.id, 1)
                with cupy.cuda.Device(1):
                    cupy.cuda.Device().synchronize()
                    self.same(got.get())
            self.assertEqual(cupy.cuda.runtime.getDevice(), 0)
        if jax and jax.default_backend() == "gpu" and len(jax.devices()) > 1:
            # jax leaves its GPU current for the thread.
            in_a_thread(lambda: self.on_the_second_gpu_of_jax(array))

    def on_the_second_gpu_of_jax(self, array):
        second = jax.devices()[1]
        ids = jax.device_put(self.numbers.astype(np.int32), second)
        got = array.gather(ids)
        self.assertEqual(got.devices(), {second})
        self.same(got)
        array.scatter(ids, jax.device_put(self.content[self.numbers] + 1, second))
        self.content[self.numbers] += 1
        self.same(array.gather(ids))

    @unittest.skipUnless(torch and cupy, "torch or cupy is not installed")
    def test_uses_end_in_any_order(self):
        for order in range(3):
            region = self.region()
            uses = [torch.from_dlpack(region), cupy.from_dlpack(region), cupy.asarray(region)]
            if order == 0:
                region.close()
            kept = uses.pop(order)
            uses.clear()
            region = None if order == 1 else region
            gc.collect()
            host = kept.cpu().numpy() if order == 0 else kept.get()
            self.assertEqual(host.tobytes(), self.content.tobytes())
            box = [kept]
            del kept
            ended = threading.Thread(target=box.clear)
            ended.start()
            ended.join()

    def test_the_end_of_the_process(self):
        for name, code in (("torch", "torch.from_dlpack(w)"), ("cupy", "cupy.from_dlpack(w)"),
                           ("jax", "jax.dlpack.from_dlpack(w)")):
            if not found(name):
                continue
            done = self.child(f"import sys, penstock as ps, {name}\n"
                              "rt = ps.Runtime('gpu', cache='64MiB', log=None)\n"
                              "w = ps.open_region(sys.argv[1], runtime=rt)\n"
                              f"x = {code}\n", str(self.path))
            with self.subTest(name=name):
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    if not (found("torch") and torch.cuda.is_available()) and not cupy and not numba:
        print("skipped: no framework here finds a GPU")
        sys.exit(common.SKIPPED)
    unittest.main()
