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


def resident_share(path: str | os.PathLike[str]) -> float:
    """How much of a file is in the operating system's page cache, from 0 to 1."""
    size = os.path.getsize(path)
    if size == 0:
        return 0.0
    there = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        room = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None, use_errno=True).mincore(
            ctypes.c_void_p(ctypes.addressof(room)), ctypes.c_size_t(size), there)
        del room  # a mapping that is looked at cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore is needed to know what is in memory", str(path))
    return sum(state & 1 for state in there) / len(there)


def drop_from_page_cache(path: str | os.PathLike[str]) -> float:
    """Puts a file on storage and takes it out of the page cache. The share that stayed there all
    the same: on a file system in memory all of it. Pages that the system still has in hand go a
    moment later."""
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
