#!/usr/bin/env python3
"""Are the C++ and CUDA files as clang-format writes them? format_test.py REPOSITORY

Other versions than 14 (Debian 12's) write some lines otherwise; without that one the test is
skipped. The cure is tools/format.sh."""
import re
import shutil
import subprocess
import sys

SKIPPED = 77


def version_of(program):
    out = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)", out)
    return int(found.group(1)) if found else 0


def main():
    repository = sys.argv[1]
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if program is None or version_of(program) != 14:
        print("SKIP: no clang-format 14 here (Debian 12: clang-format)")
        return SKIPPED
    in_tree = {"cwd": repository, "capture_output": True, "text": True}
    files = subprocess.run(["bash", "tools/format.sh", "--list"], check=True,
                           **in_tree).stdout.split()
    if len(files) < 100:
        print(f"FAILED: only {len(files)} files were found")
        return 1
    check = [program, "--dry-run", "-Werror"]
    told = subprocess.run([*check, *files], check=False, **in_tree)
    planted = [*check, "--assume-filename=src/planted.cpp"]
    planted = subprocess.run(planted, input="int  a ;\n", check=False, **in_tree)
    if planted.returncode == 0:
        print("FAILED: a file that is not formatted was not found")
        return 1
    if told.returncode != 0:
        lines = [line for line in told.stderr.splitlines() if "-Wclang-format-violations" in line]
        names = sorted({line.split(":")[0] for line in lines})
        print("not formatted; run tools/format.sh:", *names, sep="\n  ")
    return told.returncode


sys.exit(main())
