"""The machine, the commit and the numbers of a measurement, in the form of bench/results."""
import os
import pathlib
import platform
import subprocess


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
