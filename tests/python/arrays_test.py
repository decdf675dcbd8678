#!/usr/bin/env python3
"""Arrays of files beside numpy.memmap: random files, lists and shapes, and what is refused."""
import collections.abc
import errno
import resource
import threading
import unittest

import common

common.need("numpy")
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]
NUMBERS = [np.int32, np.int64, np.uint32, np.uint64]


class raw_files(common.Case):
    def random_file(self, rng):
        """A file without a header, and the memmap of its rows."""
        dtype = np.dtype(self.random.choice(DTYPES))
        row_shape = tuple(self.random.choice([1, 2, 3, 7, 16, 33])
                          for _ in range(self.random.randrange(3)))
        row_bytes = int(np.prod(row_shape, dtype=np.int64)) * dtype.itemsize
        rows = self.random.choice([1, 2, 5, 100, 3000])
        offset = self.random.choice([0, 1, 8, 100, 4095, 4096])
        stride = row_bytes + self.random.choice([0, 0, 1, 8, 100])
        size = offset + (rows - 1) * stride + row_bytes
        path = self.folder / f"{self.random.randrange(1 << 40)}.bin"
        content = rng.integers(0, 2 if dtype == bool else 256, size, dtype=np.uint8)
        content.tofile(path)
        mapped = np.memmap(path, np.uint8, "r")
        strides = np.lib.stride_tricks.as_strided(
            mapped[offset:], (rows, row_bytes), (stride, 1), writeable=False)
        expected = np.ascontiguousarray(strides).view(dtype).reshape(rows, *row_shape)
        array = ps.open_array(path, dtype=self.random.choice([dtype, dtype.name, dtype.type]),
                              shape=(self.random.choice([rows, -1]) if stride == row_bytes
                                     else rows, *row_shape),
                              offset=offset, stride=stride if stride != row_bytes else None,
                              runtime=self.rt)
        return array, expected

    def test_every_way_to_name_rows_gives_those_of_memmap(self):
        self.rt = self.runtime()
        rng = np.random.default_rng(self.seed)
        for turn in range(40):
            array, expected = self.random_file(rng)
            with self.subTest(turn=turn, array=repr(array)), array:
                self.assertEqual(array.shape, expected.shape)
                self.assertEqual(np.dtype(array.dtype), expected.dtype)
                self.assertEqual((len(array), array.nbytes), (len(expected), expected.nbytes))
                rows = len(expected)
                shape = self.random.choice([(0,), (1,), (64,), (5, 7), (), (2000,)])
                ids = rng.integers(0, rows, shape).astype(self.random.choice(NUMBERS))
                self.same(array.gather(ids), expected[ids])
                out = np.empty(ids.shape + expected.shape[1:], expected.dtype)
                self.assertIs(array.gather(ids, out=out), out)
                self.same(out, expected[ids])
                self.same(array[ids.ravel()], expected[ids.ravel()])
                row = self.random.randrange(-rows, rows)
                self.same(array[row], expected[row])
                begin, end = (self.random.randrange(-rows - 2, rows + 2) for _ in range(2))
                step = self.random.choice([1, 1, 2, -1])
                self.same(np.asarray(array[begin:end:step]), expected[begin:end:step])

    def same(self, got, expected):
        self.assertEqual(got.shape, expected.shape)
        self.assertEqual(got.dtype, expected.dtype)
        self.assertEqual(np.ascontiguousarray(got).tobytes(),
                         np.ascontiguousarray(expected).tobytes())

    def test_lists_that_lie_apart_and_other_integers(self):
        self.rt = self.runtime()
        path = self.folder / "rows.npy"
        expected = np.arange(1000 * 3, dtype=np.float32).reshape(1000, 3)
        np.save(path, expected)
        with ps.open_array(path, runtime=self.rt) as array:
            ids = np.arange(200)[::2]
            self.same(array.gather(ids), expected[ids])
            for kind in (np.int8, np.uint16, ">i8"):
                self.same(array.gather(np.array([3, 1, 4], kind)), expected[[3, 1, 4]])
            self.same(array.gather([3, 1, 4]), expected[[3, 1, 4]])
            self.same(array.gather(range(5, 9)), expected[5:9])
            wide = np.zeros((4, 8), np.float32)
            array.gather([1, 2, 3, 4], out=wide[:, 2:5])  # rows that lie apart
            self.same(wide[:, 2:5], expected[1:5])
            self.assertFalse(wide[:, :2].any() or wide[:, 5:].any())

    def test_numbers_by_dlpack_alone(self):
        class exchanged:
            def __init__(self, of):
                self.of = of

            def __dlpack__(self, **arguments):
                return self.of.__dlpack__(**arguments)

            def __dlpack_device__(self):
                return self.of.__dlpack_device__()

        self.rt = self.runtime()
        path = self.folder / "rows.bin"
        expected = np.arange(400, dtype=np.int32).reshape(100, 4)
        expected.tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            ids = np.array([[3, 99], [0, 3]])
            out = np.zeros((2, 2, 4), np.int32)
            array.gather(exchanged(ids), out=out)
            self.same(out, expected[ids])
            for wrong in (ids.astype(np.float32), ids.T):
                with self.assertRaises(ValueError):
                    array.gather(exchanged(wrong), out=out)
            with self.assertRaisesRegex(ValueError, "out="):
                array.gather(exchanged(ids))

    def test_a_padding_number_gives_zeros(self):
        self.rt = self.runtime()
        path = self.folder / "rows.bin"
        np.full((10, 4), 7, np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            got = array.gather([3, -1, 9, -1], pad=-1)
            self.assertEqual(got[:, 0].tolist(), [7, 0, 7, 0])
            self.assertEqual(array.gather([2, 5], pad=5)[1].tolist(), [0] * 4)

    def test_as_a_sequence_and_as_an_array_of_numpy(self):
        self.rt = self.runtime()
        path = self.folder / "rows.npy"
        expected = np.arange(5000 * 3, dtype=np.float32).reshape(5000, 3)
        np.save(path, expected)
        with ps.open_array(path, runtime=self.rt) as array:
            self.assertEqual((array.ndim, array.size, array[5:9].ndim, array[5:9].size),
                             (2, 15000, 2, 12))
            for rows, part in ((array, expected), (array[4000:10:-7], expected[4000:10:-7]),
                               (array[9:9], expected[9:9])):
                self.assertIsInstance(rows, collections.abc.Iterable)
                np.testing.assert_array_equal(list(rows), part.tolist() or [])
                self.assertEqual(sum(row.shape == (3,) for row in rows), len(part))
                for made in (np.asarray(rows), np.array(rows), np.asarray(rows, np.float64)):
                    np.testing.assert_array_equal(made, part)
                with self.assertRaises(ValueError):
                    rows.__array__(copy=False)
            for key in (True, False, np.True_):
                with self.assertRaisesRegex(ValueError, "^ids: "):
                    array[key]

    def test_a_view_is_indexed_by_a_number_or_a_slice(self):
        path = self.folder / "rows.npy"
        np.save(path, np.arange(300).reshape(100, 3))
        with ps.open_array(path, runtime=self.runtime()) as array:
            view = array[2:10]
            for wrong in ([1, 2], np.array([1, 2]), np.array([1]), (1, 2), None, 1.0, "a"):
                with self.subTest(wrong=wrong), \
                        self.assertRaisesRegex(TypeError, r"a number or a slice.*np\.asarray"):
                    view[wrong]
            for number in (3, -1, np.int64(3), np.array(3)):
                np.testing.assert_array_equal(view[number], np.asarray(view)[number])
            self.assertRaises(IndexError, lambda: view[8])

    def test_numbers_of_no_row_raise_and_are_forgotten(self):
        self.rt = self.runtime()
        path = self.folder / "rows.bin"
        np.arange(40, dtype=np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            for wrong in (10, -1, 1 << 40):
                with self.assertRaisesRegex(IndexError, str(wrong)) as caught:
                    array.gather([1, wrong, 2])
                self.assertEqual(caught.exception.errno, errno.ERANGE)
                self.assertEqual(array.gather([1])[0].tolist(), [4, 5, 6, 7])
            for wrong in (10, -11):
                with self.assertRaises(IndexError):
                    array[wrong]
            array.check()
            self.rt.check()

    def test_what_does_not_fit_is_refused_before_anything_is_written(self):
        self.rt = self.runtime()
        path = self.folder / "rows.bin"
        np.arange(40, dtype=np.int32).tofile(path)
        array = ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt)
        read_only = np.zeros((1, 4), np.int32)
        read_only.flags.writeable = False
        for ids, out, text in [
            ([0.5], None, "float64.* or numba$"), (np.zeros(10, bool), None, "mask"),
            (np.zeros(1), None, "float64.* or numba$"), (b"0", None, "and not bytes$"),
            ([0], np.zeros((2, 4), np.int32), "shape"), ([0], np.zeros((1, 4)), "float64"),
            ([0], read_only, "written"), ([0], np.zeros((1, 8), np.int32)[:, ::2], "contiguous"),
        ]:
            with self.subTest(text=text), self.assertRaisesRegex(ValueError, text):
                array.gather(ids, out=out)
        for key in (None, (0, 1), ...):
            with self.assertRaises(TypeError):
                array[key]
        for truth in (True, False, np.bool_(True), np.array(True)):
            for name, call in (("t[i]", lambda: array[truth]), ("view", lambda: array[2:][truth]),
                               ("gather", lambda: array.gather(truth)),
                               ("list", lambda: array.gather([truth])),
                               ("prefetch", lambda: array.prefetch(truth)),
                               ("pad", lambda: array.gather([0], pad=truth))):
                with self.subTest(call=name, truth=truth), self.assertRaises(ValueError):
                    call()
        array.close()
        array.close()
        self.assertTrue(array.closed)
        with self.assertRaisesRegex(ValueError, "closed"):
            array.gather([0])

    def test_a_file_that_grows_or_changes_is_seen_as_the_library_promises(self):
        self.rt = self.runtime()
        path = self.folder / "rows.bin"
        np.zeros(40, np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            self.assertFalse(array.gather([5]).any())
        np.full(80, 9, np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            self.assertEqual(len(array), 20)
            self.assertEqual(array.gather([5, 19]).tolist(), [[9] * 4] * 2)
            with open(path, "r+b") as file:
                file.truncate(16)
            with self.assertRaises(OSError) as caught:
                array.gather(np.arange(1, 20))
            self.assertEqual(caught.exception.errno, errno.ESTALE)
            self.assertIn("rows.bin", str(caught.exception))


class npy_files(common.Case):
    def test_versions_and_orders(self):
        rt = self.runtime()
        expected = np.arange(600, dtype=np.float64).reshape(100, 2, 3)
        for version in ((1, 0), (2, 0), (3, 0)):
            path = self.folder / "rows.npy"
            with open(path, "wb") as file:
                np.lib.format.write_array(file, expected, version=version)
            with ps.open_array(path, runtime=rt) as array:
                self.assertEqual(array.gather([99, 0]).tobytes(), expected[[99, 0]].tobytes())
        refused = {"fortran": np.asfortranarray(expected), "big": expected.astype(">f8"),
                   "records": np.zeros(4, [("a", "<i4"), ("b", "<f4")]),
                   "empty": np.zeros((0, 3))}
        for name, content in refused.items():
            path = self.folder / f"{name}.npy"
            np.save(path, content)
            with self.subTest(name=name), self.assertRaises(ps.FormatError) as caught:
                ps.open_array(path, runtime=rt)
            self.assertIsInstance(caught.exception, (OSError, ValueError))
            self.assertEqual(caught.exception.filename, str(path))
        for path, kind in ((self.folder / "none.npy", FileNotFoundError),
                           (self.folder, (IsADirectoryError, FileNotFoundError, ValueError))):
            with self.assertRaises(kind):
                ps.open_array(path, runtime=rt)

    def test_a_header_is_not_read_as_rows(self):
        """Where dtype or shape are given too: they are what the header says, or an error."""
        rt = self.runtime(writable=True)
        path, expected = self.folder / "rows.npy", np.arange(60, dtype=np.float32).reshape(20, 3)
        np.save(path, expected)
        for given in ({"dtype": "f4"}, {"shape": (-1, 3)}, {"dtype": "float32", "shape": (20, 3)}):
            with self.subTest(given=given):
                with ps.open_array(path, runtime=rt, **given) as array:
                    np.testing.assert_array_equal(array[:], expected)
                with ps.open_region(path, runtime=rt, **given) as region:
                    np.testing.assert_array_equal(region, expected)
                self.assertEqual(ps.describe(path, **given), ps.describe(path))
        for given in ({"dtype": "int32"}, {"shape": (-1, 6)}, {"shape": (10, 3)},
                      {"shape": (60,)}, {"dtype": "uint8", "shape": (-1,)}):
            for opens in (ps.open_array, ps.open_region):
                with self.subTest(given=given), \
                        self.assertRaisesRegex(ValueError, "its header says float32 of shape"):
                    opens(path, runtime=rt, **given)
        with self.assertRaisesRegex(ValueError, "offset"):
            ps.open_array(path, dtype="float32", shape=(-1, 3), stride=20, runtime=rt)
        raw = np.frombuffer(path.read_bytes(), np.uint8)
        for offset in (0, 64, 128):  # on request the bytes as they are
            bytes_ = raw[offset:].reshape(-1, 4)
            given = {"dtype": "uint8", "shape": (-1, 4), "offset": offset, "runtime": rt}
            with ps.open_array(path, **given) as array, ps.open_region(path, **given) as region:
                np.testing.assert_array_equal(array[:], bytes_)
                np.testing.assert_array_equal(region, bytes_)
        for offset in (0, 128):  # which bytes are they?
            for opens in (ps.open_array, ps.open_region):
                with self.subTest(offset=offset, opens=opens), \
                        self.assertRaisesRegex(ValueError, "give dtype and shape too"):
                    opens(path, offset=offset, runtime=rt)
        path = self.folder / "model.safetensors"
        path.write_bytes(raw)
        for opens in (ps.open_array, ps.open_region):
            with self.assertRaisesRegex(ValueError, "in the header"):
                opens(path, dtype="uint8", shape=(-1, 4), runtime=rt)
        with ps.open_array(path, dtype="uint8", shape=(-1, 4), offset=0, runtime=rt) as array:
            np.testing.assert_array_equal(array[:], raw.reshape(-1, 4))

    def test_concat_is_one_table(self):
        rt = self.runtime()
        parts = []
        for i, rows in enumerate((10, 10, 4)):
            content = np.full((rows, 5), i, np.int16) + np.arange(rows, dtype=np.int16)[:, None]
            np.save(self.folder / f"{i}.npy", content)
            parts.append(content)
        expected = np.concatenate(parts)
        arrays = [ps.open_array(self.folder / f"{i}.npy", runtime=rt) for i in range(3)]
        with ps.concat(arrays) as joined:
            for array in arrays:
                array.close()
            ids = np.array([23, 0, 9, 10, 19, 20, 0])
            self.assertEqual(joined.gather(ids).tobytes(), expected[ids].tobytes())
            self.assertEqual(joined.shape, (24, 5))
        np.save(self.folder / "other.npy", np.zeros((3, 4), np.int16))
        with self.assertRaisesRegex(ValueError, "differs"):
            ps.concat([ps.open_array(self.folder / "0.npy", runtime=rt),
                       ps.open_array(self.folder / "other.npy", runtime=rt)])


    def test_concat_of_parts_of_another_mode_or_runtime(self):
        """The whole would be written by the mode of its first part."""
        rt = self.runtime(writable=True)
        for name in "ab":
            np.save(self.folder / f"{name}.npy", np.zeros((4, 2)))

        def part(name, mode, runtime=rt):
            return ps.open_array(self.folder / f"{name}.npy", mode=mode, runtime=runtime)

        for modes in (("r+", "r"), ("r", "r+")):
            parts = [part(*of) for of in zip("ab", modes)]
            for options in ({}, {"runtime": rt}):
                with self.assertRaisesRegex(ValueError, "a.npy' has mode .* and .*b.npy' 'r"):
                    ps.concat(parts, **options)
        with ps.concat(part(name, "r+") for name in "ab") as joined:
            joined.scatter([5], np.ones((1, 2)))
            joined.sync()
        self.assertEqual(np.load(self.folder / "b.npy")[1].tolist(), [1, 1])
        parts = [part("a", "r"), part("b", "r", self.runtime())]
        with self.assertRaisesRegex(ValueError, "runtime="):
            ps.concat(parts)
        with ps.concat(parts, runtime=rt) as joined:
            self.assertIs(joined.runtime, rt)
        with self.assertRaisesRegex(TypeError, "is no Array"):
            ps.concat(["a.npy"])


class writing(common.Case):
    def test_scattered_rows_are_read_back_and_reach_the_file(self):
        rt = self.runtime(writable=True)
        path = self.folder / "rows.bin"
        expected = np.zeros((500, 6), np.float32)
        expected.tofile(path)
        rng = np.random.default_rng(self.seed)
        with ps.open_array(path, dtype="float32", shape=(-1, 6), mode="r+", runtime=rt) as array:
            for _ in range(20):
                ids = rng.permutation(500)[:60]
                values = rng.random((60, 6), np.float32)
                array.scatter(ids, values)
                expected[ids] = values
                self.assertEqual(array.gather(ids).tobytes(), values.tobytes())
            array.scatter([7, -1], np.ones((2, 6), np.float32), pad=-1)
            expected[7] = 1
            array.sync()
            self.assertEqual(np.fromfile(path, np.float32).tobytes(), expected.tobytes())
        with ps.open_array(path, dtype="float32", shape=(-1, 6), runtime=rt) as array:
            with self.assertRaises(OSError) as caught:
                array.scatter([0], np.zeros((1, 6), np.float32))
            self.assertEqual((caught.exception.errno, caught.exception.filename),
                             (errno.EROFS, str(path)))
            self.assertRegex(str(caught.exception), r'mode="r\+" in a Runtime\(writable=True\)')
        for opens in (ps.open_array, ps.open_region):
            with self.assertRaisesRegex(OSError, r"with Runtime\(writable=True\)") as caught:
                opens(path, dtype="float32", shape=(-1, 6), mode="r+", runtime=self.runtime())
            self.assertEqual((caught.exception.errno, caught.exception.filename),
                             (errno.EROFS, str(path)))
        for placement in ("in_place", "system"):
            with self.assertRaisesRegex(ValueError, '^placement: .* is for mode "r"'):
                ps.open_region(path, "r+", runtime=rt, placement=placement)

    def test_lists_become_elements_of_the_array_or_are_refused(self):
        rt = self.runtime(writable=True)

        def written(dtype, values):
            path = self.folder / f"{dtype}.npy"
            np.save(path, np.full((3, 2), 1, dtype))
            before = path.read_bytes()
            with ps.open_array(path, mode="r+", runtime=rt) as array:
                try:
                    array.scatter([1], values)
                finally:
                    array.sync()
                    if (array.gather([1]) == 1).all():
                        self.assertEqual(path.read_bytes(), before)
                return array.gather([1])[0].tolist()

        for dtype, values, found in [
            ("int32", [[1.7, -2.9]], "float64"), ("int64", [[2.0, 3.0]], "float64"),
            ("uint8", [["3", "4"]], "<U1"), ("float32", [[1j, 0]], "complex128"),
            ("float64", [["1.5", "2"]], "<U3"), ("bool", [[0.5, 1]], "float64"),
            ("int32", [np.array([1.5, 2.5], np.float32)], "float32"),
            ("int32", memoryview(np.array([[1.5, 2.5]])), "float64"),
            ("int32", [[None, 3]], "object"), ("uint64", [[2.0, 1 << 63]], "float64"),
        ]:
            with self.subTest(dtype=dtype, values=values), \
                    self.assertRaisesRegex(ValueError, f"^values: .*{found}.*{dtype}"):
                written(dtype, values)
        for dtype, values in [("int8", [[300, 1]]), ("uint8", [[-1, 1]]), ("bool", [[2, 0]]),
                              ("int64", [[1 << 63, -1]]), ("uint64", [[1 << 64, 1]]),
                              ("int8", [np.array([300, 1])]), ("uint32", [np.array([-1, 1])]),
                              ("float16", [[70000, 0]]), ("float16", [[7e4, 1e300]]),
                              ("float32", [[1e39, 0]]), ("float16", [[2049, 1]]),
                              ("float32", [[(1 << 24) + 1, 0]]), ("complex64", [[1e39j, 0]]),
                              ("float64", [[(1 << 53) + 1, 0]]), ("float32", [[-(1 << 63) + 1, 0]]),
                              ("float64", [[(1 << 64) - 1, 0]])]:
            with self.subTest(dtype=dtype, values=values), \
                    self.assertRaisesRegex(ValueError, f"^values: .*{dtype}"):
                written(dtype, values)
        for dtype, values in [("float32", [[0.5, 2]]), ("float16", [[3, -7]]),
                              ("float16", [[2048, 65504]]), ("float32", [[1 << 40, 0]]),
                              ("float64", [[-(1 << 63), 1 << 62]]),
                              ("float32", [[float("inf"), 0]]), ("complex64", [[1 << 24, 7]]),
                              ("int8", [[-128, 127]]), ("uint64", [[(1 << 64) - 1, 5]]),
                              ("uint64", [[1 << 63, 1 << 63]]), ("complex64", [[1j, 2]]),
                              ("complex128", [[3, 4]]), ("bool", [[0, 1]]), ("int16", [[True, 0]]),
                              ("float64", [[float(1 << 70), 2.0]]), ("float64", [[1 << 70, 0]]),
                              ("uint8", memoryview(np.array([[9, 8]], np.uint8)).tolist())]:
            with self.subTest(dtype=dtype, values=values):
                self.assertEqual(written(dtype, values), values[0])
        path = self.folder / "none.npy"
        np.save(path, np.arange(5, dtype=np.int32))
        with ps.open_array(path, mode="r+", runtime=rt) as array:
            array.scatter([], [])
            array.scatter(3, 7)
            self.assertEqual(np.asarray(array).tolist(), [0, 1, 2, 7, 4])

    def test_ahead_of_use(self):
        rt = self.runtime(host_tier="1MiB")
        path = self.folder / "rows.bin"
        expected = np.arange(2000 * 16, dtype=np.int64).reshape(-1, 16)
        expected.tofile(path)
        with ps.open_array(path, dtype="int64", shape=(-1, 16), runtime=rt) as array:
            for kind in ("normal", "random", "sequential", "willneed", "dontneed"):
                array.advise(kind, slice(10, 500))
            with self.assertRaisesRegex(ValueError, "advice"):
                array.advise("fast")
            array.prefetch(slice(0, 1000))
            array.prefetch(np.arange(5))
            array.will_need([1, 2, 5000])
            before = ps.stats(rt)
            self.assertEqual(array.gather(np.arange(100)).tobytes(), expected[:100].tobytes())
            self.assertEqual((ps.stats(rt) - before).misses, 0)
            try:
                self.assertGreater(array.windows(0.5), 0)
            except OSError as error:  # this file system gives no lease
                self.assertIn(error.errno, (errno.EOPNOTSUPP, errno.EAGAIN))
            self.assertGreaterEqual(array.grow_windows(), 0)
            with self.assertRaises(ValueError):
                array.windows(0)


class ends_that_cannot_write(common.Case):
    """A limit on the size of files stands for a disk that is full."""

    def setUp(self):
        super().setUp()
        self.path = self.folder / "rows.npy"
        np.save(self.path, np.zeros((2000, 64), np.float32))
        self.rt = self.runtime(writable=True)
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(self.limit, self.before[0])

    def limit(self, size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, self.before[1]))

    def scattered(self, number=1900):
        array = ps.open_array(self.path, mode="r+", runtime=self.rt)
        array.scatter([number], np.full((1, 64), 12, np.float32))
        self.limit(300)
        return array

    def check(self, caught):
        self.limit(self.before[0])
        self.assertEqual((caught.exception.errno, caught.exception.filename),
                         (errno.EFBIG, str(self.path)))
        self.assertRegex(str(caught.exception), "could (not )?be written|lost")

    def test_of_an_array(self):
        array = self.scattered()
        with self.assertRaises(OSError) as caught:
            array.close()
        self.check(caught)
        self.assertTrue(array.closed)
        array.close()
        with ps.open_array(self.path, mode="r+", runtime=self.rt) as again:
            self.assertEqual(again[1900][0], 12)
        self.assertEqual(np.load(self.path)[1900][0], 12)
        with self.assertRaises(OSError) as caught, self.scattered(1700):
            pass
        self.check(caught)
        self.rt.close()  # tries again
        self.assertEqual(np.load(self.path)[1700][0], 12)

    def test_in_a_generator_that_ends_early(self):
        def rows():
            with self.scattered() as array:
                yield array[0]

        made = rows()
        next(made)
        with self.assertRaises(OSError) as caught:
            made.close()
        self.check(caught)

    def test_of_a_sync(self):
        array = self.scattered()
        with self.assertRaises(OSError) as caught:
            array.sync()
        self.check(caught)
        array.sync()
        self.assertEqual(np.load(self.path)[1900][0], 12)

    def test_of_the_runtime(self):
        array = self.scattered()
        with self.assertRaises(OSError) as caught:
            self.rt.close()
        self.check(caught)
        self.assertIn("they are lost", str(caught.exception))
        self.assertTrue(array.closed and self.rt.closed)
        self.rt.close()
        self.rt = self.runtime(writable=True)
        array = self.scattered()
        with self.assertRaises(OSError), array:
            pass
        with self.assertRaises(OSError) as caught, self.rt:
            pass
        self.check(caught)
        self.assertIn("they are lost", str(caught.exception))

    def test_after_another_exception(self):
        with self.assertLogs("penstock", "WARNING") as lines:
            with self.assertRaises(KeyError), self.rt, self.scattered():
                raise KeyError
            self.limit(self.before[0])
        self.assertEqual(len(lines.records), 2)
        self.assertTrue(self.rt.closed)

    def test_in_a_call_of_the_same_array(self):
        """What a signal handler closes is used by the call that it came into."""
        array = self.scattered()
        held = threading.Event()

        def gather():
            held.set()
            for _ in range(50):
                try:
                    array.gather(np.arange(2000))
                except ValueError:
                    break

        thread = threading.Thread(target=gather)
        thread.start()
        held.wait()
        with self.assertRaises(OSError) as caught:
            array.close()
        thread.join()
        self.check(caught)


if __name__ == "__main__":
    unittest.main()
