#!/usr/bin/env python3
"""Checks that every block of code in README.md and the pages for beginners stands, line for line,
in a file that the tests build and run: readme_code.py REPOSITORY. Blocks of Python are run
themselves (tests/docs/python_code_test.py)."""
import pathlib
import re
import sys

# Page -> the languages that it shows.
PAGES = {"README.md": {"python", "cuda"}, "docs/guide/start.md": {"cuda", "cpp", "cmake"},
         "docs/start/pytorch.md": {"python"}, "docs/start/cuda.md": {"cuda", "cpp", "cmake"},
         "docs/start/operator.md": set()}
# Language of the block -> the files that may hold it.
SOURCES = {"cuda": "examples/*.cu", "cpp": "examples/*.cu",
           "cmake": "tests/install/*/CMakeLists.txt"}
RUN = {"sh",  # commands; test.sh, CI and tests/install run them
       "python"}


def blocks(text):
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def problems(root):
    for page, shown in PAGES.items():
        found = blocks((root / page).read_text(encoding="utf-8"))
        for kind in sorted(shown - {kind for kind, _ in found}):
            yield f"{page} shows no {kind} code"
        for kind, code in found:
            if kind in RUN:
                continue
            if kind not in SOURCES:
                yield f"{page} has a block marked '{kind}', which nothing runs"
            elif not any(code in path.read_text() for path in root.glob(SOURCES[kind])):
                yield f"{page} shows code that is not in {SOURCES[kind]}:\n{code}"


if __name__ == "__main__":
    errors = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(errors) or "the pages show what is run")
    sys.exit(1 if errors else 0)
