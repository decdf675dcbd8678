#!/usr/bin/env python3
"""Bad input to penstock costs one line that names the value and the cure, and leaves nothing
behind: bad_input_test.py PROGRAM."""
import os
import shutil
import subprocess
import tempfile
import unittest

from support import FLAGS, PROGRAM, InFolder, another_user, clean_environment, penstock

# Arguments after "penstock"; what the line must contain. FILE stands for a file that can be read.
WRONG_USAGE = [
    ([], ["no command", "info, cat, cp, keep, stat, mount, trace, replay, bench, man or"
                         " completion"]),
    (["dog"], ["dog", "--help"]),
    (["cat"], ["FILE", "--help"]),
    (["cat", "--nosuch", "FILE"], ["--nosuch", "--help"]),
    (["cat", "--cache", "0", "FILE"], ["--cache", "'0'", "such as"]),
    (["cat", "--cache", "-1", "FILE"], ["--cache", "'-1'", "such as"]),
    (["cat", "--cache", "3 GiBs", "FILE"], ["--cache", "'3 GiBs'", "such as"]),
    (["cat", "--cache", "nan", "FILE"], ["--cache", "'nan'", "such as"]),
    (["cat", "--cache", "99999999999999999999", "FILE"],
     ["--cache", "'99999999999999999999'", "such as"]),
    (["cat", "--cache", "64KiB", "FILE"], ["cache_bytes", "64 KiB", "at least"]),
    (["cat", "--page", "1000", "FILE"], ["page_bytes", "1000", "power of two"]),
    (["cat", "--page", "256", "FILE"], ["page_bytes", "256", "512"]),
    (["cat", "--page", "4MiB", "FILE"], ["page_bytes", "4194304", "2097152"]),
    (["cat", "--workers", "-3", "FILE"], ["--workers", "'-3'", "such as"]),
    (["cat", "--workers", "5000", "FILE"], ["worker_threads", "5000", "1024"]),
    (["cat", "--device", "x", "FILE"], ["--device", "'x'", "such as"]),
    (["cat", "--backend", "tpu", "FILE"], ["--backend", "'tpu'", "auto, gpu or cpu"]),
    (["cat", "--json", "FILE"], ["--json", "--out"]),
    (["info", "--cache", "0"], ["--cache", "'0'"]),
]

VARIABLES = [
    ("PENSTOCK_PAGE", "3000", ["page_bytes", "3000", "power of two"]),
    ("PENSTOCK_CACHE", "3 GiBs", ["PENSTOCK_CACHE", "'3 GiBs'", "such as"]),
    ("PENSTOCK_BACKEND", "tpu", ["PENSTOCK_BACKEND", "'tpu'", "auto, gpu or cpu"]),
    ("PENSTOCK_DIRECT_IO", "yes", ["PENSTOCK_DIRECT_IO", "'yes'", "auto, off or on"]),
    ("PENSTOCK_TRUST_TIMES", "yes", ["PENSTOCK_TRUST_TIMES", "'yes'", "auto, off or on"]),
    ("PENSTOCK_REGISTERED_BUFFERS", "1", ["PENSTOCK_REGISTERED_BUFFERS", "'1'", "on or off"]),
    ("PENSTOCK_IO", "mmap", ["PENSTOCK_IO", "'mmap'", "auto, uring or pread"]),
    ("PENSTOCK_MAX_FILES", "3", ["max_files", "3", "16"]),
    ("PENSTOCK_FRAME_WAIT_MS", "soon", ["PENSTOCK_FRAME_WAIT_MS", "'soon'", "such as"]),
    ("PENSTOCK_HOST_WAIT_MS", "5", ["host_wait_ms", "5", "100"]),
    ("PENSTOCK_SHARE", "../x", ["share", "'../x'", "letters"]),
    ("PENSTOCK_STAGING", "5", ["staging_bytes", "5", "1 MiB"]),
]


