#!/usr/bin/env python3
"""Unusual memory, names and elements: each gives the rows of numpy, or an error before a byte is
written."""
import errno
import functools
import os
import re
import types
import unittest
from unittest import mock

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from penstock import _frameworks, _memory  # noqa: E402


class memory_with_gaps(common.Case):
    """Of ids with several dimensions, where the row before is not one distance away."""

    def setUp(self):
        super().setUp()
        self.rt = self.runtime(writable=True)
        self.path = self.folder / "rows.npy"
        self.expected = np.arange(100 * 4, dtype=np.int32).reshape(100, 4)
        np.save(self.path, self.expected)

    def test_rows_at_one_distance_are_filled_and_nothing_beside_them(self):
        rng = np.random.default_rng(self.seed)
        with ps.open_array(self.path, runtime=self.rt) as array:
            for shape, part in [((4, 8), np.s_[:, 2:6]), ((2, 3, 8), np.s_[:, :, 2:6]),
                                ((2, 1, 3, 5), np.s_[:, :, :, 1:]), ((6, 4), np.s_[::2]),
                                ((1, 9, 4), np.s_[:, ::3]), ((9, 1, 4), np.s_[::3, :])]:
                whole = np.full(shape, -1, np.int32)
                out = whole[part]
                ids = rng.integers(0, 100, out.shape[:-1])
                with self.subTest(shape=shape):
                    self.assertIs(array.gather(ids, out=out), out)
                    np.testing.assert_array_equal(out, self.expected[ids])
                    out[...] = -1
                    self.assertTrue((whole == -1).all())

    def test_other_memory_is_refused_and_stays_as_it_is(self):
        whole = np.full((40, 5, 4), -1, np.int32)
        refused = {
            "two distances": (whole[:2, :3], (2, 3)),
            "columns of a batch": (whole[:, 1:3], (40, 2)),
            "backwards": (whole[::-1, 0], (40,)),
            "every other element": (np.full((3, 8), -1, np.int32)[:, ::2], (3,)),
            "turned": (np.full((4, 3), -1, np.int32).T, (3,)),
            "all the same": (np.broadcast_to(np.full(4, -1, np.int32), (3, 4)), (3,)),
            "one row that lies apart": (np.full((1, 8), -1, np.int32)[0, ::2], ()),
        }
        before = self.path.read_bytes()
        with ps.open_array(self.path, mode="r+", runtime=self.rt) as array:
            for name, (memory, shape) in refused.items():
                ids = np.zeros(shape, np.int64)
                with self.subTest(name):
                    with self.assertRaisesRegex(ValueError, "^(out: its rows|out: it cannot be)"):
                        array.gather(ids, out=memory)
                    self.assertTrue((memory == -1).all())
                    with self.assertRaisesRegex(ValueError, "^values: its rows"):
                        array.scatter(ids, memory)
            array.sync()
        self.assertTrue((whole == -1).all())
        self.assertEqual(self.path.read_bytes(), before)

    def test_memory_of_other_elements_is_refused_by_the_core(self):
        """Whatever the look of Python's side missed: it would end before the rows."""
        ids, out = np.array([1, 2]), np.full((2, 4), -1, np.int32)
        with ps.open_array(self.path, mode="r+", runtime=self.rt) as array:
            for item_bytes in (1, 2, 8):
                for verb in (array._core.gather, array._core.scatter):
                    with self.assertRaisesRegex(ValueError, "the memory for rows has elements"):
                        verb(ids.ctypes.data, 1, 2, out.ctypes.data, item_bytes, 0, 0, None, -1,
                             False)
            array.sync()
        self.assertTrue((out == -1).all())
        np.testing.assert_array_equal(np.load(self.path), self.expected)

    def test_rows_that_go_where_the_numbers_lie(self):
        """As in numpy: the numbers are those from before the call."""
        path, table = self.folder / "numbers.npy", np.arange(5000, dtype=np.int64)[::-1].copy()
        np.save(path, table)
        rng = np.random.default_rng(self.seed)
        with ps.open_array(path, runtime=self.rt) as array:
            for begin in (0, 1, 7, 500, 999):
                memory = rng.integers(0, 5000, 3000)
                ids, out = memory[1000:2000], memory[1000 - begin:2000 - begin]
                for ids, out in ((ids, out), (out, ids)):
                    expected = table[ids]
                    self.assertIs(array.gather(ids, out=out), out)
                    np.testing.assert_array_equal(out, expected)
        path, table = self.folder / "wide.npy", rng.integers(0, 90, (90, 4))
        np.save(path, table)
        with ps.open_array(path, mode="r+", runtime=self.rt) as array:
            memory = rng.integers(0, 90, (20, 4))
            ids = memory[10:12, :].reshape(8)
            expected = table[ids]
            np.testing.assert_array_equal(array.gather(ids, out=memory[4:12]), expected)
            memory = rng.integers(0, 90, (20, 4))  # a scatter only reads both
            ids = rng.permutation(90)[:8]
            memory[10:12] = ids.reshape(2, 4)
            array.scatter(memory[10:12].reshape(8), memory[4:12])
            np.testing.assert_array_equal(array.gather(ids), memory[4:12])

    def test_numbers_at_odd_addresses(self):
        ids = np.frombuffer(bytes(3) + np.array([7, 5, 99]).tobytes(), np.int64, offset=3)
        self.assertFalse(ids.flags.aligned)
        with ps.open_array(self.path, runtime=self.rt) as array:
            np.testing.assert_array_equal(array.gather(ids), self.expected[[7, 5, 99]])

    def test_large_numbers_are_named_as_they_are(self):
        with ps.open_array(self.path, mode="r+", runtime=self.rt) as array:
            for number, kind in (((1 << 64) - 1, np.uint64), ((1 << 63) + 5, np.uint64),
                                 ((1 << 32) - 1, np.uint32), (-1, np.int64), (-5, np.int32)):
                ids = np.array([3, number], kind)
                for call in (lambda: array.gather(ids), lambda: array.prefetch(ids),
                             lambda: array.scatter(ids, self.expected[:2])):
                    with self.assertRaisesRegex(IndexError, f"^number {number} at place 1 "):
                        call()

    def test_padding_of_every_type(self):
        with ps.open_array(self.path, runtime=self.rt) as array:
            most = (1 << 64) - 1
            got = array.gather(np.array([3, most], np.uint64), pad=most)
            np.testing.assert_array_equal(got, [self.expected[3], [0] * 4])
            self.assertTrue((array.gather(np.array([3]), pad=np.int8(3)) == 0).all())
            for wrong in (most, 1 << 64, -(1 << 63) - 1):
                with self.assertRaisesRegex(ValueError, "^pad: "):
                    array.gather(np.array([3]), pad=wrong)
            with self.assertRaises(TypeError):
                array.gather(np.array([3]), pad=1.5)

    def test_advice_is_of_rows_that_follow_each_other(self):
        with ps.open_array(self.path, runtime=self.rt) as array:
            array.advise("willneed", slice(10, 20))
            array.advise("willneed", slice(20, 10))
            for wrong in (slice(None, None, -1), slice(0, 10, 2)):
                with self.assertRaisesRegex(ValueError, "^part: "):
                    array.advise("willneed", wrong)


