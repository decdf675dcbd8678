"""What frameworks have in common: lists of row numbers and memory for rows as addresses, types of
elements, and what is said of arrays that do not fit."""
from __future__ import annotations

import operator
import re
import sys
from typing import Any, NamedTuple, Protocol, SupportsIndex

from . import _core

# The numbers of penstock::engine::number_type.
INT32, INT64, UINT32, UINT64 = range(4)
NUMBER_TYPES = {"int32": INT32, "int64": INT64, "uint32": UINT32, "uint64": UINT64}
TYPESTRS = {"<i4": INT32, "<i8": INT64, "<u4": UINT32, "<u8": UINT64}


class Numbers(NamedTuple):
    """A list of row numbers. ``keep`` lives until the call has begun, ``device`` is the number of
    a GPU, or -1 for host memory."""

    address: int
    type: int
    size: int
    shape: tuple[int, ...]
    device: int
    keep: object


class Rows(NamedTuple):
    """Memory for rows: its address, the bytes from one row to the next (0: close together), and
    those of an element, which the core compares: else it would write more than there is. ``keep``
    is as that of ``Numbers``."""

    address: int
    stride: int
    device: int
    item_bytes: int
    keep: object = None


class Framework(Protocol):
    """How a library's arrays are made and looked at. ``tells``: they can all be written, and tell
    of themselves and of the current stream through DLPack's functions, which the core asks; lists
    are then of a dtype in ``types``. Of ``rows`` the first ``axes`` extents are those of the list.
    ``resolved``: the rows as their memory has them, where an array may stand for others. ``claim``
    refuses an ``out`` of a caller that may not be written, and ``written`` comes once it was.
    ``waits``: a call on a GPU with an array of it has to have ended when it returns, for its
    library would give the memory to other work."""

    tells: bool
    waits: bool
    types: dict[Any, int]

    def numbers(self, ids: Any) -> Numbers: ...
    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any: ...
    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows: ...
    def resolved(self, rows: Any) -> Any: ...
    def claim(self, out: Any) -> None: ...
    def written(self, out: Any) -> None: ...
    def stream(self, ids: Any) -> int: ...
    def empty_on(self, shape: tuple[int, ...], dtype: str, ids: Any, stream: int,
                 named: object) -> Any: ...


def not_numbers(ids: object, text: str) -> ValueError:
    has_right_type = isinstance(ids, (list, tuple, range)) or hasattr(ids, "dtype")
    other = "" if has_right_type else f", and not {type(ids).__name__}"
    return ValueError(f"ids: {text}; give int32 or int64 numbers in an array of numpy, torch, "
                      f"cupy, jax or numba{other}")


