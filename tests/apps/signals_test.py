"""Signals: whichever ends a program, nothing of it stays behind; those that need not end it do not.

Usage: signals_test.py FOLDER_OF_PROGRAMS
"""

import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import programs

# From a terminal, a shell, a supervisor, a limit, or another program by mistake.
ENDING = [
    signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGXCPU, signal.SIGRTMIN + 3
]


def wait_until(condition, message):
    deadline = time.monotonic() + 100
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(message)
        time.sleep(0.005)


def mounts_below(folder):
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        return [line.split()[4] for line in table if line.split()[4].startswith(str(folder))]


class SignalsTest(programs.InFolder):
    def listing(self):
        return sorted(os.listdir(self.folder))

    def end(self, child, number, twice, label):
        child.send_signal(number)
        if twice:
            child.send_signal(number)
        out, said = child.communicate(timeout=100)
        # Of two, the second may come before the first was seen, and then counts as one; or it ends
        # the program at once, before or after that told what it had cleaned up.
        ways = [(1, True), (-number, False), (-number, True)] if twice else [(1, True)]
        self.assertIn((child.returncode, b"interrupted" in said), ways, (label, said))
        self.assertEqual(out, b"", label)

    def check(self, program, arguments, begun):
        """Once `begun()` is true the program is ended by each signal, once and by two of them."""
        if not programs.is_there(program):
            self.skipTest("not built")
        before = self.listing()
        for number in ENDING:
            for twice in (False, True):
                label = f"{program} {arguments[0]}: {number!r}, {twice=}"
                with self.subTest(label):
                    child = programs.start(program, *arguments)
                    wait_until(lambda: begun() or child.poll() is not None,
                               f"{label}: nothing was begun")
                    self.assertIsNone(child.poll(), f"{label}: it was done too soon")
                    self.end(child, number, twice, label)
                    self.assertEqual(self.listing(), before, label)

    def need_room(self, gigabytes):
        """For what a program would write if no signal came: it looks whether that fits."""
        free = shutil.disk_usage(self.folder).free
        if free < gigabytes * 1e9:
            self.skipTest(f"{self.folder} has {free / 1e9:.1f} GB free; needed: {gigabytes}")

    def begun_here(self):
        before = set(self.listing())
        return lambda: set(self.listing()) - before

    def test_a_library(self):
        pictures = self.folder / "pictures"
        pictures.mkdir()
        for i in range(4):
            programs.write_ppm(pictures / f"{i}.ppm", 900, 900, i)
        self.check("penstock-collage",
                   ["index", pictures, "-o", self.folder / "lib", "--stride", 2], self.begun_here())

    def test_files_of_a_trace(self):
        self.need_room(1.1)
        self.check("penstock", [
            "trace", "generate", "-o", self.folder / "trace", "--data", self.folder / "data",
            "--pages", 250_000, "--accesses", 10_000_000_000
        ], self.begun_here())

    def test_a_graph(self):
        self.need_room(1.7)
        self.check(
            "penstock-sssp",
            ["make", "-o", self.folder / "graph", "--vertices", 1_000_000, "--edges", 200_000_000],
            self.begun_here())

    def need_mounts_of(self, program):
        if (not programs.is_there(program) or not pathlib.Path("/dev/fuse").exists()
                or os.geteuid() != 0):
            self.skipTest("no FUSE")

    def test_a_file_system_of_the_search(self):
        self.need_mounts_of("penstock-sssp")
        os.environ["TMPDIR"] = str(self.folder)
        self.addCleanup(os.environ.pop, "TMPDIR")
        graph = self.folder / "data" / "graph"
        graph.parent.mkdir()
        programs.must_run("penstock-sssp", "make", "-o", graph, "--vertices", 20000, "--edges",
                          400000, "--quiet")
        self.check("penstock-sssp",
                   ["run", graph, "--updates", 30, "--rounds", 1000, "--quiet", *programs.BACKEND],
                   lambda: mounts_below(self.folder))
        self.assertEqual(mounts_below(self.folder), [])

    def test_a_crash_leaves_no_mount(self):
        self.need_mounts_of("penstock-sssp")
        os.environ["TMPDIR"] = str(self.folder)
        self.addCleanup(os.environ.pop, "TMPDIR")
        for number in (signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV):
            child = programs.start("penstock-sssp", "run", self.inputs / "graph", "--updates", 30,
                                   "--rounds", 1000, "--quiet", *programs.BACKEND)
            wait_until(lambda: mounts_below(self.folder) or child.poll() is not None,
                       "nothing was mounted")
            child.send_signal(number)
            child.communicate(timeout=100)
            self.assertEqual((child.returncode, mounts_below(self.folder), self.listing()),
                             (-number, [], []))

    def test_nohup_keeps_a_program_running(self):
        if not programs.is_there("penstock-sssp"):
            self.skipTest("not built")
        child = programs.start("penstock-sssp", "run", self.inputs / "graph", "--no-mount",
                               "--rounds", 1000, "--json", *programs.BACKEND,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        for _ in range(20):
            child.send_signal(signal.SIGHUP)
            time.sleep(0.005)
        child.communicate(timeout=100)
        self.assertEqual(child.returncode, 0)

    def test_a_reader_that_goes_away(self):
        """Neither a signal nor a complaint, and no file that was asked for is missing."""
        for case in programs.cases(self.inputs, self.folder / "out"):
            read, write = os.pipe()
            os.close(read)
            with self.subTest(case=case.name):
                ran = programs.run(case.program, *case.arguments, "--json", stdout=write,
                                   stderr=subprocess.PIPE)
                os.close(write)
                self.assertIn(ran.returncode, (0, 1))
                self.assertNotIn(b"roken pipe", ran.stderr)
                self.assertTrue(programs.content(case.made))
                if case.made.is_dir():
                    for entry in case.made.iterdir():
                        entry.unlink()
                    case.made.rmdir()
                else:
                    case.made.unlink()

    def test_a_mount(self):
        self.need_mounts_of("penstock")
        source, point = self.folder / "source", self.folder / "point"
        source.mkdir()
        point.mkdir()
        (source / "file").write_bytes(b"content")
        for number in ENDING + [signal.SIGPIPE]:
            child = programs.start("penstock", "mount", source, point)
            wait_until(lambda: mounts_below(point) or child.poll() is not None,
                       "nothing was mounted")
            self.assertEqual((point / "file").read_bytes(), b"content")
            child.send_signal(number)
            if number in (signal.SIGUSR1,
                          signal.SIGPIPE):  # SIGUSR1 asks for progress, and SIGPIPE ends no mount
                time.sleep(0.2)
                self.assertEqual((point / "file").read_bytes(), b"content")
                child.send_signal(signal.SIGTERM)
            _, said = child.communicate(timeout=100)
            with self.subTest(number=number):
                self.assertEqual((child.returncode, mounts_below(point)), (0, []), said)
                self.assertEqual(b"requests" in said, number == signal.SIGUSR1, said)

    def test_a_mount_in_the_background(self):
        """Its working directory is another one, and the mount point was given as a relative
        path."""
        self.need_mounts_of("penstock")
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        source, point = (kind + self.folder.name for kind in ("source-", "point-"))
        for name in (source, point):
            (self.folder / name).mkdir()
        for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGSEGV):
            programs.must_run("penstock", "mount", "--background", source, point, cwd=self.folder,
                              **quiet)
            self.assertTrue(mounts_below(self.folder))
            wanted = [b"mount", b"--background", source.encode(), point.encode()]
            for process in filter(str.isdigit, os.listdir("/proc")):
                try:
                    words = pathlib.Path("/proc", process, "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if words[1:5] == wanted:
                    os.kill(int(process), number)
            wait_until(lambda: not mounts_below(self.folder), f"{number!r} left the mount")


if __name__ == "__main__":
    unittest.main(verbosity=1, argv=["signals_test.py"])
