"""Pipes, devices, folders and files that lie about their size: every program refuses them by name,
or reads them to their end, and none waits for ever.

Usage: kinds_test.py FOLDER_OF_PROGRAMS
"""

import os
import pathlib
import shutil
import socket
import subprocess
import unittest

import programs

LIAR = pathlib.Path("/proc/cpuinfo")  # says that it is empty


class KindsTest(programs.InFolder):
    def odd_files(self):
        """What a name may lead to that is no regular file, and what a message has to say of it."""
        pipe, end = self.folder / "pipe", self.folder / "socket"
        os.mkfifo(pipe)
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(end))
        link = self.folder / "link"
        link.symlink_to(pipe)
        return [pipe, link, end, self.inputs, pathlib.Path("/dev/null"), LIAR]

    def refuses(self, path, program, *arguments, status=(1,)):
        ran = programs.run(program, *arguments, timeout=60)
        with self.subTest(program=program, arguments=arguments):
            self.assertIn(ran.returncode, status, ran.stderr)
            self.assertEqual(ran.stdout, b"")
            self.assert_one_line(ran.stderr, path.name)

    def inputs_of(self, odd):
        """Every argument that names a file to be read by its size, with `odd` in its place."""
        f, out = self.inputs, self.folder / "out"
        return [("penstock-grep", "--dict", f / "words", odd),
                ("penstock-match", odd, f / "images", "--threshold", 1),
                ("penstock-match", f / "images", odd, "--threshold", 1),
                ("penstock-matrix", "vector", odd, f / "x", "-o", out),
                ("penstock-matrix", "vector", f / "A", odd, "-o", out),
                ("penstock-matrix", "product", odd, f / "MB", *programs.SIZES, "-o", out),
                ("penstock-matrix", "product", f / "MA", odd, *programs.SIZES, "-o", out),
                ("penstock-stitch", "run", odd, "-o", out),
                ("penstock-sssp", "run", odd, "-o", out),
                ("penstock-sssp", "update", odd, "--percent", 1, "--seed", 1, "--round", 1, "--by",
                 "write", "--workers", 1),
                ("penstock-collage", "make", odd, f / "library", "-o", str(out) + ".ppm"),
                ("penstock", "cat", odd), ("penstock", "cp", odd, out)]

    def test_inputs(self):
        for odd in self.odd_files():
            for program, *arguments in self.inputs_of(odd):
                searched = (program == "penstock-grep"
                            and odd == self.inputs)  # a folder is what it takes
                if programs.is_there(program) and not searched:
                    self.refuses(odd, program, *arguments)
        self.assertFalse((self.folder / "out").exists())

    def test_dictionaries_and_traces(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        cases = [("penstock-grep", "--dict", pipe, self.inputs / "text"),
                 ("penstock", "trace", "show", pipe),
                 ("penstock", "trace", "convert", pipe, "-o", self.folder / "out", "--binary"),
                 ("penstock", "replay", pipe, "--policy", "native", "--ram", "1MiB", "--simulate")]
        for program, *arguments in cases:
            if programs.is_there(program):
                self.refuses(pipe, program, *arguments)
                ran = programs.run(program,
                                   *[self.inputs if word == pipe else word for word in arguments])
                self.assertEqual(ran.returncode, 1)
                self.assertIn(b"EISDIR", ran.stderr)

    def test_a_dictionary_from_a_program(self):
        if not programs.is_there("penstock-grep"):
            self.skipTest("not built")
        flags = "--quiet " + " ".join(programs.BACKEND)
        script = f'"{programs.BIN}/penstock-grep" {flags} --dict <(sleep 0.3; cat "$0") "$1"'
        ran = subprocess.run(["bash", "-c", script, self.inputs / "words", self.inputs / "text"],
                             capture_output=True, check=False, timeout=60)
        self.assertEqual((ran.returncode, len(ran.stdout.splitlines())), (0, 2), ran.stderr)

    def test_files_that_files_name(self):
        """Those of a library, and those of a trace."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        if programs.is_there("penstock-collage"):
            for name in ("header", "histograms", "tiles", "lsh-00", "lsh-31"):
                library = self.folder / ("library-" + name)
                shutil.copytree(self.inputs / "library", library)
                (library / name).unlink()
                os.mkfifo(library / name)
                self.refuses(library / name, "penstock-collage", "make",
                             self.inputs / "pictures" / "1.ppm", library, "-o",
                             self.folder / "out.ppm")
        if programs.is_there("penstock"):
            for odd in (pipe, LIAR):
                trace = self.folder / "trace"
                programs.must_run("penstock", "trace", "generate", "-o", trace, "--pages", 3,
                                  "--accesses", 4, "--writes", 0, "--file", odd, "--text")
                self.refuses(odd, "penstock", "replay", trace, "--policy", "native", "--ram",
                             "1MiB", "--cached", "--backend", "cpu")

    def test_outputs_that_no_program_reads(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        for case in programs.cases(self.inputs, pipe):
            if case.made == pipe:
                self.refuses(pipe, case.program, *case.arguments, "--quiet")
        with self.subTest("with a reader"):
            reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
            case = next(case for case in programs.cases(self.inputs, pipe)
                        if case.name in ("grep", "cat"))
            programs.must_run(case.program, *case.arguments, "--quiet")
            self.assertTrue(reader.communicate(timeout=60)[0])

    def test_grep_says_what_it_left_out(self):
        if not programs.is_there("penstock-grep"):
            self.skipTest("not built")
        ran = programs.run("penstock-grep", "--dict", self.inputs / "words", "/proc/self/net",
                           "--quiet", *programs.BACKEND)
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        self.assertIn(b"/proc/self/net/", ran.stderr)
        self.assertIn(b"left out", ran.stderr)

    def test_a_sparse_file_is_no_liar(self):
        if not programs.is_there("penstock"):
            self.skipTest("not built")
        sparse = self.folder / "sparse"
        with open(sparse, "wb") as file:
            file.truncate(3_000_001)
        self.assertEqual(
            programs.must_run("penstock", "cat", "--quiet", sparse, *programs.BACKEND).stdout,
            bytes(3_000_001))


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["kinds_test.py"])
