"""Regions: a part of a file as plain memory that tensors share."""
from __future__ import annotations

import ctypes
import errno
import math
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import _core
from ._array import (bytes_of, checked_header, dtype_name, extents_of, has_header,
                     require_writable)
from ._errors import Path, error_of, path_text
from ._frameworks import stream_of
from ._memory import check_conversion, numpy_dtype, stands_in, typestr_of
from ._opened import Opened
from ._runtime import Runtime, Size, default

# Code and bits of DLPack. The small floats are of DLPack 1.1.
_DLPACK = {
    "bool": (6, 8), "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
    "bfloat16": (4, 16), "complex64": (5, 64), "complex128": (5, 128),
    "float8_e4m3fn": (10, 8), "float8_e4m3fnuz": (11, 8), "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8), "float8_e8m0fnu": (14, 8),
    **{f"int{n}": (0, n) for n in (8, 16, 32, 64)},
    **{f"uint{n}": (1, n) for n in (8, 16, 32, 64)},
}
_PLACEMENTS = ("filled", "in_place", "system", "automatic")
_HOST, _CUDA = 1, 2
_PAGE = 4096


class _Memory:
    """What numpy takes memory from."""

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface


def open_region(path: Path, mode: str = "r", dtype: object = None,
                shape: Sequence[int] | None = None, offset: int | None = None, *,
                runtime: Runtime | None = None, device: int = 0, placement: str = "filled",
                outside_writers: bool = True, device_bytes: Size | None = None,
                promote_hot: bool = False) -> Region:
    """Maps a part of a file as plain memory, which tensors share without a copy.

    path
        A ``.npy`` file, whose header gives dtype and shape (if they are given too, they have to be
        the same); or any file, with ``dtype`` and ``shape`` (-1 for as many rows as the file has;
        raw bytes without).
    mode
        ``"r"``, or ``"r+"`` to write it, which needs a runtime with ``writable=True``.
    offset
        Where the region begins, in bytes. None: at 0, or behind the header of a ``.npy`` file. With
        an offset, 0 too, that header counts for nothing.
    device
        The place of the device among those of the runtime.
    placement
        ``"filled"``: a copy. ``"in_place"`` and ``"system"``, for mode ``"r"``: the operating
        system's page cache. ``"automatic"`` chooses. docs/guide/regions.md has what each costs.
    outside_writers
        Whether other programs write the file meanwhile.
    device_bytes
        Most bytes of device memory; the rest lies in host memory. None: all that is free but a
        GiB.
    promote_hot
        Whether ``acquire`` moves pieces that change often into device memory.

    The first ``acquire`` is done when it returns. Reads the file, or that part of it. Raises
    FileNotFoundError and its like, ValueError for values that do not fit together, MemoryError. On
    a GPU call it between kernels, for it allocates memory.
    """
    name = path_text(path)
    place = os.path.join(os.getcwd(), name) if name and not os.path.isabs(name) else name
    if mode not in ("r", "r+"):
        raise ValueError(f'mode: {mode!r} is none; give "r" or "r+"')
    if placement not in _PLACEMENTS:
        raise ValueError(f"placement: {placement!r} is none; give one of {', '.join(_PLACEMENTS)}")
    if mode == "r+" and placement in ("in_place", "system"):
        raise ValueError(f'placement: {placement!r} is for mode "r"; leave it out to write')
    kind, extents, begin = _elements(name, dtype, shape, offset)
    if runtime is None:
        runtime = default(writable=mode == "r+")
    require_writable(runtime, mode, name)
    limit = None
    if device_bytes is not None:
        limit = _core.parse_size("device_bytes", device_bytes) if isinstance(device_bytes, str) \
            else bytes_of("device_bytes", device_bytes)
    if not 0 <= device < runtime.device_count:
        raise ValueError(f"device: the runtime has no device {device}; it has "
                         f"{runtime.device_count}")
    _require_bytes(name, kind, extents, begin)
    # The library maps whole pages from the front (0: all); what lies before the offset is left out.
    front = begin % _PAGE
    item = _DLPACK[kind][1] // 8
    row = math.prod(extents[1:]) * item
    wanted = 0 if extents[:1] == (-1,) else max(math.prod(extents) * item + front, 1)
    core = _core.make_region(runtime._core, name, place, begin - front, wanted, mode == "r+",
                             outside_writers, limit, promote_hot, device,
                             _PLACEMENTS.index(placement))
    if wanted == 0:
        left = core.size_bytes() - front
        if left % row:
            core.close(0)
            raise ValueError(f"{name!r}: {left} bytes from byte {begin} on are no whole number of "
                             f"rows of {row}; give the number of rows")
        extents = (left // row, *extents[1:])
    return Region(core, runtime, place, mode, kind, extents, front, device)


def _require_bytes(name: str, kind: str, extents: tuple[int, ...], begin: int) -> None:
    """ValueError: the file ends before them. Of what is no file, or empty, the library tells."""
    try:
        facts = os.stat(name)
    except OSError:
        return
    end = begin + math.prod(max(n, 0) for n in extents) * _DLPACK[kind][1] // 8
    if stat.S_ISREG(facts.st_mode) and facts.st_size and \
            (begin >= facts.st_size or end > facts.st_size):
        raise error_of(errno.EINVAL, f"{name!r}: {kind} of shape {extents} from byte {begin} on "
                       f"does not lie in its {facts.st_size} bytes; give a smaller shape or "
                       "offset, or make the file longer first", name)


def _elements(name: str, dtype: object, shape: Sequence[int] | None,
              offset: int | None) -> tuple[str, tuple[int, ...], int]:
    """The type of the elements, their extents, and where they begin."""
    is_raw = offset is not None or not has_header(name) or \
        (dtype is None and shape is None and not name.endswith(".npy"))
    begin = 0 if offset is None else bytes_of("offset", offset)
    if offset is not None and dtype is None and shape is None and has_header(name):
        raise ValueError(f"{name!r}: offset is for the bytes of a file without its header; give "
                         "dtype and shape too, or leave it out")
    if not is_raw:
        layout = checked_header(name, dtype, shape)
        begin = layout.pieces[0][1]
        if not layout.dtype:
            raise ValueError(f"{name!r}: its elements are raw bytes; give dtype, shape and "
                             f"offset={begin}")
        kind, extents = layout.dtype, (layout.rows, *layout.row_shape)
    else:
        kind = dtype_name("uint8" if dtype is None else dtype)
        extents = extents_of(shape) if shape is not None else (-1,)
    if kind not in _DLPACK:
        raise ValueError(f"dtype: {kind!r} is no element of tensors; give one of "
                         f"{', '.join(_DLPACK)}")
    if any(n < 0 for n in extents[1:]) or (extents and extents[0] < -1):
        raise ValueError(f"shape: {tuple(extents)} has a negative extent; only the first may be -1")
    if extents[:1] == (-1,) and 0 in extents:
        raise ValueError(f"shape: {tuple(extents)} has rows of 0 bytes, so a file has no number of "
                         "them; give the number of rows")
    if math.prod(n for n in extents if n > 0) * _DLPACK[kind][1] // 8 + begin >= 1 << 63:
        raise ValueError(f"shape: {tuple(extents)} is larger than any file; give smaller extents")
    return kind, tuple(extents), begin


class Region(Opened[_core.Region]):
    """A part of a file as plain memory: what ``open_region`` gives.

    ``torch.from_dlpack(w)``, ``cupy.asarray(w)``, ``jax.dlpack.from_dlpack(w)`` and, on CPU
    threads, ``np.asarray(w)`` share its memory; of mode ``"r"`` on CPU threads, PyTorch before 2.9
    and jax do not (BufferError). ``acquire`` brings changes of the file in,
    ``release`` brings changes of the memory out to the file; ``acquired()`` does both around a
    ``with`` block. Tensors that share the memory may outlive the region: after ``close`` they keep
    the memory, and nothing of it reaches the file any more.

    Calls may be made from any thread; use of the memory meanwhile is ordered by the stream alone.
    """

    def __init__(self, core: _core.Region, runtime: Runtime, path: str, mode: str, dtype: str,
                 shape: tuple[int, ...], front: int, device: int) -> None:
        self._front = front
        self._device = runtime.device_numbers[device] if runtime.backend == "gpu" else 0
        super().__init__(core, runtime, path, mode, dtype, shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return math.prod(self._shape) * _DLPACK[self._dtype][1] // 8

    @property
    def address(self) -> int:
        """The address of the first element; on a GPU of the device. It holds nothing: it is valid
        while the region is open."""
        return self._core.data() + self._front

    @property
    def placement(self) -> tuple[str, str]:
        """Where the bytes lie ("filled", "in_place", "system"), and why."""
        kind, reason = self._core.placement()
        return _PLACEMENTS[kind], reason

    # Bringing changes in and out

    def acquire(self, stream: object = None) -> int:
        """Brings in what others wrote to the file, for kernels that come after it on the stream or
        that are launched after it returned. The number of pages fetched. OSError: ESTALE, the file
        is shorter now. Waits for the work on the stream if there are pages to fetch."""
        return self._core.acquire(0, None, self._stream(stream))

    def release(self, stream: object = None) -> int:
        """Brings the changes of kernels that come before it on the stream to the file, byte by
        byte. The number of pages that had changed, 0 in mode ``"r"``. OSError: what could not be
        written stays changed and goes with the next release. Waits for the work on the stream."""
        return self._core.release(0, None, self._stream(stream))

    @contextmanager
    def acquired(self, stream: object = None) -> Iterator[Region]:
        """``acquire`` on entry and ``release`` on a clean exit. After an exception nothing is
        released: the changes stay in the memory, and go with the next release, or with ``close``,
        which the end of ``with open_region(...)`` calls too."""
        self.acquire(stream)
        yield self
        self.release(stream)

    def prefer(self, part: slice = slice(None), stream: object = None) -> int:
        """Of a region larger than device memory: moves these bytes of it to device memory, in
        exchange for others. ``part`` is a slice of bytes. How many lie there then."""
        begin, end, step = part.indices(self.nbytes)
        if step != 1:
            raise ValueError("part: its bytes lie apart; give a slice without a step")
        if end <= begin:
            return 0
        return self._core.prefer(self._front + begin, end - begin, self._stream(stream))

    def sync(self) -> None:
        """Brings all released bytes to storage. OSError: the operating system may have dropped
        bytes, and a later ``sync`` says nothing about those; write and release them once more."""
        self._core.sync()

    def traffic(self) -> dict[str, int]:
        """What was fetched, released and moved since the region was opened, by name
        (penstock/region.hpp: ``region_traffic``)."""
        return dict(self._core.traffic())

    def close(self, stream: object = None) -> None:
        """Releases the changes and ends the region; OSError: some could not be written. The memory
        is given back when no tensor shares it. A second call does nothing."""
        if not self.closed:
            self._core.close(self._stream(stream))

    def _stream(self, stream: object) -> int:
        return 0 if stream is None else stream_of(stream)

    # The memory for others

    def __dlpack_device__(self) -> tuple[int, int]:
        """Kind and number of the device, as DLPack has them."""
        return (_CUDA, self._device) if self._on_gpu else (_HOST, 0)

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """The memory as a DLPack capsule, versioned if the caller takes version 1. What an
        ``acquire`` that has returned brought in is there on every stream, so ``stream`` asks for
        nothing. BufferError: the region may only be read, which older capsules cannot say, and a
        store would end the process or change the host's memory."""
        if copy:
            raise BufferError("a Region shares its memory; make a copy of the tensor")
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) \
                != self.__dlpack_device__():
            raise BufferError(f"the region lies on device {self.__dlpack_device__()} and not on "
                              f"{tuple(dl_device)}; move the tensor")
        code, bits = _DLPACK[self._dtype]
        versioned = max_version is not None and max_version[0] >= 1
        # Of a GPU's memory libraries without DLPack 1.0, some with arrays that never change, are
        # asked to write none.
        may_be_lent = self._on_gpu and self.placement[0] == "filled"
        if self._mode == "r" and not versioned and not may_be_lent:
            others = 'open it with mode="r+"' + ("" if self._on_gpu else
                                                 ", share it by numpy.asarray(region), or copy it "
                                                 "by torch.tensor(numpy.asarray(region))")
            raise BufferError("the region may only be read, and DLPack before 1.0 cannot say so: "
                              + others)
        return self._core.dlpack(list(self._shape), code, bits, self._front,
                                 self.__dlpack_device__()[1], versioned, self._mode == "r")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if not self._on_gpu:
            raise AttributeError("the region lies in host memory: __array_interface__")
        self._core.keep()  # those that look hold this object, and know nothing of close()
        return {"shape": self._shape, "typestr": typestr_of(self._dtype), "version": 3,
                "data": (self.address, self._mode == "r"), "strides": None, "stream": None}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        if numpy_dtype(self._dtype).isbuiltin != 1 or stands_in(self._dtype):
            raise AttributeError(f"the interface knows no {self._dtype}: numpy asks __array__")
        return self._host_interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For ``np.asarray``: shares the memory, as elements of ml_dtypes where numpy has none and
        that is installed, else as unsigned integers of their bits, which become no other ``dtype``
        (ValueError). TypeError: it lies on a GPU."""
        import numpy as np

        if self._on_gpu:
            raise TypeError("the region lies on a GPU; cupy and torch share its memory")
        check_conversion(self._dtype, dtype)
        shared = np.asarray(_Memory(self._host_interface())).view(numpy_dtype(self._dtype))
        if dtype is not None and shared.dtype != dtype:
            if copy is False:
                raise ValueError(f"elements of {shared.dtype} become {dtype} by a copy alone")
            return shared.astype(dtype)
        return shared.copy() if copy else shared

    def _host_interface(self) -> dict[str, Any]:
        if self._on_gpu:
            raise AttributeError("the region lies on a GPU: __cuda_array_interface__")
        memory = (ctypes.c_char * self.nbytes).from_address(self.address)
        # numpy keeps the memory, and that keeps the region's.
        vars(memory)["use"] = self._core.use()
        view = memoryview(memory)
        return {"shape": self._shape, "typestr": typestr_of(self._dtype), "version": 3,
                "data": view.toreadonly() if self._mode == "r" else view, "strides": None}
