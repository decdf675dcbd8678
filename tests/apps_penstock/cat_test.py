#!/usr/bin/env python3
"""penstock cat writes what cat writes: cat_test.py PROGRAM."""
import json
import os
import select
import subprocess
import threading
import time
import unittest

from support import FLAGS, SMALL, PROGRAM, InFolder, clean_environment, pattern, penstock

MIB, GIB = 1 << 20, 1 << 30


class Cat(InFolder):
    def check(self, *paths, flags=SMALL):
        ours = penstock("cat", *FLAGS, *flags, "--", *paths)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        wanted = subprocess.run(["cat", "--", *map(str, paths)], stdout=subprocess.PIPE,
                                check=True).stdout
        self.assertTrue(ours.stdout == wanted,
                        f"{paths}: {len(ours.stdout)} bytes, cat writes {len(wanted)}")

    def test_sizes_around_pages_and_pieces(self):
        for size in (0, 1, 511, 512, 65535, 65536, 65537, (4 << 20) - 1, 4 << 20, (4 << 20) + 1,
                     30_000_001):
            with self.subTest(size=size):
                self.check(self.make(f"of {size}", pattern(size, size + 1)))

    def test_page_sizes(self):
        path = self.make_pattern("data", 3_000_001)
        for page in ("512", "4KiB", "2MiB"):
            with self.subTest(page=page):
                self.check(path, flags=("--page", page, "--cache", "32MiB"))

    def test_several_files_in_order_and_one_twice(self):
        a, b, empty = (self.make("a", pattern(100_000, 2)), self.make("b", pattern(70_000, 3)),
                       self.make("empty"))
        self.check(b, empty, a, b, empty)

    def test_odd_names(self):
        for name in ("with space", "quote'\"", "nl\nin it", "-dash", "ümlaut", "x" * 255):
            with self.subTest(name=name):
                self.check(self.make(name, name.encode()))

    def test_through_a_link(self):
        target = self.make("target", b"behind the link")
        link = self.folder / "link"
        link.symlink_to(target)
        self.check(link)

    def test_relative_name_whatever_the_roots(self):
        self.make("data", b"here")
        ours = penstock("cat", *FLAGS, "data", cwd=self.folder,
                        environment=clean_environment(PENSTOCK_ROOTS="/usr"))
        self.assertEqual((ours.returncode, ours.stdout), (0, b"here"), ours.stderr)

    def test_sparse(self):
        path = self.folder / "sparse"
        with open(path, "wb") as file:
            for at in (0, 65536 * 3 - 2, 20_000_000):
                file.seek(at)
                file.write(b"data in a sea of holes")
            file.truncate(40_000_000)
        self.check(path)

    def test_more_than_four_gibibytes(self):
        """Bytes across the limits of 31 and 32 bits, and at the end, come out where they belong."""
        path, size = self.folder / "huge", 4 * GIB + 16 * MIB
        marks = (0, 2 * GIB - 5, 4 * GIB - 5, size - 10)
        with open(path, "wb") as file:
            for at in marks:
                file.seek(at)
                file.write(b"0123456789")
        with subprocess.Popen([PROGRAM, "cat", "--quiet", *FLAGS, str(path)],
                              stdout=subprocess.PIPE, env=clean_environment(), bufsize=0) as ours, \
                open(os.devnull, "wb") as nowhere, open(path, "rb") as file:
            at = dropped = 0
            for mark in marks:
                # Pages that nothing looks at go by without a copy, and do not stay in memory.
                while at < max(mark - 100, 0):
                    at += os.splice(ours.stdout.fileno(), nowhere.fileno(),
                                    min(max(mark - 100, 0) - at, MIB))
                    if at - dropped >= 64 * MIB:
                        os.posix_fadvise(file.fileno(), dropped, at - dropped,
                                         os.POSIX_FADV_DONTNEED)
                        dropped = at
                around = b""
                while at + len(around) < min(mark + 110, size):
                    missing = min(mark + 110, size) - at - len(around)
                    around += os.read(ours.stdout.fileno(), missing)
                before = mark - at
                self.assertEqual(around, (bytes(before) + b"0123456789").ljust(len(around), b"\0"))
                at += len(around)
            self.assertEqual(ours.stdout.read(), b"")
            self.assertEqual(ours.wait(), 0)

    def test_a_file_that_is_being_appended_to(self):
        path = self.make_pattern("growing", 20_000_000)
        stop = threading.Event()

        def append():
            with open(path, "ab", buffering=0) as file:
                while not stop.is_set():
                    file.write(pattern(10_000, 7))
                    time.sleep(0.001)

        thread = threading.Thread(target=append)
        thread.start()
        try:
            least = os.path.getsize(path)
            ours = penstock("cat", *FLAGS, *SMALL, path)
            most = os.path.getsize(path)
        finally:
            stop.set()
            thread.join()
        self.assertEqual(ours.returncode, 0, ours.stderr)
        self.assertGreaterEqual(len(ours.stdout), least)
        self.assertLessEqual(len(ours.stdout), most)
        self.assertTrue(path.read_bytes().startswith(ours.stdout))

    def test_out_is_the_same_and_replaces(self):
        path, out = self.make_pattern("in", 9_000_000), self.make("out", b"old")
        ours = penstock("cat", *FLAGS, *SMALL, "--json", "--out", out, path)
        self.assertEqual(ours.returncode, 0, ours.stderr)
        self.assertTrue(out.read_bytes() == path.read_bytes())
        report = json.loads(ours.stdout)
        self.assertEqual((report["program"], report["bytes"]), ("penstock cat", 9_000_000))
        self.assertEqual(report["runtime"]["statistics"]["bytes_read"], 9_000_000)
        self.assertEqual(sorted(os.listdir(self.folder)), ["in", "out"])

    def test_out_may_be_the_file_itself(self):
        path = self.make_pattern("same", 5_000_000)
        before = path.read_bytes()
        self.assertEqual(penstock("cat", *FLAGS, *SMALL, "--out", path, path).returncode, 0)
        self.assertTrue(path.read_bytes() == before)

    def test_stats_go_to_standard_error(self):
        path = self.make_pattern("in", 1_000_000)
        ours = penstock("cat", *FLAGS, *SMALL, "--quiet", "--stats", path)
        self.assertEqual(len(ours.stdout), 1_000_000)
        self.assertEqual(json.loads(ours.stderr)["bytes"], 1_000_000)

    def test_a_pipe_that_closes_is_no_complaint(self):
        path = self.make_pattern("in", 50_000_000)
        for trap in ("", "trap '' PIPE; "):  # the signal, and the error where the signal is ignored
            with self.subTest(trap=trap):
                script = f'{trap}"$0" cat --quiet {" ".join(FLAGS)} "$1" | head -c 5'
                ran = subprocess.run(["bash", "-c", script, PROGRAM, str(path)],
                                     capture_output=True, check=False,
                                     env=clean_environment(), timeout=1000)
                self.assertEqual((ran.stdout, ran.stderr), (pattern(5), b""))

    def test_a_named_pipe_that_closes_is_an_error(self):
        path, pipe = self.make_pattern("in", 5_000_000), self.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        ours = subprocess.Popen([PROGRAM, "cat", "--quiet", *FLAGS, "--out", pipe, path],
                                stderr=subprocess.PIPE, env=clean_environment())
        select.select([reader], [], [], 120)
        os.close(reader)
        _, err = ours.communicate(timeout=120)
        self.assertEqual(ours.returncode, 1)
        self.assert_one_line(err, "output file", "pipe", "EPIPE")

    def test_one_output_does_not_hold_file_and_report(self):
        path, out = self.make("in", pattern(1000)), self.make("out", b"before")
        with open(out, "ab") as appended:
            for name, standard in (("/dev/stdout", subprocess.PIPE), ("/dev/stdout", appended),
                                   (out, appended)):
                ours = penstock("cat", *FLAGS, "--json", "--out", name, path, stdout=standard)
                self.assertEqual((ours.returncode, ours.stdout or b""), (2, b""))
                self.assert_one_line(ours.stderr, str(name), "standard output", "another name")
            self.assertEqual(out.read_bytes(), b"before")
            ours = penstock("cp", path, "/dev/stdout", stdout=appended)
        self.assertEqual(ours.returncode, 1)
        self.assert_one_line(ours.stderr, "/dev/stdout", "standard output")
        self.assertEqual(out.read_bytes(), b"before")

    def test_a_full_device_is_an_error(self):
        path = self.make("in", pattern(100_000))
        with open("/dev/full", "wb") as full:
            ours = penstock("cat", *FLAGS, "--quiet", path, stdout=full)
        self.assertEqual(ours.returncode, 1)
        self.assert_one_line(ours.stderr, "No space left")

    def test_a_file_that_shrinks_is_an_error(self):
        path = self.folder / "shrinks"
        with open(path, "wb") as file:
            file.truncate(2 * GIB)
        ours = subprocess.Popen([PROGRAM, "cat", "--quiet", *FLAGS, *SMALL, str(path)],
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, env=clean_environment())
        ours.stdout.read(65536)  # it has been opened
        os.truncate(path, 1_000_000)
        rest = ours.communicate(timeout=1000)
        self.assertEqual(ours.returncode, 1)
        self.assert_one_line(rest[1], "shrinks", "ESTALE")


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["cat_test.py"])
