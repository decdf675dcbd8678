"""Arrays of other libraries, as addresses: where lists of row numbers and results lie, and on which
stream their users work. No library is imported here that the caller's objects are not of."""
from __future__ import annotations

import ctypes
import math
import operator
import sys
from functools import partial
from typing import Any

from ._dlpack import Exchanged
from ._memory import (NUMBER_TYPES, TYPESTRS, Framework, Numbers, Rows, Unordered, check_shape,
                      device_of, import_numpy, is_of, is_truth, item_bytes_of, no_memory,
                      not_numbers, numpy_dtype, only_bits, other_elements, row_stride, stands_in,
                      wrong_out)


class Numpy(Unordered):
    """Host memory. Lists and other sequences become arrays of numpy."""

    def __init__(self) -> None:
        self.types: dict[Any, int] = {}

    def numbers(self, ids: Any) -> Numbers:
        np = import_numpy()
        array = np.asarray(ids)
        number = self.types.get(array.dtype)
        flags = array.flags
        if number is None or not (flags.c_contiguous and flags.aligned):
            return self.other_numbers(np, ids, array)
        # Of all ways to ask numpy for the address this takes the least time.
        return Numbers(array.ctypes.data, number, array.size, array.shape, -1, array)

    def other_numbers(self, np: Any, ids: Any, array: Any) -> Numbers:
        self.types = {np.dtype(name): number for name, number in NUMBER_TYPES.items()}
        if array.dtype == bool and isinstance(ids, np.ndarray):
            raise not_numbers(ids, "a mask counts no rows; give numpy.flatnonzero(mask)")
        if array.dtype.kind not in "iu" and array.size:
            raise not_numbers(ids, f"{array.dtype} counts no rows")
        if array.dtype not in self.types or not array.flags.c_contiguous:
            shape = array.shape
            wide = array.dtype if array.dtype in self.types else np.int64
            array = np.ascontiguousarray(array, dtype=wide).reshape(shape)
        array = np.require(array, requirements="A")
        return Numbers(array.ctypes.data, self.types[array.dtype], array.size, array.shape, -1,
                       array)

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        import numpy as np

        return np.empty(shape, numpy_dtype(dtype))

    def values(self, values: Any, dtype: str) -> Any:
        """Rows that are to be written: an array as it is, of lists and numbers one of the dtype.
        ValueError: they would lose more than digits."""
        np = import_numpy()
        if isinstance(values, np.ndarray):
            return values
        wanted, given = numpy_dtype(dtype), getattr(values, "dtype", None)
        if isinstance(given, str) and stands_in(dtype) and given not in (dtype, wanted.name):
            raise wrong_out(f"its elements are {given} and those of the rows {dtype}; give {dtype}",
                            False)  # an Array or a View, whose bits are of equal size
        try:
            found = np.asarray(values)
            if given is not None:
                return found
            wrong = _loss(np, values, found, dtype)
            with np.errstate(all="ignore"):  # said below
                made = None if wrong else np.asarray(values, dtype=wanted)
        except (OverflowError, TypeError, ValueError) as error:
            raise ValueError(f"values: {error}; give rows of {dtype}") from error
        if not wrong and _numbers_changed(np, values, found, made):
            wrong = f"some are no elements of {dtype}; give rows of {dtype}"
        if wrong:
            raise wrong_out(wrong, False)
        return made

    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows:
        flags = getattr(out, "flags", None)
        if flags is None:
            raise wrong_out(f"{type(out).__name__} is no memory for rows; give an array of numpy, "
                            "torch, cupy or numba", for_writing)
        if out.shape != shape:
            check_shape(out.shape, shape, for_writing)
        wanted = numpy_dtype(dtype)
        if out.dtype != wanted:
            raise other_elements(out.dtype, dtype, for_writing)
        if for_writing and not flags.writeable:
            raise wrong_out("it cannot be written; give an array that can")
        stride = 0
        if not flags.c_contiguous:
            stride = row_stride(out.strides, shape, out.dtype.itemsize, axes, for_writing)
        return Rows(out.ctypes.data, stride, -1, out.dtype.itemsize)