class names_of_files(common.Case):
    """In two folders files of the same names, of which one is the working directory."""

    def setUp(self):
        super().setUp()
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        for number, folder in enumerate("ab"):
            (self.folder / folder).mkdir()
            np.save(self.folder / folder / "x.npy", np.full((10 + number, 3 + number), number))
        np.save(self.folder / "b" / "only.npy", np.full((4, 2), 7))

    def test_a_relative_name_is_of_the_working_directory(self):
        os.chdir(self.folder / "a")
        in_a = self.runtime()
        os.chdir(self.folder / "b")
        for runtime in (in_a, self.runtime(roots=self.folder / "a")):
            for name in ("x.npy", "./x.npy", "../b/x.npy", "only.npy"):
                with self.subTest(name), ps.open_array(name, runtime=runtime) as array:
                    np.testing.assert_array_equal(array.gather(range(len(array))), np.load(name))
                    self.assertTrue(os.path.isabs(array.path))
        described = ps.describe("x.npy")
        os.chdir(self.folder / "a")
        with ps.open_array(described, runtime=in_a) as array:
            self.assertEqual(array[0].tolist(), [1] * 4)

    def test_a_new_file_under_the_name_of_an_open_one(self):
        runtime, path = self.runtime(), self.folder / "a" / "x.npy"
        with ps.open_array(path, runtime=runtime) as before:
            np.save(self.folder / "new.npy", np.full((500, 16), 5.0))
            os.replace(self.folder / "new.npy", path)
            with self.assertRaisesRegex(OSError, "another file has this name") as caught:
                ps.open_array(path, runtime=runtime)
            self.assertEqual(caught.exception.filename, str(path))
            self.assertEqual(before[0].tolist(), [0] * 3)
        with ps.open_array(path, runtime=runtime) as array:
            self.assertEqual(array[499].tolist(), [5.0] * 16)

    def test_what_is_not_there(self):
        with self.assertRaises(FileNotFoundError):
            ps.open_array(self.folder / "checkpoint", "w")
        with self.assertRaisesRegex(TypeError, "open the file there"):
            import pickle

            with ps.open_array(self.folder / "a" / "x.npy", runtime=self.runtime()) as array:
                pickle.dumps(array)


    def test_a_compiler_for_kernels_that_is_missing_is_an_error_with_a_number(self):
        from penstock.device import _nvrtc

        with mock.patch.object(_nvrtc, "_library", None), \
                mock.patch.object(_nvrtc, "_candidates", lambda: ["libnone.so"]), \
                self.assertRaisesRegex(OSError, "CUDA_HOME") as missing:
            _nvrtc.version()
        self.assertEqual(missing.exception.errno, errno.ENOENT)


