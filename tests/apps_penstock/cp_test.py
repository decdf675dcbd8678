#!/usr/bin/env python3
"""penstock cp copies what cp copies, and says what it could not: cp_test.py PROGRAM."""
import fcntl
import json
import os
import pathlib
import resource
import signal
import stat
import subprocess
import tempfile
import threading
import time
import unittest

from support import (COMPILER, FLAGS, SMALL, PROGRAM, InFolder, another_user, at_most,
                     clean_environment, pattern, penstock, preloaded, same_bytes,
                     with_failing_close)

PAGE = 65536
MIB = 1 << 20


class Lease:
    """A write lease on a file, given back shortly after another open wants it."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDWR)
        self.is_over = self.was_wanted_back = False
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            self.is_there = True
        except OSError:
            self.is_there = False
        self.holder = threading.Thread(target=self.hold)

    def hold(self):
        while not self.is_over and fcntl.fcntl(self.fd, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            time.sleep(0.001)
        self.was_wanted_back = not self.is_over
        time.sleep(0.02)
        fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(self.fd)  # a writer would keep others from having windows

    def __enter__(self):
        if self.is_there:
            self.holder.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        if self.is_there:
            self.holder.join()
        else:
            os.close(self.fd)


class Copies:
    """What both ways of copying promise; a class for each has the flags that ask for it."""
    WAY, SIZES = (), ()

    def cp(self, *arguments, flags=None, **more):
        return penstock("cp", *self.WAY, *(self.SIZES if flags is None else flags), *arguments,
                        **more)

    def same(self, copy, source):
        # Not assertEqual: it would print both.
        self.assertTrue(same_bytes(copy, source),
                        f"{copy} has {copy.stat().st_size} bytes, {source} {source.stat().st_size}")

    def copies(self, source, copy, *arguments, flags=None):
        ran = self.cp("--quiet", *arguments, source, copy, flags=flags)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, b"", b""))
        self.same(copy, source)

    def fails(self, *arguments, parts, **more):
        """One line, with all these parts."""
        ran = self.cp(*arguments, **more)
        self.assertEqual((ran.returncode, ran.stdout), (1, b""), ran.stderr)
        self.assert_one_line(ran.stderr, *parts)

    def test_sizes_around_pages_and_pieces(self):
        for size in (0, 1, PAGE - 1, PAGE, PAGE + 1, 8 * PAGE - 1, 8 * PAGE, 8 * PAGE + 1,
                     30_000_001):
            with self.subTest(size=size):
                self.copies(self.make(f"of {size}", pattern(size, size + 1)),
                            self.folder / f"copy of {size}", "--verify")

    def test_holes_stay_holes(self):
        source = self.folder / "sparse"
        with open(source, "wb") as file:
            for at in (0, 3 * PAGE - 2, 60_000_000):
                file.seek(at)
                file.write(b"data in a sea of holes")
            file.truncate(120_000_000)
        copy = self.folder / "copy"
        ran = self.cp("--verify", "--json", source, copy)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.same(copy, source)
        report = json.loads(ran.stdout)
        self.assertEqual((report["program"], report["files"], report["bytes"]),
                         ("penstock cp", 1, 120_000_000))
        if source.stat().st_blocks * 512 < 10 * MIB:  # the file system has holes
            self.assertLess(copy.stat().st_blocks * 512, 10 * MIB)
            self.assertGreater(report["hole_bytes"], 110_000_000)

    def test_nothing_but_a_hole(self):
        source = self.folder / "hole"
        with open(source, "wb") as file:
            file.truncate(1_000_001)
        self.copies(source, self.folder / "copy", "--verify")

    def test_an_existing_copy_is_overwritten_and_keeps_its_permissions(self):
        for old in (10, PAGE, 5_000_000):
            for new in (0, 1, PAGE + 1, 1_000_000):
                with self.subTest(old=old, new=new):
                    copy = self.make("copy", b"x" * old)
                    copy.chmod(0o604)
                    self.copies(self.make("source", pattern(new, 3)), copy)
                    self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o604)

    def test_a_new_copy_has_its_sources_permissions(self):
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        for mode in (0o644, 0o600, 0o755, 0o444, 0o4777):
            with self.subTest(mode=oct(mode)):
                source = self.make(f"source {mode}", b"#!/bin/sh\n")
                source.chmod(mode)
                self.copies(source, self.folder / f"copy {mode}")
                self.assertEqual(stat.S_IMODE((self.folder / f"copy {mode}").stat().st_mode),
                                 mode & 0o777 & ~0o027)

    def test_files_into_a_directory(self):
        there = self.folder / "there"
        there.mkdir()
        sources = [self.make(f"file {i}", pattern(i * 40_000, i + 1)) for i in range(20)]
        for directory in (there, f"{there}/"):
            ran = self.cp("--json", "--verify", *sources, directory)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            report = json.loads(ran.stdout)
            self.assertEqual((report["files"], report["bytes"]), (20, 190 * 40_000))
            self.assertTrue(report["verified"])
            for source in sources:
                self.same(there / source.name, source)
        self.assertEqual(len(os.listdir(there)), 20)

    def test_links_are_followed(self):
        source, real = self.make("source", pattern(100_000)), self.make("real", b"old")
        (self.folder / "to source").symlink_to(source)
        (self.folder / "to real").symlink_to("real")
        self.copies(self.folder / "to source", self.folder / "copy")
        self.assertFalse((self.folder / "copy").is_symlink())
        self.copies(source, self.folder / "to real")
        self.assertTrue((self.folder / "to real").is_symlink())
        self.same(real, source)

    def test_a_file_onto_itself(self):
        source = self.make("source", b"precious")
        os.link(source, self.folder / "hard")
        (self.folder / "soft").symlink_to("source")
        for name in ("source", "./source", "hard", "soft", "."):
            with self.subTest(name=name):
                self.fails(source, self.folder / name,
                           parts=["source", "same file", "give another name"])
        self.assertEqual(source.read_bytes(), b"precious")

    def test_a_copy_that_would_destroy_another_source_or_copy(self):
        there, other = self.folder / "there", self.folder / "other"
        there.mkdir()
        other.mkdir()
        a, b = self.make("a", b"of a"), self.make("b", b"of b")
        os.link(b, there / "a")
        self.fails(a, b, there, parts=["there/a", "same file", "copied too"])
        (other / "a").write_bytes(b"another a")
        (there / "a").unlink()
        self.fails(a, other / "a", there, parts=["there/a", "both", "two directories"])
        self.assertEqual((b.read_bytes(), os.listdir(there)), (b"of b", []))

    def test_names_that_cannot_be(self):
        source, fifo = self.make("source", b"x"), self.folder / "fifo"
        os.mkfifo(fifo)
        (self.folder / "directory").mkdir()
        (self.folder / "directory" / "source").mkdir()
        (self.folder / "dangling").symlink_to("gone")
        gone, copy = self.folder / "gone", self.folder / "copy"
        for arguments, parts in (
                ([self.folder, copy], ["EISDIR", "file in it"]),
                ([gone, copy], ["gone", "ENOENT", "exists"]),
                ([fifo, copy], ["fifo", "use cp"]),
                (["/proc/self/status", copy], ["/proc/self/status", "use cp"]),
                ([source, fifo], ["fifo", "use cp"]),
                ([source, "/dev/null"], ["/dev/null", "use cp"]),
                ([source, gone / "copy"], ["gone/copy", "ENOENT", "make its directory"]),
                ([source, source / "below"], ["below", "ENOTDIR"]),
                ([source, f"{gone}/"], ["gone/", "ENOENT", "directory that exists"]),
                ([source, source, gone], ["gone", "ENOENT", "directory that exists"]),
                ([source, source, source], ["source", "ENOTDIR", "directory that exists"]),
                ([source, self.folder / "directory"],
                 ["directory/source", "EISDIR", "another name"]),
                ([source, self.folder / "dangling"], ["dangling", "leads nowhere"]),
                ([source, self.folder / ("x" * 300)], ["ENAMETOOLONG"]),
                ([source, ""], ["''", "ENOENT", "name"])):
            with self.subTest(arguments=arguments):
                self.fails(*arguments, parts=parts)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         ["dangling", "directory", "fifo", "source"])

    def test_one_wrong_name_and_nothing_is_changed(self):
        there = self.folder / "there"
        there.mkdir()
        good, old = self.make("good", b"new"), there / "good"
        old.write_bytes(b"precious")
        self.fails(good, self.folder / "absent", there, parts=["absent", "ENOENT"])
        self.assertEqual(old.read_bytes(), b"precious")

    def test_wrong_usage(self):
        for arguments, parts in (
            (["cp"], ["FILES", "--help"]),
            (["cp", "alone"], ["'alone'", "its copy"]),
            (["cp", "a", "b", "--page", "1000"], ["page_bytes", "1000"]),
        ):
            with self.subTest(arguments=arguments):
                ran = penstock(*arguments)
                self.assertEqual((ran.returncode, ran.stdout), (2, b""))
                self.assert_one_line(ran.stderr, *parts)

    def test_a_destination_that_may_not_be_written(self):
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            source, old = pathlib.Path(place) / "source", pathlib.Path(place) / "old"
            source.write_bytes(b"new")
            old.write_bytes(b"precious")
            source.chmod(0o444)
            old.chmod(0o444)
            more = {}
            if os.geteuid() == 0:  # root may write everything
                more = another_user(place)
            else:
                os.chmod(place, 0o555)
            self.fails(source, old, parts=["old", "EACCES", "permissions"], **more)
            self.fails(source, pathlib.Path(place) / "new",
                       parts=["new", "EACCES", "can be written"], **more)
            self.assertEqual(old.read_bytes(), b"precious")
            os.chmod(place, 0o777)
            if os.geteuid() == 0:  # a source that its owner may only read gives such a copy
                os.chown(source, more["user"], more["group"])
            self.assertEqual(self.cp(source, pathlib.Path(place) / "new", **more).returncode, 0)
            self.assertEqual(stat.S_IMODE((pathlib.Path(place) / "new").stat().st_mode), 0o444)

    def judge_full(self, ran, source, copy, name):
        """What an error of writing leaves: one line with file, bytes, how far it came and a cure
        that a command line has, and a copy that ends there."""
        self.assertEqual((ran.returncode, ran.stdout), (1, b""), ran.stderr)
        said = ran.stderr.decode().splitlines()
        self.assertEqual(len(said), 1, ran.stderr)
        for part in (copy.name, name, "could not be written", "bytes ", "make room"):
            self.assertIn(part, said[0])
        there = copy.read_bytes()
        self.assertIn(f"the first {len(there):,} of {source.stat().st_size:,} bytes are in",
                      said[0])
        self.assertTrue(source.read_bytes().startswith(there))
        for part in ("fsync", "cache"):
            self.assertNotIn(part, said[0])

    def test_a_full_file_system(self):
        place = self.folder / "full"
        place.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", place],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system may be mounted here")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        source = self.make_pattern("source", 20_000_000)
        self.judge_full(self.cp(source, place / "copy"), source, place / "copy", "ENOSPC")

    def test_a_limit_on_file_sizes(self):
        source, copy = self.make_pattern("source", 20_000_000), self.folder / "copy"
        self.judge_full(self.cp(source, copy, preexec_fn=at_most(2 * MIB + 5)), source, copy,
                        "EFBIG")

    @unittest.skipUnless(COMPILER, "needs a compiler, for closes that fail")
    def test_a_close_that_says_that_there_was_no_room(self):
        place = self.folder / "place"
        place.mkdir()
        self.fails(self.make("source", pattern(100_000)), place / "copy",
                   parts=["place/copy", "EDQUOT", "not all of its 100,000 bytes can be relied on",
                          "make room below your quota"],
                   environment=with_failing_close(self.folder, place))

    @unittest.skipUnless(COMPILER, "needs a compiler, for permissions that cannot be set")
    def test_permissions_that_cannot_be_set_are_told(self):
        place = self.folder / "place"
        place.mkdir()
        source, copy = self.make("source", pattern(100_000)), place / "copy"
        source.chmod(0o640)
        environment = preloaded("refused_chmod", self.folder, REFUSED_CHMOD=f"{place}/")
        for parts in (["place/copy", "0640", "0600", "EPERM"], None):  # the second has its own
            ran = self.cp("--quiet", source, copy, environment=environment)
            self.assertEqual((ran.returncode, ran.stdout), (0, b""), ran.stderr)
            if parts:
                self.assert_one_line(ran.stderr, *parts)
            else:
                self.assertEqual(ran.stderr, b"")
            self.same(copy, source)
            self.assertEqual(stat.S_IMODE(copy.stat().st_mode), 0o600)
        source.chmod(0o600)
        copy.unlink()
        ran = self.cp("--quiet", source, copy, environment=environment)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""), "it has the permissions")

    def test_of_several_files_only_those_fail_that_do(self):
        there = self.folder / "there"
        there.mkdir()
        sources = [self.make(f"{i}", pattern(i * 1_000_000, i + 1)) for i in range(6)]
        ran = self.cp(*sources, there, preexec_fn=at_most(3 * MIB))
        self.assertEqual((ran.returncode, ran.stdout), (1, b""))
        said = ran.stderr.decode().splitlines()
        self.assertEqual([line.count("there/4") + 2 * line.count("there/5") > 0 for line in said],
                         [True, True], ran.stderr)
        for source in sources[:4]:
            self.same(there / source.name, source)

    def test_a_lease_is_waited_for(self):
        """Runtimes hold them for moments, in which an open that waits for nothing fails."""
        names = [self.make_pattern(name, 3_000_000) for name in ("source", "copy")]
        for leased in names:
            with self.subTest(leased=leased.name), Lease(leased) as lease:
                if not lease.is_there:
                    self.skipTest("no leases in this folder")
                self.copies(*names, "--verify")
                self.assertTrue(lease.was_wanted_back)

    def stopped(self, arguments, copy):
        """cp, stopped when this copy has something, or at its end."""
        ran = subprocess.Popen([PROGRAM, "cp", "--quiet", *self.WAY, *self.SIZES,
                                *map(str, arguments)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=clean_environment())
        deadline = time.monotonic() + 600
        while ((not copy.exists() or copy.stat().st_size == 0) and ran.poll() is None
               and time.monotonic() < deadline):
            time.sleep(0.001)
        ran.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, ran.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return ran

    def running(self, source, copy):
        """cp in the middle of its work, stopped."""
        for _ in range(100):  # where other programs take the processors, it is done in between
            copy.unlink(missing_ok=True)
            ran = self.stopped([source, copy], copy)
            if copy.stat().st_blocks * 512 < source.stat().st_size and ran.poll() is None:
                return ran
            ran.send_signal(signal.SIGCONT)
            ran.communicate(timeout=1000)
        self.fail("it was done too soon, again and again")

    def test_a_source_that_shrinks_is_an_error(self):
        source, copy = self.make_pattern("shrinks", 400_000_000), self.folder / "copy"
        ran = self.running(source, copy)
        os.truncate(source, 1_000_000)
        ran.send_signal(signal.SIGCONT)
        out, errors = ran.communicate(timeout=1000)
        self.assertEqual((ran.returncode, out), (1, b""), errors)
        if b"ETIMEDOUT" in errors and "gpu" in FLAGS:
            # The program holds a lease on a file with windows. So the file system let os.truncate
            # wait for the stopped program, and the kernel did not wait as long for its host.
            self.assert_one_line(errors, "the host did not answer in time", "processor time")
            return
        self.assert_one_line(errors, "shrinks", "ESTALE",
                             f"the first {copy.stat().st_size:,} of 400,000,000 bytes are in",
                             "run again")
        self.assertLess(copy.stat().st_size, 400_000_000)

    def test_an_interrupt_says_how_far_it_came(self):
        source, copy = self.make_pattern("source", 400_000_000), self.folder / "copy"
        ran = self.running(source, copy)
        ran.send_signal(signal.SIGINT)
        ran.send_signal(signal.SIGCONT)
        out, errors = ran.communicate(timeout=1000)
        self.assertEqual((ran.returncode, out), (1, b""), errors)
        lines = errors.decode().splitlines()
        self.assertEqual(len(lines), 2, errors)
        self.assertIn(f"interrupted; the first {copy.stat().st_size:,} of 400,000,000 bytes are in",
                      lines[0])
        self.assertIn("0 of 1 files were copied", lines[1])
        self.assertTrue(same_bytes(copy, source, copy.stat().st_size))


class CopiesByKernel(Copies, InFolder):
    WAY, SIZES = FLAGS, SMALL

    def test_short_copies_are_cut_after_a_long_one_is_done(self):
        """In a batch of their own, so that an interrupt before it leaves them as they were."""
        there = self.folder / "there"
        there.mkdir()
        long_one = self.make_pattern("long", 400_000_000)
        short_ones = [self.make(f"short {i}", b"new") for i in range(20)]
        for _ in range(100):  # where other programs take the processors, it is done in between
            (there / "long").unlink(missing_ok=True)
            for source in short_ones:
                (there / source.name).write_bytes(b"old")
            ran = self.stopped([long_one, *short_ones, there], there / "long")
            found = {(there / source.name).read_bytes() for source in short_ones}
            is_amid = (there / "long").stat().st_blocks * 512 < 400_000_000 and ran.poll() is None
            ran.send_signal(signal.SIGCONT)
            self.assertEqual(ran.communicate(timeout=1000), (b"", b""))
            if is_amid:
                break
        self.assertEqual((is_amid, found), (True, {b"old"}))
        for source in short_ones:
            self.same(there / source.name, source)

    def test_page_sizes(self):
        source = self.make_pattern("data", 3_000_001)
        for page in ("512", "4KiB", "2MiB"):
            with self.subTest(page=page):
                self.copies(source, self.folder / page, "--verify",
                            flags=("--page", page, "--cache", "32MiB"))

    def test_a_cache_of_a_few_pages(self):
        self.copies(self.make_pattern("data", 5_000_001), self.folder / "copy",
                    flags=("--page", "64KiB", "--cache", "512KiB"))

    def test_a_larger_file_with_all_settings_by_themselves(self):
        self.copies(self.make_pattern("data", 100_000_001), self.folder / "copy", "--verify",
                    "--fsync", flags=())

    def test_the_cache_is_small_on_cpu_threads_however_they_came_about(self):
        """By the flag, or because there is no GPU."""
        source = self.make("source", pattern(3 * PAGE))
        for flags in (["--backend", "cpu"], ["--backend", "auto"], ["--kernel"]):
            with self.subTest(flags=flags):
                ran = penstock("cp", *flags, "--json", source, self.folder / "copy")
                self.assertEqual(ran.returncode, 0, ran.stderr)
                runtime = json.loads(ran.stdout)["runtime"]
                if runtime["backend"] == "cpu":
                    self.assertEqual(runtime["cache_bytes"], 64 * MIB)

    def test_a_length_that_does_not_fit_leaves_the_old_copy(self):
        """A table this small has room for 8 MiB that a file may grow while it is open."""
        source, old = self.folder / "source", pattern(1_000_000)
        with open(source, "wb") as file:
            file.truncate(9 * MIB)
        copy = self.make("copy", old)
        flags = ("--page", "4KiB", "--cache", "8MiB")
        environment = clean_environment(PENSTOCK_TABLE="64KiB")
        self.fails(source, copy, flags=flags, environment=environment,
                   preexec_fn=at_most(3 * MIB), parts=["copy'", "EFBIG"])
        self.assertTrue(copy.read_bytes() == old, f"it has {copy.stat().st_size} bytes")
        ran = self.cp("--quiet", source, copy, flags=flags, environment=environment)
        self.assertEqual((ran.returncode, ran.stderr), (0, b""))
        self.same(copy, source)

    def test_nothing_of_an_existing_copy_is_read(self):
        source, copy = (self.make("source", pattern(3_000_001, 3)),
                        self.make("copy", b"x" * 5_000_000))
        ran = self.cp("--json", "--no-windows", source, copy)
        self.assertEqual(json.loads(ran.stdout)["runtime"]["statistics"]["bytes_loaded"], 3_000_001)

    def test_more_files_than_can_be_open_at_once(self):
        there = self.folder / "there"
        there.mkdir()
        sources = [self.make(f"{i}", pattern(1000 + i, i + 1)) for i in range(50)]
        ran = self.cp(*sources, there, environment=clean_environment(PENSTOCK_MAX_FILES="16"))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(b"50 files, 51,225 bytes copied", ran.stdout)
        for source in sources:
            self.same(there / source.name, source)

    def test_relative_names_whatever_the_roots(self):
        source = self.make("data", b"here")
        ran = self.cp("data", "copy", cwd=self.folder,
                      environment=clean_environment(PENSTOCK_ROOTS="/usr"))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.same(self.folder / "copy", source)

    def test_the_report_says_what_copied(self):
        source = self.make("data", b"here")
        for flags in (("--kernel",), ("--page", "4KiB"), ("--backend", "cpu")):
            ran = penstock("cp", *flags, "--json", source, self.folder / "copy",
                           environment=clean_environment(PENSTOCK_BACKEND="cpu"))
            report = json.loads(ran.stdout)
            self.assertEqual((report["by"], report["runtime"]["backend"]), ("kernel", "cpu"))


class CopiesByHost(Copies, InFolder):
    def test_the_report_says_what_copied(self):
        source = self.make_pattern("data", 20_000_001)
        ran = self.cp("--json", "--fsync", source, self.folder / "copy")
        report = json.loads(ran.stdout)
        self.assertEqual((report["by"], report["bytes"], "runtime" in report),
                         ("host", 20_000_001, False))
        self.same(self.folder / "copy", source)

    def test_an_interrupt_leaves_what_was_not_begun(self):
        """Every thread has a long file first. Copies of the short ones behind them are old or new,
        and none is empty."""
        there = self.folder / "there"
        there.mkdir()
        long_ones = [self.make_pattern(f"long {i}", 100_000_000) for i in range(4)]
        short_ones = [self.make(f"short {i}", b"new" * 1000) for i in range(60)]
        for _ in range(100):  # where other programs take the processors, it is done in between
            for copy in there.iterdir():
                copy.unlink()
            for source in short_ones[::2]:
                (there / source.name).write_bytes(b"old")
            ran = self.stopped([*long_ones, *short_ones, there], there / "long 0")
            ran.send_signal(signal.SIGINT)
            ran.send_signal(signal.SIGCONT)
            errors = ran.communicate(timeout=1000)[1]
            if ran.returncode != 0:
                break
        self.assertEqual(ran.returncode, 1, errors)
        for line in errors.decode().splitlines():
            self.assertIn("interrupted; ", line)
            self.assertNotIn("short", line)
        for i, source in enumerate(short_ones):
            copy = there / source.name
            if i % 2 == 0 or copy.exists():
                self.assertIn(copy.read_bytes(), ([b"old"] if i % 2 == 0 else [])
                              + [b"new" * 1000], source.name)

    def test_few_descriptors(self):
        there = self.folder / "there"
        there.mkdir()
        sources = [self.make(f"{i}", pattern(1000 + i, i + 1)) for i in range(50)]
        ran = self.cp("--verify", *sources, there,
                      preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30)))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for source in sources:
            self.same(there / source.name, source)

    @unittest.skipUnless(COMPILER, "needs a compiler, for a source that is cut in between")
    def test_a_source_that_is_shorter_when_it_is_compared(self):
        place = self.folder / "place"
        place.mkdir()
        source = self.make("source", pattern(3_000_000))
        environment = with_failing_close(self.folder, place)
        environment["CUT_AT_CLOSE"] = str(source)
        self.fails("--verify", source, place / "copy", environment=environment,
                   parts=[f"'{source}'", "became shorter", "before byte 1,500,000",
                          "copy it again"])

    def test_a_file_system_that_shares_blocks(self):
        image, place = self.folder / "image", self.folder / "place"
        place.mkdir()
        with open(image, "wb") as file:
            file.truncate(400 * MIB)
        for command in (["mkfs.xfs", "-q", "-m", "reflink=1", image],
                        ["mount", "-o", "loop", image, place]):
            try:
                subprocess.run(command, capture_output=True, check=True)
            except (OSError, subprocess.CalledProcessError):
                self.skipTest(f"{command[0]} does not work here")
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        source = place / "source"
        source.write_bytes(pattern(30_000_001))
        for there, size in ((b"", 0), (b"x" * 40_000_000, 40_000_000)):
            copy = place / f"copy over {size}"
            if there:
                copy.write_bytes(there)
            ran = self.cp("--json", "--verify", source, copy)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertEqual(json.loads(ran.stdout)["shared_bytes"], 30_000_001)
            self.same(copy, source)
        with open(source, "r+b") as file:  # a change of one is none of the other
            file.write(b"other")
        self.assertEqual((place / "copy over 0").read_bytes(), pattern(30_000_001))


if __name__ == "__main__":
    unittest.main(verbosity=2, argv=["cp_test.py"])