def _loss(np: Any, values: Any, found: Any, dtype: str) -> str:
    """Why a list, of the elements that numpy finds in it, may not become the dtype. Empty: it may;
    whether whole numbers fit shows then."""
    wanted, kind = numpy_dtype(dtype), found.dtype.kind
    if found.dtype == wanted or not found.size:
        return ""
    if stands_in(dtype):
        return f"they are {found.dtype}, and the rows are {only_bits(dtype)}"
    if kind in "biu" or (np.can_cast(found.dtype, wanted, "same_kind")
                         and (kind != "c" or wanted.kind == "c")):  # else ml_dtypes takes them
        return ""
    if kind in "fO" and _are_whole(np, np.asarray(values, dtype=object)):
        return ""
    return f"they are {found.dtype}, which {dtype} would cut; give rows of {dtype}"


def _are_whole(np: Any, objects: Any) -> bool:
    """Whole numbers of which no one type has all are float64 or objects to numpy."""
    return all(isinstance(n, (int, np.integer, np.bool_)) for n in objects.flat)


def _numbers_changed(np: Any, values: Any, found: Any, made: Any) -> bool:
    """Whether the dtype lacks a whole number of a list, or made a number of it infinite. That of a
    fraction is the nearest one."""
    if made.dtype.kind in "biu":
        return bool((made != found).any())
    kind, beyond = found.dtype.kind, False
    if kind in "fc":
        beyond = bool((np.isfinite(found) & ~np.isfinite(made)).any())
    real = (made.real if made.dtype.kind == "c" else made).astype("f8")
    if kind in "iu":  # a long double has all of them, and all of float64
        return bool((real.astype("longdouble") != found.astype("longdouble")).any())
    if not beyond and (kind == "O" or kind == "f" and (abs(found) >= 1 << 53).any()):
        numbers = np.asarray(values, dtype=object)
        return _are_whole(np, numbers) and any(
            not np.isfinite(m) or int(m) != int(n) for m, n in zip(real.flat, numbers.flat))
    return beyond


def _count_write(tensor: Any) -> None:
    """For a torch without increment_version: of all that changes nothing this takes least time."""
    tensor.transpose_(0, 0)


class _NoForwardAD:
    """Of a torch without it."""

    _current_level = -1


class Recorded(RuntimeError):
    """The call happens once, while torch records a program, and would be missing there."""


_SHORT = {"torch.int8", "torch.uint8", "torch.int16", "torch.uint16"}  # become int32


