#!/usr/bin/env python3
"""Style as a test: tidy.py [REPOSITORY]. Prints one line for each violation; exit status 1 if there
is any.

The rules and their reasons are in CONTRIBUTING.md. tests/style plants a violation of each and
expects it to be found."""
import ast
import functools
import os
import pathlib
import re
import sys

import tidy_docs
import tidy_text

MOST_FILE_LINES = 600
LONG_FILE_LINES = 250  # said, not punished
MOST_FUNCTION_LINES = 70
MOST_CODE_COLUMNS = 100
MOST_TEXT_COLUMNS = 120

CODE = (".hpp", ".cuh", ".cpp", ".cu")
SCRIPTS = (".py", ".sh", ".ci/run")
TEXT = CODE + (".py", ".sh", ".md", ".cmake", ".txt", ".in", ".json")
SKIPPED_FOLDERS = {"__pycache__", ".git", ".ccache", ".inputs"}  # and folders of builds

# Includes go from a layer to its own or a lower one.
LAYERS = [("include/penstock/base/", 0), ("include/penstock/group/", 1),
          ("include/penstock/engine/", 2), ("include/penstock/consistency/", 2),
          ("include/penstock/", 3),
          ("src/os/", 4), ("src/settings/", 4), ("src/buffer/core/", 4),
          ("src/hub/", 5), ("src/device/", 5),
          ("src/files/", 6), ("src/buffer/pool/", 6),
          ("src/peers/", 7), ("src/links/", 7), ("src/store/", 7),
          ("src/service/", 8), ("src/runtime/", 9),
          ("src/region/", 10), ("src/table/", 10), ("src/mount/", 11),
          ("apps/", 12), ("bench/", 12), ("python/", 12), ("cli/", 13)]
LIBRARY = {prefix.removeprefix("src/"): level for prefix, level in LAYERS
           if prefix.startswith("src/")}
# Of one layer, and they do not know each other.
STRANGERS = [("include/penstock/engine/", "penstock/consistency/"),
             ("include/penstock/consistency/", "penstock/engine/")]
# What the three lowest layers may take from the standard library: nothing that allocates, throws or
# calls the system. A kernel's file compiles them all, so the heavy ones are missing: atomic,
# chrono, mutex, thread, cuda/atomic.
PURE = {"bit", "cassert", "cerrno", "concepts", "cstddef", "cstdint", "cstring", "limits",
        "type_traits", "utility"}
# NVRTC compiles these too, and has none of them: one file has what stands for them there.
KERNEL_FOLDERS = tuple(f"include/penstock/{folder}/" for folder in ("base", "group", "engine"))
MAY_INCLUDE_STANDARD = {"include/penstock/base/standard.hpp", "include/penstock/base/macros.hpp"}

ORDERS_LIVE_IN = {"include/penstock/base/atomic.hpp", "include/penstock/base/device_atomic.cuh",
                  "include/penstock/engine/page_word.hpp",
                  "include/penstock/engine/file_word.hpp", "include/penstock/engine/ring.hpp",
                  "include/penstock/engine/dirty.hpp"}
# Named steps that have not moved into those files. The number can only go down.
ORDERS_LEFT = {
    "include/penstock/engine/clock.hpp": 9,
    "include/penstock/engine/file_table.hpp": 10,
    "include/penstock/engine/name_table.hpp": 11,
    "include/penstock/engine/page_table.hpp": 2,
    "include/penstock/engine/retire.hpp": 2,
    # A group, not the engine: how it copies a frame is its own affair.
    "include/penstock/group/racing_lane.hpp": 7,
    "include/penstock/group/changed_bytes.hpp": 2,
}

# The original GPUfs has the word in its signatures.
VOLATILE_IN = {"include/penstock/gpufs.cuh", "include/penstock/gpufs_compat.cuh",
               "include/penstock/gpufs_host.cuh", "tests/device/gpufs_test.cu",
               "tests/device/gpufs_second_file_test.cu", "tests/device/gpufs_samples/copy.cu",
               "tests/device/gpufs_samples/rows.cu", "tests/device/gpufs_samples/totals.cu"}


def is_skipped(folder):
    return folder in SKIPPED_FOLDERS or re.fullmatch(r"build(-.*)?", folder)


