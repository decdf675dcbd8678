#!/usr/bin/env python3
"""Checks that every block of code in README.md and docs/guide/start.md stands, line for line, in a
file that the tests build and run: readme_code.py REPOSITORY."""
import pathlib
import re
import sys

PAGES = ["README.md", "docs/guide/start.md"]
# Language of the block -> the files that may hold it.
SOURCES = {"cuda": "examples/*.cu", "cpp": "examples/*.cu",
           "cmake": "tests/install/foreign/CMakeLists.txt"}
SHELL = "sh"  # commands; test.sh, CI and tests/install run them


def blocks(text):
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def problems(root):
    for page in PAGES:
        found = blocks((root / page).read_text())
        kinds = {kind for kind, _ in found}
        for kind in SOURCES:
            if kind not in kinds:
                yield f"{page} shows no {kind} code"
        for kind, code in found:
            if kind == SHELL:
                continue
            if kind not in SOURCES:
                yield f"{page} has a block marked '{kind}', which nothing runs"
            elif not any(code in path.read_text() for path in root.glob(SOURCES[kind])):
                yield f"{page} shows code that is not in {SOURCES[kind]}:\n{code}"


if __name__ == "__main__":
    errors = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(errors) or "the pages show what is run")
    sys.exit(1 if errors else 0)