class Torch:
    """Tensors, on the host or a GPU. Takes addresses and streams directly: no exchange protocol."""

    waits = False

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.types = {getattr(torch, name): number for name, number in NUMBER_TYPES.items()
                      if hasattr(torch, name)}
        # Not public, but what torch's own compiled kernels call: the public way makes an object of
        # a stream each time, which takes longer than the rest of these questions together.
        self.raw_stream = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)
        self.tells = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        self.dtypes: dict[str, Any] = {}
        graph = getattr(getattr(torch, "autograd", None), "graph", None)
        self.count_write = getattr(graph, "increment_version", _count_write)
        autograd = getattr(torch, "autograd", None)
        self.forward_ad: Any = getattr(autograd, "forward_ad", _NoForwardAD)
        core: Any = getattr(torch, "_C", None)
        self.is_tracing = getattr(core, "_is_tracing", bool)
        self.modes = getattr(core, "_len_torch_dispatch_stack", int)
        self.early_modes: Any = bool
        early = getattr(getattr(core, "DispatchKey", None), "PreDispatch", None)
        if early is not None:
            self.early_modes = partial(core._dispatch_tls_is_dispatch_key_included, early)

    def refuse_record(self) -> None:
        """Recorded: this is a call under torch.jit.trace or make_fx. Modes of others may stay."""
        if self.is_tracing() or self.early_modes() or any(
                type(mode).__name__ == "ProxyTorchDispatchMode"
                for mode in self.torch.utils._python_dispatch._get_current_dispatch_mode_stack()):
            raise Recorded("torch records a program (torch.jit.trace, make_fx), which would have "
                           "the memory and not the call; use penstock.torch.gather, whose operator "
                           "it takes (PyTorch 2.4 and later), or make the call outside of it")

    def numbers(self, ids: Any) -> Numbers:
        if type(ids) is not self.torch.Tensor:
            held = getattr(ids, "as_tensor", None)  # PyG's Index and EdgeIndex
            if callable(held):
                plain = held()
                found = self.numbers(plain)
                return found._replace(keep=(plain, ids)) if found.keep is plain else found
        number = self.types.get(ids.dtype)
        if number is None:
            if str(ids.dtype) not in _SHORT:
                raise not_numbers(ids, f"{ids.dtype} counts no rows")
            ids, number = ids.to(self.torch.int32), NUMBER_TYPES["int32"]
        if ids.is_nested or ids.layout != self.torch.strided:
            raise not_numbers(ids, "they are a nested tensor" if ids.is_nested else
                              f"they are {ids.layout}")
        ids = self.resolved(ids)
        if not ids.is_contiguous():
            ids = ids.contiguous()
        device = ids.device
        if device.type == "cuda":
            where = device.index
        elif device.type == "cpu":
            where = -1
        else:
            raise not_numbers(ids, f"they lie on {device}, where nothing can read them")
        return Numbers(self.address(ids, "ids"), number, ids.numel(), tuple(ids.shape), where, ids)

    def address(self, tensor: Any, what: str) -> int:
        """ValueError: it stands for other tensors, and none of them is there yet; or its class has
        no memory of its own."""
        try:
            address = int(tensor.data_ptr())
        except RuntimeError as error:  # whose text speaks of kernels of torch
            raise self.without_memory(tensor, what) from error
        if address == 0 and tensor.numel():
            raise self.without_memory(tensor, what)
        return address

    def without_memory(self, tensor: Any, what: str) -> ValueError:
        kind = type(tensor)
        if kind is self.torch.Tensor:
            return no_memory()
        cures = [f"{what}.{name}()" for name in ("to_local", "as_tensor")
                 if callable(getattr(kind, name, None))]
        return ValueError(f"{what}: a {kind.__name__} has no memory of its own; give "
                          f"{cures[0] if cures else 'its plain tensor'}")

    def dtype(self, name: str) -> Any:
        """uint8 for elements of a byte that this torch lacks. ValueError: it lacks wider ones."""
        found = self.dtypes.get(name)
        if found is None:
            found = getattr(self.torch, name, None)
            if not isinstance(found, self.torch.dtype):
                size = item_bytes_of(name)
                if size != 1:
                    raise ValueError(f"this PyTorch ({self.torch.__version__}) has no {name}; give "
                                     "ids of numpy, and take the rows to PyTorch by "
                                     f'torch.from_numpy(rows.view("int{8 * size}"))')
                found = self.torch.uint8
            self.dtypes[name] = found
        return found

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        if self.is_tracing() or self.modes() or self.early_modes():
            self.refuse_record()
        return self.torch.empty(shape, dtype=self.dtype(dtype), device=ids.device)

    def resolved(self, rows: Any) -> Any:
        """A copy, where it is a view that shows the conjugates or negatives of what memory has."""
        if self.is_tracing() or self.modes() or self.early_modes():
            self.refuse_record()
        if rows.is_conj():
            rows = rows.resolve_conj()
        return rows.resolve_neg() if rows.is_neg() else rows

    def refuse_tangent(self, out: Any) -> None:
        if self.forward_ad.unpack_dual(out).tangent is not None:
            raise wrong_out("it has a tangent (forward-mode AD), and a gather has none; give "
                            "memory without one")

    def claim(self, out: Any) -> None:
        if self.is_tracing() or self.modes() or self.early_modes():
            self.refuse_record()
        if out.requires_grad and self.torch.is_grad_enabled():
            raise wrong_out("it requires a gradient, and a gather has none; give out.detach(), or "
                            "gather in torch.no_grad()")
        if self.forward_ad._current_level >= 0:
            self.refuse_tangent(out)

    def written(self, out: Any) -> None:
        """Autograd has to know of the write: what a backward needs would be another's silently."""
        if not out.is_inference():  # which counts no writes
            self.count_write(out)

    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows:
        check_shape(out.shape, shape, for_writing)
        if out.dtype != self.dtype(dtype):
            raise wrong_out(f"its elements are {out.dtype} and those of the rows "
                            f"{self.dtype(dtype)}; give these", for_writing)
        if out.is_conj() or out.is_neg():
            raise wrong_out("it is a view that shows the conjugates or negatives of its memory; "
                            "give the tensor itself", for_writing)
        stride = 0
        if not out.is_contiguous():
            size = out.element_size()
            stride = row_stride(tuple(s * size for s in out.stride()), shape, size, axes,
                                for_writing)
        device = out.device
        if device.type not in ("cpu", "cuda"):
            raise wrong_out(f"it lies on {device}; give one of the host or of a GPU", for_writing)
        address = self.address(out, "out" if for_writing else "values")
        return Rows(address, stride, device.index if device.type == "cuda" else -1,
                    out.element_size())

    def stream(self, ids: Any) -> int:
        device = ids.device
        if device.type != "cuda":
            return 0
        if self.raw_stream is not None:
            return int(self.raw_stream(device.index))
        return int(self.torch.cuda.current_stream(device).cuda_stream)

    def empty_on(self, shape: tuple[int, ...], dtype: str, ids: Any, stream: int,
                 named: object) -> Any:
        """Memory of the stream that writes it: what the current stream has not finished with must
        not be written. The current stream uses it next, so the allocator waits for that too."""
        cuda = self.torch.cuda
        if not isinstance(named, cuda.Stream):
            named = cuda.ExternalStream(stream, device=ids.device)
        with cuda.stream(named):
            made = self.empty(shape, dtype, ids)
        made.record_stream(cuda.current_stream(ids.device))
        return made


