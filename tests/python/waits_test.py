#!/usr/bin/env python3
"""What calls with arrays of jax, cupy and numba on a GPU do beside the call itself: on which GPU
they are, and what is waited for. Libraries that are played by a few lines each, as in
streams_test.py."""
import contextlib
import sys
import types
import unittest
from unittest import mock

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
import streams_test  # noqa: E402
from penstock import _core, _frameworks  # noqa: E402

GPU = 3  # of the arrays, at place 1 of the runtime; the thread's current one is 0


class on_gpu:
    """An array with the interface of CUDA arrays."""

    def __init__(self, shape, typestr, address=1 << 20):
        self.shape, self.typestr, self.address = tuple(shape), typestr, address
        self.dtype = np.dtype(typestr)

    @property
    def __cuda_array_interface__(self):
        return {"shape": self.shape, "typestr": self.typestr, "version": 3,
                "data": (self.address, False), "strides": None}


class jax_array(on_gpu):
    def __init__(self, shape, typestr, address=1 << 20, order=None):
        super().__init__(shape, typestr, address)
        self.order, self.is_ready = order, False

    @property
    def format(self):
        order = range(len(self.shape)) if self.order is None else self.order
        return types.SimpleNamespace(
            layout=types.SimpleNamespace(major_to_minor=tuple(order)))

    def block_until_ready(self):
        self.is_ready = True
        return self

    def __dlpack_device__(self):
        return 2, GPU

    def unsafe_buffer_pointer(self):
        assert self.is_ready
        return self.address

    def devices(self):
        return {GPU}


def jax_module():
    made = types.ModuleType("jax")
    made.Array = jax_array
    made.device_put = lambda array, device: jax_array(array.shape, array.dtype.str, 1 << 22)
    made.numpy = types.SimpleNamespace(
        copy=lambda array: jax_array(array.shape, array.typestr, 1 << 23))
    return made


class current:
    """The GPU of cupy and numba that a thread uses, and its stream."""

    device, stream = 0, None

    @classmethod
    @contextlib.contextmanager
    def use(cls, **changes):
        before = cls.device, cls.stream
        for name, value in changes.items():
            setattr(cls, name, value)
        yield
        cls.device, cls.stream = before


class cupy_array(on_gpu):
    device = types.SimpleNamespace(id=GPU)

    def __dlpack_device__(self):
        return 2, GPU


def made(kind):
    def make(shape, dtype):
        out = kind(shape, np.dtype(dtype).str, 1 << 22)
        out.made_on = current.device, current.stream
        return out

    return make


def cupy_module():
    module = types.ModuleType("cupy")
    module.ndarray, module.empty = cupy_array, made(cupy_array)
    module.cuda = types.SimpleNamespace(
        Device=lambda number: current.use(device=number),
        ExternalStream=lambda stream: current.use(stream=stream),
        get_current_stream=lambda: types.SimpleNamespace(ptr=70 + current.device))
    return module


numba_array = type("numba_array", (on_gpu,), {"__module__": "numba.cuda.played"})


class gpus:
    def __getitem__(self, number):
        return current.use(device=number)


def numba_module():
    module = types.ModuleType("numba")
    module.cuda = types.SimpleNamespace(gpus=gpus(), device_array=made(numba_array))
    return module


