"""Arrays in files, of which rows are read by their numbers."""
from __future__ import annotations

import errno
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, SupportsIndex

from . import _core
from ._errors import FormatError, Path, path_text
from ._frameworks import NUMPY, call_stream, framework_of, row_of
from ._memory import Numbers, check_conversion, import_numpy, no_memory, padding_of, plain_range
from ._opened import Opened
from ._runtime import Runtime, default
from ._table_numbers import enter, files_of

_BUILTIN_TYPES = {"float": "float64", "int": "int64", "complex": "complex128"}
_FOREIGN_ORDER = ">" if sys.byteorder == "little" else "<"
_READ_BYTES = 1 << 20  # at a time, of rows that are asked for one by one
_ADVICE = ("normal", "sequential", "random", "willneed", "dontneed")  # penstock::advice


def describe(path: Path, tensor: str = "", *, dtype: object = None,
             shape: Sequence[int] | None = None, offset: int | None = None,
             stride: int | None = None) -> _core.Layout:
    """Where the rows of a file lie, by its header; reads no row. Arguments and errors are those of
    ``open_array``. ``page_bytes`` of the result says which pages suit such rows."""
    name = path_text(path)
    if not isinstance(tensor, str):
        raise ValueError(f"tensor: {tensor!r} is no name; give text")
    offset = None if offset is None else bytes_of("offset", offset)
    stride = None if stride is None else bytes_of("stride", stride)
    shape = None if shape is None else extents_of(shape)
    if dtype is None and shape is None:
        if offset is not None or stride:
            raise ValueError(f"{name!r}: offset and stride are for files without a header; give "
                             "dtype and shape too")
        return _core.describe(name, tensor)
    if tensor:
        raise ValueError(f"{name!r}: tensor {tensor!r} has its dtype and shape in the header; "
                         "leave dtype and shape out")
    if offset is None and has_header(name):
        if stride:
            raise ValueError(f"{name!r}: its rows lie close together; leave stride out, or give "
                             "offset too to read the bytes of the file")
        return checked_header(name, dtype, shape)
    extents = list(shape) if shape is not None else [-1]
    if not extents or any(n < 0 for n in extents[1:]) or extents[0] < -1:
        raise ValueError(f"shape: {tuple(extents)} counts no rows; give the rows first, -1 for as "
                         "many as the file has")
    if extents[0] == 0:
        raise ValueError(f"shape: {tuple(extents)} has no rows, and an array needs one; -1 stands "
                         "for as many as the file has")
    return _core.describe_raw(name, 0, stride or 0, offset or 0, max(extents[0], 0),
                              dtype_name("uint8" if dtype is None else dtype), extents[1:])


def bytes_of(what: str, number: object) -> int:
    """The number of bytes. ValueError: it is none that a file can have."""
    if not isinstance(number, SupportsIndex) or isinstance(number, bool) or \
            not 0 <= operator.index(number) < 1 << 63:
        raise ValueError(f"{what}: {number!r} is no number of bytes; give a whole one from 0 to "
                         "2**63 - 1")
    return operator.index(number)


def extents_of(shape: object) -> tuple[int, ...]:
    """The shape. ValueError: it is none that a file can have."""
    if isinstance(shape, Iterable) and not isinstance(shape, (str, bytes)):
        found = tuple(shape)
        if all(isinstance(n, SupportsIndex) and abs(operator.index(n)) < 1 << 63 for n in found):
            return tuple(map(operator.index, found))
    raise ValueError(f"shape: {shape!r} is none; give a tuple of whole numbers, such as (-1, 64)")


def has_header(name: str) -> bool:
    """Whether a file of such a name has dtype and shape in itself."""
    return name.endswith((".npy", ".safetensors", ".safetensors.index.json"))


def checked_header(name: str, dtype: object, shape: Sequence[int] | None) -> _core.Layout:
    """What the header says. ValueError: ``dtype`` or ``shape`` say something else."""
    if not name.endswith(".npy"):
        raise ValueError(f"{name!r}: its tensors have dtype and shape in the header; give the name "
                         "of one, or offset too to read the bytes of the file")
    layout = _core.describe(name, "")
    extents = (layout.rows, *layout.row_shape)
    given = extents if shape is None else tuple(shape)
    kind = layout.dtype if dtype is None else dtype_name(dtype)
    if given[:1] == (-1,):
        given = (layout.rows, *given[1:])
    if (kind, given) != (layout.dtype, extents):
        raise ValueError(f"{name!r}: its header says {layout.dtype or 'raw bytes'} of shape "
                         f"{extents}, and {kind} of shape {given} is asked for; leave dtype and "
                         "shape out, or give offset too to read the bytes of the file")
    return layout


