#!/usr/bin/env python3
"""Properties that hypothesis tries to refute, each beside numpy: rows of any type, shape and
place, tables of several files, regions, wrong arguments; and sequences of calls beside a shadow
that numpy keeps. Canaries: a shadow that is wrong is found.

The examples are the same each time. PENSTOCK_SEED=NUMBER draws others, PENSTOCK_LONG_TESTS more."""
import atexit
import errno
import math
import os
import pathlib
import shutil
import tempfile
import unittest

import common

# What hypothesis keeps for later runs is of this run alone.
STORAGE = tempfile.mkdtemp(prefix="penstock-hypothesis-")
os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = STORAGE
atexit.register(shutil.rmtree, STORAGE, ignore_errors=True)

common.need("numpy", "hypothesis")
import hypothesis  # noqa: E402
import hypothesis.strategies as st  # noqa: E402
import numpy as np  # noqa: E402
import penstock as ps  # noqa: E402
from hypothesis.stateful import (RuleBasedStateMachine, invariant, precondition,  # noqa: E402
                                 rule, run_state_machine_as_test)

SEED = os.environ.get("PENSTOCK_SEED")
LONG = 10 if os.environ.get("PENSTOCK_LONG_TESTS") else 1


def told(examples, **options):
    """Settings under which a run is the same on each machine, however slow."""
    return hypothesis.settings(max_examples=examples * LONG, deadline=None, database=None,
                               derandomize=SEED is None, print_blob=True,
                               suppress_health_check=list(hypothesis.HealthCheck), **options)


def drawn(examples):
    def decorate(test):
        test = told(examples)(test)
        return test if SEED is None else hypothesis.seed(int(SEED))(test)
    return decorate


def numpy_exchanges(dtype):
    """Whether this numpy knows the type in DLPack: that of Debian 12 has no bool there."""
    try:
        np.from_dlpack(np.zeros(1, dtype))
    except (BufferError, RuntimeError, TypeError):
        return False
    return True


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
          "float16", "float32", "float64", "complex64", "complex128"]
dtypes = st.sampled_from(DTYPES).map(np.dtype)
row_shapes = st.lists(st.integers(1, 9), max_size=3).map(tuple)
number_types = st.sampled_from([np.int32, np.int64, np.uint32, np.uint64])
list_shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def contents(draw, dtype, shape):
    """Elements of any bits; numpy draws them, of which one number says which."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = math.prod(shape) * dtype.itemsize
    return rng.integers(0, 2 if dtype == bool else 256, count, np.uint8).view(dtype).reshape(shape)


@st.composite
def row_lists(draw, rows):
    """Numbers of rows, of any shape and type."""
    shape = draw(list_shapes)
    count = math.prod(shape)
    numbers = draw(st.lists(st.integers(0, rows - 1), min_size=count, max_size=count))
    return np.array(numbers, draw(number_types)).reshape(shape)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


class Beside(unittest.TestCase):
    """One runtime and one folder for all examples of a test."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-python-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.rt = common.small_runtime(writable=True)
        self.addCleanup(self.rt.close)
        self.names = 0

    def file(self, end=".bin"):
        """A name that no example had: a file of the same name and size is a change of the file."""
        self.names += 1
        return self.folder / f"{self.names}{end}"

    def same(self, got, expected):
        self.assertEqual((got.shape, got.dtype), (expected.shape, expected.dtype))
        self.assertEqual(bits(got), bits(expected))


