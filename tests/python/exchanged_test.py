#!/usr/bin/env python3
"""Arrays that tell of themselves through DLPack's table of functions: what the core takes from
them, and what it leaves to the way by Python. Arrays of numpy in a coat with such a table."""
import ctypes
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _frameworks  # noqa: E402
from penstock._dlpack import _Tensor as tensor  # noqa: E402

KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
HOST, CUDA = 1, 2


class table(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("older", ctypes.c_void_p), ("unused", ctypes.c_void_p * 3),
                ("tell", ctypes.c_void_p), ("current_stream", ctypes.c_void_p)]


class coat:
    """An array of numpy, as its table tells of it; the offset of its first byte apart."""

    def __init__(self, array, where=HOST, fails=False, offset=0):
        self.array, self.where, self.fails, self.offset = array, where, fails, offset
        size = max(array.ndim, 1)
        self.extents = (ctypes.c_int64 * size)(*array.shape)
        steps = [step // array.itemsize for step in array.strides]
        self.steps = (ctypes.c_int64 * size)(*steps)

    @property
    def dtype(self):
        return self.array.dtype

    @property
    def shape(self):
        return self.array.shape


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(tensor))
def tell(of, out):
    if of.fails:
        return -1
    array = of.array
    out[0] = tensor(array.ctypes.data - of.offset, of.where, 0, array.ndim, KINDS[array.dtype.kind],
                    8 * array.itemsize, 1, of.extents, of.steps, of.offset)
    return 0


def capsule_of(made, name=b"dlpack_exchange_api"):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(made), name, None)


address = ctypes.cast(tell, ctypes.c_void_p)
known = table(1, 3, None, (ctypes.c_void_p * 3)(), address, None)
newer = table(2, 0, ctypes.addressof(known), (ctypes.c_void_p * 3)(), None, None)
unknown = table(2, 0, None, (ctypes.c_void_p * 3)(), address, None)
silent = table(1, 3, None, (ctypes.c_void_p * 3)(), None, None)
coat.__dlpack_c_exchange_api__ = capsule_of(known)


class with_newer(coat):
    __dlpack_c_exchange_api__ = capsule_of(newer)


class with_unknown(coat):
    __dlpack_c_exchange_api__ = capsule_of(unknown)


class with_silent(coat):
    __dlpack_c_exchange_api__ = capsule_of(silent)


class with_other_capsule(coat):
    __dlpack_c_exchange_api__ = capsule_of(known, b"another")


class with_no_capsule(coat):
    __dlpack_c_exchange_api__ = 17