def dtype_name(dtype: object) -> str:
    """"float16" for that name, a dtype of numpy or torch, or a type of numpy's scalars.
    FormatError: big-endian numbers."""
    if isinstance(dtype, str):
        name = dtype
        if not name.isidentifier() or len(name) < 3:  # "<f4", "f4"
            np = import_numpy()
            try:
                return dtype_name(np.dtype(dtype))
            except TypeError:
                raise ValueError(f"dtype: {dtype!r} is no type of elements; give one such as "
                                 "float32") from None
    elif type(dtype).__module__.partition(".")[0] == "torch":
        name = str(dtype).rpartition(".")[2]
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        if getattr(dtype, "byteorder", "=") == _FOREIGN_ORDER:
            raise FormatError(errno.EOPNOTSUPP, f"dtype: {dtype!r} is big-endian; save the numbers "
                                                "in the order of this machine")
    name = name.removesuffix("_")  # numpy's old bool_
    name = _BUILTIN_TYPES.get(name, name)
    return name if name[-1:].isdigit() or "float" in name else _plain_name(name)


def _plain_name(alias: str) -> str:
    """"float64" for "double": a name of numpy without its size. Others stay."""
    if alias == "bool":
        return alias
    try:
        import numpy as np

        return str(np.dtype(alias).name)
    except (ImportError, TypeError):
        return alias


def open_array(path: Path | _core.Layout, tensor: str = "", *, dtype: object = None,
               shape: Sequence[int] | None = None, offset: int | None = None,
               stride: int | None = None, mode: str = "r", runtime: Runtime | None = None) -> Array:
    """Opens an array in a file, of which rows are read by number. Nothing is read but its header.

    path
        A ``.npy`` file; a ``.safetensors`` file, its index (``model.safetensors.index.json``) or
        the folder of a checkpoint; or any file, with ``dtype`` and ``shape``. Or what ``describe``
        gave.
    tensor
        The name of a tensor of a checkpoint, where ``*`` stands for any characters: all that match
        are one table, in the order of their names (``shard_2`` before ``shard_10``).
    dtype, shape
        Of a file without a header. The first extent counts the rows, -1 takes as many as the file
        has. Of a ``.npy`` file they have to be what its header says.
    offset, stride
        In bytes: where the first row begins (None: 0), and from one row to the next (None: no gap).
        With an offset, 0 too, the header of a ``.npy`` or ``.safetensors`` file counts for nothing:
        ``dtype`` and ``shape`` are of its bytes from there on.
    mode
        ``"r"``, or ``"r+"`` for ``scatter``, which needs a runtime with ``writable=True``.
    runtime
        Whose cache the rows come through. None: the process's own for pages that suit the rows
        (``default``).

    Raises FileNotFoundError and its like; FormatError for a damaged file, Fortran order, big-endian
    numbers or records; ValueError for values that do not fit together. Takes some tens of
    microseconds for each file. On a GPU call it between kernels, for it may allocate memory.
    """
    if mode not in ("r", "r+"):
        raise ValueError(f'mode: {mode!r} is none; give "r" or "r+"')
    if isinstance(path, _core.Layout):
        if tensor or any(x is not None for x in (dtype, shape, offset, stride)):
            raise ValueError("a Layout has tensor, dtype, shape, offset and stride already; leave "
                             "them out, or give the path")
        layout = path
    else:
        layout = describe(path, tensor, dtype=dtype, shape=shape, offset=offset, stride=stride)
    if runtime is None:
        runtime = default(writable=mode == "r+", _suits=layout)
    require_writable(runtime, mode, layout.pieces[0][0])
    return Array(layout, runtime, mode)


