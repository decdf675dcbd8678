#!/usr/bin/env python3
"""The same operations on a mount and in an ordinary directory give the same results: same_test.py
PROGRAM [--seed N] [--steps N]."""
import argparse
import ctypes
import errno
import fcntl
import mmap
import os
import pwd
import random
import stat
import sys

import mounted
from lists_test import ACCESS, DEFAULT, packed

libc = ctypes.CDLL(None, use_errno=True)
ACCOUNT = pwd.getpwnam("nobody")


# A mount that is not root's clears set-id bits also when pages of a mapping are written back, for
# which there is no need elsewhere.
MODES = ([0o644, 0o600, 0o400, 0o755, 0o666, 0o777]
         + ([0o4755, 0o2755, 0o6777] if os.geteuid() == 0 else []))
# The users that do the steps, in turns: root and an account without rights if the test runs as
# root, else its own user.
USERS = ([(0, 0), (0, 0), (ACCOUNT.pw_uid, ACCOUNT.pw_gid)] if os.geteuid() == 0
         else [(os.geteuid(), os.getegid())])


FILES_MAY_WAIT = "--changing" in sys.argv


def renameat2(a, b, flags):
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags) != 0:
        raise OSError(ctypes.get_errno(), "renameat2")


def fallocate(fd, mode, offset, length):
    if libc.fallocate(fd, mode, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def without_waiting(path):
    """The open of a pipe must not wait. One of a file may have to, for a moment, where regions ask
    whether it has writers."""
    return 0 if FILES_MAY_WAIT and os.path.isfile(path) else os.O_NONBLOCK


class Place:
    """One of the two directories; what is held open there."""

    def __init__(self, root):
        self.root, self.files = str(root), {}

    def path(self, name):
        return os.path.join(self.root, name)


def facts(path, follow=False):
    """What stat says, without what differs between any two directories."""
    s = os.fstat(path) if isinstance(path, int) else os.stat(path, follow_symlinks=follow)
    size = s.st_size if not stat.S_ISDIR(s.st_mode) else 0
    return (stat.filemode(s.st_mode), s.st_uid, s.st_gid, size,
            s.st_nlink if not stat.S_ISDIR(s.st_mode) else 0)


class Operations:
    """Each takes a place and numbers, and gives what a program would see."""

    def __init__(self, rng):
        self.rng = rng

    def a_directory(self):
        return f"d{self.rng.randrange(3)}"

    def a_name(self):
        name = f"n{self.rng.randrange(8)}"
        return name if self.rng.random() < 0.6 else os.path.join(self.a_directory(), name)

    def choose(self, open_slots):
        """What it is, and a call that can be made at both places."""
        r = self.rng
        a, b, seed, at, length = (self.a_name(), self.a_name(), r.random(), r.randrange(40000),
                                  r.randrange(1, 9000))
        flags = r.choice([os.O_RDONLY, os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_APPEND,
                          os.O_RDWR | os.O_TRUNC])
        make = r.choice([0, os.O_CREAT, os.O_CREAT | os.O_EXCL])
        mode, slot = (r.choice(MODES),
                      r.choice(open_slots) if open_slots and r.random() < 0.8 else r.randrange(6))
        body = random.Random(seed).randbytes(length)
        r_mode, owner = r.choice([0o755, 0o777, 0o1777, 0o2777, 0o700]), r.choice(USERS)
        second = 1_000_000_000 + r.randrange(10**9)
        c, d = self.a_directory(), self.a_directory()
        # The mask keeps the execute bit: without it a set-group bit means nothing, and the kernel
        # clears it upon writes in an ordinary directory, but not for FUSE.
        named = {ACCOUNT.pw_uid: r.choice([0, 4, 6, 7, 7])}, {ACCOUNT.pw_gid: r.choice([0, 5, 7])}
        rights = packed(r.choice([6, 7, 7]), r.choice([0, 5, 7]), r.choice([0, 4, 7]), *named,
                        r.choice([5, 7, 7]))
        which, at_path = r.choice([(ACCESS, a), (ACCESS, c), (DEFAULT, c)])
        told = (f"slot {slot}, a {a}, b {b}, c {c}, d {d}, at {at}, length {length}, flags "
                f"{flags | make:#o}, mode {mode:o}")
        name, call = r.choice([
            *[("open", lambda p: self.open(p, slot, a, flags | make, mode))] * 8,
            ("close", lambda p: self.close(p, slot)),
            ("pwrite", lambda p: os.pwrite(p.files[slot], body, at)),
            ("pwrite", lambda p: os.pwrite(p.files[slot], body, at)),
            ("write", lambda p: os.write(p.files[slot], body)),
            ("pread", lambda p: os.pread(p.files[slot], length, at)),
            ("pread", lambda p: os.pread(p.files[slot], length, at)),
            ("ftruncate", lambda p: os.ftruncate(p.files[slot], at)),
            ("fstat", lambda p: facts(p.files[slot])), ("fsync", lambda p: os.fsync(p.files[slot])),
            ("map", lambda p: self.map(p, slot, at, body)),
            ("map", lambda p: self.map(p, slot, at, body)),
            ("allocate", lambda p: fallocate(p.files[slot], 0, at, length)),
            ("punch", lambda p: fallocate(p.files[slot], 3, at, length)),
            ("seek", lambda p: os.lseek(p.files[slot], at, os.SEEK_SET)),
            ("fchmod", lambda p: os.fchmod(p.files[slot], mode)),
            *[("mkdir", lambda p: os.mkdir(p.path(c), 0o755))] * 3,
            ("rmdir", lambda p: os.rmdir(p.path(c))),
            ("rename of directories", lambda p: os.rename(p.path(c), p.path(d))),
            ("rmdir of a name", lambda p: os.rmdir(p.path(a))),
            ("unlink", lambda p: os.unlink(p.path(a))),
            ("symlink", lambda p: os.symlink(b, p.path(a))),
            ("readlink", lambda p: os.readlink(p.path(a))),
            ("link", lambda p: os.link(p.path(a), p.path(b))),
            ("rename", lambda p: os.rename(p.path(a), p.path(b))),
            ("rename, not over", lambda p: renameat2(p.path(a), p.path(b), 1)),
            ("exchange", lambda p: renameat2(p.path(a), p.path(b), 2)),
            ("truncate", lambda p: os.truncate(p.path(a), at)),
            ("chmod", lambda p: os.chmod(p.path(a), mode)),
            ("chmod of a directory", lambda p: os.chmod(p.path(c), r_mode)),
            ("chown", lambda p: os.chown(p.path(a), *owner, follow_symlinks=False)),
            ("chown of a directory", lambda p: os.chown(p.path(c), *owner)),
            ("utime", lambda p: os.utime(p.path(a), (second, second + 1))),
            ("lstat", lambda p: facts(p.path(a))), ("stat", lambda p: facts(p.path(a), True)),
            ("mtime", lambda p: os.stat(p.path(a)).st_mtime == second + 1),
            ("listdir", lambda p: sorted(os.listdir(p.path(c)))),
            ("listdir", lambda p: sorted(os.listdir(p.root))),
            ("mkfifo", lambda p: os.mkfifo(p.path(a))),
            ("setxattr", lambda p: os.setxattr(p.path(a), f"user.x{slot}", body[:50])),
            ("getxattr", lambda p: os.getxattr(p.path(a), f"user.x{slot}")),
            ("removexattr", lambda p: os.removexattr(p.path(a), f"user.x{slot}")),
            ("listxattr", lambda p: sorted(os.listxattr(p.path(a)))),
            ("lock", lambda p: self.lock(p, slot)), ("whole", lambda p: self.whole(p, a)),
            ("set a list", lambda p: os.setxattr(p.path(at_path), which, rights)),
            ("drop a list", lambda p: os.removexattr(p.path(at_path), which)),
            ("list", lambda p: os.getxattr(p.path(at_path), which)),
            ("copy", lambda p: self.copy(p, slot, (slot + 1) % 6, at, length))])
        return f"{name}: {told}", call

    @staticmethod
    def open(place, slot, name, flags, mode):
        Operations.close(place, slot)
        place.files[slot] = os.open(place.path(name), flags | without_waiting(place.path(name)),
                                    mode)
        return facts(place.files[slot])

    @staticmethod
    def close(place, slot):
        if slot in place.files:
            os.close(place.files.pop(slot))

    @staticmethod
    def map(place, slot, at, body):
        size = os.fstat(place.files[slot]).st_size
        if size == 0:
            return None
        with mmap.mmap(place.files[slot], size) as memory:
            at %= size
            body = body[:size - at]
            before = memory[at:at + len(body)]
            memory[at:at + len(body)] = body
            memory.flush()
            return before

    @staticmethod
    def lock(place, slot):
        fcntl.flock(place.files[slot], fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(place.files[slot], fcntl.LOCK_UN)
        return "locked"

    @staticmethod
    def whole(place, name):
        fd = os.open(place.path(name), os.O_RDONLY | without_waiting(place.path(name)))
        try:
            return os.pread(fd, 1 << 20, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else "no file"
        finally:
            os.close(fd)

    @staticmethod
    def copy(place, slot, other, at, length):
        return os.copy_file_range(place.files[slot], place.files[other], length, at, at + 50000)


def become(user, group):
    if os.getuid() == 0:
        os.seteuid(0)
        os.setegid(group)
        os.seteuid(user)


def result_of(call, place, user):
    try:
        become(*user)
        return call(place)
    except OSError as e:
        return f"error {errno.errorcode.get(e.errno, e.errno)}"
    except (KeyError, ValueError) as e:  # nothing open there; a file that cannot be mapped
        return type(e).__name__
    finally:
        become(0, 0)


def tree_of(root):
    """Every name below, with its facts and bytes."""
    out = {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            here = os.path.relpath(path, root)
            out[here] = [facts(path)]
            if stat.S_ISREG(os.lstat(path).st_mode):
                with open(path, "rb") as f:
                    out[here].append(f.read())
            elif os.path.islink(path):
                out[here].append(os.readlink(path))
    return out


def run(seed, steps, broken, flags, server):
    source, point, plain = mounted.folders()
    rng = random.Random(seed)
    operations = Operations(rng)
    met, history = {}, []
    if os.geteuid() == 0:
        for root in (source, plain):
            os.chmod(root, 0o777)
    with mounted.Mount(source, point, *flags, server=server) as mount:
        here, there = Place(point), Place(plain)
        for step in range(steps):
            told, call = operations.choose(sorted(here.files))
            user = rng.choice(USERS)
            a, b = result_of(call, here, user), result_of(call, there, user)
            history.append(f"{step} {user} {told} -> {str(a)[:60]}")
            if broken and step == steps // 2:
                (point / "only here").write_bytes(b"")
            if a != b:
                print("\n".join(history[-60:]))
                raise AssertionError(f"seed {seed}, step {step}: FAILED: on the mount "
                                     f"{str(a)[:200]}, elsewhere {str(b)[:200]}: {told}")
            kind = a if isinstance(a, str) else "done"
            met[kind] = met.get(kind, 0) + 1
        for place in (here, there):
            for slot in list(place.files):
                Operations.close(place, slot)
        if tree_of(point) != tree_of(plain):
            raise AssertionError(f"seed {seed}: FAILED: the trees differ at the end")
        report = mount.end()
        told = {k: report[k] for k in ("opens", "passed_opens", "uses") if k in report}
        if server and not 0 < 20 * report["passed_opens"] < 19 * report["opens"]:
            raise AssertionError(f"seed {seed}: FAILED: the files did not change: {told}")
        if flags and report["buffer"]["misses"] == 0:
            raise AssertionError(
                f"seed {seed}: FAILED: nothing was read through the buffer: {report}")
    if tree_of(source) != tree_of(plain):
        sys.exit(f"seed {seed}: FAILED: the source differs from what was done")
    print(f"seed {seed}: {told}, {steps} steps: {dict(sorted(met.items(), key=lambda x: -x[1]))}")
    return met


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--broken", action="store_true",
                        help="canary: something is done at one place only")
    parser.add_argument("--buffer", help="read through a small buffer with this policy")
    parser.add_argument("--changing", metavar="SERVER",
                        help="mounted by this program, which has all files change between the two "
                        "ways of a mount (changing_server.cpp)")
    wanted = parser.parse_args()
    flags = mounted.buffer_flags(wanted.buffer, "40KiB", "64KiB") if wanted.buffer else []
    os.umask(0o022)
    mounted.need_fuse()
    if wanted.changing:
        mounted.need_passing()
    for seed in range(wanted.seed, wanted.seed + wanted.seeds):
        met = run(seed, wanted.steps, wanted.broken, flags, wanted.changing)
        if met.get("done", 0) < wanted.steps // 3:
            sys.exit("FAILED: most calls failed at both places, so little was compared")


main()