class Tree:
    """The files of the repository, read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.files = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not is_skipped(name))
            for name in sorted(names):
                path = pathlib.Path(folder, name)
                relative = path.relative_to(self.root).as_posix()
                if relative.endswith(TEXT) or relative == ".ci/run":
                    self.files[relative] = path.read_text(encoding="utf-8")

    @functools.cached_property
    def split(self):
        """Code and comments of each file of code."""
        return {path: tidy_text.split_comments(text) for path, text in self.files.items()
                if path.endswith(CODE)}

    @functools.cached_property
    def names(self):
        """What documents call the files and folders."""
        files = {path.removeprefix(start) for path in self.files
                 for start in ("", "include/", "include/penstock/", "src/")}
        return files.union(parent.as_posix() for file in files
                           for parent in pathlib.PurePosixPath(file).parents)

    def code(self, prefix=""):
        return ((path, *self.split[path]) for path in self.split if path.startswith(prefix))


def numbered(text):
    return enumerate(text.split("\n"), 1)


def layer_of(path):
    return next((level for prefix, level in LAYERS if path.startswith(prefix)), None)


def target_of(path, name):
    """The layer that an include leads to, or None if it is none of ours."""
    if name.startswith("penstock/"):
        return layer_of("include/" + name)
    if name.startswith(tuple(LIBRARY)):
        return layer_of("src/" + name)
    if name.startswith(("bench/", "cli/")):
        return layer_of(name)
    if path.startswith(("apps/", "bench/", "cli/")) and "/" not in name:
        return layer_of(path)
    return layer_of("apps/") if name.startswith("common/") else None


def includes(text):
    for number, line in numbered(text):
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
        if match:
            yield number, match.group(1), match.group(2)


def include_direction(tree):
    for path, _, _ in tree.code():
        level = layer_of(path)
        if level is None:
            continue
        for number, mark, name in includes(tree.files[path]):
            target = target_of(path, name) if mark == '"' or name.startswith("penstock/") else None
            if target is not None and target > level:
                yield path, number, f"includes {name}, which lies in a layer above"
            if any(path.startswith(area) and name.startswith(other) for area, other in STRANGERS):
                yield (path, number,
                       f"includes {name}: engine and consistency do not know each other")
            if path.startswith("src/") and target == level and name.startswith(tuple(LIBRARY)):
                folder = next(f for f in LIBRARY if path.startswith("src/" + f))
                if not name.startswith(folder):
                    yield path, number, f"includes {name}: its folder is beside this and not below"
            is_guest = target == layer_of("apps/") and not name.startswith("common/")
            if path.startswith("apps/common/") and is_guest:
                yield path, number, f"includes {name}: what programs share may not know one of them"


def pure_layers(tree):
    for path, code, _ in tree.code("include/penstock/"):
        if layer_of(path) > 2:
            continue
        for number, mark, name in includes(tree.files[path]):
            if mark != "<" or name.startswith("penstock/"):
                continue
            if name not in PURE:
                yield path, number, f"includes <{name}>, which this layer may not use"
            elif path.startswith(KERNEL_FOLDERS) and path not in MAY_INCLUDE_STANDARD:
                yield (path, number, f"includes <{name}>, which NVRTC does not have: include "
                       '"penstock/base/standard.hpp"')
        for number, line in numbered(code):
            match = re.search(r"\b(new|delete|throw|malloc|free|std::vector|std::string)\b(?!\s*;)",
                              line)
            if match and "= delete" not in line and layer_of(path) != 1:
                yield (path, number,
                       f"'{match.group(1)}': this layer allocates nothing and throws nothing")


def file_length(tree):
    for path, text in tree.files.items():
        lines = text.count("\n")
        is_record = path.startswith("bench/results/")
        if lines > MOST_FILE_LINES and not is_record and not path.endswith((".md", ".json")):
            yield path, lines, f"has {lines} lines, more than {MOST_FILE_LINES}"


def line_length(tree):
    """Code ends at 100 columns, text at 120; not so tables and blocks of code in documents."""
    for path, text in tree.files.items():
        if path.endswith(CODE + SCRIPTS):
            lines, most = text, MOST_CODE_COLUMNS
        elif path.endswith(".md"):
            lines, most = tidy_docs.without_blocks(text), MOST_TEXT_COLUMNS
        else:
            continue
        for number, line in numbered(lines):
            if len(line) > most and not line.lstrip().startswith("|"):
                yield path, number, f"has {len(line)} columns, more than {most}"


def function_length(tree):
    for path, code, _ in tree.code():
        for name, first, last in tidy_text.functions(code):
            if last - first + 1 > MOST_FUNCTION_LINES:
                yield (path, first,
                       f"{name} has {last - first + 1} lines, more than {MOST_FUNCTION_LINES}")
    for path, text in tree.files.items():
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if (isinstance(node, ast.FunctionDef)
                and node.end_lineno - node.lineno + 1 > MOST_FUNCTION_LINES):
                yield path, node.lineno, f"{node.name} has more than {MOST_FUNCTION_LINES} lines"


def no_volatile(tree):
    for path, code, _ in tree.code():
        for number, line in numbered(code):
            if path not in VOLATILE_IN and re.search(r"(?<!asm )\bvolatile\b", line):
                yield path, number, "volatile orders nothing; use base/atomic.hpp"


def no_leftovers(tree):
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
    statement = re.compile(
        r"^(return\b|(const|auto|int|if|for|while|static|std::\w+|else)\b.*[=(]|[\w.:>\[\]-]+(\(| "
        r"[-+|&]?= )).*[;{}]$")
    for path, text in tree.files.items():
        for number, line in numbered(text):
            if marks.search(line):
                yield path, number, "finish it or record it elsewhere"
    for path, _, comments in tree.code():
        for number, line in numbered(comments):
            # An example in a comment is set in by three spaces or more.
            match = re.match(r"\s*//\s?(\S.*)$", line)
            if match and statement.match(match.group(1).strip()):
                yield (path, number,
                       "code in a comment; delete it, or set an example in by three spaces")


def orders(tree):
    for path, code, _ in tree.code("include/penstock/"):
        if path in ORDERS_LIVE_IN:
            continue
        named = re.compile(r"\border::(relaxed|acquire|release|acq_rel)\b")
        lines = [number for number, line in numbered(code) for _ in named.findall(line)]
        if len(lines) > ORDERS_LEFT.get(path, 0):
            yield (path, lines[0],
                   (f"names a memory order {len(lines)} times where {ORDERS_LEFT.get(path, 0)} are "
                    "known; give the step a name in page_word.hpp, file_word.hpp or ring.hpp"))


def headers_begin_with_comment(tree):
    for path, text in tree.files.items():
        if (path.startswith("include/") and path.endswith((".hpp", ".cuh"))
            and not text.startswith("//")):
            yield path, 1, "begins without saying what it is"


def no_machine_paths(tree):
    place = re.compile(r"(?<![\w.])/(work|home|root|Users|mnt|tmp/\w+)/")
    for path, text in tree.files.items():
        for number, line in numbered(text):
            if place.search(line) and path != "tools/tidy.py":
                yield path, number, "names a place that only one machine has"


def plain_text(tree):
    for path, text in tree.files.items():
        if text and not text.endswith("\n"):
            yield path, text.count("\n") + 1, "does not end with a line end"
        for number, line in numbered(text):
            if "\t" in line or line != line.rstrip():
                yield path, number, "has a tab or a space at the end of the line"


RULES = [include_direction, pure_layers, file_length, line_length, function_length, no_volatile,
         no_leftovers, orders, headers_begin_with_comment, no_machine_paths, plain_text,
         tidy_docs.names_exist, tidy_docs.links_exist, tidy_docs.results_exist,
         tidy_docs.figures_name_results]


def violations(root):
    tree = Tree(root)
    return [f"{path}:{line}: {rule.__name__}: {text}" for rule in RULES
            for path, line, text in rule(tree)]


def long_files(root):
    return [path for path, text in Tree(root).files.items()
            if path.endswith(CODE) and text.count("\n") > LONG_FILE_LINES]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).resolve().parents[1])
    found = violations(root)
    print("\n".join(found) if found else "no violation")
    for path in long_files(root):
        print(f"note: {path} has more than {LONG_FILE_LINES} lines")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
