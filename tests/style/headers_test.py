#!/usr/bin/env python3
"""Every public header compiles alone, with plain C++ and no CUDA, and without a warning that a
program may ask for: headers_test.py COMPILER.

The .cuh headers need nvcc; the tests and programs that include them first compile them."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

INCLUDE = pathlib.Path(__file__).resolve().parents[2] / "include"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion",
            "-Wold-style-cast", "-Wundef", "-Wnon-virtual-dtor", "-Woverloaded-virtual",
            "-Wdouble-promotion", "-Wextra-semi", "-Wredundant-decls")


def compile_alone(compiler, header):
    command = [compiler, "-std=c++20", *WARNINGS, "-Werror", "-fsyntax-only",
               f"-I{INCLUDE}", "-x", "c++", "-"]
    # Twice: the guard must work too.
    text = f"#include <{header}>\n#include <{header}>\n"
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return header, ran.returncode, ran.stderr


def main(compiler):
    headers = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.hpp"))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, status, errors in pool.map(lambda header: compile_alone(compiler, header),
                                               headers):
            if status != 0:
                failed += 1
                print(f"{header} does not compile alone:\n{errors}")
    # The check must be able to fail.
    if compile_alone(compiler, "penstock/no_such_header.hpp")[1] == 0:
        sys.exit("a header that does not exist compiled")
    print(f"{len(headers) - failed} headers compile alone, {failed} do not")
    sys.exit(1 if failed or not headers else 0)


if __name__ == "__main__":
    main(sys.argv[1])
