"""Penstock in kernels of CuPy.

    import cupy, penstock as ps
    from penstock.device import cupy as device

    table = ps.open_array("rows.npy")
    kernel = device.raw_module(code).get_function("first_rows")
    kernel((blocks,), (threads,), (device.reference(table.runtime.ref_bytes()),
                                   device.reference(table.ref_bytes()), ids, out))

where ``code`` is CUDA C++ that includes ``penstock/table.hpp`` and has

    extern "C" __global__ void first_rows(const __grid_constant__ penstock::runtime_ref fs,
                                          const __grid_constant__ penstock::table_ref table, ...)

A kernel that includes Penstock's headers takes some seconds to compile, once: CuPy keeps it in its
cache on disk. Error numbers are in the results of the calls, and in ``table.check()`` for rows."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from ._paths import include_folder

__all__ = ["options", "raw_module", "reference"]


def options(*more: str) -> tuple[str, ...]:
    """Options of ``cupy.RawModule`` by which NVRTC finds Penstock's headers, and ``more``."""
    return (f"-I{include_folder()}", "-std=c++20", *more)


def raw_module(code: str, more_options: Sequence[str] = (), **keywords: Any) -> Any:
    """``cupy.RawModule`` of CUDA C++ that includes headers of Penstock."""
    import cupy
    return cupy.RawModule(code=code, options=options(*more_options), backend="nvrtc", **keywords)


def reference(bytes_of_ref: bytes) -> numpy.ndarray[Any, Any]:
    """The bytes of a runtime_ref or table_ref as an argument that a kernel takes by value: CuPy
    passes an array of numpy of one element so."""
    return numpy.frombuffer(bytes_of_ref, dtype=f"V{len(bytes_of_ref)}")
