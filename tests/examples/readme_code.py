#!/usr/bin/env python3
"""Checks that every block of code in README.md stands, line for line, in a file that the tests
build and run: readme_code.py REPOSITORY."""
import pathlib
import re
import sys

# Language of the block -> the files that may hold it.
SOURCES = {"cuda": "examples/*.cu", "cpp": "examples/*.cu",
           "cmake": "tests/install/foreign/CMakeLists.txt"}
SHELL = "sh"  # commands; test.sh, CI and tests/install run them


def blocks(text):
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def problems(root):
    found = blocks((root / "README.md").read_text())
    kinds = {kind for kind, _ in found}
    for kind in SOURCES:
        if kind not in kinds:
            yield f"README.md shows no {kind} code"
    for kind, code in found:
        if kind == SHELL:
            continue
        if kind not in SOURCES:
            yield f"README.md has a block marked '{kind}', which nothing runs"
        elif not any(code in path.read_text() for path in root.glob(SOURCES[kind])):
            yield f"README.md shows code that is not in {SOURCES[kind]}:\n{code}"


if __name__ == "__main__":
    errors = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(errors) or "README.md shows what is run")
    sys.exit(1 if errors else 0)