def without_ml_dtypes():
    """What numpy has of such elements then."""
    bits = {"bfloat16": "uint16", "float8_e5m2": "uint8", "float8_e4m3fn": "uint8"}
    return mock.patch.dict(_memory._numpy_dtypes, {n: np.dtype(b) for n, b in bits.items()})


class elements(common.Case):
    def setUp(self):
        super().setUp()
        self.rt = self.runtime()
        self.path = self.folder / "bytes"
        self.bytes = np.random.default_rng(self.seed).integers(0, 256, 12288, dtype=np.uint8)
        self.bytes.tofile(self.path)

    def test_of_less_than_a_byte_come_packed(self):
        for kind, width in (("float4_e2m1fn", 8), ("float6_e2m3fn", 4), ("float6_e3m2fn", 8)):
            with self.subTest(kind), ps.open_array(self.path, dtype=kind, shape=(-1, width),
                                                   runtime=self.rt) as array:
                packed = self.bytes[:len(array) * array.row_bytes].reshape(len(array), -1)
                self.assertEqual((array.dtype, array.shape), ("uint8", packed.shape))
                self.assertEqual(array.layout.dtype, kind)
                np.testing.assert_array_equal(array.gather([1, 2]), packed[1:3])
                out = np.zeros((2, array.row_bytes), np.uint8)
                np.testing.assert_array_equal(array.gather([3, 0], out=out), packed[[3, 0]])

    def test_in_the_order_of_another_machine_are_refused(self):
        for kind in (">i4", np.dtype(">i4"), np.dtype(">f8")):
            for opens in (ps.open_array, ps.open_region):
                with self.subTest(kind=kind), self.assertRaisesRegex(ps.FormatError, "big-endian"):
                    opens(self.path, dtype=kind, shape=(-1, 4), runtime=self.rt)
        for kind in ("<i4", "=i4", np.dtype("<i4"), "i4", np.dtype(">u1")):
            with ps.open_array(self.path, dtype=kind, shape=(-1, 4), runtime=self.rt) as array:
                self.assertIn(array.dtype, ("int32", "uint8"))

    def test_that_numpy_lacks_are_bits_and_no_numbers(self):
        """Without ml_dtypes: a conversion would take the bits for numbers, 1.0 for 16256.0."""
        ones = self.folder / "ones"
        rt = self.runtime(writable=True)
        with without_ml_dtypes():
            for kind, bits, one in (("bfloat16", "uint16", 0x3f80), ("float8_e5m2", "uint8", 0x3c),
                                    ("float8_e4m3fn", "uint8", 0x38)):
                np.full((8, 4), one, bits).tofile(ones)
                cure = f"{kind}.*install ml_dtypes.*{bits}"
                with self.subTest(kind), ps.open_array(ones, dtype=kind, shape=(-1, 4), mode="r+",
                                                       runtime=rt) as array:
                    for rows in (array, array[2:5]):
                        for other in ("float32", np.float64, "int8", "uint32", object):
                            with self.assertRaisesRegex(ValueError, f"^dtype: .*{cure}"):
                                np.asarray(rows, dtype=other)
                        for same in (None, bits, np.dtype(bits)):
                            self.assertEqual(np.asarray(rows, dtype=same).dtype, bits)
                            self.assertTrue((np.asarray(rows, dtype=same) == one).all())
                    for values in ([[1.0, 2.5, -0.0, 3.0]], [[1, 2, 0, 3]],
                                   np.ones((1, 4), np.float32), np.ones((1, 4), np.int64),
                                   [np.ones(4, np.float16)]):
                        with self.assertRaisesRegex(ValueError, f"^values: .*{cure}"):
                            array.scatter([1], values)
                    with self.assertRaisesRegex(ValueError, f"^out: .*{cure}"):
                        array.gather([1], out=np.zeros((1, 4), np.float32))
                    array.sync()
                    self.assertTrue((np.fromfile(ones, bits) == one).all())
                    array.scatter([1], np.full((1, 4), 7, bits))
                    array.scatter([2], [np.full(4, 8, bits)])
                    array.scatter([3], array[1:2])
                    self.assertEqual(array.gather([1, 2, 3])[:, 0].tolist(), [7, 8, 7])
            with ps.open_array(ones, dtype="float8_e4m3fn", shape=(-1, 4), mode="r+",
                               runtime=rt) as array, \
                    ps.open_array(self.path, dtype="float8_e5m2", shape=(-1, 4),
                                  runtime=rt) as other:
                with self.assertRaisesRegex(ValueError, "^values: .*float8_e5m2.*float8_e4m3fn"):
                    array.scatter([1], other[0:1])

    def test_of_ml_dtypes_are_numbers(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        rt = self.runtime(writable=True)
        for kind in ("bfloat16", "float8_e5m2", "float8_e4m3fn"):
            ones = self.folder / kind
            np.ones((8, 4), getattr(ml_dtypes, kind)).tofile(ones)
            with self.subTest(kind), ps.open_array(ones, dtype=kind, shape=(-1, 4), mode="r+",
                                                   runtime=rt) as array:
                self.assertEqual(np.asarray(array, "float32").tolist(), [[1.0] * 4] * 8)
                array.scatter([1, 2], [[1.0, 2.5, -0.0, 3.0], [1, 2, 3, 4]])
                self.assertEqual(np.asarray(array[1:3], "float32").tolist(),
                                 [[1.0, 2.5, -0.0, 3.0], [1, 2, 3, 4]])
                for values in ([[1j] * 4], [["1"] * 4], np.ones((1, 4), np.float32)):
                    with self.assertRaisesRegex(ValueError, f"^values: .*{kind}"):
                        array.scatter([1], values)
            with ps.open_region(ones, dtype=kind, runtime=rt) as region:
                self.assertEqual(np.asarray(region, "float32")[:1].tolist(), [1.0])

    def test_of_another_kind_in_memory_that_tells_by_an_interface(self):
        """As of cupy and numba: of equal size is not enough. Such memory gets as far as the look at
        its GPU, which the runtime does not use."""
        ids, whole = np.array([1, 2]), self.folder / "whole"
        np.zeros((9, 4), np.int32).tofile(whole)
        rt = self.runtime(writable=True)
        for kind, bad, good in (("int32", ("<f4", "<u4"), ("<i4",)),
                                ("float16", ("<u2", "<V2"), ("<f2",)),
                                ("bfloat16", ("<f2", "<i2"), ("<u2", "<V2")),
                                ("uint8", ("|b1", "|i1"), ("|u1",)),
                                ("float8_e5m2", ("|i1", "|b1"), ("|u1", "<V1", "|V1"))):
            with ps.open_array(whole, dtype=kind, shape=(-1, 4), mode="r+", runtime=rt) as array:
                for typestr in bad + good:
                    memory = types.SimpleNamespace(__cuda_array_interface__={
                        "shape": (2, 4), "typestr": typestr, "data": (4096, False), "version": 3})
                    text = "its elements are" if typestr in bad else "GPU 0"
                    for call in (functools.partial(array.gather, ids, out=memory),
                                 functools.partial(array.scatter, ids, memory)):
                        with self.subTest(kind=kind, typestr=typestr), \
                                self.assertRaisesRegex(ValueError, text):
                            call()

    def test_of_another_kind_in_arrays_of_jax(self):
        framework = _frameworks.Jax(None)
        with without_ml_dtypes():
            for kind, bad, good in (("int32", (np.float32, np.uint32), np.int32),
                                    ("bool", (np.int8, np.uint8), bool),
                                    ("bfloat16", (np.float16, np.int16), np.uint16)):
                for dtype in (*bad, good):
                    rows = np.zeros((2, 4), dtype)
                    like = types.SimpleNamespace(shape=(2, 4), dtype=rows.dtype,
                                                 unsafe_buffer_pointer=lambda: 4096)
                    with self.subTest(kind=kind, dtype=dtype):
                        if dtype is good:
                            self.assertEqual(framework.rows(like, (2, 4), kind, 1).item_bytes,
                                             rows.itemsize)
                            continue
                        with self.assertRaisesRegex(ValueError, "^values: its elements are"):
                            framework.rows(like, (2, 4), kind, 1, False)

    def test_numbers_of_bytes_and_rows(self):
        for wrong in ({"shape": (0, 4)}, {"shape": (0,)}, {"offset": -1}, {"stride": -4},
                      {"offset": 1.5}):
            arguments = {"dtype": "int32", "shape": (-1, 4), **wrong}
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                ps.open_array(self.path, runtime=self.rt, **arguments)
        layout = ps.describe(self.path, dtype="int32", shape=(-1, 4))
        for wrong in ({"dtype": "int32"}, {"shape": (3, 4)}, {"offset": 4}, {"tensor": "w"}):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "a Layout has"):
                ps.open_array(layout, runtime=self.rt, **wrong)
        self.assertEqual(len({layout, ps.describe(self.path, dtype="int32", shape=(-1, 4))}), 1)

    def test_names_of_numpy_without_a_size(self):
        for alias, name in [("double", "float64"), ("single", "float32"), ("half", "float16"),
                            ("intp", "int64"), ("short", "int16"), ("byte", "int8"),
                            ("uint", np.dtype("uint").name), ("bool_", "bool"), ("f4", "float32"),
                            ("float", "float64"), ("int", "int64"), (bool, "bool")]:
            with self.subTest(alias), ps.open_array(self.path, dtype=alias, shape=(-1, 4),
                                                    runtime=self.rt) as array:
                self.assertEqual(array.dtype, name)
        for wrong in ("", "f3", "torch.float32", "nope", "object", "str", "longdouble"):
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "dtype"):
                ps.open_array(self.path, dtype=wrong, shape=(-1, 4), runtime=self.rt)

    def test_what_is_no_number_of_a_file_is_named(self):
        """By what the caller calls it, and never in the words of the binding."""
        opens = {"array": functools.partial(ps.open_array, self.path, runtime=self.rt),
                 "region": functools.partial(ps.open_region, self.path, runtime=self.rt)}
        for kind, call in opens.items():
            for name, wrong in [("offset", 1.5), ("offset", 1 << 63), ("offset", 1 << 70),
                                ("offset", -1), ("offset", True), ("shape", 5), ("shape", "54"),
                                ("shape", (5, 4.0)), ("shape", (1 << 70, 4)), ("shape", (4, "a"))]:
                given = {"dtype": "uint8", "shape": (-1, 4), name: wrong}
                with self.subTest(kind=kind, wrong=wrong), \
                        self.assertRaisesRegex(ValueError, f"^{name}: "):
                    call(**given)
        for wrong in (1 << 63, 1 << 70, 2.5, -4):
            with self.assertRaisesRegex(ValueError, "^stride: "):
                opens["array"](dtype="uint8", shape=(-1, 4), stride=wrong)
        for wrong in (1.5, -1, 1 << 64, True):
            with self.assertRaisesRegex(ValueError, "^device_bytes: "):
                opens["region"](device_bytes=wrong)
        for wrong in (None, b"x", 5):
            with self.assertRaisesRegex(ValueError, "^tensor: .* is no name"):
                ps.open_array(self.path, wrong, runtime=self.rt)
        for given in ({"offset": 12288}, {"offset": 50000}, {"shape": (12289,)},
                      {"offset": 12, "dtype": "int32", "shape": (3072,)}):
            offset = given.get("offset", 0)
            text = f"from byte {offset} on does not lie in its 12288 bytes"
            with self.assertRaisesRegex(ValueError, text) as caught:
                opens["region"](**given)
            self.assertEqual(caught.exception.filename, str(self.path))

    def test_of_regions(self):
        for wrong in ({"shape": (1 << 62, 4)}, {"device": -1}, {"device": 1},
                      {"device_bytes": -1}):
            with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                ps.open_region(self.path, runtime=self.rt, **wrong)
        with ps.open_region(self.path, dtype="int32", shape=(), runtime=self.rt) as region:
            self.assertEqual(np.asarray(region).tolist(), self.bytes[:4].view(np.int32)[0])
        for kind, stand_in in (("bfloat16", "u2"), ("float8_e5m2", "u1"), ("float8_e4m3fn", "u1")):
            with self.subTest(kind), ps.open_region(self.path, dtype=kind,
                                                    runtime=self.rt) as region:
                shared = np.asarray(region)
                self.assertEqual(shared.itemsize, np.dtype(stand_in).itemsize)
                np.testing.assert_array_equal(shared.view(np.uint8), self.bytes)
                self.assertFalse(shared.flags.owndata)
        with without_ml_dtypes(), \
                ps.open_region(self.path, dtype="bfloat16", runtime=self.rt) as region:
            for other in ("float32", np.int16, object):
                with self.assertRaisesRegex(ValueError, "^dtype: .*bfloat16.*install ml_dtypes"):
                    np.asarray(region, dtype=other)
            for same in (None, "uint16"):
                shared = np.asarray(region, dtype=same)
                np.testing.assert_array_equal(shared.view(np.uint8), self.bytes)
                self.assertFalse(shared.flags.owndata)
            self.assertTrue(np.array(region, dtype="uint16").flags.owndata)