class rows(Beside):
    @drawn(25)
    @hypothesis.given(st.data())
    def test_rows_of_a_file_are_those_of_numpy(self, data):
        dtype, row_shape = data.draw(dtypes), data.draw(row_shapes)
        count = data.draw(st.integers(1, 200))
        expected = data.draw(contents(dtype, (count, *row_shape)))
        row_bytes = expected.nbytes // count
        offset = data.draw(st.integers(0, 5000))
        gap = data.draw(st.sampled_from([0, 0, 1, 3, 64, 4096]))
        padded = np.zeros((count, row_bytes + gap), np.uint8)
        padded[:, :row_bytes] = expected.reshape(count, -1).view(np.uint8).reshape(count, -1)
        path = self.file()
        path.write_bytes(b"\xa5" * offset + padded.tobytes())
        named = data.draw(st.sampled_from([dtype, dtype.name, dtype.type]))
        with ps.open_array(path, dtype=named, shape=(count, *row_shape), offset=offset,
                           stride=row_bytes + gap if gap else None, runtime=self.rt) as array:
            self.assertEqual((array.shape, array.nbytes), (expected.shape, expected.nbytes))
            ids = data.draw(row_lists(count))
            self.same(array.gather(ids), expected[ids])
            wide = np.full((*ids.shape, *row_shape, 2), 1, dtype)
            if ids.ndim == 1 and row_shape:  # rows that lie apart
                wide = np.full((len(ids), row_shape[0] + 2, *row_shape[1:]), 1, dtype)
                array.gather(ids, out=wide[:, :row_shape[0]])
                self.same(wide[:, :row_shape[0]], expected[ids])
                self.assertEqual(bits(wide[:, row_shape[0]:]),
                                 bits(np.full((len(ids), 2, *row_shape[1:]), 1, dtype)))
            begin, end = data.draw(st.integers(-250, 250)), data.draw(st.integers(-250, 250))
            step = data.draw(st.sampled_from([1, 2, 7, -1, -3]))
            self.same(np.asarray(array[begin:end:step]), expected[begin:end:step])
            row = data.draw(st.integers(-count, count - 1))
            self.same(np.asarray(array[row]), np.asarray(expected[row]))

    @drawn(25)
    @hypothesis.given(st.data())
    def test_a_number_of_no_row_is_an_index_error_and_no_more(self, data):
        count = data.draw(st.integers(1, 50))
        expected = data.draw(contents(np.dtype("int32"), (count, 3)))
        path = self.file()
        expected.tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 3), runtime=self.rt) as array:
            good = data.draw(row_lists(count)).astype(np.int64).ravel()
            wrong = data.draw(st.one_of(st.integers(-2**63, -1), st.integers(count, 2**63 - 1)))
            at = data.draw(st.integers(0, len(good)))
            with self.assertRaises(IndexError) as caught:
                array.gather(np.insert(good, at, wrong))
            self.assertEqual(caught.exception.errno, errno.ERANGE)
            self.same(array.gather(good), expected[good])
            padded = array.gather(np.insert(good, at, wrong), pad=wrong)
            self.same(np.delete(padded, at, 0), expected[good])
            self.assertFalse(padded[at].any())

    @drawn(25)
    @hypothesis.given(st.data())
    def test_tables_of_several_files(self, data):
        dtype, row_shape = data.draw(dtypes), data.draw(row_shapes)
        parts, arrays = [], []
        for count in data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6)):
            part = data.draw(contents(dtype, (count, *row_shape)))
            parts.append(part)
            if data.draw(st.booleans()):
                path = self.file(".npy")
                np.save(path, part)
                arrays.append(ps.open_array(path, runtime=self.rt))
            else:
                path, offset = self.file(), data.draw(st.integers(0, 200))
                path.write_bytes(bytes(offset) + part.tobytes())
                arrays.append(ps.open_array(path, dtype=dtype, shape=(-1, *row_shape),
                                            offset=offset, runtime=self.rt))
        expected = np.concatenate(parts)
        with ps.concat(arrays) as joined:
            for array in arrays:
                array.close()
            ids = data.draw(row_lists(len(expected)))
            self.same(joined.gather(ids), expected[ids])
            self.same(np.asarray(joined[:]), expected)
        alone = self.file()
        alone.write_bytes(bytes(256))
        other = data.draw(st.sampled_from([d for d in DTYPES if d != dtype.name]))
        with ps.open_array(alone, dtype=other, shape=(1, *row_shape[:1]),
                           runtime=self.rt) as last, self.assertRaisesRegex(ValueError, "differs"):
            ps.concat([ps.open_array(path, dtype=dtype, shape=(1, *row_shape), offset=0,
                                     runtime=self.rt), last])