class played(common.Case):
    def setUp(self):
        super().setUp()
        modules = {"jax": jax_module(), "cupy": cupy_module(), "numba": numba_module(),
                   "torch": streams_test.torch}
        for patch in (mock.patch.dict(sys.modules, modules),
                      mock.patch.dict(_frameworks._known, clear=True),
                      mock.patch.object(_core, "gpu_of_memory", lambda address: GPU)):
            patch.start()
            self.addCleanup(patch.stop)
        path = self.folder / "rows.bin"
        path.write_bytes(bytes(6400))
        self.array = ps.open_array(path, dtype="float32", shape=(-1, 16), mode="r+",
                                   runtime=self.runtime(writable=True))
        self.array._core.close()
        self.array._core = self.core = streams_test.recorder()
        self.array._on_gpu, self.array._places = True, {0: 0, GPU: 1}

    def test_every_call_with_an_array_of_jax_waits_on_its_gpu(self):
        ids = jax_array((5,), "<i4")
        calls = [lambda: self.array.gather(ids),
                 lambda: self.array.gather(ids, stream=90),
                 lambda: self.array.gather(ids, out=cupy_array((5, 16), "<f4")),
                 lambda: self.array.scatter(ids, jax_array((5, 16), "<f4")),
                 lambda: self.array.scatter(ids, cupy_array((5, 16), "<f4")),
                 lambda: self.array.scatter(cupy_array((5,), "<i8"), jax_array((5, 16), "<f4")),
                 lambda: self.array.prefetch(ids),
                 lambda: self.array.will_need(ids)]
        for call in calls:
            call()
            self.assertEqual(self.core.calls[-1][-1], 1)
        self.assertEqual(self.core.waits, [True] * len(calls))
        streams = [of[5] if len(of) == 8 else of[3] for of in self.core.calls]
        self.assertEqual(streams, [0, 90, 0, 0, 0, 70 + GPU, 0, 0])
        self.assertTrue(ids.is_ready)
        self.array.scatter(cupy_array((5,), "<i8"), cupy_array((5, 16), "<f4"))
        self.array.prefetch(cupy_array((5,), "<i8"))
        self.assertEqual(self.core.waits[len(calls):], [False, False])

    def test_values_of_jax_are_ready_and_in_rows(self):
        values = jax_array((5, 16), "<f4", 1 << 21)
        self.array.scatter(cupy_array((5,), "<i8"), values)
        self.assertTrue(values.is_ready)
        self.assertEqual(self.core.calls[-1][3:5], (1 << 21, 0))
        self.array.scatter(cupy_array((5,), "<i8"), jax_array((5, 16), "<f4", order=(1, 0)))
        self.assertEqual(self.core.calls[-1][3:5], (1 << 23, 0))
        self.array.prefetch(jax_array((5, 3), "<i4", order=(1, 0)), stream=90)
        self.assertEqual(self.core.calls[-1][0], 1 << 23)

    def test_no_array_of_jax_is_written(self):
        for ids in (jax_array((5,), "<i4"), cupy_array((5,), "<i8")):
            with self.assertRaisesRegex(ValueError, "out: an array of jax cannot be written"):
                self.array.gather(ids, out=jax_array((5, 16), "<f4"))
        self.assertEqual(self.core.calls, [])

    def test_rows_of_cupy_are_made_where_the_numbers_lie(self):
        out = self.array.gather(cupy_array((5,), "<i8"))
        self.assertEqual(self.core.calls[-1][5:], (70 + GPU, None, 1))
        self.assertEqual(out.made_on, (GPU, None))
        out = self.array.gather(cupy_array((5,), "<i8"), stream=90)
        self.assertEqual(self.core.calls[-1][5:], (90, None, 1))
        self.assertEqual(out.made_on, (GPU, 90))
        self.assertEqual((current.device, current.stream), (0, None))

    def test_the_driver_tells_where_arrays_of_numba_lie(self):
        out = self.array.gather(numba_array((5,), "<i8"))
        self.assertEqual(self.core.calls[-1][5:], (0, None, 1))
        self.assertEqual(out.made_on, (GPU, None))
        self.array.scatter(on_gpu((5,), "<i8"), on_gpu((5, 16), "<f4"))
        self.assertEqual(self.core.calls[-1][-1], 1)

    def test_a_cache_lies_on_the_gpu_of_its_memory(self):
        memory = on_gpu((1 << 20,), "|u1", 1 << 22)
        self.assertEqual(ps._cache_memory.memory_of(memory, None).device, GPU)
        with mock.patch.object(_core, "gpu_of_memory", lambda address: -1):
            self.assertEqual(ps._cache_memory.memory_of(memory, None).device, 0)


if __name__ == "__main__":
    unittest.main()
