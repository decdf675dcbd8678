"""What works here, tried out in small: on this machine, and for files of a folder."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from . import _core
from ._array import open_array
from ._errors import Path, path_text, shown_path
from ._runtime import Runtime

_PROBE_BYTES = 4 << 20


class Finding(NamedTuple):
    """What was tried, whether it works, and how or why not."""

    name: str
    works: bool
    text: str

    def __str__(self) -> str:
        return f"{'yes' if self.works else 'NO ':<4} {self.name}: {self.text}"


def _some_file(folder: str) -> str | None:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # it may go meanwhile
                if entry.is_file() and entry.stat().st_size >= 4096:
                    return entry.path
    return None


@contextmanager
def _probe_file(path: str) -> Iterator[str]:
    """The file, or one of that folder: a new one that is taken away again, or one that is there."""
    if not os.path.isdir(path):
        if os.path.exists(path) and not os.path.isfile(path):
            raise OSError(f"{shown_path(path)}: no regular file; name a file, or a folder")
        yield path
        return
    try:
        handle, name = tempfile.mkstemp(prefix=".penstock-check-", dir=path)
    except OSError:
        there = _some_file(path)
        if there is not None:
            yield there
            return
        raise OSError(f"{shown_path(path)}: no file can be made here, and none of 4 KiB is "
                      "there") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(4096) * (_PROBE_BYTES // 4096))
        yield name
    finally:
        with suppress(OSError):
            os.unlink(name)


def _read_bytes(path: str, runtime: Runtime) -> Finding:
    with open(path, "rb") as file:
        expected = file.read(4096)
    if len(expected) < 512:
        return Finding("rows", False, f"{shown_path(path)} has less than 512 bytes; name a larger "
                                      "file")
    rows = len(expected) // 512
    with open_array(path, dtype="uint8", shape=(rows, 512), runtime=runtime) as array:
        try:
            got = array.gather(list(range(rows)))
        except ImportError:
            return Finding("rows", True, "not compared: numpy is not installed")
        if got.tobytes() != expected[:rows * 512]:
            return Finding("rows", False, f"{shown_path(path)}: other bytes than those of read()")
    return Finding("rows", True, f"{shown_path(path)}: as read() has them")


def _window_bytes(path: str, runtime: Runtime) -> Finding:
    size = os.path.getsize(path) // 4096 * 4096
    if size == 0:
        return Finding("windows", False, f"{shown_path(path)} has less than 4096 bytes; name a "
                                         "larger file")
    size = min(size, _PROBE_BYTES)
    with open(path, "rb") as file:  # so that it lies in memory
        file.read(size)
    with open_array(path, dtype="uint8", shape=(size // 4096, 4096), runtime=runtime) as array:
        try:
            opened = array.windows()
        except OSError as error:
            return Finding("windows", False, f"{error}; rows come by requests of the host")
    return Finding("windows", opened > 0, f"{_core.format_size(opened)} of "
                                          f"{_core.format_size(size)} that lie in memory")


def check(path: Path | None = None) -> list[Finding]:
    """What works on this machine, and for files of ``path``: a folder (a file of 4 MiB is made in
    it for the moment) or a file. Each finding says how, or why not and what to do about it. Makes a
    small Runtime, so it takes some tens of milliseconds."""
    name = path_text("." if path is None else path)
    lines: list[str] = []
    built = "with a back end for GPUs" if _core.with_cuda else "for CPU threads alone (no nvcc)"
    found = [Finding("penstock", True, f"{_core.version}, built {built}")]
    runtime = Runtime(cache="16MiB", page="4KiB", log=lines.append)
    with runtime:
        reason = next((line for line in lines if "using CPU threads" in line), "")
        on_gpu = runtime.backend == "gpu"
        names = ", ".join(runtime.device_names)
        found.append(Finding("gpu", on_gpu, names if on_gpu else reason or "CPU threads"))
        found.append(Finding("io_uring", runtime.io == "io_uring", runtime.io))
        try:
            with _probe_file(name) as file:
                found.append(_read_bytes(file, runtime))
                found.append(_window_bytes(file, runtime))
        except (OSError, ValueError) as error:
            found.append(Finding("files", False, str(error)))
    if not on_gpu and not reason:
        # The thread of the log has written all lines by now.
        reason = next((line for line in lines if "using CPU threads" in line), "CPU threads")
        found[1] = Finding("gpu", False, reason)
    return found