class regions(Beside):
    @drawn(25)
    @hypothesis.given(st.data())
    def test_elements_are_those_of_numpy(self, data):
        dtype = data.draw(dtypes)
        shape = (data.draw(st.integers(1, 60)), *data.draw(row_shapes))
        expected = data.draw(contents(dtype, shape))
        # numpy takes elements that lie at a multiple of their size.
        offset = data.draw(st.integers(0, 700)) * dtype.itemsize
        path = self.file()
        path.write_bytes(b"\xa5" * offset + expected.tobytes())
        given = data.draw(st.sampled_from([shape, (-1, *shape[1:])]))
        with ps.open_region(path, "r", dtype, given, offset, runtime=self.rt) as region:
            self.assertEqual((region.shape, region.nbytes), (shape, expected.nbytes))
            self.same(np.asarray(region), expected)
            if numpy_exchanges(dtype):
                self.same(np.from_dlpack(region), expected)
        np.save(self.folder / "region.npy", expected)
        with ps.open_region(self.folder / "region.npy", runtime=self.rt) as region:
            self.same(np.asarray(region), expected)


# Arguments of all kinds: what is refused is refused by one of these, with a text.
REFUSED = (ValueError, TypeError, OSError, IndexError, MemoryError)
anything = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(),
                     st.text(max_size=5), st.binary(max_size=5), st.just(object()),
                     st.lists(st.integers(-2**66, 2**66), max_size=3))
sizes = st.one_of(st.integers(-2, 70), st.integers(-2**66, 2**66))


class wrong_arguments(Beside):
    def refuses(self, call):
        """Whether the call refuses. Anything but an exception that it promises is a failure."""
        try:
            made = call()
        except REFUSED as error:
            self.assertTrue(str(error))
            return True
        if hasattr(made, "close"):
            made.close()
        return False

    def still_works(self):
        path = self.folder / "works.bin"
        if not path.exists():
            np.arange(64, dtype=np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), runtime=self.rt) as array:
            self.assertEqual(array.gather([3]).tolist(), [[12, 13, 14, 15]])

    @drawn(60)
    @hypothesis.given(st.data())
    def test_of_open_array_and_open_region(self, data):
        path = self.folder / "some.bin"
        if not path.exists():
            path.write_bytes(bytes(range(256)) * 16)
        arguments = {
            "dtype": data.draw(st.one_of(st.sampled_from(DTYPES), anything)),
            "shape": data.draw(st.one_of(st.none(), st.lists(sizes, max_size=4), anything)),
            "offset": data.draw(st.one_of(sizes, anything)),
        }
        stride = data.draw(st.one_of(st.none(), sizes, anything))
        self.refuses(lambda: ps.open_array(path, **arguments, stride=stride, runtime=self.rt))
        self.refuses(lambda: ps.open_region(path, **arguments, runtime=self.rt))
        self.refuses(lambda: ps.open_array(data.draw(anything), runtime=self.rt))
        self.still_works()

    @drawn(60)
    @hypothesis.given(ids=anything, out=anything, pad=anything, stream=anything)
    def test_of_gather_and_scatter(self, ids, out, pad, stream):
        path = self.folder / "rows.bin"
        if not path.exists():
            np.arange(64, dtype=np.int32).tofile(path)
        with ps.open_array(path, dtype="int32", shape=(-1, 4), mode="r+",
                           runtime=self.rt) as array:
            before = np.fromfile(path, np.int32)
            self.refuses(lambda: array.gather(ids))
            self.refuses(lambda: array.gather([1], pad=pad))
            self.refuses(lambda: array.gather([1], stream=stream))
            self.refuses(lambda: array.gather(ids, out=out, pad=pad, stream=stream))
            if out is not None:
                self.assertTrue(self.refuses(lambda: array.gather([1], out=out)))
            self.refuses(lambda: array[ids])
            self.refuses(lambda: array.prefetch(ids))
            self.refuses(lambda: array.will_need(ids))
            self.refuses(lambda: array.advise(ids))
            self.refuses(lambda: array.scatter([1], ids))
            array.scatter([1], before.reshape(-1, 4)[[1]])
            self.assertEqual(array.gather([2]).tolist(), [[8, 9, 10, 11]])

    @drawn(80)
    @hypothesis.given(st.data())
    def test_headers_that_are_damaged(self, data):  # rows are as numpy has them, or refused
        content = np.arange(60, dtype=np.float32).reshape(20, 3)
        path = self.file(".npy")
        np.save(path, content)
        whole = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            whole[data.draw(st.integers(0, 127))] = data.draw(st.integers(0, 255))
        path.write_bytes(whole[:data.draw(st.sampled_from([len(whole), 10, 100, 128, 130]))])
        try:
            with ps.open_array(path, runtime=self.rt) as array:
                got = np.asarray(array[:])
        except (OSError, ValueError) as error:
            self.assertIn(path.name, str(error))
            return
        expected = np.load(path)
        self.assertEqual((got.shape, bits(got)), (expected.shape, bits(expected)))

    @drawn(60)
    @hypothesis.given(name=st.sampled_from(["cache", "page", "host_tier", "windows", "roots", "log",
                                            "device", "worker_threads", "share", "colour"]),
                      value=anything)
    def test_of_runtime(self, name, value):
        if value in ("", None) or (name == "share" and isinstance(value, str)):
            return
        given = {"device": "cpu", "cache": "2MiB", "page": "4KiB", "log": None, name: value}
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**40:
            return  # may be a size that is right, and large
        self.refuses(lambda: ps.Runtime(**given))


