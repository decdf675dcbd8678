#!/usr/bin/env python3
"""Users get no more rights through a mount than in its source: rights_test.py PROGRAM. Needs root.

Here the source changes within the second for which the kernel believes names.
"""

import contextlib
import errno
import itertools
import mmap
import os
import signal
import stat
import subprocess
import time
import unittest

import mounted
from lists_test import FILE_GROUP, FILE_OWNER, USERS, as_user, code_of

STRANGER = USERS["stranger"][0]


def opened(path, flags):
    """What an open came to: of a descriptor the first bytes, if it reads."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK, 0o640)
    except OSError as e:
        return errno.errorcode[e.errno]
    try:
        what = os.fstat(fd)
        is_read = flags & os.O_ACCMODE != os.O_WRONLY and stat.S_ISREG(what.st_mode)
        text = os.pread(fd, 100, 0).decode() if is_read else ""
        return [stat.filemode(what.st_mode), what.st_uid, what.st_size, text]
    finally:
        os.close(fd)


def make_file(path, mode, owner):
    path.write_text("private")
    os.chmod(path, mode)
    os.chown(path, owner, owner)


def make_link(path, target):
    if target:
        make_file(path.parent / f"{path.name} {target}", 0o600, 0)
    os.symlink(f"{path.name} {target or 'nowhere'}", path)
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


# What comes to have the name.
COMERS = {
    "a private file": lambda path: make_file(path, 0o600, 0),
    "a file to read": lambda path: make_file(path, 0o644, 0),
    "a file to write": lambda path: make_file(path, 0o666, 0),
    "an own file": lambda path: make_file(path, 0o600, STRANGER),
    "a link to a private file": lambda path: make_link(path, "private"),
    "a link to nothing": lambda path: make_link(path, None),
    "a folder": os.mkdir,
    "a pipe": os.mkfifo,
}
WAYS = [
    way | more
    for way in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR)
    for more in (0, os.O_TRUNC, os.O_EXCL, os.O_NOFOLLOW, os.O_APPEND)
]
# How a name is taken away; the test gives it that name.
OF_FOLDERS = ["rmdir", "rename of a folder"]
TAKING = ["unlink", "rename", "rename over", *OF_FOLDERS]


def copy_into(fd):
    with open("/proc/self/exe", "rb") as origin:
        os.sendfile(fd, origin.fileno(), 0, 5)


def copy_range(path):
    origin, fd = os.open(f"{path} origin", os.O_RDONLY), os.open(path, os.O_WRONLY)
    try:
        os.copy_file_range(origin, fd, 3, 0, 1)
    finally:
        os.close(origin)
        os.close(fd)


def with_open(flags, call):
    def use(path):
        fd = os.open(path, flags)
        try:
            call(fd)
        finally:
            os.close(fd)

    return use


# How the bytes of a file are changed.
CHANGES = {
    "write": with_open(os.O_WRONLY, lambda fd: os.write(fd, b"x")),
    "append": with_open(os.O_WRONLY | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "read and append": with_open(os.O_RDWR | os.O_APPEND, lambda fd: os.write(fd, b"x")),
    "write directly": with_open(
        os.O_RDWR | os.O_DIRECT, lambda fd: os.write(fd, mmap.mmap(-1, 4096))
    ),
    "sendfile": with_open(os.O_WRONLY, copy_into),
    "allocate": with_open(os.O_RDWR, lambda fd: os.posix_fallocate(fd, 0, 9000)),
    "copy a range": copy_range,
    "cut an open file": with_open(os.O_RDWR, lambda fd: os.ftruncate(fd, 1)),
    "cut": lambda path: os.truncate(path, 1),
    "cut by an open": with_open(os.O_WRONLY | os.O_TRUNC, lambda fd: None),
}


class Rights(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()
        os.chmod(self.source, 0o1777)
        os.chmod(self.plain, 0o1777)
        os.umask(0)

    def absent(self, name):
        """The kernel believes for a second that there is no such name."""
        with self.assertRaises(FileNotFoundError):
            (self.point / name).stat()

    def test_a_name_that_came_meanwhile_is_judged_as_it_is(self):
        with mounted.Mount(self.source, self.point):
            for (what, come), flags in itertools.product(COMERS.items(), WAYS):
                name = f"{what} {flags:#o}"
                self.absent(name)
                seen = []
                for made_at, used_at in ((self.source, self.point), (self.plain, self.plain)):
                    come(made_at / name)
                    how = flags | os.O_CREAT
                    path = used_at / name
                    got = as_user("stranger", lambda at=path, how=how: opened(at, how))
                    left = made_at / name
                    seen.append([got, left.read_text() if left.is_file() else None])
                self.assertEqual(seen[0], seen[1], name)

    def test_a_buffer_hears_of_a_cut_by_a_name_that_came_meanwhile(self):
        (self.source / "f").write_bytes(b"x" * 9000)
        flags = mounted.buffer_flags("gram", "1MiB", "1MiB")
        with mounted.Mount(self.source, self.point, *flags):
            fd = os.open(self.point / "f", os.O_RDONLY)
            self.assertEqual(os.pread(fd, 9000, 0), b"x" * 9000)
            self.absent("g")
            os.link(self.source / "f", self.source / "g")
            os.close(os.open(self.point / "g", os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
            self.assertEqual(os.pread(fd, 9000, 0), b"")
            os.close(fd)

    def make_many(self, root, count):
        return [
            code_of(lambda at=root / f"n{i}": os.close(os.open(at, os.O_RDWR | os.O_CREAT, 0o666)))
            for i in range(count)
        ]

    def test_programs_that_make_the_same_files_all_have_them(self):
        count = 1500
        with mounted.Mount(self.source, self.point):
            children = []
            for root in (self.point, self.source) * 2:
                child = os.fork()
                if child == 0:
                    os._exit(0 if set(self.make_many(root, count)) == {"done"} else 1)
                children.append(child)
            self.assertEqual([os.waitpid(child, 0)[1] for child in children], [0] * 4)
        self.assertEqual(len(os.listdir(self.source)), count)

    @contextlib.contextmanager
    def in_the_source(self, act):
        child = os.fork()
        if child == 0:
            while True:
                with contextlib.suppress(OSError):
                    act()
        try:
            yield
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def take_name(self):
        """A private file takes the name away from what has it, and gives it up."""
        make_file(self.source / "private", 0o600, 0)
        os.rename(self.source / "private", self.source / "f")
        os.unlink(self.source / "f")

    def make_and_look(self, seconds):
        """Of files that this user made: their owners, and what was in them."""
        seen = set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                fd = os.open(self.point / "f", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                seen.add((os.fstat(fd).st_uid, os.pread(fd, 10, 0).decode()))
                os.close(fd)
            except FileExistsError:
                pass
            except OSError as e:
                seen.add((-1, errno.errorcode[e.errno]))
            with contextlib.suppress(OSError):
                os.unlink(self.point / "f")
        return sorted(seen)

    def test_the_maker_of_a_file_has_that_file_open(self):
        with mounted.Mount(self.source, self.point), self.in_the_source(self.take_name):
            seen = as_user("stranger", lambda: self.make_and_look(3))
        self.assertEqual(seen, [[STRANGER, ""]])

    def take_away(self, root, name):
        """A user's attempt on a name of a sticky folder, which another user has by now."""
        calls = {
            "unlink": lambda: os.unlink(root / name),
            "rename": lambda: os.rename(root / name, root / "other"),
            "rename over": lambda: os.rename(root / "own", root / name),
            "rmdir": lambda: os.rmdir(root / name),
            "rename of a folder": lambda: os.rename(root / name, root / "other"),
        }
        return as_user("stranger", lambda: code_of(calls[name]))

    def test_an_owner_that_came_meanwhile_keeps_the_name_in_a_sticky_folder(self):
        with mounted.Mount(self.source, self.point):
            for name in TAKING:
                is_folder = name in OF_FOLDERS
                for root in (self.source, self.plain):
                    make_file(root / "own", 0o600, STRANGER)
                    for owner, at in ((STRANGER, root / name), (0, root / "next")):
                        os.mkdir(at) if is_folder else at.touch()
                        os.chown(at, owner, owner)
                self.assertEqual((self.point / name).stat().st_uid, STRANGER)
                for root in (self.source, self.plain):
                    os.rename(root / "next", root / name)
                    seen = self.take_away(self.point if root == self.source else root, name)
                    left = (root / name).stat().st_uid if (root / name).exists() else "none"
                    self.assertEqual((seen, left), ("EPERM", 0), f"{name} in {root}")

    def test_an_owner_takes_names_away_in_a_sticky_folder(self):
        for name in TAKING:
            make_file(self.source / "own", 0o600, STRANGER)
            at = self.source / name
            os.mkdir(at) if name in OF_FOLDERS else at.touch()
            os.chown(at, STRANGER, STRANGER)
            with mounted.Mount(self.source, self.point):
                self.assertEqual(self.take_away(self.point, name), "done", name)
                other = self.source / "other"
                if other.exists():
                    os.rmdir(other) if other.is_dir() else os.unlink(other)

    def change_with_bits(self, role, change, mode, append_only, wait_seconds):
        """What a change of a file with set-id bits came to, on the mount and in the source."""
        seen = []
        name = f"{role} {change} {mode:o} {append_only}"
        for made_at, used_at in ((self.source, self.point), (self.plain, self.plain)):
            path = made_at / name
            make_file(made_at / f"{name} origin", 0o644, 0)
            make_file(path, 0o777, FILE_OWNER)
            os.chown(path, FILE_OWNER, FILE_GROUP)
            (used_at / name).stat()  # the kernel believes this for a second
            os.chmod(path, mode)
            if append_only:
                if subprocess.run(["chattr", "+a", path], check=False).returncode != 0:
                    self.skipTest("this file system has no files that can only be appended to")
                self.addCleanup(subprocess.run, ["chattr", "-a", path], check=False)
            time.sleep(wait_seconds)
            done = as_user(role, lambda at=used_at: code_of(lambda: CHANGES[change](at / name)))
            facts = path.stat()
            seen.append((done, stat.filemode(facts.st_mode), facts.st_size))
        self.assertEqual(seen[0], seen[1], name)

    def test_set_id_bits_go_as_in_the_source(self):
        roles = ("root", "owner", "stranger", "in the file's group by the way")
        modes = (0o4777, 0o2777, 0o2767, 0o6767)
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.source, self.point, *served):
            for role, change, mode in itertools.product(roles, CHANGES, modes):
                self.change_with_bits(role, change, mode, False, 0)

    def test_set_id_bits_of_append_only_files_go_as_in_the_source(self):
        with mounted.Mount(self.source, self.point):
            for role, change in itertools.product(("root", "stranger"), CHANGES):
                self.change_with_bits(role, change, 0o6777, True, 0)

    def test_set_id_bits_of_files_that_are_passed_go_as_in_the_source(self):
        with mounted.Mount(self.source, self.point):
            for change in CHANGES:
                self.change_with_bits("stranger", change, 0o6777, False, 1.1)


if __name__ == "__main__":
    mounted.need_fuse()
    if os.geteuid() != 0:
        mounted.skip("only root can act as other users")
    unittest.main(verbosity=1)
