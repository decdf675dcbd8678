#!/usr/bin/env python3
"""Installs the build into a folder of its own, builds a foreign project against it and runs that:
install_test.py cmake|cuda|pkgconfig BUILD SCRATCH COMPILER

cmake: find_package from a C++ project without CUDA; cuda: the same with a kernel; pkgconfig: one compiler call.
Exit status 77 if the foreign kernel compiled but found no GPU to run on."""
import os
import pathlib
import shutil
import subprocess
import sys

FOREIGN = pathlib.Path(__file__).resolve().parent / "foreign"
CONTENT = b"through the installed library\n" * 1000


def run(*command, **extra):
    ran = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **extra)
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nstatus {ran.returncode}\n{ran.stdout.decode(errors='replace')}")
    return ran.stdout


def check_reader(program, file):
    ran = subprocess.run([program, file], stdout=subprocess.PIPE, check=False)
    if ran.returncode == 77:
        print(f"{program.name}: built, but there is no GPU to run it on")
        sys.exit(77)
    if ran.returncode != 0 or ran.stdout != CONTENT:
        sys.exit(f"{program.name}: status {ran.returncode}, {len(ran.stdout)} bytes where {len(CONTENT)} are right")
    print(f"{program.name}: right")


def foreign_project(prefix, scratch, compiler, file, with_cuda):
    build = scratch / "foreign"
    run("cmake", "-S", FOREIGN, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_BUILD_TYPE=Release", f"-DFOREIGN_CUDA={'ON' if with_cuda else 'OFF'}")
    run("cmake", "--build", build)
    run(build / "newer")
    check_reader(build / "reader", file)
    if with_cuda:
        check_reader(build / "kernel", file)


def pkg_config(prefix, scratch, compiler, file):
    found = list(prefix.glob("**/pkgconfig"))
    environment = dict(os.environ, PKG_CONFIG_PATH=str(found[0]))
    flags = run("pkg-config", "--cflags", "--libs", "--static", "penstock", env=environment).decode().split()
    program = scratch / "by_pkg_config"
    run(compiler, "-std=c++20", "-O1", FOREIGN / "reader.cpp", "-o", program, *flags)
    check_reader(program, file)


def main(what, build, scratch, compiler):
    scratch = pathlib.Path(scratch)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    first, prefix = scratch / "first", scratch / "moved"
    run("cmake", "--install", build, "--prefix", first)
    first.rename(prefix)  # nothing in an installed tree may remember where it was installed
    file = scratch / "data"
    file.write_bytes(CONTENT)
    if what == "pkgconfig":
        pkg_config(prefix, scratch, compiler, file)
    else:
        foreign_project(prefix, scratch, compiler, file, what == "cuda")


if __name__ == "__main__":
    main(*sys.argv[1:])