def concat(arrays: Iterable[Array], *, runtime: Runtime | None = None) -> Array:
    """One array of the rows of several, one behind the other, for instance the shards of a table.
    They have equal dtype, shape of a row, stride, mode and (without ``runtime``) runtime; their
    files are opened once more. The arrays themselves may be closed afterwards. ValueError: they
    differ, or there is none."""
    parts = list(arrays)
    for part in parts:
        if not isinstance(part, Array):
            raise TypeError(f"concat: {part!r} is no Array; give what open_array returned")
    layout = _core.join([part.layout for part in parts])
    first = parts[0]
    require_writable(first.runtime if runtime is None else runtime, first.mode, first.path)
    for part in parts:
        if part.mode != first.mode:
            raise ValueError(f"concat: {first.path!r} has mode {first.mode!r} and {part.path!r} "
                             f"{part.mode!r}; open all of them with the same")
        if runtime is None and part.runtime is not first.runtime:
            raise ValueError(f"concat: {first.path!r} and {part.path!r} are of different runtimes; "
                             "say by runtime= in which to open them")
    return Array(layout, first.runtime if runtime is None else runtime, first.mode)


def require_writable(runtime: Runtime, mode: str, path: str) -> None:
    """OSError: the mode asks for what the runtime cannot do."""
    if mode == "r+" and not runtime.writable:
        raise OSError(errno.EROFS, 'mode: "r+" needs a runtime that may write; make it with '
                      'Runtime(writable=True)', path)


