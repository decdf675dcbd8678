#!/usr/bin/env python3
"""Builds the wheel, installs it into a fresh environment, and uses it from a foreign project:
wheel_test.py REPOSITORY SCRATCH COMPILER

Exit status 77 if the package index cannot be reached. Needs none of this build: the wheel compiles
the library itself, so this is for the long run of the tests."""
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

SKIPPED = 77
NO_INDEX = ("No matching distribution", "Could not find a version", "Temporary failure",
            "Network is unreachable", "Connection", "ensurepip")

USE = """
import penstock as ps
path = __file__ + ".bin"
with open(path, "wb") as file:
    file.write(bytes(range(256)) * 16)
with ps.Runtime("cpu", cache="2MiB", log=None) as rt:
    t = ps.open_array(path, dtype="uint8", shape=(-1, 256), runtime=rt)
    assert t.shape == (16, 256)
    assert t.gather([7]).tolist() == [list(range(256))]
print(ps.get_include())
print(ps.get_cmake_dir())
"""


def run(*command, may_skip=False, seconds=900, **extra):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                         timeout=seconds, **extra)
    if ran.returncode == 0:
        return ran.stdout
    if may_skip and any(words in ran.stdout for words in NO_INDEX):
        print(f"skipped: {ran.stdout.strip().splitlines()[-1]}")
        sys.exit(SKIPPED)
    sys.exit(f"{' '.join(map(str, command))}\nstatus {ran.returncode}\n{ran.stdout}")


def check_contents(wheel):
    """One wheel for all versions of Python from 3.10 on, with headers and library, without FUSE."""
    if "cp310-abi3" not in wheel.name:
        sys.exit(f"{wheel.name}: not of the stable ABI")
    names = set(zipfile.ZipFile(wheel).namelist())
    for name in ("py.typed", "_core.pyi", "include/penstock/table.hpp", "lib/libpenstock.a",
                 "lib/cmake/Penstock/PenstockConfig.cmake"):
        if f"penstock/{name}" not in names:
            sys.exit(f"{wheel.name}: penstock/{name} is missing")
    for name in ("LICENSE", "THIRD_PARTY.txt"):
        if not any(held.endswith(f".dist-info/licenses/{name}") for held in names):
            sys.exit(f"{wheel.name}: {name} is missing, the licence of code that is inside")
    for name in names:
        if "mount" in name and name.endswith(".a"):
            sys.exit(f"{wheel.name}: {name} would need libfuse")


def build_foreign(repository, scratch, compiler, python, cmake_dir):
    """A project that finds the library in the wheel, and the compiler's line of the command."""
    foreign = repository / "tests/install/foreign"
    data = scratch / "data"
    content = b"through the installed library\n" * 1000
    data.write_bytes(content)
    build = scratch / "foreign"
    run("cmake", "-S", foreign, "-B", build, f"-DPenstock_DIR={cmake_dir}",
        f"-DCMAKE_CXX_COMPILER={compiler}", "-DCMAKE_BUILD_TYPE=Debug")
    run("cmake", "--build", build, "--target", "reader")
    flags = [run(python, "-m", "penstock", part).split() for part in ("cflags", "ldflags")]
    run(compiler, *flags[0], foreign / "reader.cpp", "-o", scratch / "reader", *flags[1])
    for program in (build / "reader", scratch / "reader"):
        ran = subprocess.run([program, data], stdout=subprocess.PIPE, check=False, timeout=60)
        if ran.stdout != content:
            sys.exit(f"{program}: status {ran.returncode}, other bytes than those of the file")
    ran = subprocess.run(["cmake", "-S", repository / "tests/install/components", "-B",
                          scratch / "mount", f"-DPenstock_DIR={cmake_dir}", "-DWANTED=mount"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if "the wheel of Python has no libfuse" not in " ".join(ran.stdout.decode().split()):
        sys.exit(f"asked for a mount the wheel says: {ran.stdout.decode()}")


def main():
    repository, scratch, compiler = (pathlib.Path(part) for part in sys.argv[1:])
    fresh = scratch / "fresh"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    run(sys.executable, "-m", "venv", fresh / "env", may_skip=True)
    python = fresh / "env/bin/python"
    settings = ["-C", f"build-dir={scratch}/build", "-C", "cmake.define.PENSTOCK_CUDA=OFF"]
    if shutil.which("ccache"):
        settings += ["-C", "cmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache"]
    environment = {**os.environ, "CXX": str(compiler)}
    environment.pop("PYTHONPATH", None)
    run(python, "-m", "pip", "wheel", repository, "-w", fresh, "--no-deps", *settings,
        may_skip=True, env=environment)
    wheel, = fresh.glob("*.whl")
    check_contents(wheel)
    run(python, "-m", "pip", "install", wheel, "numpy", may_skip=True, env=environment)
    program = fresh / "use.py"
    program.write_text(USE, encoding="utf-8")
    include, cmake_dir = run(python, "-W", "error", program, env=environment, cwd=fresh).split()
    if not pathlib.Path(include, "penstock/table.hpp").exists():
        sys.exit(f"{include}: no headers")
    os.environ.pop("PYTHONPATH", None)
    build_foreign(repository, fresh, compiler, python, cmake_dir)
    print(f"{wheel.name}: built, installed, imported, linked")


if __name__ == "__main__":
    main()
