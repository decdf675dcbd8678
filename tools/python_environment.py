#!/usr/bin/env python3
"""python_environment.py FOLDER: prints the path of an interpreter that can build and run the
module of the Python package: this one if it has what is needed, else one of an environment in
FOLDER, which pip fills. Exit status 77, with the reason on standard error, if there can be none; it
looks again after an hour, so that a machine without a network does not wait for it at every
build."""
import pathlib
import subprocess
import sys
import sysconfig
import time

NEEDED = ["nanobind>=3.1", "nanobind-backend>=1.0"]
WANTED = ["numpy", "safetensors", "hypothesis"]  # the tests compare with them
PROBE = ("import nanobind, nanobind_backend, sys; assert int(nanobind.__version__[0]) >= 3; "
         f"assert sys.base_prefix == {sys.base_prefix!r}")
SECONDS, AGAIN_AFTER_SECONDS = 90, 3600


def has_modules(python, probe=PROBE):
    return subprocess.run([python, "-c", probe], capture_output=True, check=False).returncode == 0


def fail(reason):
    print(reason, file=sys.stderr)
    sys.exit(77)


def run(command, seconds):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {seconds} s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip().split("\n")[-1]


def make(folder):
    """Why not, or nothing."""
    python = str(folder / "bin" / "python")
    command = [sys.executable, "-m", "venv", "--clear", "--system-site-packages", str(folder)]
    if reason := run(command, SECONDS):
        return f"no environment for Python can be made (Debian: python3-venv): {reason}"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
           "--retries", "0", "--timeout", "10"]
    if reason := run([*pip, *NEEDED], SECONDS):
        return f"pip cannot install {' and '.join(NEEDED)}: {reason}"
    if not has_modules(python, f"import {', '.join(WANTED)}"):
        run([*pip, *WANTED], SECONDS)  # the tests that need them say so
    return ""


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: python_environment.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    if sys.version_info < (3, 10):
        fail("Python is older than 3.10")
    if not pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists():
        fail("Python's headers are missing (Debian: python3-dev)")
    own, failed = folder / "bin" / "python", folder.with_suffix(".failed")
    if has_modules(sys.executable):
        print(sys.executable)
    elif own.exists() and has_modules(str(own)):
        print(own)
    elif failed.exists() and time.time() - failed.stat().st_mtime < AGAIN_AFTER_SECONDS:
        fail(failed.read_text(encoding="utf-8"))
    elif reason := make(folder):
        failed.write_text(reason, encoding="utf-8")
        fail(reason)
    else:
        print(own)


if __name__ == "__main__":
    main()