class Array(Opened[_core.Table]):
    """Rows of equal size in files: what ``open_array`` and ``concat`` give.

    Elements of less than a byte (float4_e2m1fn, F6) come as the bytes that they are packed in:
    ``dtype`` is then "uint8" and ``shape`` ``(rows, row_bytes)``; ``layout`` says what they are.

    Not an array of numpy: rows come by ``gather``, by ``t[ids]``, ``t[3]`` and ``t[a:b]``, and
    ``np.asarray(t)`` reads all of them. Every call may be made from any thread. Close it, or use it
    in a ``with`` statement; its runtime closes it too.

    On a GPU ``gather``, ``scatter`` and ``prefetch`` return before the work has begun, so an error
    of a row cannot be raised by the call: such a row is zeros, and the next call of this array, or
    ``check()``, raises the error. On CPU threads the call itself raises it.
    """

    def __init__(self, layout: _core.Layout, runtime: Runtime, mode: str) -> None:
        row_shape, dtype = tuple(layout.row_shape), layout.dtype
        # Raw bytes, and elements of less than a byte, which no framework has arrays of.
        if not dtype or math.prod(row_shape) > layout.row_bytes:
            row_shape, dtype = (layout.row_bytes,), "uint8"
        files = files_of(layout)
        core = _core.make_table(runtime._core, layout, mode == "r+")
        self._layout = layout
        self._row_shape = row_shape
        self._row_bytes = layout.row_bytes
        self._places = {n: i for i, n in enumerate(runtime.device_numbers)}
        super().__init__(core, runtime, layout.pieces[0][0], mode, dtype,
                         (layout.rows, *row_shape))
        # By which programs of torch know it.
        self._number = enter(self, layout, mode, files)

    # What it is

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self._row_bytes

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, without gaps between them."""
        return self._shape[0] * self._row_bytes

    @property
    def layout(self) -> _core.Layout:
        """Where the rows lie."""
        return self._layout

    def __len__(self) -> int:
        return self._shape[0]

    def ref_bytes(self, device: int = 0) -> bytes:
        """The bytes of ``penstock::table_ref``, for a kernel of your own. Valid until ``close``."""
        return self._core.ref(device)

    # Rows by number

    def gather(self, ids: Any, *, out: Any = None, stream: object = None,
               pad: int | None = None) -> Any:
        """Rows ``ids[0]``, ``ids[1]`` ... as an array of shape ``ids.shape + t.shape[1:]``.

        ids
            int32 or int64 (or unsigned) numbers of rows from 0 on, in any order and as often as you
            like: on a GPU an array of torch, cupy, jax or numba there; else of numpy, torch, or a
            list. Numbers in host memory work on a GPU too, but the call then waits, also for what
            is on the default stream.
        out
            Memory for the rows, of that shape and dtype; its rows may lie apart, at one distance.
            It may lie where the numbers lie, but on a GPU (ValueError), and is no array of jax.
            None: a new array of the framework and device of ``ids``.
        stream
            On a GPU: where the rows are copied, after all work that is on it. None: the current
            stream of the framework of ``ids``. A stream of torch, cupy, numba or cuda.core, or its
            address.
        pad
            A number that stands for no row and gives zeros, for lists of fixed length.

        With ``out`` nothing is allocated and nothing is waited for: a CUDA graph may contain the
        call, and may be launched again with new numbers in the same memory. Raises IndexError for a
        number that is no row (negative ones too) and OSError for a row that cannot be read; on a
        GPU the next call of this array or ``check()`` raises them. ValueError: ids or out that do
        not fit, or the array is closed. Blocks on CPU threads until the rows are there, without
        the GIL.
        """
        framework = kind = framework_of(ids)
        if pad is not None:
            pad = padding_of(pad, ids)
        if out is not None:
            kind = framework_of(out)
            kind.claim(out)
        given = out
        if stream is None and framework.tells and ids.dtype in framework.types:
            is_plain = out is None or (kind.tells and kind.resolved(out) is out)
            if out is None:
                out = framework.empty((*ids.shape, *self._row_shape), self._dtype, ids)
            done = is_plain  # also where it raises: some rows may be there
            try:
                done = is_plain and self._core.gather_arrays(ids, out, pad)
            finally:
                if done and given is not None:
                    kind.written(given)
            if done:
                return out
        numbers = framework.numbers(ids)
        shape = numbers.shape + self._row_shape
        used = 0
        if numbers.device >= 0:
            used, is_other = call_stream(framework, ids, numbers, stream)
            if out is None and is_other:
                out = framework.empty_on(shape, self._dtype, ids, used, stream)
        if out is None:
            out = framework.empty(shape, self._dtype, ids)
        rows = kind.rows(out, shape, self._dtype, len(numbers.shape))
        if numbers.size and not (numbers.address and rows.address):
            raise no_memory()
        place = -1
        if numbers.device >= 0 or rows.device >= 0:
            place = self._place_of(numbers, rows.device)
        try:
            self._core.gather(numbers.address, numbers.type, numbers.size, rows.address,
                              rows.item_bytes, rows.stride, used, pad, place,
                              framework.waits or kind.waits)
        finally:
            if given is not None:
                kind.written(given)
        return out

    def _place_of(self, numbers: Numbers, rows_device: int) -> int:
        """The place of the GPU of the numbers among those of the runtime."""
        place = self._places.get(numbers.device, -1) if self._on_gpu else -1
        if numbers.device != rows_device or place < 0:
            def name(device: int) -> str:
                return "host memory" if device < 0 else f"GPU {device}"
            has = ", ".join(f"GPU {n}" for n in self._places) if self._on_gpu else "host memory"
            raise ValueError(f"ids lie in {name(numbers.device)}, the rows go to "
                             f"{name(rows_device)}, and the runtime uses {has}; move ids and out "
                             "there")
        return place

    def __iter__(self) -> Iterator[Any]:
        """The rows, of numpy, some at a time."""
        return iter(self[:])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All rows, read at once, for ``np.asarray``. ValueError: without a copy, or another
        ``dtype`` of elements that numpy has only the bits of."""
        return self[:].__array__(dtype, copy)

    def __getitem__(self, key: Any) -> Any:
        """``t[3]``: a row, of numpy; negative numbers count from the end. ``t[a:b]``: a lazy
        ``View``. ``t[ids]``: ``gather(ids)``."""
        if isinstance(key, slice):
            return View(self, range(*key.indices(len(self))))
        if isinstance(key, tuple) or key is None or key is Ellipsis:
            raise TypeError("an Array is indexed by rows alone: t[3], t[a:b] or t[ids]; index the "
                            "result further")
        row = row_of(key)
        if row is None:
            return self.gather(key)
        if row < 0:
            row += len(self)
        if not 0 <= row < len(self):
            raise IndexError(f"row {row if row >= 0 else row - len(self)} of {len(self)}")
        return self.gather([row])[0]

    # Rows ahead of their use, and changes

    def scatter(self, ids: Any, values: Any, *, stream: object = None,
                pad: int | None = None) -> None:
        """Writes row ``values[i]`` to row ``ids[i]``, in mode ``"r+"``; ``sync`` brings it to the
        file. ``values`` has shape ``ids.shape + t.shape[1:]``, the dtype of the array (a list:
        numbers that fit it, and no fractions for integers), and lies where ``ids`` lie. If a number
        repeats, each byte of its row comes from one of the rows. Stream, ``pad`` and errors are as
        of ``gather``; OSError: EROFS in mode ``"r"``."""
        if self._mode == "r":
            raise OSError(errno.EROFS, 'scatter: the array is open for reading; open it with '
                          'mode="r+" in a Runtime(writable=True)', self._path)
        framework, kind = framework_of(ids), framework_of(values)
        given, values = values, kind.resolved(values)
        if pad is not None:
            pad = padding_of(pad, ids)
        if (stream is None and framework.tells and kind.tells
                and self._core.scatter_arrays(ids, values, pad)):
            return
        numbers = framework.numbers(ids)
        if kind is NUMPY:
            values = NUMPY.values(values, self._dtype)
        rows = kind.rows(values, numbers.shape + self._row_shape, self._dtype,
                         len(numbers.shape), False)
        place, used = -1, 0
        if numbers.device >= 0 or rows.device >= 0:
            place = self._place_of(numbers, rows.device)
            used, is_other = call_stream(framework, ids, numbers, stream)
            if is_other and values is not given and not kind.waits:
                raise ValueError("values: they show conjugates or negatives, and a copy of them "
                                 "would be made on another stream; give such with stream=")
        self._core.scatter(numbers.address, numbers.type, numbers.size, rows.address,
                           rows.item_bytes, rows.stride, used, pad, place,
                           framework.waits or kind.waits)

    def _bring(self, ids: Any, stream: object, into_cache: bool) -> None:
        if isinstance(ids, slice):
            np = import_numpy()
            ids = np.arange(*ids.indices(len(self)), dtype=np.int64)
        framework = framework_of(ids)
        numbers = framework.numbers(ids)
        place, used = -1, 0
        if numbers.device >= 0:
            place = self._place_of(numbers, numbers.device)
            used, _ = call_stream(framework, ids, numbers, stream)
        self._core.prefetch(numbers.address, numbers.type, numbers.size, used, into_cache, place,
                            framework.waits)

    def prefetch(self, ids: Any, *, stream: object = None) -> None:
        """Brings the pages of these rows (numbers, or a slice) into the cache, each once. On a GPU
        they are there when the stream is past the call, whose kernel waits for them; on CPU threads
        when the call returns. Pages that another call is loading count as there."""
        self._bring(ids, stream, True)

    def will_need(self, ids: Any, *, stream: object = None) -> None:
        """Says that these rows (numbers, or a slice) will be wanted soon, and waits for nothing:
        their bytes are then on their way to the host tier, or without one to the operating system's
        page cache. A hint: numbers of no row are passed over."""
        self._bring(ids, stream, False)

    def advise(self, kind: str, part: slice = slice(None)) -> None:
        """How the files will be read: ``"normal"``, ``"sequential"`` or ``"random"``, for the whole
        files; ``"willneed"`` (into the host tier) or ``"dontneed"`` (out of the cache) for the rows
        of a slice. A hint. ValueError: no such kind."""
        if kind not in _ADVICE:
            raise ValueError(f"kind: {kind!r} is no advice; give one of {', '.join(_ADVICE)}")
        begin, end, step = part.indices(len(self))
        if step != 1:
            raise ValueError("part: its rows lie apart; give a slice without a step")
        if begin >= end:
            return
        self._core.advise(_ADVICE.index(kind), begin, end)

    def windows(self, fraction: float = 1.0) -> int:
        """Opens windows: rows that lie in the operating system's page cache are then read in place,
        with no request to the host. Takes in what is in memory now, of the first ``fraction`` of
        the rows; again, after a time: what has come into memory since. How many bytes lie in
        windows then. OSError: why there can be none; rows are then read all the same. On a GPU call
        it between kernels. On CPU threads an array that gathers many rows opens its windows by
        itself, for all of its rows."""
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"fraction: {fraction} is none; give more than 0 and at most 1")
        try:
            return self._core.open_windows(0, max(1, int(fraction * len(self))))
        except OSError as error:
            self._raise_no_windows(error)

    def _raise_no_windows(self, error: OSError) -> NoReturn:
        text = str(error)
        if self._mode != "r":
            text = 'the array may be written; open it with mode="r"'
        elif self._runtime.settings()["window_bytes"] == "0":
            text = "the runtime has windows=0; make one with more"
        elif error.errno == errno.EOPNOTSUPP:
            text = ("the system gives no lease of a file of it: it is another user's and this "
                    "process lacks CAP_LEASE, some descriptor may write it, too many files are "
                    "open, or its file system has none")
        elif error.errno == errno.ENOSPC:
            text = ("the windows of the runtime have no room for it; make one with a larger "
                    "windows=. Or the file may be written in the runtime, or might have been since "
                    "the array was opened; close what may write it, and open it again")
        raise OSError(error.errno, f"windows: {text}. Rows are read without windows too",
                      self._path) from None

    def grow_windows(self) -> int:
        """Takes into windows what was asked for since and lies in memory by now: cheap, for every
        batch. How many bytes it took in: 0 too where there can be no windows, of which ``windows``
        says why. On a GPU call it between kernels."""
        try:
            return self._core.grow_windows()
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSPC):
                return 0
            raise

    def sync(self) -> None:
        """What ``scatter`` wrote is on storage when it returns. On a GPU the work on the stream has
        to have ended. Blocks, without the GIL. OSError: what could not be written, and why; the
        next ``sync`` tries again. Where a file "could not be brought to its storage" that does not
        help: scatter once more what was written since the last ``sync`` that returned."""
        self._core.sync()

    # Errors, and the end

    def check(self) -> None:
        """Raises the first error of a row since the last check, and forgets it. Reads words of host
        memory and waits for nothing, so work on a stream has to have ended to be seen."""
        self._core.check()

    def _check(self) -> None:
        if not self._core.closed:
            self._core.check()

    def close(self) -> None:
        """Closes the files; on a GPU waits first until no kernel uses them. In mode ``"r+"`` what
        ``scatter`` wrote is in the files when the last array of them is closed, or OSError says
        what could not be written and why, once; it is closed all the same, and another array of the
        file, or the end of the runtime, tries again. Captured graphs that gather from the array
        must not be launched any more. A second call does nothing."""
        self._core.close()


