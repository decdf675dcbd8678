"""Calls of Penstock in kernels of Numba (numba-cuda).

    from numba import cuda
    import penstock as ps
    from penstock.device import numba as device

    @cuda.jit
    def rows(fs, table, ids, out):                     # a warp for each row
        i = cuda.grid(1) // 32
        if i < ids.size:
            device.warp_gather_int64(device.address(fs), device.address(table),
                                     device.address_of(ids, i), 1, device.address_of(out, i))

    table = ps.open_array("rows.npy")
    fs, ref = device.reference(table.runtime.ref_bytes()), device.reference(table.ref_bytes())
    rows[blocks, 128](fs, ref, ids, out)
    cuda.synchronize(); table.check()

The functions
    Names begin with ``warp_`` (all 32 threads of a warp call together, with equal arguments) or
    ``lane_`` (each thread on its own: simple, and slow for rows of more than some bytes). Each
    takes and gives 64-bit integers; an address is that of device memory, or of shared memory.

    ``open(fs, path, flags)`` a descriptor; ``close(fs, fd)``; ``size(fs, fd)`` bytes of the file;
    ``read(fs, fd, to, bytes, offset)`` bytes read; ``read_row(fs, table, row, to)`` its bytes;
    ``gather_int64(fs, table, numbers, count, out)``, ``gather_int32``: rows that could not be had.
    A negative result is an errno. ``path`` ends with a zero byte; flags are those of
    ``penstock/file.hpp`` (0 reads).

Cost
    The first kernel waits while NVRTC compiles the calls (some seconds; kept for the process). They
    are linked as LTO-IR, so that hits are inlined, or as PTX where nvJitLink is older than NVRTC;
    ``PENSTOCK_NUMBA_LINK`` says ``ltoir`` or ``ptx`` outright. A call takes 60 to 90 registers:
    give the kernel ``max_registers`` or ``launch_bounds`` that leave it as many."""
from __future__ import annotations

import os
from typing import Any

import numpy
from numba import cuda, types
from numba.cuda import LTOIR, PTXSource

from . import _nvrtc
from ._paths import include_folder, source_of

try:
    from numba.cuda.extending import intrinsic
except ImportError:
    from numba.core.extending import intrinsic

_number = types.int64

# Name of the call -> how many arguments it has.
_CALLS = {"open": 3, "close": 2, "size": 2, "read": 5, "read_row": 4, "gather_int64": 5,
          "gather_int32": 5}


def calls_for(caller: str, architecture: int, output: str) -> bytes:
    """The calls for a "lane" or a "warp", compiled: ``architecture`` 90 is sm_90, ``output``
    "ltoir" or "ptx"."""
    kind = [f"-arch=sm_{architecture}", "-dlto"] if output == "ltoir" else \
        [f"-arch=compute_{architecture}"]
    return _nvrtc.compile_source(source_of("calls.cu"), [
        f"-I{include_folder()}", "-std=c++20", "-rdc=true", *kind,
        f"-DPENSTOCK_CALLER=penstock::{caller}",
        f"-DPENSTOCK_CALL(name)=penstock_{caller}_##name"], output, f"penstock_{caller}.cu")


def _compiled_here(caller: str, output: str) -> bytes:
    major, minor = cuda.get_current_device().compute_capability[:2]
    return calls_for(caller, 10 * major + minor, output)


class _LazyLTOIR(LTOIR):
    """Compiled when a kernel that calls it is linked."""

    @property
    def data(self) -> bytes:
        return _compiled_here(self._data, "ltoir")


class _LazyPTX(PTXSource):
    @property
    def data(self) -> bytes:
        return _compiled_here(self._data, "ptx")


def _linker_is_older() -> bool:
    """An nvJitLink takes LTO-IR of no newer NVRTC."""
    try:
        from cuda.bindings import nvjitlink
        return tuple(nvjitlink.version()) < _nvrtc.version()
    except Exception:  # neither says: try
        return False


_link = os.environ.get("PENSTOCK_NUMBA_LINK") or ("ptx" if _linker_is_older() else "ltoir")
if _link not in ("ltoir", "ptx"):
    raise ValueError(f"PENSTOCK_NUMBA_LINK: {_link!r} is none; give ltoir or ptx")
_code = {caller: (_LazyPTX if _link == "ptx" else _LazyLTOIR)(caller, name=f"penstock_{caller}")
         for caller in ("lane", "warp")}


def _declare(caller: str, name: str) -> Any:
    return cuda.declare_device(f"penstock_{caller}_{name}", _number(*[_number] * _CALLS[name]),
                               link=_code[caller], abi="c")


lane_open, warp_open = _declare("lane", "open"), _declare("warp", "open")
lane_close, warp_close = _declare("lane", "close"), _declare("warp", "close")
lane_size, warp_size = _declare("lane", "size"), _declare("warp", "size")
lane_read, warp_read = _declare("lane", "read"), _declare("warp", "read")
lane_read_row, warp_read_row = _declare("lane", "read_row"), _declare("warp", "read_row")
lane_gather_int64, warp_gather_int64 = (_declare(caller, "gather_int64")
                                        for caller in ("lane", "warp"))
lane_gather_int32, warp_gather_int32 = (_declare(caller, "gather_int32")
                                        for caller in ("lane", "warp"))


@intrinsic
def address(typing_context: Any, array: Any) -> Any:
    """In a kernel: the address of an array's first element."""
    if not isinstance(array, types.Array):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(of.data, context.get_value_type(_number))

    return _number(array), generate


@intrinsic
def address_of(typing_context: Any, array: Any, i: Any) -> Any:
    """In a kernel: the address of ``array[i]``, an element or a row."""
    if not isinstance(array, types.Array) or not isinstance(i, types.Integer):
        return None

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        of = context.make_array(signature.args[0])(context, builder, arguments[0])
        first = builder.ptrtoint(of.data, context.get_value_type(_number))
        stride = builder.extract_value(of.strides, 0)
        return builder.add(first, builder.mul(arguments[1], stride))

    return _number(array, _number), generate


def reference(bytes_of_ref: bytes) -> Any:
    """A copy of a runtime_ref or table_ref in device memory. Keep it as long as kernels use it."""
    return cuda.to_device(numpy.frombuffer(bytes_of_ref, dtype=numpy.uint8))