class arrays_that_tell(common.Case):
    def setUp(self):
        super().setUp()
        path = self.folder / "rows.bin"
        self.expected = np.arange(600, dtype=np.float32).reshape(100, 2, 3)
        self.expected.tofile(path)
        self.rt = self.runtime(writable=True)
        self.table = ps.open_array(path, dtype="float32", shape=(-1, 2, 3), mode="r+",
                                   runtime=self.rt)

    def gather(self, ids, out, pad=None):
        return self.table._core.gather_arrays(ids, out, pad)

    def test_every_type_of_numbers_and_every_shape(self):
        for dtype in (np.int32, np.int64, np.uint32, np.uint64):
            for shape in ((), (1,), (7,), (3, 1, 5), (0,), (2, 0)):
                with self.subTest(dtype=dtype, shape=shape):
                    ids = np.random.default_rng(self.seed).integers(0, 100, shape).astype(dtype)
                    ids = np.asarray(ids)
                    out = np.full((*shape, 2, 3), -1, np.float32)
                    self.assertTrue(self.gather(coat(ids), coat(out, offset=8)))
                    np.testing.assert_array_equal(out, self.expected[ids])

    def test_tables_of_newer_versions_lead_to_the_known_one(self):
        out = np.zeros((2, 2, 3), np.float32)
        ids = np.array([5, 99])
        self.assertTrue(self.gather(with_newer(ids), with_newer(out)))
        np.testing.assert_array_equal(out, self.expected[[5, 99]])

    def test_padding_and_numbers_of_no_row(self):
        out = np.full((3, 2, 3), -1, np.float32)
        self.assertTrue(self.gather(coat(np.array([4, -7, 6])), coat(out), -7))
        np.testing.assert_array_equal(out[1], 0)
        with self.assertRaisesRegex(IndexError, "100"):
            self.gather(coat(np.array([4, 100, 6])), coat(out))

    def test_what_is_unusual_is_left_to_python_and_nothing_is_written(self):
        ids = np.arange(8)
        out = np.full((8, 2, 3), -1, np.float32)
        fine = coat(out)
        wide = np.full((8, 2, 6), -1, np.float32)
        for text, numbers, rows in (
                ("no table", ids, out), ("no table of rows", coat(ids), out),
                ("another major version", with_unknown(ids), fine),
                ("no function", with_silent(ids), fine),
                ("another capsule", with_other_capsule(ids), fine),
                ("no capsule", with_no_capsule(ids), fine),
                ("numbers that do not tell", coat(ids, fails=True), fine),
                ("rows that do not tell", coat(ids), coat(out, fails=True)),
                ("numbers apart", coat(np.arange(16)[::2]), fine),
                ("rows apart", coat(ids), coat(wide[:, :, ::2])),
                ("numbers of 16 bits", coat(ids.astype(np.int16)), fine),
                ("numbers with a point", coat(ids.astype(np.float64)), fine),
                ("other elements", coat(ids), coat(out.view(np.int32))),
                ("another count", coat(ids[:7]), fine),
                ("another row", coat(ids), coat(out.reshape(8, 3, 2))),
                ("a dimension more", coat(ids.reshape(8, 1)), fine),
                ("memory of a GPU", coat(ids, CUDA), coat(out, CUDA)),
                ("rows of a GPU", coat(ids), coat(out, CUDA))):
            with self.subTest(text):
                self.assertFalse(self.gather(numbers, rows))
                self.assertTrue((out == -1).all() and (wide == -1).all())

    def test_rows_are_written(self):
        rows = np.full((2, 2, 3), 7, np.float32)
        self.assertTrue(self.table._core.scatter_arrays(coat(np.array([3, 5])), coat(rows), None))
        np.testing.assert_array_equal(self.table.gather([3, 5, 6])[:, 0, 0], [7, 7, 36])
        self.assertFalse(self.table._core.scatter_arrays(coat(np.array([3])), coat(rows), None))

    def test_a_closed_array_says_so(self):
        self.table.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            self.gather(coat(np.array([1])), coat(np.zeros((1, 2, 3), np.float32)))

    def test_gather_asks_the_core_first_where_the_framework_tells(self):
        class framework(_frameworks.Numpy):
            tells = True

            def __init__(self):
                super().__init__()
                self.types = {np.dtype(np.int64): 1}

            def empty(self, shape, dtype, ids):
                return coat(np.empty(shape, dtype))

        _frameworks._known[coat] = framework()
        self.addCleanup(_frameworks._known.pop, coat)
        ids = np.array([[8, 9], [99, 0]])
        made = self.table.gather(coat(ids))
        np.testing.assert_array_equal(made.array, self.expected[ids])
        out = coat(np.zeros((2, 2, 2, 3), np.float32))
        self.assertIs(self.table.gather(coat(ids), out=out), out)
        np.testing.assert_array_equal(out.array, self.expected[ids])
        self.table.scatter(coat(ids), coat(2 * out.array))
        np.testing.assert_array_equal(self.table.gather(coat(ids)).array, 2 * self.expected[ids])


class either:
    """An array that lies on the host or on a GPU, as those of Warp, of Paddle and a Region: on the
    host it has no interface of CUDA's."""

    def __init__(self, array, on_gpu):
        self.array, self.on_gpu = array, on_gpu

    @property
    def __cuda_array_interface__(self):
        if not self.on_gpu:
            raise AttributeError("it lies on the host")
        return {"shape": self.array.shape, "typestr": self.array.dtype.str, "version": 3,
                "data": (self.array.ctypes.data, False), "strides": None}

    def __array__(self, dtype=None, copy=None):
        if self.on_gpu:
            raise TypeError("it lies on a GPU")
        return self.array


class other(either):
    pass


class places(common.Case):
    def test_an_array_is_looked_at_where_it_lies_whatever_came_first(self):
        rows = np.arange(12.0).reshape(6, 2)
        np.save(self.folder / "rows.npy", rows)
        array = ps.open_array(self.folder / "rows.npy", runtime=self.runtime())
        ids = np.array([4, 1])
        for kind, order in ((either, (True, False)), (other, (False, True))):
            for on_gpu in order * 2:
                given = kind(ids, on_gpu)
                with self.subTest(kind=kind, on_gpu=on_gpu):
                    found = _frameworks.framework_of(given)
                    self.assertIs(type(found),
                                  _frameworks.CudaArray if on_gpu else _frameworks.Numpy)
                    if not on_gpu:
                        np.testing.assert_array_equal(array.gather(given), rows[ids])


if __name__ == "__main__":
    unittest.main()
