"""Limits of the process: met before anything is written and named, or of no effect.

Usage: limits_test.py FOLDER_OF_PROGRAMS
"""

import os
import resource
import shutil
import subprocess
import unittest

import programs

TIB = 1 << 40


def at_most(**limits):
    """For preexec_fn: limits by name, soft and hard, such as NOFILE=64."""

    def apply():
        for name, value in limits.items():
            number = getattr(resource, "RLIMIT_" + name)
            resource.setrlimit(number, value if isinstance(value, tuple) else (value, value))

    return apply


@unittest.skipUnless(programs.is_there("penstock"), "not built")
class CopyTest(programs.InFolder):
    def make_many(self, count):
        sources = []
        for i in range(count):
            sources.append(self.folder / f"{i:04}")
            sources[-1].write_bytes(b"%d" % i * (1 + i % 7))
        there = self.folder / "there"
        there.mkdir()
        return sources, there

    def test_many_files_with_few_descriptors(self):
        """In batches that the limit allows; where it allows nothing, no copy is begun."""
        sources, there = self.make_many(260)
        for limit in (512, 128, 64, 48, 32, 16):
            for flags in ([], ["--verify"]):
                with self.subTest(limit=limit, flags=flags):
                    ran = programs.run("penstock", "cp", "--quiet", *flags, *sources, there,
                                       *programs.BACKEND, preexec_fn=at_most(NOFILE=limit))
                    made = sorted(there.iterdir())
                    if ran.returncode == 0:
                        self.assertEqual([copy.read_bytes() for copy in made],
                                         [source.read_bytes() for source in sources])
                    else:
                        # Less than a runtime and one file take; the driver of a GPU has many.
                        self.assertLess(limit, 128 if "gpu" in programs.BACKEND else 48, ran.stderr)
                        self.assertEqual((ran.returncode, made), (1, []), ran.stderr)
                    for copy in made:
                        copy.unlink()

    def test_a_soft_limit_is_raised(self):
        sources, there = self.make_many(300)
        ran = programs.run("penstock", "cp", "--quiet", *sources, there, *programs.BACKEND,
                           preexec_fn=at_most(NOFILE=(20, 4096)))
        self.assertEqual((ran.returncode, len(list(there.iterdir()))), (0, 300), ran.stderr)

    def test_more_than_a_tebibyte(self):
        """Sparse, so that it takes no room."""
        source, copy = self.folder / "source", self.folder / "copy"
        parts = {0: b"first", TIB - 3: b"middle", 3 * TIB // 2: b"last"}
        with open(source, "wb") as file:
            for at, text in parts.items():
                file.seek(at)
                file.write(text)
        size = source.stat().st_size
        for existing in (b"", b"old content"):
            copy.write_bytes(existing)
            with self.subTest(existing=existing):
                ran = programs.run("penstock", "cp", "--quiet", source, copy, *programs.BACKEND)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertEqual(copy.stat().st_size, size)
                self.assertLess(copy.stat().st_blocks * 512, 1 << 30)
                with open(copy, "rb") as file:
                    for at, text in parts.items():
                        file.seek(at)
                        self.assertEqual(file.read(len(text)), text)

    def test_a_length_that_the_file_system_does_not_take(self):
        source, copy = self.folder / "source", self.folder / "copy"
        with open(source, "wb") as file:
            file.truncate(2 * TIB)
        ran = programs.run("penstock", "cp", "--quiet", source, copy, *programs.BACKEND,
                           preexec_fn=at_most(FSIZE=TIB))
        self.assertEqual((ran.returncode, copy.exists()), (1, False))
        self.assert_one_line(ran.stderr, "copy", "EFBIG", "ulimit -f")


class OthersTest(programs.InFolder):
    def empty(self):
        for entry in self.folder.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def test_too_large_a_file_is_named(self):
        """Also where a part of a write went well."""
        sizes = ["--m", 600, "--n", 700, "--k", 50]
        commands = []
        if programs.is_there("penstock-matrix"):
            a, b = self.inputs / "large A", self.inputs / "large B"
            programs.must_run("penstock-matrix", "make-product", *sizes, "-a", a, "-b", b)
            commands += [[
                "penstock-matrix", "product", a, b, *sizes, "-o", self.folder / "out", *flags
            ] for flags in (["--cache", "1MiB"], ["--cache", "256KiB", "--page", "4096"])]
        text = self.inputs / "large text"
        text.write_bytes(b"one\n" * 100000)
        if programs.is_there("penstock-grep"):
            words = self.inputs / "words"
            commands += [["penstock-grep", "--lines", "--cache", "1MiB", "--dict", words, text]]
        if programs.is_there("penstock"):
            commands += [["penstock", "cp", "--kernel", text, self.folder / "out"]]
        for command in commands:
            for limit in (1024, 102400, 204800):
                ran = programs.run(*command, *programs.BACKEND, "--quiet",
                                   preexec_fn=at_most(FSIZE=limit))
                with self.subTest(command=command, limit=limit):
                    self.assertEqual(ran.returncode, 1, ran.stderr)
                    self.assertIn(b"EFBIG", ran.stderr)
                    self.assertNotIn(b"EIO", ran.stderr)

    def test_few_descriptors_are_named(self):
        for case in programs.cases(self.inputs, self.folder / "out"):
            for limit in range(3, 16):
                ran = programs.run(case.program, *case.arguments, "--quiet",
                                   preexec_fn=at_most(NOFILE=limit))
                with self.subTest(case=case.name, limit=limit):
                    if ran.returncode == 127:  # the loader itself could not open a library
                        continue
                    self.assertIn(ran.returncode, (0, 1), ran.stderr)
                    if ran.returncode == 1:
                        self.assertTrue(ran.stderr.startswith(b"penstock"), ran.stderr)
                        self.assertEqual(sorted(os.listdir(self.folder)), [])
                self.empty()

    def test_a_library_that_waits_for_memory_is_not_loaded(self):
        """OpenBLAS would wait without end."""
        cases = [
            case for case in programs.cases(self.inputs, self.folder / "out")
            if case.program == "penstock-matrix" and "vector" in case.arguments
        ]
        for case in cases:
            for limit in (60, 200, 400):
                ran = programs.run(case.program, *case.arguments, "--quiet", "--method", "cpu",
                                   preexec_fn=at_most(AS=limit << 20))
                with self.subTest(case=case.name, limit=limit):
                    self.assertIn(ran.returncode, (0, 1, 127), ran.stderr)
                    self.assertEqual(len(ran.stderr.splitlines()), int(ran.returncode != 0))
                self.empty()

    def test_little_memory_is_one_line(self):
        """Never an end by a signal, and nothing left."""
        for case in programs.cases(self.inputs, self.folder / "out"):
            for limit in (30, 60, 120, 250):
                ran = programs.run(case.program, *case.arguments, "--quiet",
                                   preexec_fn=at_most(AS=limit << 20))
                with self.subTest(case=case.name, limit=limit):
                    if ran.returncode == 127:  # the loader itself had no room
                        continue
                    self.assertIn(ran.returncode, (0, 1), ran.stderr)
                    if ran.returncode == 1:
                        self.assertEqual(sorted(os.listdir(self.folder)), [], ran.stderr)
                self.empty()


class RoomTest(programs.InFolder):
    """File systems in memory, in a mount namespace of their own that ends with the program."""

    def with_mounts(self, mounts, program, *arguments):
        """Runs the program while folders have file systems with these options."""
        if not programs.is_there(program):
            self.skipTest("not built")
        apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
        mount = "mount -t tmpfs -o size=%s none %s\n"
        probe = [*apart, mount % ("0", self.folder)]
        if subprocess.run(probe, check=False, capture_output=True).returncode != 0:
            self.skipTest("no mount namespaces here")
        for folder in mounts:
            (self.folder / folder).mkdir(exist_ok=True)
        begin = "".join(mount % (size, self.folder / folder) for folder, size in mounts.items())
        return subprocess.run(
            [*apart, begin + 'exec "$0" "$@"', programs.BIN / program, *map(str, arguments)],
            check=False, capture_output=True, timeout=100, env=programs.environment())

    def make_two(self, first, second, mounts):
        """Two matrices of 512 KiB."""
        first, second = self.folder / first, self.folder / second
        return self.with_mounts(
            *[mounts, "penstock-matrix", "make-product", "--m=256", "--n=256", "--k=512"],
            *[f"--first={first}", f"--second={second}"])

    def make_images(self, room):
        """Queries of 4 KiB of numbers and two databases of 256 KiB each, with a page in front."""
        return self.with_mounts(
            *[{"a": room}, "penstock-match", "make", self.folder / "a", "--queries=1"],
            *["--images=64", "--databases=2", "--shape=32x32"])

    def test_a_file_system_that_tells_no_room_is_tried(self):
        ran = self.make_two("a/1", "a/2", {"a": "0"})
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_files_on_one_file_system_are_added_up(self):
        ran = self.make_two("a/1", "a/2", {"a": "768k"})
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "768 KiB free", "1 MiB")

    def test_files_of_a_folder_are_added_up(self):
        """Before the first of them is written."""
        ran = self.make_images("384k")
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "queries.images", "384 KiB free", "528 KiB", "fewer")
        ran = self.make_images("640k")
        self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_files_on_two_file_systems_are_not_added_up(self):
        ran = self.make_two("a/1", "b/2", {"a": "768k", "b": "768k"})
        self.assertEqual(ran.returncode, 0, ran.stderr)
        ran = self.make_two("a/1", "b/2", {"a": "768k", "b": "256k"})
        self.assertEqual(ran.returncode, 1)
        self.assert_one_line(ran.stderr, "b/2", "256", "512")


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["limits_test.py"])