class View:
    """Rows ``a`` to ``b`` of an Array, read when they are wanted: ``np.asarray(view)``, or
    ``view.to("cuda")``. Keeps no bytes."""

    def __init__(self, array: Array, rows: range) -> None:
        self._array = array
        self._rows = plain_range(rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, then the shape of a row."""
        return (len(self._rows), *self._array.shape[1:])

    @property
    def dtype(self) -> str:
        """As of the array."""
        return self._array.dtype

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __iter__(self) -> Iterator[Any]:
        """The rows, of numpy, some at a time."""
        step = max(1, min(1024, _READ_BYTES // self._array.row_bytes))
        for begin in range(0, len(self), step):
            yield from self[begin:begin + step].__array__()

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return View(self._array, self._rows[key])
        row = row_of(key)
        if row is None:
            raise TypeError("a View is indexed by a number or a slice; give the Array numbers of "
                            "its own rows, or index np.asarray(view)")
        return self._array[self._rows[row]]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        np = import_numpy()
        if copy is False:
            raise ValueError("the rows of a View lie in a file, so an array of them is a copy")
        check_conversion(self.dtype, dtype)
        ids = np.arange(self._rows.start, self._rows.stop, self._rows.step, dtype=np.int64)
        rows = self._array.gather(ids)
        return rows if dtype is None else rows.astype(dtype, copy=False)

    def to(self, device: Any) -> Any:
        """The rows as a tensor of torch on that device; ValueError: the runtime does not use it."""
        import torch

        rows = self._rows
        ids = torch.arange(rows.start, rows.stop, rows.step, device=device)
        return self._array.gather(ids)

    def __repr__(self) -> str:
        return f"<penstock.View of {len(self)} rows of {self._array!r}>"


__all__ = ["Array", "View", "concat", "describe", "dtype_name", "open_array"]
