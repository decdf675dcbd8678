#!/usr/bin/env python3
"""Promises of docs/guide/mount.md: promises_test.py PROGRAM.

Limits, locks, holes, file handles, set-id programs, devices, files without a name and older
kernels.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

import mounted
from lists_test import as_user

libc = ctypes.CDLL(None, use_errno=True)
PR_CAPBSET_DROP, CAP_SYS_RESOURCE = 24, 24
DENIED = "denied"


def lowered_limits(soft, hard, drop):
    """As a container gives them to root: a limit on open files that it may not raise."""

    def act():
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if (drop and has_right(CAP_SYS_RESOURCE)
                and libc.prctl(PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) != 0):
            os._exit(99)

    return act


def code_of(call):
    try:
        call()
        return "done"
    except OSError as e:
        return errno.errorcode[e.errno]


def run_cp(origin, target):
    subprocess.run(["cp", origin, target], check=True)
    return target.read_bytes()


def has_right(number):
    with open("/proc/self/status") as facts:
        return any(
            int(line.split()[1], 16) >> number & 1 for line in facts if line.startswith("CapEff"))


def limit_of(process):
    with open(f"/proc/{process.pid}/limits") as table:
        return next(int(line.split()[3]) for line in table if line.startswith("Max open files"))


class FileHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


def handle_of(path):
    """What a file is found by without a name (NFS servers, fanotify)."""
    handle, mount = FileHandle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, os.fsencode(path), ctypes.byref(handle), ctypes.byref(mount),
                              0):
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    return bytes(handle.data[:handle.bytes])


def mapped_by(process):
    with open(f"/proc/{process.pid}/maps") as table:
        for line in table:
            first, last = line.split()[0].split("-")
            yield range(int(first, 16), int(last, 16))


class Other:
    """Another process: calls a function with each text that it gets, and sends the answer."""

    def __init__(self, call):
        (self.ours, theirs), child_end = os.pipe(), os.pipe()
        self.answers = child_end[0]
        self.child = os.fork()
        if self.child == 0:
            try:
                os.close(theirs)
                while order := os.read(self.ours, 100):
                    os.write(child_end[1], str(call(order.decode())).encode())
            finally:
                os._exit(0)
        os.close(self.ours)
        os.close(child_end[1])
        self.orders = theirs

    def ask(self, order):
        os.write(self.orders, order.encode())
        return os.read(self.answers, 100).decode()

    def end(self):
        os.kill(self.child, signal.SIGKILL)
        os.waitpid(self.child, 0)
        os.close(self.orders)
        os.close(self.answers)


class Locker:
    """Takes locks on one file as ordered, of all of it or of a range: first byte and count."""

    def __init__(self, path):
        self.path, self.fd = path, None

    def __call__(self, order):
        if self.fd is None:
            self.fd = os.open(self.path, os.O_RDWR)
        action, _, place = order.partition(" ")
        first, count = (int(x) for x in (place or "0 0").split())
        try:
            if action == "flock":
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            elif action == "record":
                fcntl.lockf(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB, count, first)
            elif action == "shared":
                fcntl.lockf(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB, count, first)
            elif action == "holder":
                asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, first, count, 0)
                return struct.unpack("hhqqi4x", fcntl.fcntl(self.fd, fcntl.F_GETLK, asked))[4]
            elif action == "give":
                fcntl.lockf(self.fd, fcntl.LOCK_UN)
                fcntl.flock(self.fd, fcntl.LOCK_UN)
            elif action == "close":
                os.close(self.fd)
                self.fd = None
        except OSError as e:
            return DENIED if e.errno in (errno.EAGAIN, errno.EACCES) else str(e)
        return "done"


class Promises(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()

    def test_locks_hold_between_two_programs_of_the_mount(self):
        (self.source / "f").write_bytes(bytes(100))
        with mounted.Mount(self.source, self.point):
            first, second = Other(Locker(self.point / "f")), Other(Locker(self.point / "f"))
            below = Other(Locker(self.source / "f"))
            for kind, lock, other, apart in (("flock", "flock", "flock", None),
                                             ("record", "record 10 20", "record 29 5",
                                              "record 30 5")):
                self.assertEqual(first.ask(lock), "done", kind)
                self.assertEqual(second.ask(other), DENIED, kind)
                if apart:
                    self.assertEqual(second.ask(apart), "done")
                    self.assertEqual(second.ask("shared 15 1"), DENIED)
                    self.assertEqual(second.ask("holder 10 20"), str(first.child))
                self.assertEqual(below.ask(other), "done", "the source knows nothing of it")
                below.ask("give")
                self.assertEqual(first.ask("give"), "done")
                self.assertEqual(second.ask(other), "done")
                self.assertEqual(first.ask(lock), DENIED)
                second.ask("close")
                self.assertEqual(first.ask(lock), "done", "closing gives it back")
                first.ask("give")
            self.assertEqual(second.ask("record 0 100"), "done")
            self.assertEqual(first.ask("flock"), "done", "the two kinds do not meet")
            second.end()
            self.assertEqual(first.ask("record 0 100"), "done",
                             "the end of a program gives it back")
            first.end()
            below.end()

    def test_the_limit_on_open_files_is_raised_and_then_told(self):
        for i in range(300):
            (self.source / f"f{i}").write_text(str(i))
        with mounted.Mount(self.source, self.point, before=lowered_limits(60, 200, True)) as mount:
            self.assertEqual(limit_of(mount.process), 200)
            codes = set()
            for i in range(300):
                try:
                    os.lstat(self.point / f"f{i}")
                except OSError as e:
                    codes.add(errno.errorcode[e.errno])
            self.assertEqual(codes, {"EMFILE"})
            self.assertEqual((self.point / "f0").stat().st_size, 1, "what is known stays")
            mount.end()

    def test_at_the_limit_nothing_is_made_that_is_told_as_an_error(self):
        makers = {
            "folder": os.mkdir, "link": lambda path: os.symlink("x", path), "pipe": os.mkfifo,
            "name": lambda path: os.link(self.point / "f0", path),
            "file": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        }
        (self.source / "known").mkdir()
        for i in range(300):
            (self.source / f"f{i}").touch()
        with mounted.Mount(self.source, self.point, before=lowered_limits(60, 200, True)):
            known = self.point / "known"
            known.stat()
            for i in range(300):
                code_of(lambda i=i: os.lstat(self.point / f"f{i}"))
            for i, (name, make) in enumerate(makers.items(), 1):
                # One descriptor is free, with which a look-up finds that there is no such name. A
                # file takes it; for the others none is left.
                os.unlink(self.point / f"f{i}")
                self.assertTrue(
                    mounted.wait_until(
                        lambda n=name: code_of(lambda: os.lstat(known / n)) == "ENOENT"))
                if name != "file":
                    os.lstat(self.point / f"f{299 - i}")
                self.assertEqual(code_of(lambda n=name, m=make: m(known / n)), "EMFILE")
                self.assertFalse(os.path.lexists(self.source / "known" / name), name)

    def test_a_close_at_the_limit_tells_no_error_of_the_mount(self):
        with mounted.Mount(self.source, self.point) as mount:
            fd = os.open(self.point / "f", os.O_WRONLY | os.O_CREAT)
            os.write(fd, b"abc")
            usual = resource.prlimit(mount.process.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(mount.process.pid, resource.RLIMIT_NOFILE, (3, usual[1]))
            try:
                code = code_of(lambda: os.close(fd))
            finally:
                resource.prlimit(mount.process.pid, resource.RLIMIT_NOFILE, usual)
            self.assertEqual(code, "done")
            self.assertEqual((self.source / "f").read_bytes(), b"abc")

    def test_no_hole_is_told_where_programs_stored(self):
        bytes_, at = 1 << 20, 300000
        served = [] if mounted.PASSING else ["--pass-through=off"]
        with mounted.Mount(self.source, self.point, *served):
            path = self.point / "a"
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
            os.ftruncate(fd, bytes_)
            with mmap.mmap(fd, bytes_) as memory:
                for i, look in enumerate((lambda: os.lseek(fd, at, os.SEEK_DATA) == at,
                                          lambda: os.lseek(fd, at, os.SEEK_HOLE) > at + 9,
                                          lambda: run_cp(path, self.point / "b")[at:at + 10])):
                    for _ in range(2):
                        path.read_bytes()
                    memory[at:at + 10] = b"0123456789"
                    self.assertEqual(look(), True if i < 2 else b"0123456789")
                    at += 200000
            os.close(fd)

    def test_a_file_handle_is_of_one_file_and_shows_no_address(self):
        path = self.point / "f"
        with mounted.Mount(self.source, self.point, "--threads", "1") as mount:
            handles = set()
            for _ in range(200):
                path.touch()
                try:
                    handles.add(handle_of(path))
                except OSError as e:
                    self.skipTest(f"no file handles here: {e}")
                path.unlink()
            self.assertEqual(len(handles), 200)
            numbers = [
                upper << 32 | lower
                for upper, lower in (struct.unpack("II", handle[:8]) for handle in handles)
            ]
            mapped = list(mapped_by(mount.process))
            self.assertEqual(
                [number for number in numbers if any(number in each for each in mapped)], [])

    def test_a_folder_is_listed_whole_beyond_the_limit(self):
        for i in range(300):
            (self.source / f"f{i}").touch()
        with mounted.Mount(self.source, self.point, before=lowered_limits(60, 200, True)):
            self.assertEqual(len(os.listdir(self.point)), 300)

    def test_root_raises_the_limit_to_a_million(self):
        if not has_right(CAP_SYS_RESOURCE):
            self.skipTest("this process may not raise the limit")
        with open("/proc/sys/fs/nr_open") as most:
            if int(most.read()) < 1 << 20:
                self.skipTest("no process may have a million files here")
        with mounted.Mount(self.source, self.point, before=lowered_limits(60, 200, False)) as mount:
            self.assertEqual(limit_of(mount.process), 1 << 20)

    def test_set_id_programs_and_devices_are_shown_and_do_nothing(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make such files")
        shutil.copy("/usr/bin/id", self.source / "id")
        os.chmod(self.source / "id", 0o6755)
        os.mknod(self.source / "null", 0o666 | 0o020000, os.makedev(1, 3))
        with mounted.Mount(self.source, self.point):
            with open("/proc/self/mountinfo") as table:
                options = next(line.split()[5].split(",") for line in table
                               if line.split()[4] == str(self.point))
            self.assertLessEqual({"nosuid", "nodev"}, set(options))
            self.assertEqual(
                os.stat(self.point / "id").st_mode,
                os.stat(self.source / "id").st_mode)
            self.assertEqual(os.stat(self.point / "null").st_rdev, os.makedev(1, 3))
            users = []
            for root in (self.source, self.point):
                done = subprocess.run([root / "id", "-u"], user=1001, group=1001, extra_groups=[],
                                      stdout=subprocess.PIPE, check=True)
                users.append(done.stdout.decode().strip())
            self.assertEqual(users[1], "1001")
            if users[0] != "0":
                self.skipTest("the source honours no set-id bits either")
            with self.assertRaises(OSError) as caught:
                os.open(self.point / "null", os.O_RDONLY)
            self.assertEqual(caught.exception.errno, errno.EACCES)

    def test_a_program_that_takes_append_back_writes_where_it_says(self):
        def use(path):
            path.write_bytes(b"0123456789")
            fd = os.open(path, os.O_RDWR | os.O_APPEND)
            flags = fcntl.fcntl(fd, fcntl.F_GETFL)
            os.write(fd, b"ab")
            fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_APPEND)
            os.pwrite(fd, b"XY", 2)
            fcntl.fcntl(fd, fcntl.F_SETFL, flags)
            os.write(fd, b"cd")
            os.close(fd)
            return path.read_bytes()

        with mounted.Mount(self.source, self.point):
            self.assertEqual(use(self.point / "f"), use(self.plain / "f"))

    def test_names_of_trusted_attributes_are_for_root(self):
        if os.geteuid() != 0:
            self.skipTest("only root has such attributes")
        path = self.source / "f"
        path.touch()
        try:
            os.setxattr(path, "trusted.x", b"1")
            os.setxattr(path, "user.x", b"1")
        except OSError as e:
            self.skipTest(f"no such attributes here: {e}")
        with mounted.Mount(self.source, self.point):
            for at in (self.source, self.point):
                self.assertEqual(sorted(os.listxattr(at / "f")), ["trusted.x", "user.x"])
                seen = as_user("stranger", lambda at=at: os.listxattr(at / "f"))
                self.assertEqual(seen, ["user.x"], at)

    def test_files_without_a_name_are_refused_and_programs_go_on(self):
        with mounted.Mount(self.source, self.point):
            with self.assertRaises(OSError) as caught:
                os.open(self.point, os.O_TMPFILE | os.O_RDWR, 0o600)
            self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
            with tempfile.TemporaryFile(dir=self.point) as made:
                made.write(b"abc")
                made.seek(0)
                self.assertEqual(made.read(), b"abc")
            self.assertEqual(os.listdir(self.source), [])

    def test_an_older_kernel_that_keeps_copies_beside_a_buffer_is_named_once(self):
        has_agreement = tuple(
            int(x) for x in re.match(r"(\d+)\.(\d+)",
                                     os.uname().release).groups()) >= (6, 6)
        for i in range(3):
            (self.source / f"f{i}").write_bytes(bytes(5000))
        mount = mounted.Mount(self.source, self.point,
                              *mounted.buffer_flags("gram", "1MiB", "1MiB"))
        with mount:
            for i in range(3):
                self.assertEqual((self.point / f"f{i}").read_bytes(), bytes(5000))
            mounted.unmount(self.point)
            out, err = (text.decode() for text in mount.process.communicate(timeout=30))
        self.assertEqual(err.count("Linux 6.6 has"), 0 if has_agreement else 1, err)
        self.assertIn(f'"kernel_copies":{str(not has_agreement).lower()}', out.replace(" ", ""))


if __name__ == "__main__":
    mounted.need_fuse()
    unittest.main(verbosity=1)