def _are_alike(typestr: str, name: str) -> bool:
    """Whether memory has such elements by its interface, where those that numpy lacks are unsigned
    integers, or bytes without a meaning."""
    wanted = numpy_dtype(name)
    if typestr[:1] != ">" and typestr[1:] == wanted.str[1:]:
        return True
    return (wanted.isbuiltin != 1 or stands_in(name)) and typestr[1:2] in ("u", "V") \
        and int(typestr[2:]) == wanted.itemsize


class CudaArray:
    """Arrays with ``__cuda_array_interface__``, of a library that makes none here."""

    tells = False
    waits = False
    types: dict[Any, int] = {}

    def numbers(self, ids: Any) -> Numbers:
        facts = ids.__cuda_array_interface__
        shape = tuple(facts["shape"])
        number = TYPESTRS.get(facts["typestr"])
        if number is None:
            raise not_numbers(ids, f"{facts['typestr']} counts no rows")
        try:
            row_stride(facts.get("strides"), shape, int(facts["typestr"][2:]), 0)
        except ValueError:
            raise not_numbers(ids, "the numbers do not lie contiguous") from None
        address = facts["data"][0]
        return Numbers(address, number, math.prod(shape), shape, device_of(ids, address), ids)

    def device(self, array: Any) -> int:
        return device_of(array, array.__cuda_array_interface__["data"][0])

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        raise wrong_out(f"rows for ids of {type(ids).__name__} need memory that is ready; give "
                        "out=")

    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows:
        facts = out.__cuda_array_interface__
        check_shape(facts["shape"], shape, for_writing)
        if not _are_alike(facts["typestr"], dtype):
            raise other_elements(facts["typestr"], dtype, for_writing)
        if for_writing and facts["data"][1]:
            raise wrong_out("it cannot be written; give an array that can")
        stride = row_stride(facts.get("strides"), shape, int(facts["typestr"][2:]), axes,
                            for_writing)
        address = facts["data"][0]
        return Rows(address, stride, device_of(out, address), int(facts["typestr"][2:]))

    def resolved(self, rows: Any) -> Any:
        return rows

    def claim(self, out: Any) -> None:
        pass

    def written(self, out: Any) -> None:
        pass

    def stream(self, ids: Any) -> int:
        return 0

    def empty_on(self, shape: tuple[int, ...], dtype: str, ids: Any, stream: int,
                 named: object) -> Any:
        return self.empty(shape, dtype, ids)