class windows(common.Case):
    def test_none_says_why(self):
        path = self.folder / "rows.npy"
        np.save(path, np.zeros((64, 64)))
        writable = self.runtime(writable=True)
        for arguments, text in (({"mode": "r+", "runtime": writable}, 'mode="r"'),
                                ({"runtime": self.runtime(windows=0)}, "windows=0")):
            with self.subTest(text), ps.open_array(path, **arguments) as array:
                with self.assertRaisesRegex(OSError, text) as caught:
                    array.windows()
                self.assertNotIsInstance(caught.exception, ps.FormatError)
                self.assertEqual(caught.exception.filename, str(path))
        with ps.open_array(path, runtime=writable) as array, open(path, "r+b"):
            with self.assertRaisesRegex(OSError, "lease"):
                array.windows()

    def test_that_grow_are_none_where_there_can_be_none(self):
        """A loop calls it for every batch, whatever the array and the runtime are."""
        path = self.folder / "rows.npy"
        np.save(path, np.zeros((64, 64)))
        writable = self.runtime(writable=True)
        for arguments in ({"mode": "r+", "runtime": writable},
                          {"runtime": self.runtime(windows=0)}):
            with self.subTest(**arguments), ps.open_array(path, **arguments) as array:
                array.gather(np.arange(64))
                self.assertEqual(array.grow_windows(), 0)
        with ps.open_array(path, runtime=writable) as array:
            with ps.open_array(path, mode="r+", runtime=writable) as other:
                other.scatter([1], np.ones((1, 64)))
                array.gather(np.arange(64))
                self.assertEqual(array.grow_windows(), 0)
            with self.assertRaises(OSError) as caught:
                array.windows()
            self.assertEqual(array.grow_windows(), 0)
            if caught.exception.errno == errno.ENOSPC:  # else the file system gives no lease
                self.assertRegex(str(caught.exception), "written in the runtime.*open it again")
        with self.assertRaisesRegex(ValueError, "closed"):
            array.grow_windows()


