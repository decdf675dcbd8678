"""Row numbers of arrays that offer DLPack alone. The stream is -1: no wait, no capture broken."""
from __future__ import annotations

import ctypes
import math
from typing import Any

from ._memory import (INT32, INT64, UINT32, UINT64, Numbers, Rows, Unordered, not_numbers,
                      wrong_out)

_TYPES = {(0, 32): INT32, (0, 64): INT64, (1, 32): UINT32, (1, 64): UINT64}
_CUDA, _CUDA_MANAGED = 2, 13


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
_pointer_of.restype = ctypes.c_void_p


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]


_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _is_contiguous(tensor: _Tensor) -> bool:
    expected = 1
    for axis in range(tensor.dimensions - 1, -1, -1):
        if tensor.strides and tensor.shape[axis] > 1 and tensor.strides[axis] != expected:
            return False
        expected *= tensor.shape[axis]
    return True


def memory_of_capsule(capsule: object) -> tuple[int, int, int, bool]:
    """Address, bytes (-1: they do not lie contiguous), device (-1: host memory) of a tensor, and
    whether it may only be read. A capsule of before DLPack 1.0 is of memory that may be written."""
    is_read_only = False
    if _is_capsule(capsule, b"dltensor_versioned"):
        held = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        tensor, is_read_only = held.tensor, bool(held.flags & 1)
    else:
        tensor = _Tensor.from_address(_pointer_of(capsule, b"dltensor"))
    count = math.prod(tensor.shape[i] for i in range(tensor.dimensions))
    size = count * tensor.bits * tensor.lanes // 8 if _is_contiguous(tensor) else -1
    device = tensor.device if tensor.device_type in (_CUDA, _CUDA_MANAGED) else -1
    return (tensor.data or 0) + tensor.byte_offset, size, device, is_read_only


class Exchanged(Unordered):
    """Reads a capsule without taking it: its own end then frees it."""

    def numbers(self, ids: Any) -> Numbers:
        on_gpu = int(ids.__dlpack_device__()[0]) in (_CUDA, _CUDA_MANAGED)
        capsule = ids.__dlpack__(stream=-1) if on_gpu else ids.__dlpack__()
        address = _pointer_of(capsule, b"dltensor")
        if address is None:
            raise not_numbers(ids, "its DLPack capsule has no tensor")
        tensor = _Tensor.from_address(address)
        shape = tuple(tensor.shape[i] for i in range(tensor.dimensions))
        number = _TYPES.get((tensor.code, tensor.bits))
        if number is None or tensor.lanes != 1:
            raise not_numbers(ids, "its elements count no rows")
        if not _is_contiguous(tensor):
            raise not_numbers(ids, "the numbers do not lie contiguous")
        device = tensor.device if on_gpu else -1
        return Numbers((tensor.data or 0) + tensor.byte_offset, number, math.prod(shape), shape,
                       device, (capsule, ids))

    def empty(self, shape: tuple[int, ...], dtype: str, ids: Any) -> Any:
        raise wrong_out(f"rows for ids of {type(ids).__name__} need memory that is ready; "
                        "give out=")

    def rows(self, out: Any, shape: tuple[int, ...], dtype: str, axes: int,
             for_writing: bool = True) -> Rows:
        raise wrong_out(f"{type(out).__name__} offers DLPack alone, which does not say whether it "
                        "may be written; give an array of torch, cupy, numba or numpy", for_writing)
