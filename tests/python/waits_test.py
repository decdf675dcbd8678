#!/usr/bin/env python3
"""What calls with arrays of jax on a GPU wait for, and that none is written. Libraries that are
played by a few lines each, as in streams_test.py."""
import sys
import types
import unittest
from unittest import mock

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
import streams_test  # noqa: E402
from penstock import _frameworks  # noqa: E402

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


class cupy_array(on_gpu):
    def __dlpack_device__(self):
        return 2, GPU


def cupy_module():
    module = types.ModuleType("cupy")
    module.ndarray, module.empty = cupy_array, None
    module.cuda = types.SimpleNamespace(
        ExternalStream=None, get_current_stream=lambda: types.SimpleNamespace(ptr=70))
    return module


class played(common.Case):
    def setUp(self):
        super().setUp()
        modules = {"jax": jax_module(), "cupy": cupy_module()}
        for patch in (mock.patch.dict(sys.modules, modules),
                      mock.patch.dict(_frameworks._known, clear=True)):
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
        self.assertEqual(streams, [0, 90, 0, 0, 0, 70, 0, 0])
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


if __name__ == "__main__":
    unittest.main()