class options(common.Case):
    def test_by_the_types_that_programs_have(self):
        rt = self.runtime(cache=np.int64(1 << 21), roots=str(self.folder), writable="off",
                          device="cpu:0")
        self.assertFalse(rt.writable)
        self.assertEqual(rt.settings()["cache_bytes"], "2 MiB")
        os.environ["PENSTOCK_WRITABLE"] = "1"
        self.addCleanup(os.environ.pop, "PENSTOCK_WRITABLE")
        self.assertFalse(self.runtime(writable=False).writable)
        self.assertTrue(self.runtime().writable)

    def test_sizes_are_whole_numbers_and_given_once(self):
        for name in ("cache", "page", "host_tier", "windows", "cache_bytes", "staging_bytes"):
            for wrong in (True, [1 << 20], (8,), 700000.9):
                with self.subTest(name=name, wrong=wrong), \
                        self.assertRaisesRegex(ValueError, f"^{name}: .* is no size"):
                    ps.Runtime("cpu", log=None, **{name: wrong})
        for wrong in (True, [700000], 700000.9):
            with self.assertRaisesRegex(ValueError, "^cache: .* is no size"):
                ps.Runtime(cache_memory=np.zeros(1 << 20, np.uint8), cache=wrong, log=None)
        for first, second in (("cache", "cache_bytes"), ("page", "page_bytes")):
            with self.assertRaisesRegex(ValueError, f"^{first}: it is given as {second} too"):
                ps.Runtime("cpu", log=None, **{first: "8MiB", second: "8MiB"})

    def test_the_runtimes_of_the_process_are_known_by_their_pages(self):
        os.environ["PENSTOCK_CACHE"] = "8MiB"
        self.addCleanup(os.environ.pop, "PENSTOCK_CACHE")
        first = ps.default()
        self.addCleanup(first.close)
        self.assertEqual(first.page_bytes, 65536)
        for same in (65536, "64KiB", np.int64(65536), None):
            self.assertIs(ps.default(same), first)
        other = ps.default(np.int64(4096))
        self.addCleanup(other.close)
        self.assertIs(ps.default("4KiB"), other)
        os.environ["PENSTOCK_PAGE"] = "4KiB"
        self.addCleanup(os.environ.pop, "PENSTOCK_PAGE")
        self.assertIs(ps.default(), other)
        for wrong in (True, 4096.0, [4096]):
            with self.assertRaisesRegex(ValueError, "^page: "):
                ps.default(wrong)

    def test_statistics_for_prometheus(self):
        rt = self.runtime()
        path = self.folder / "rows.npy"
        np.save(path, np.zeros((64, 64)))
        before = ps.stats(rt)
        with ps.open_array(path, runtime=rt) as array:
            array.gather([1])
        with self.assertRaisesRegex(ValueError, "below zero"):
            (before - ps.stats(rt)).to_prometheus()
        for labels in ({"a b": "x"}, {"1a": "x"}, {"": "x"}, {"a": 1}):
            with self.assertRaisesRegex(ValueError, "^labels: "):
                before.to_prometheus(labels)
        names = set(re.findall('[{,]([a-z]+)="', before.to_prometheus()))
        self.assertGreaterEqual(names, {"source", "way", "le", "for", "where"})
        for name in (*names, "__name__", "__x"):
            with self.assertRaisesRegex(ValueError, f"^labels: '{name}' is a label of"):
                before.to_prometheus({name: "x"})
        self.assertIn('job="x"', before.to_prometheus({"job": "x"}))


if __name__ == "__main__":
    unittest.main()
