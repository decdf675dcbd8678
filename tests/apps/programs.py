"""All programs with small inputs of their own, for tests of what they have in common.

A test's first argument is the folder with the programs; those that were not built are left out.
"""

import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from program_support import (  # noqa: F401
    COMPILER, backend_flags, clean_environment as environment, with_failing_close)

BIN = pathlib.Path(sys.argv.pop(1)).resolve()
BACKEND = backend_flags()


def is_there(program):
    return (BIN / program).exists()


def run(program, *arguments, **more):
    more.setdefault("timeout", 120)
    more.setdefault("env", environment())
    more.setdefault("stdin", subprocess.DEVNULL)
    if "stdout" not in more and "stderr" not in more:
        more["capture_output"] = True
    return subprocess.run([BIN / program, *map(str, arguments)], check=False, **more)


def must_run(program, *arguments, **more):
    done = run(program, *arguments, **more)
    if done.returncode != 0:
        raise AssertionError(f"{program} {arguments}: {done.returncode}, {done.stderr}")
    return done


def start(program, *arguments, **more):
    more.setdefault("env", environment())
    more.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([BIN / program, *map(str, arguments)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **more)


def write_ppm(path, width, height, seed=1):
    row = bytes((seed * 37 + 5 * x) % 256 for x in range(3 * width))
    path.write_bytes(b"P6\n%d %d\n255\n" % (width, height) + b"".join(row[y % 97:] + row[:y % 97]
                                                                      for y in range(height)))
    return path


def write_images(path, count, side=8):
    """A file for penstock-match: docs/apps/match.md."""
    stride = side * side
    head = struct.pack("<8sIIQIIIIQ", b"PIMAGES1", 1, 64, count, side, side, 1, stride, 4096)
    numbers = struct.pack(f"<{count * stride}f",
                          *((7 * i % 101) / 101 for i in range(count * stride)))
    path.write_bytes(head.ljust(4096, b"\0") + numbers)
    return path


class Case:
    """One way to run a program: what it reads, and the file that it makes."""

    def __init__(self, name, program, arguments, made=None):
        self.name, self.program, self.arguments, self.made = (name, program,
                                                              list(map(str, arguments)), made)


# Of the matrices that are multiplied with each other.
SIZES = ["--m", 20, "--n", 30, "--k", 40]


def fill_with_matrices(folder):
    if is_there("penstock-matrix"):
        must_run("penstock-matrix", "make-vector", "--rows", 40, "--cols", 50, "-o", folder / "A",
                 "-x", folder / "x", "--quiet")
        must_run("penstock-matrix", "make-product", *SIZES, "-a", folder / "MA", "-b",
                 folder / "MB", "--quiet")


def fill(folder):
    """Makes the inputs of all cases. Folders of pictures and of plain files too."""
    pictures = folder / "pictures"
    pictures.mkdir()
    for i in range(3):
        write_ppm(pictures / f"{i}.ppm", 96, 64, i + 1)
    (folder / "words").write_text("one\ntwo\n")
    (folder / "text").write_text("one two one\n" * 50)
    (folder / "images").write_bytes(b"")
    write_images(folder / "images", 20)
    fill_with_matrices(folder)
    if is_there("penstock-stitch"):
        must_run("penstock-stitch", "make", "-o", folder / "tiles", "--rows", 2, "--columns", 2,
                 "--tile", "64x48", "--quiet")
    if is_there("penstock-sssp"):
        must_run("penstock-sssp", "make", "-o", folder / "graph", "--vertices", 100, "--edges",
                 1000, "--quiet")
    if is_there("penstock-collage"):
        must_run("penstock-collage", "index", pictures, "-o", folder / "library", "--quiet")
    if is_there("penstock"):
        must_run("penstock", "trace", "generate", "-o", folder / "trace", "--pages", 10,
                 "--accesses", 30, "--data", folder / "trace.data", "--quiet")


def cases(folder, out):
    """Every program that makes a file, with a small result at `out`."""
    f = folder
    all_of_them = [
        Case("grep", "penstock-grep", ["--dict", f / "words", "--out", out, f / "text", *BACKEND],
             out),
        Case("match", "penstock-match",
             [f / "images", f / "images", "--threshold", 0.5, "--out", out, *BACKEND], out),
        Case("matrix vector", "penstock-matrix", ["vector", f / "A", f / "x", "-o", out, *BACKEND],
             out),
        Case("matrix product", "penstock-matrix",
             ["product", f / "MA", f / "MB", *SIZES, "-o", out, *BACKEND], out),
        Case("stitch", "penstock-stitch", ["run", f / "tiles", "-o", out, *BACKEND], out),
        Case("sssp run", "penstock-sssp", ["run", f / "graph", "-o", out, "--no-mount", *BACKEND],
             out),
        Case("sssp make", "penstock-sssp", ["make", "-o", out, "--vertices", 50, "--edges", 200],
             out),
        Case("collage make", "penstock-collage",
             ["make", f / "pictures" / "1.ppm", f / "library", "-o",
              str(out) + ".ppm", *BACKEND], pathlib.Path(str(out) + ".ppm")),
        Case("collage index", "penstock-collage", ["index", f / "pictures", "-o", out], out),
        Case("trace generate", "penstock",
             ["trace", "generate", "-o", out, "--pages", 10, "--accesses", 30, "--file", "any"],
             out),
        Case("trace convert", "penstock", ["trace", "convert", f / "trace", "-o", out, "--binary"],
             out),
        Case("cat", "penstock", ["cat", f / "text", "--out", out, *BACKEND], out),
        Case("cp", "penstock", ["cp", f / "text", out, *BACKEND], out)
    ]
    return [case for case in all_of_them if is_there(case.program)]


def content(path):
    """Of a file, or of all files of a folder."""
    if path.is_dir():
        return {entry.name: entry.read_bytes() for entry in sorted(path.iterdir())}
    return path.read_bytes()


class InFolder(unittest.TestCase):
    """A test with a folder of its own, and one with inputs that all tests of the class share."""

    @classmethod
    def setUpClass(cls):
        holder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(holder.cleanup)
        cls.inputs = pathlib.Path(holder.name)
        fill(cls.inputs)

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def assert_one_line(self, text, *parts):
        lines = text.decode(errors="replace").splitlines()
        self.assertEqual(len(lines), 1, text)
        for part in parts:
            self.assertIn(str(part), lines[0])