class Numba(CudaArray):
    """Arrays of numba, which takes the default stream unless a program names another."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        with self.cuda.gpus[self.device(ids)]:
            return self.cuda.device_array(shape, numpy_dtype(dtype))


class Cupy(CudaArray):
    """Arrays of cupy, which keeps a current stream for each GPU, and makes arrays on the thread's
    current GPU, whatever that of ``ids`` is."""

    def __init__(self, cupy: Any) -> None:
        self.make, self.cuda = cupy.empty, cupy.cuda

    def device(self, array: Any) -> int:
        return int(array.device.id)

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        with self.cuda.Device(self.device(ids)):
            return self.make(shape, numpy_dtype(dtype))

    def stream(self, ids: Any) -> int:
        with self.cuda.Device(self.device(ids)):
            return int(self.cuda.get_current_stream().ptr)

    def empty_on(self, shape: tuple[int, ...], dtype: str, ids: Any, stream: int,
                 named: object) -> Any:
        with self.cuda.Device(self.device(ids)), self.cuda.ExternalStream(stream):
            return self.make(shape, numpy_dtype(dtype))


class Jax(CudaArray):
    """Arrays that cannot be written and streams that cannot be named: the rows come into a fresh
    array, and every call waits, before it for the arrays and after it for the rows. XLA gives the
    memory of an array to other work once Python has dropped the array, and knows nothing of a call
    that still reads it."""

    waits = True

    def __init__(self, jax: Any) -> None:
        self.jax = jax

    def device(self, array: Any) -> int:
        return device_of(array, 0)

    def numbers(self, ids: Any) -> Numbers:
        ids.block_until_ready()
        if self.device(ids) < 0:
            return NUMPY.numbers(ids)
        plain = self.row_major(ids)
        found = super().numbers(plain)
        return found if plain is ids else found._replace(keep=(plain, ids))

    def row_major(self, array: Any) -> Any:
        """The array if its numbers lie in the order of its axes, else a copy; ready. A program may
        have chosen another order, of which neither the address nor the shape tells."""
        kept = getattr(array, "format", None) or getattr(array, "layout", None)
        order = getattr(getattr(kept, "layout", None) or getattr(kept, "device_local_layout", None),
                        "major_to_minor", None)
        if order is None or list(order) == sorted(order):
            return array
        return self.jax.numpy.copy(array).block_until_ready()

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        import numpy as np

        # A copy of memory of numpy has no other owner: it is no constant of a compiled program.
        made = self.jax.device_put(np.empty(shape, numpy_dtype(dtype)), next(iter(ids.devices())))
        return made.block_until_ready()

    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows:
        check_shape(out.shape, shape, for_writing)
        wanted = numpy_dtype(dtype)
        if out.dtype.itemsize != wanted.itemsize:
            raise wrong_out(f"jax has {out.dtype} in place of {wanted}; set jax_enable_x64",
                            for_writing)
        if out.dtype != wanted:
            raise wrong_out(f"its elements are {out.dtype} in place of {wanted}", for_writing)
        if for_writing:  # what `empty` made
            return Rows(out.unsafe_buffer_pointer(), 0, self.device(out), wanted.itemsize)
        out.block_until_ready()
        if self.device(out) < 0:
            held = import_numpy().asarray(out, order="C")
            return Rows(held.ctypes.data, 0, -1, wanted.itemsize, held)
        plain = self.row_major(out)
        return Rows(plain.unsafe_buffer_pointer(), 0, self.device(plain), wanted.itemsize, plain)

    def claim(self, out: Any) -> None:
        raise wrong_out("an array of jax cannot be written, for other arrays may share its memory; "
                        "give no out, or one of torch, cupy, numba or numpy")


NUMPY = Numpy()
_known: dict[type, Framework | None] = {}  # None: those of _others
_others: dict[tuple[type, bool], Framework] = {}  # of types whose arrays lie on the host or a GPU


def framework_of(array: object) -> Framework:
    """How to look at such an object. Sequences and what numpy understands are numpy's."""
    kind = type(array)
    found = _known.get(kind)
    if found is not None:
        return found
    if kind not in _known:
        found = _known[kind] = _named_framework(array)
    return found or _other_framework(array)


