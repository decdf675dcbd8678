#!/usr/bin/env python3
"""Are the C++ and CUDA files as clang-format writes them? format_test.py REPOSITORY

Other versions than 14 (Debian 12's) write some lines otherwise; without that one the test is skipped. The cure is
tools/format.sh."""
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
    listing = subprocess.run(["bash", "tools/format.sh", "--list"], cwd=repository, capture_output=True, text=True, check=True)
    files = listing.stdout.split()
    if len(files) < 100:
        print(f"FAILED: only {len(files)} files were found")
        return 1
    told = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=repository, capture_output=True, text=True, check=False)
    planted = subprocess.run([program, "--dry-run", "-Werror", "--assume-filename=src/planted.cpp"], cwd=repository, input="int  a ;\n",
                             capture_output=True, text=True, check=False)
    if planted.returncode == 0:
        print("FAILED: a file that is not formatted was not found")
        return 1
    if told.returncode != 0:
        names = sorted({line.split(":")[0] for line in told.stderr.splitlines() if "-Wclang-format-violations" in line})
        print("not formatted; run tools/format.sh:", *names, sep="\n  ")
    return told.returncode


sys.exit(main())
