"""The machine, the commit and the numbers of a measurement, in the form of bench/results."""
import ctypes
import mmap
import os
import pathlib
import platform
import subprocess
import time


def significant(value: float, digits: int = 4) -> float:
    """Rounded to so many digits from the first that is no zero, so that nothing small becomes 0:
    a program that the system held up for a second may be a thousandth as fast as another."""
    return float(f"{value:.{digits}g}")


def said_by(*command: str) -> str:
    """The first line that a command prints; empty if it is not there or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True,
                              check=True).stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return ""


def commit_here() -> str:
    here = str(pathlib.Path(__file__).resolve().parent)
    return said_by("git", "-C", here, "rev-parse", "--short", "HEAD") or "unknown"


def tells_residence(path: str | os.PathLike[str]) -> bool:
    """The system calls every page of a file resident to a process that neither owns it nor may
    write to it."""
    return (os.geteuid() in (0, os.stat(path).st_uid)
            or os.access(path, os.W_OK, effective_ids=True))


def resident_share(path: str | os.PathLike[str]) -> float | None:
    """How much of a file is in the operating system's page cache, from 0 to 1; None: it cannot be
    told. Mapped as shared and to be read only, by hand, since a private mapping that may be written
    counts as memory, and mmap tells the address of no other."""
    size = os.path.getsize(path)
    if size == 0:
        return 0.0
    if not tells_residence(path):
        return None
    there = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    with open(path, "rb") as file:
        at = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if at == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mapping it to know what is in memory", str(path))
    failed = libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), there)
    error = ctypes.get_errno()
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    if failed:
        raise OSError(error, "mincore is needed to know what is in memory", str(path))
    return sum(state & 1 for state in there) / len(there)


def drop_from_page_cache(path: str | os.PathLike[str]) -> float | None:
    """Puts a file on storage and takes it out of the page cache. The share that stayed there all
    the same: on a file system in memory all of it; None: it cannot be told. Pages that the system
    still has in hand go a moment later."""
    fd = os.open(path, os.O_RDONLY)
    try:
        for attempt in range(6):
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            stayed = resident_share(path)
            if stayed == 0:
                break
            time.sleep(0.001 * 2 ** attempt)
    finally:
        os.close(fd)
    return stayed


MOST_THAT_STAYS = 0.01  # of a file that is called cold


def machine_of(folder: str | os.PathLike[str], commit: str) -> dict[str, str | int]:
    """`folder`: its file system was measured; `commit`: the state that was built."""
    gpu = said_by("nvidia-smi", "--query-gpu=name,driver_version",
                  "--format=csv,noheader").split(", ")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":", 1)[1].strip() for line in file
                    if line.startswith("model name")),
                   "unknown")
    return {"device": gpu[0] or "none", "driver": gpu[1] if len(gpu) > 1 else "", "cpu": cpu,
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(), "commit": commit,
            "file_system": said_by("stat", "-f", "-c", "%T", str(folder))}