def _named_framework(array: object) -> Framework | None:
    """By the type alone."""
    if is_of(array, "numpy", "ndarray") or isinstance(array, (list, tuple, range, int)):
        return NUMPY
    if is_of(array, "torch", "Tensor"):
        return Torch(sys.modules["torch"])
    if is_of(array, "jax", "Array"):
        return Jax(sys.modules["jax"])
    if is_of(array, "cupy", "ndarray"):
        return Cupy(sys.modules["cupy"])
    if type(array).__module__.startswith("numba") and hasattr(array, "__cuda_array_interface__"):
        return Numba(sys.modules["numba"].cuda)
    return None


def _other_framework(array: object) -> Framework:
    key = type(array), hasattr(array, "__cuda_array_interface__")
    found = _others.get(key)
    if found is None:
        if key[1]:
            found = CudaArray()
        elif hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
            found = Exchanged()
        else:
            found = NUMPY
        _others[key] = found
    return found


def row_of(key: Any) -> int | None:
    """The number of a single row; None: it is no number. ValueError: it is a truth value, or stands
    for numbers that are not there yet."""
    if getattr(key, "ndim", 0) != 0:
        return None
    if is_truth(key):
        raise not_numbers(key, "a truth value is no number of a row")
    try:
        return operator.index(key)
    except TypeError:
        return None
    except RuntimeError:
        framework_of(key).numbers(key)  # says it, if that is why
        raise


def stream_of(stream: object) -> int:
    """The address of a stream: a number, or an object of any library that has one."""
    if isinstance(stream, int):
        return stream
    named = getattr(stream, "__cuda_stream__", None)
    if named is not None:
        return int((named() if callable(named) else named)[1])
    for name in ("cuda_stream", "ptr", "handle"):
        found = getattr(stream, name, None)
        if isinstance(found, ctypes.c_void_p):
            return found.value or 0
        if found is not None:
            return int(found)
    raise ValueError(f"stream: {stream!r} has none of __cuda_stream__, cuda_stream and ptr; give "
                     "a stream of torch, cupy or cuda.core, or its address as a number")


def call_stream(framework: Framework, ids: Any, numbers: Numbers,
                stream: object) -> tuple[int, bool]:
    """The stream of a call, and whether it is another than the framework's current stream."""
    current = framework.stream(ids)
    used = current if stream is None else stream_of(stream)
    if used != current and numbers.keep is not ids and not isinstance(numbers.keep, tuple):
        raise ValueError("ids: they are no contiguous numbers of 32 or 64 bits, and a copy of "
                         "them would be made on another stream; give such with stream=")
    return used, used != current