class Table(RuleBasedStateMachine):
    """Rows of a file beside a shadow. The cache has far fewer pages than the file."""

    ROWS = 3000
    wrong = None  # of a canary: what its shadow leaves out

    def __init__(self):
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-python-"))
        self.path = self.folder / "rows.bin"
        self.shadow = np.arange(self.ROWS * 20, dtype=np.int32).reshape(-1, 20)
        self.shadow.tofile(self.path)
        self.rt = common.small_runtime(writable=True, cache="64KiB")
        self.array = self.open()

    def open(self):
        return ps.open_array(self.path, dtype="int32", shape=(-1, 20), mode="r+", runtime=self.rt)

    def teardown(self):
        self.rt.close()
        if self.wrong is None:
            assert bits(self.shadow) == self.path.read_bytes(), "after the close"
        shutil.rmtree(self.folder)

    numbers = st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=40)

    @rule(ids=numbers)
    def gather(self, ids):
        assert bits(self.array.gather(ids)) == bits(self.shadow[ids]), ids

    @rule(ids=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=40, unique=True),
          seed=st.integers(0, 2**31))
    def scatter(self, ids, seed):
        values = np.random.default_rng(seed).integers(0, 2**31, (len(ids), 20), np.int32)
        self.array.scatter(ids, values)
        kept = ids[:-1] if self.wrong == "row" else ids
        self.shadow[kept] = values[:len(kept)]

    @rule(ids=numbers, value=st.integers(-2**31, 2**31 - 1))
    def scatter_equal_rows_to_repeated_numbers(self, ids, value):
        self.array.scatter(ids, np.full((len(ids), 20), value, np.int32))
        self.shadow[ids] = value

    @rule(ids=numbers, wrong=st.integers(ROWS, 2**40))
    def scatter_beside_a_number_of_no_row(self, ids, wrong):
        try:
            self.array.scatter([*ids, wrong], np.full((len(ids) + 1, 20), 7, np.int32))
        except IndexError:
            pass
        else:
            raise AssertionError(f"row {wrong} was written")
        self.shadow[ids] = 7  # the other rows are

    @rule(ids=numbers)
    def ask_ahead(self, ids):
        self.array.will_need(ids)
        self.array.prefetch(ids)

    @rule(kind=st.sampled_from(["normal", "random", "willneed", "dontneed"]),
          begin=st.integers(0, ROWS), rows=st.integers(0, ROWS))
    def advise(self, kind, begin, rows):
        self.array.advise(kind, slice(begin, begin + rows))

    @rule()
    def sync(self):
        self.array.sync()
        assert bits(self.shadow) == self.path.read_bytes(), "after sync"

    @rule()
    def reopen(self):
        self.array.close()
        self.array = self.open()

    @rule()
    def write_from_outside_while_closed(self):
        self.array.close()
        with open(self.path, "r+b") as file:
            file.write(b"\x11" * 8192)
        if self.wrong != "outside":
            self.shadow.view(np.uint8).reshape(-1)[:8192] = 0x11
        self.array = self.open()


