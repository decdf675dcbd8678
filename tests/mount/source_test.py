#!/usr/bin/env python3
"""What a source may hold beside plain files: other file systems, dead mounts, files of /proc, append-only files, set time stamps: source_test.py PROGRAM. Needs root."""
import errno
import os
import stat
import subprocess
import time
import unittest

import mounted


def run(*command):
    done = subprocess.run([str(one) for one in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=120)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def code_of(call):
    try:
        call()
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def every_name(root):
    return sorted(os.path.relpath(os.path.join(at, name), root) for at, folders, files in os.walk(root) for name in folders + files)


class Sources(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()

    def mount_here(self, kind, at):
        at.mkdir(exist_ok=True)
        code, _, text = run("mount", "-t", kind, kind, at)
        if code != 0:
            self.skipTest(f"{kind} cannot be mounted here: {text.strip()}")
        self.addCleanup(run, "umount", "-l", at)

    def bind_here(self, what, at):
        at.touch() if what.is_file() else at.mkdir(exist_ok=True)
        code, _, text = run("mount", "--bind", what, at)
        if code != 0:
            self.skipTest(f"no bind mounts here: {text.strip()}")
        self.addCleanup(run, "umount", "-l", at)

    def make_nested(self):
        """A small file system at the source, and in it others whose inode numbers are the same."""
        self.mount_here("tmpfs", self.source)
        for name in ("a", "b", "b/c"):
            self.mount_here("tmpfs", self.source / name)
        for name in ("", "a", "b", "b/c"):
            for i in range(20):
                folder = self.source / name / f"d{i % 4}"
                folder.mkdir(exist_ok=True)
                (folder / f"f{i}").write_text(f"{name} {i}")
        os.link(self.source / "a" / "d0" / "f0", self.source / "a" / "linked")
        self.bind_here(self.source / "a" / "d1", self.source / "b" / "bound")

    def test_nested_file_systems_have_numbers_of_their_own(self):
        self.make_nested()
        names = every_name(self.source)
        with mounted.Mount(self.source, self.point):
            self.assertEqual(every_name(self.point), names)
            numbers = {}
            for name in ["", *names]:
                here, there = os.lstat(self.point / name), os.lstat(self.source / name)
                numbers.setdefault(here.st_ino, set()).add((there.st_dev, there.st_ino))
            self.assertEqual([list(which) for which in numbers.values() if len(which) != 1], [])
            self.assertEqual(len(numbers), len({(os.lstat(self.source / name).st_dev, os.lstat(self.source / name).st_ino) for name in ["", *names]}))
            self.assertEqual(os.lstat(self.point / "a/linked").st_ino, os.lstat(self.point / "a/d0/f0").st_ino)
            first = {name: os.lstat(self.point / name).st_ino for name in names}
            time.sleep(1.2)  # how long names are believed
            self.assertEqual({name: os.lstat(self.point / name).st_ino for name in names}, first)
            for folder in ("a/d0", "b/c/d1"):
                self.assertEqual({one.name: one.inode() for one in os.scandir(self.point / folder)},
                                 {one: os.lstat(self.point / folder / one).st_ino for one in os.listdir(self.point / folder)})

    def test_programs_that_walk_go_everywhere(self):
        self.make_nested()
        with mounted.Mount(self.source, self.point):
            for command in (["find", "."], ["du", "-a", "--apparent-size", "."], ["ls", "-R", "."], ["find", ".", "-type", "f", "-size", "-2", "-links", "1"]):
                seen = []
                for root in (self.source, self.point):
                    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
                    seen.append((done.returncode, sorted(done.stdout.decode().split("\n")), done.stderr))
                self.assertEqual(seen[1], seen[0], command)
            code, _, text = run("cp", "-a", self.point, self.plain / "copy")
            self.assertEqual((code, text), (0, ""))
            self.assertEqual(every_name(self.plain / "copy"), every_name(self.source))
            code, _, text = run("chmod", "-R", "go-rwx", self.point)
            self.assertEqual((code, text), (0, ""))
            self.assertEqual([name for name in every_name(self.source) if stat.S_IMODE(os.lstat(self.source / name).st_mode) & 0o77], [])

    def test_a_file_that_a_read_only_mount_also_shows_stays_read_only_there(self):
        (self.source / "open").mkdir()
        (self.source / "open" / "f").write_text("abc")
        self.bind_here(self.source / "open", self.source / "shut")
        self.assertEqual(run("mount", "-o", "remount,bind,ro", self.source / "shut")[0], 0)
        with mounted.Mount(self.source, self.point):
            (self.point / "open" / "f").write_text("abcd")
            self.assertEqual(code_of(lambda: os.open(self.point / "shut" / "f", os.O_WRONLY)), "EROFS")
            self.assertEqual(code_of(lambda: os.open(self.point / "shut" / "g", os.O_WRONLY | os.O_CREAT)), "EROFS")
            self.assertEqual((self.point / "shut" / "f").read_text(), "abcd")
            self.assertEqual(os.stat(self.point / "shut" / "f").st_ino, os.stat(self.point / "open" / "f").st_ino)

    def old_bytes(self, *flags):
        """As by rsync --inplace -t or cp -p: another content with the size and the time of modification that were there."""
        path = self.source / "f"
        path.write_bytes(b"a" * 5000)
        before = os.stat(path)
        with mounted.Mount(self.source, self.point, *flags):
            for letter in (b"a", b"b", b"c"):
                with open(path, "r+b") as f:
                    f.write(letter * 5000)
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
                self.assertEqual((os.stat(path).st_size, os.stat(path).st_mtime_ns), (5000, before.st_mtime_ns))
                self.assertEqual((self.point / "f").read_bytes(), letter * 5000)
                time.sleep(0.05)  # coarse clocks tell the next change apart

    def test_a_change_that_keeps_size_and_time_is_seen(self):
        self.old_bytes()

    def test_a_change_that_keeps_size_and_time_is_seen_through_a_buffer(self):
        self.old_bytes(*mounted.buffer_flags("gram", "1MiB", "1MiB"))


if __name__ == "__main__":
    mounted.need_fuse()
    if os.geteuid() != 0:
        mounted.skip("only root can mount other file systems in the source")
    unittest.main(verbosity=1)