class BadInput(InFolder):
    def check(self, arguments, status, parts, **more):
        ran = penstock(*arguments, **more)
        self.assertEqual(ran.returncode, status, ran.stderr)
        self.assertEqual(ran.stdout, b"")
        self.assert_one_line(ran.stderr, *parts)

    def cat(self, path, *parts, status=1, before=(), **more):
        self.check(["cat", *FLAGS, *before, path], status, parts, **more)

    def test_wrong_usage(self):
        file = self.make("file", b"never shown")
        for arguments, parts in WRONG_USAGE:
            with self.subTest(arguments=arguments):
                self.check([file if part == "FILE" else part for part in arguments], 2, parts)

    def test_wrong_variables(self):
        file = self.make("file", b"never shown")
        for name, value, parts in VARIABLES:
            with self.subTest(variable=name, value=value):
                self.check(["cat", file], 2, parts, environment=clean_environment(**{name: value}))

    def test_names_that_are_no_readable_file(self):
        file = self.make("file")
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        loop = self.folder / "loop"
        loop.symlink_to(loop)
        dangling = self.folder / "dangling"
        dangling.symlink_to(self.folder / "gone")
        for path, parts in ((self.folder / "absent", ["absent", "ENOENT", "exists"]),
                            ("", ["''", "ENOENT"]), (self.folder, ["EISDIR", "file in it"]),
                            (fifo, ["fifo", "use cat"]), ("/dev/null", ["/dev/null", "use cat"]),
                            (file / "below", ["below", "ENOTDIR"]),
                            (loop, ["loop", "ELOOP", "circle"]),
                            (dangling, ["dangling", "ENOENT"]),
                            (self.folder / ("x" * 300), ["ENAMETOOLONG", "short"]),
                            ("/proc/self/status", ["/proc/self/status", "use cat"])):
            with self.subTest(path=path):
                self.cat(path, *parts)

    def test_one_bad_name_and_nothing_is_written(self):
        good = self.make("good", b"must not appear")
        self.cat(self.folder / "absent", "absent", before=[good])

    def test_control_characters_in_a_name_do_not_make_lines(self):
        self.cat(self.folder / "two\nlines", "two\\nlines", "ENOENT")

    def test_no_partial_output_file(self):
        good, out = self.make("good", b"x" * 100_000), self.folder / "out"
        self.cat(self.folder / "absent", "absent", before=["--out", out, good])
        self.cat(good, "nowhere", "directory that exists",
                 before=["--out", self.folder / "nowhere" / "out"])
        self.cat(good, "EISDIR", before=["--out", self.folder])
        self.assertEqual(os.listdir(self.folder), ["good"])

    def test_an_output_file_stays_as_it_was(self):
        out = self.make("out", b"precious")
        self.cat(self.folder / "absent", "absent", before=["--out", out])
        self.assertEqual(out.read_bytes(), b"precious")

    def test_cache_larger_than_the_device(self):
        self.cat(self.make("file", b"x"), "cache_bytes", "4000 TiB", "give less",
                 before=["--cache", "4000TiB"])

    def test_a_gpu_that_is_not_there(self):
        file = self.make("file", b"x")
        self.check(["cat", "--backend", "gpu", "--device", "97", file], 1,
                   ["GPU 97", "--backend cpu"])

    def test_unreadable_file(self):
        file = self.make("secret", b"x")
        file.chmod(0)
        self.folder.chmod(0o755)
        if os.geteuid() != 0:
            self.cat(file, "secret", "EACCES", "permissions")
            return
        with tempfile.TemporaryDirectory() as place:  # root may read everything
            os.chmod(place, 0o755)
            self.cat(file, "secret", "EACCES", "permissions", **another_user(place))


# An empty folder in the place of /proc, in a mount table of its own.
WITHOUT_PROC = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]


def proc_can_be_hidden():
    return shutil.which("unshare") is not None and subprocess.run(
        [*WITHOUT_PROC, "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(proc_can_be_hidden(), "takes the right to a mount table of one's own")
class without_proc(InFolder):
    def penstock(self, *arguments):
        return penstock(*WITHOUT_PROC[1:], PROGRAM, *arguments, program=WITHOUT_PROC[0])

    def test_what_opens_files_names_cause_and_cure(self):
        path = self.make("file", b"x" * 5000)
        cpu = ["--backend", "cpu"]  # CUDA finds no device where /proc is not there
        for arguments in (["cat", *cpu, path], ["cp", *cpu, path, self.folder / "copy"],
                          ["keep", *cpu, "--share", "test", path], ["stat"],
                          ["stat", "--json"]):
            with self.subTest(arguments=arguments):
                ours = self.penstock(*arguments)
                self.assertEqual(ours.returncode, 1)
                self.assertEqual(ours.stdout, b"")
                self.assert_one_line(ours.stderr, "/proc is not mounted",
                                     "mount -t proc proc /proc")
                self.assertNotIn(b"name an existing directory", ours.stderr)
        self.assertFalse((self.folder / "copy").exists())

    def test_info_says_it_beside_what_works(self):
        ours = self.penstock("info", *FLAGS)
        self.assertRegex(ours.stdout.decode(), r"opening files +no: /proc is not mounted")
        self.assertNotIn(b"the file system of the program refuses it", ours.stdout)

if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["bad_input_test.py"])