class Shared(RuleBasedStateMachine):
    """A region that is written, and its file that others write, beside shadows of both: bytes that
    lie beside each other in a page are changed on both sides."""

    BYTES = 5 * 4096 + 100
    wrong = None

    def __init__(self):
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-python-"))
        self.path = self.folder / "bytes.bin"
        self.file = np.arange(self.BYTES, dtype=np.uint8)
        self.file.tofile(self.path)
        self.memory = self.file.copy()
        self.changed = np.zeros(self.BYTES, bool)  # in the memory, since the last release
        self.rt = common.small_runtime(writable=True)
        self.region = ps.open_region(self.path, "r+", runtime=self.rt)
        self.seen = np.asarray(self.region)

    def teardown(self):
        del self.seen
        self.rt.close()
        shutil.rmtree(self.folder)

    places = st.integers(0, BYTES - 1)

    @rule(at=places, value=st.integers(0, 255), count=st.sampled_from([1, 7, 4096]))
    def write_memory(self, at, value, count):
        part = slice(at, at + count)
        different = self.memory[part] != value
        self.seen[part] = value
        self.memory[part] = value
        self.changed[part] |= different

    @precondition(lambda self: not self.changed.all())
    @rule(at=places, value=st.integers(0, 255), count=st.sampled_from([1, 7, 4096]))
    def write_file(self, at, value, count):
        """Others write bytes that the memory did not change; which of two changes of one byte stays
        is not promised."""
        free = np.flatnonzero(~self.changed[at:at + count]) + at
        with open(self.path, "r+b", buffering=0) as file:
            for begin in free[np.flatnonzero(np.diff(free, prepend=-2) != 1)]:
                end = begin
                while end < self.BYTES and end < at + count and not self.changed[end]:
                    end += 1
                file.seek(begin)
                file.write(bytes([value]) * (end - begin))
                self.file[begin:end] = value

    @rule()
    def release(self):
        self.region.release()
        self.file[self.changed] = self.memory[self.changed]
        self.changed[:] = False
        expected = self.file.copy()
        if self.wrong == "release":
            expected[0] ^= 1
        assert bits(expected) == self.path.read_bytes(), "after release"

    @rule()
    def acquire(self):
        self.region.acquire()
        self.memory = np.where(self.changed, self.memory, self.file)

    @invariant()
    def memory_is_the_shadow(self):
        assert bits(self.seen) == bits(self.memory)


def of_machine(machine, wrong=None):
    class made(machine):
        pass

    made.wrong = wrong
    made.__name__ = machine.__name__
    return made


class sequences(unittest.TestCase):
    def run_machine(self, machine, examples, **options):
        if SEED is not None:
            machine = hypothesis.seed(int(SEED))(machine)
        run_state_machine_as_test(machine, settings=told(examples, stateful_step_count=30,
                                                         **options))

    def test_rows_beside_their_shadow(self):
        self.run_machine(of_machine(Table), 8)

    def test_a_region_beside_its_shadow(self):
        self.run_machine(of_machine(Shared), 8)

    def test_canaries(self):
        for machine, wrong in ((Table, "row"), (Table, "outside"), (Shared, "release")):
            with self.subTest(machine=machine, wrong=wrong), self.assertRaises(AssertionError):
                self.run_machine(of_machine(machine, wrong), 30,
                                 phases=[hypothesis.Phase.generate], report_multiple_bugs=False)


if __name__ == "__main__":
    print("the same examples each time" if SEED is None else f"PENSTOCK_SEED={SEED}", flush=True)
    unittest.main()
