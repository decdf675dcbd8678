"""Memory of the caller for the frames of a cache: where it lies, whether it fits, what holds it."""
from __future__ import annotations

import ctypes
import math
import operator
import sys
from typing import Any, NamedTuple, SupportsIndex

from . import _core
from ._dlpack import memory_of_capsule
from ._memory import device_of, is_of, row_stride

_ALIGNMENT = 256  # of penstock::options::cache_memory


class Memory(NamedTuple):
    """``device`` is the number of a GPU, or -1 for host memory; ``keep`` holds the memory."""

    address: int
    size: int
    device: int
    keep: object


def _refused(text: str) -> ValueError:
    return ValueError(f"cache_memory: {text}")


def _scattered(owner: object) -> ValueError:
    return _refused(f"the elements of this {type(owner).__name__} do not lie contiguous; give a "
                    "contiguous one")


def _read_only(owner: object) -> ValueError:
    return _refused(f"this {type(owner).__name__} cannot be written; give memory that can")


def _of_torch(tensor: Any) -> Memory:
    torch: Any = sys.modules["torch"]
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise _refused(f"the tensor lies on {tensor.device}; give one of the host or of a GPU")
    if tensor.layout != torch.strided or not tensor.is_contiguous():
        raise _scattered(tensor)
    if kind == "cuda":
        torch.cuda.synchronize(tensor.device)  # what made the tensor may still write it
    return Memory(tensor.data_ptr(), tensor.numel() * tensor.element_size(),
                  tensor.device.index if kind == "cuda" else -1, tensor)


def _of_cuda_array(owner: Any) -> Memory:
    facts = owner.__cuda_array_interface__
    shape, itemsize = tuple(facts["shape"]), int(facts["typestr"][2:])
    try:
        is_scattered = row_stride(facts.get("strides"), shape, itemsize, 0) != 0
    except ValueError:
        is_scattered = True
    if is_scattered:
        raise _scattered(owner)
    if facts["data"][1]:
        raise _read_only(owner)
    address = facts["data"][0] or 0
    return Memory(address, math.prod(shape) * itemsize, device_of(owner, address), owner)


def _of_buffer(owner: object, view: memoryview) -> Memory:
    if not view.c_contiguous:
        raise _scattered(owner)
    if view.readonly:
        raise _read_only(owner)
    if view.nbytes == 0:
        return Memory(0, 0, -1, view)
    # Holds the buffer: a bytearray cannot be resized meanwhile.
    held = (ctypes.c_char * view.nbytes).from_buffer(view)
    return Memory(ctypes.addressof(held), view.nbytes, -1, held)


def _of_dlpack(owner: Any) -> Memory:
    try:
        try:
            capsule = owner.__dlpack__(max_version=(1, 0))
        except TypeError:  # of before DLPack 1.0, which cannot say that memory is read-only
            capsule = owner.__dlpack__()
    except BufferError as error:
        raise _refused(f"{type(owner).__name__} does not share it: {error}") from None
    address, size, device, is_read_only = memory_of_capsule(capsule)
    if size < 0:
        raise _scattered(owner)
    if is_read_only:
        raise _read_only(owner)
    return Memory(address, size, device, (capsule, owner))


def _find(owner: Any) -> Memory:
    if is_of(owner, "torch", "Tensor"):
        return _of_torch(owner)
    if is_of(owner, "jax", "Array"):
        raise _read_only(owner)
    if hasattr(owner, "__cuda_array_interface__"):
        return _of_cuda_array(owner)
    try:
        view = memoryview(owner)
    except (TypeError, ValueError, BufferError):
        if not hasattr(owner, "__dlpack__"):
            raise _refused(f"{type(owner).__name__} is no memory; give a tensor of torch, an array "
                           "of cupy or numpy, or a buffer of bytes") from None
        return _of_dlpack(owner)
    return _of_buffer(owner, view)


def memory_of(owner: object, cache: int | str | None) -> Memory:
    """The part of the memory that frames may take: from the first address that suits them on, as
    much as there is, or ``cache`` bytes of it. ValueError: it is no memory for frames."""
    found = _find(owner)
    front = -found.address % _ALIGNMENT
    room = max(0, found.size - front)
    if cache is None:
        wanted = room
    else:
        if isinstance(cache, bool) or not isinstance(cache, (str, SupportsIndex)):
            raise ValueError(f"cache: {cache!r} is no size; give a whole number of bytes, or text "
                             'such as "8GiB"')
        wanted = _core.parse_size("cache", cache) if isinstance(cache, str) \
            else operator.index(cache)
    if wanted > room:
        raise _refused(f"it has {room} bytes from the first multiple of {_ALIGNMENT} on, and cache "
                       f"wants {wanted}; give more memory, or leave cache out")
    if wanted <= 0:
        raise _refused(f"it has {found.size} bytes; give memory of 8 pages or more")
    return Memory(found.address + front, wanted, found.device, found.keep)