def import_numpy() -> Any:
    """The module. ModuleNotFoundError, with the cure: it is not installed."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise  # it is there, and lacks something itself
        raise ModuleNotFoundError("lists of numbers, single rows, slices and dtypes such as '<f4' "
                                  "need numpy, which is not installed; pip install numpy",
                                  name="numpy") from None
    return numpy


def plain_range(rows: range) -> range:
    """The same numbers, so that torch takes them: none is an empty range forwards, and the step of
    a single one, which may have any size, is 1."""
    return rows if len(rows) > 1 else range(rows[0], rows[0] + 1) if rows else range(0)


def no_memory() -> ValueError:
    return ValueError("ids or rows have no memory, as tensors that stand for others in a "
                      "transformation of the program (vmap, torch.func); make the call outside of "
                      "it")


def is_truth(number: object) -> bool:
    """Whether it is a truth value: Python, and what it asks, would take it for 0 or 1."""
    return isinstance(number, bool) or str(getattr(number, "dtype", "")).endswith("bool")


def padding_of(pad: SupportsIndex, ids: object) -> int:
    """``pad`` by the bits that the core compares."""
    if is_truth(pad):
        raise ValueError(f"pad: {pad!r} is no number; give one of 64 bits")
    number = operator.index(pad)
    is_wide = number >= 1 << 63 and str(getattr(ids, "dtype", "")).endswith("uint64")
    if not -(1 << 63) <= number < 1 << (64 if is_wide else 63):
        raise ValueError(f"pad: {number} is no number that ids can have; give one of 64 bits")
    return number - (1 << 64) if is_wide else number


def wrong_out(text: str, for_writing: bool = True) -> ValueError:
    return ValueError(f"{'out' if for_writing else 'values'}: {text}")


def check_shape(got: tuple[int, ...], wanted: tuple[int, ...], for_writing: bool = True) -> None:
    if tuple(got) != wanted:
        raise wrong_out(f"its shape is {tuple(got)} and the rows have {wanted}; give that shape",
                        for_writing)


def row_stride(strides: tuple[int, ...] | None, shape: tuple[int, ...], itemsize: int, axes: int,
               for_writing: bool = True) -> int:
    """Bytes from one row to the next of memory with such strides in bytes; 0 if all of it is
    contiguous. The first ``axes`` extents count the rows. ValueError: a row is not contiguous, or
    the rows do not lie one behind the other at one distance."""
    if strides is None or 0 in shape:
        return 0
    expected = itemsize
    for axis in range(len(shape) - 1, axes - 1, -1):
        if shape[axis] != 1 and strides[axis] != expected:
            raise wrong_out("its rows do not lie contiguous; give a contiguous array", for_writing)
        expected *= shape[axis]
    row_bytes, stride = expected, 0
    for axis in range(axes - 1, -1, -1):
        if shape[axis] == 1:
            continue
        if stride == 0 and strides[axis] >= row_bytes:
            stride = expected = strides[axis]
        if strides[axis] != expected or stride == 0:
            raise wrong_out("its rows do not lie at one distance, each behind the one before; give "
                            "a contiguous array", for_writing)
        expected *= shape[axis]
    return 0 if stride == row_bytes else stride


def item_bytes_of(name: str) -> int:
    """Bytes of an element of that name: 2 of "bfloat16", 1 of "float8_e4m3fn" and "bool"."""
    bits = re.search("[0-9]+", name)
    return int(bits.group()) // 8 if bits else 1


def numpy_dtype(name: str) -> Any:
    """The numpy dtype of elements. What numpy does not know comes from ml_dtypes if that is
    installed, else as unsigned integers of the same size."""
    found = _numpy_dtypes.get(name)
    if found is None:
        found = _numpy_dtypes[name] = _find_numpy_dtype(name)
    return found


_numpy_dtypes: dict[str, Any] = {}


def stands_in(name: str) -> bool:
    """Whether ``numpy_dtype`` gives unsigned integers in place of such elements."""
    return not name.startswith("uint") and numpy_dtype(name).kind == "u"


def only_bits(name: str) -> str:
    """What is said where numbers would become the bits of such elements, or the bits numbers."""
    bits = numpy_dtype(name)
    return (f"{name}, of which numpy has only the bits; install ml_dtypes (a version with {name}), "
            f"or use {bits} for the bits")


def other_elements(got: object, name: str, for_writing: bool) -> ValueError:
    wanted = numpy_dtype(name)
    text = only_bits(name) if stands_in(name) else f"{wanted}; give {wanted}"
    return wrong_out(f"its elements are {got} and those of the rows {text}", for_writing)


def check_conversion(name: str, dtype: Any) -> None:
    """ValueError: such elements are to become others, and numpy would take bits for numbers."""
    if dtype is None or not stands_in(name):
        return
    wanted = import_numpy().dtype(dtype)
    if wanted != numpy_dtype(name):
        raise ValueError(f"dtype: {wanted} is asked for of {only_bits(name)}")


def typestr_of(name: str) -> str:
    """The elements for ``__array_interface__`` and its like, which know the types of numpy itself
    alone: others come as unsigned integers of the same size."""
    dtype = numpy_dtype(name)
    if dtype.isbuiltin == 1:
        return str(dtype.str)
    return "|u1" if dtype.itemsize == 1 else f"<u{dtype.itemsize}"


def _find_numpy_dtype(name: str) -> Any:
    np = import_numpy()
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError, TypeError):
        return np.dtype(f"uint{8 * item_bytes_of(name)}")


class Unordered:
    """Arrays that know no stream: their work is done when a call returns."""

    tells = False
    waits = False
    types: dict[Any, int] = {}

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        raise NotImplementedError

    def stream(self, ids: Any) -> int:
        return 0

    def empty_on(self, shape: tuple[int, ...], dtype: str, ids: Any, stream: int,
                 named: object) -> Any:
        return self.empty(shape, dtype, ids)

    def resolved(self, rows: Any) -> Any:
        return rows

    def claim(self, out: Any) -> None:
        pass

    def written(self, out: Any) -> None:
        pass


def device_of(array: Any, address: int) -> int:
    """The number of the GPU that has the array; -1: none. If it does not say, the one of which the
    driver has memory at that address; 0 if the driver does not know either."""
    ask = getattr(array, "__dlpack_device__", None)
    if ask is None:
        return max(0, _core.gpu_of_memory(address))
    kind, number = ask()
    return int(number) if int(kind) in (2, 13) else -1


def is_of(array: object, module: str, name: str) -> bool:
    """Whether it is of that class, of a library that need not be imported."""
    found = getattr(sys.modules.get(module), name, None)
    return isinstance(found, type) and isinstance(array, found)
