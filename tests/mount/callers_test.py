#!/usr/bin/env python3
"""What is judged by the rights of its caller is judged so through a mount: callers_test.py PROGRAM.

Needs root. Files of /proc and of control groups, and the set-group bit of files.
"""

import ctypes
import os
import stat
import subprocess
import unittest

import mounted
from lists_test import FILE_GROUP, FILE_OWNER, USERS, as_user, code_of

LIBC = ctypes.CDLL(None, use_errno=True)
CAPSET, ADD_KEY, KEYCTL = {
    "x86_64": (126, 248, 250),
    "aarch64": (91, 217, 219),
}.get(os.uname().machine, (None, None, None))
JOIN_SESSION_KEYRING, SESSION_KEYRING = 1, -3
NEW_USER_NAMESPACE = 0x10000000
GROUPS = "penstock_callers"
GUARDED = ("maps", "smaps", "auxv", "environ", "mem", "syscall", "exe", "cwd", "root", "ns/mnt")


def look(path):
    """What a user may see of a file or a link of /proc."""
    if path.is_symlink():
        return code_of(lambda: os.readlink(path))
    return code_of(lambda: os.close(os.open(path, os.O_RDONLY)))


def without_rights(work):
    """As a user 0 without any capability."""
    head = (ctypes.c_uint32 * 2)(0x20080522, 0)
    if LIBC.syscall(CAPSET, head, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    return work()


def in_own_namespace(work):
    """As the user 0 of a user namespace, which has all capabilities there and none outside."""
    if LIBC.unshare(NEW_USER_NAMESPACE) != 0:
        return "no user namespaces"
    with open("/proc/self/uid_map", "w") as f:
        f.write("0 0 1")
    return work()


def mode_of(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


class Callers(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()
        os.chmod(self.source, 0o777)
        os.chmod(self.plain, 0o777)
        os.umask(0)

    def sleeper(self):
        process = subprocess.Popen(["sleep", "600"])
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process.pid

    def mount_groups(self):
        made = ["mount", "-t", "cgroup", "-o", f"none,name={GROUPS}", "none", self.source]
        return subprocess.run(made, stderr=subprocess.DEVNULL, check=False).returncode == 0

    def end_groups(self):
        """The kernel knows what was mounted while a group that is gone is not yet freed."""

        def is_gone():
            subprocess.run(["umount", self.source], check=True)
            with open("/proc/self/cgroup") as f:
                return GROUPS not in f.read() or not self.mount_groups()

        if not mounted.wait_until(is_gone, 10):
            subprocess.run(["umount", self.source], check=True)

    def test_a_control_group_is_joined_with_the_rights_of_the_caller(self):
        if not self.mount_groups():
            self.skipTest("no control groups of version 1")
        self.addCleanup(self.end_groups)
        group = self.source / "u"
        group.mkdir()
        self.addCleanup(group.rmdir)
        os.chmod(group / "cgroup.procs", 0o666)
        pid = self.sleeper()
        top = self.source / "cgroup.procs"
        self.addCleanup(top.write_text, str(pid))

        def join(root):
            def write():
                fd = os.open(root / "u/cgroup.procs", os.O_WRONLY)
                try:
                    os.write(fd, str(pid).encode())
                finally:
                    os.close(fd)

            return code_of(write)

        with mounted.Mount(self.source, self.point):
            self.assertEqual(as_user("stranger", lambda: join(self.source)), "EACCES")
            self.assertEqual(as_user("stranger", lambda: join(self.point)), "EACCES")
            self.assertEqual((group / "cgroup.procs").read_text(), "")
            self.assertEqual(join(self.point), "done")
            self.assertEqual((group / "cgroup.procs").read_text(), f"{pid}\n")

    def test_a_root_with_fewer_rights_has_no_more_through_a_mount(self):
        if CAPSET is None:
            self.skipTest("the numbers of system calls are not known here")
        pid = self.sleeper()

        def use(root):
            file = root / str(pid) / "environ"
            memory = root / str(pid) / "mem"
            return [
                code_of(file.read_bytes),
                code_of(lambda: os.close(os.open(memory, os.O_RDWR))),
                look(root / str(pid) / "exe"),
                code_of((root / str(pid) / "status").read_bytes),
            ]

        with mounted.Mount("/proc", self.point):
            for how in (without_rights, in_own_namespace):
                seen = [
                    as_user("root", lambda at=root, how=how: how(lambda: use(at)))
                    for root in (mounted.pathlib.Path("/proc"), self.point)
                ]
                self.assertEqual(seen[0], seen[1], how)
            self.assertEqual(use(self.point), ["done"] * 4)

    def test_other_users_see_nothing_of_the_mount_s_process(self):
        with mounted.Mount("/proc", self.point) as mount:
            proc = mounted.pathlib.Path("/proc")
            pid = str(mount.process.pid)
            for name in GUARDED:
                self.assertEqual(as_user("stranger", lambda n=name: look(proc / pid / n)), "EACCES")
                for process in ("self", "thread-self", pid):
                    at = self.point / process / name
                    self.assertEqual(as_user("stranger", lambda at=at: look(at)), "EACCES", at)
                    if name != "syscall":  # which not every kernel has
                        self.assertEqual(look(at), "done", at)
            for name in ("mounts", "net/dev", "self/status", "thread-self/comm", "self/cgroup"):
                at = self.point / name
                self.assertEqual(as_user("stranger", lambda at=at: look(at)), "done", at)

    def test_the_keys_of_the_mount_s_session_are_not_shown(self):
        if KEYCTL is None or not os.path.exists("/proc/keys"):
            self.skipTest("no keys here")

        def with_key():
            LIBC.syscall(KEYCTL, JOIN_SESSION_KEYRING, None)
            LIBC.syscall(ADD_KEY, b"user", b"penstock_callers", b"secret", 6, SESSION_KEYRING)

        def keys_of(root):
            LIBC.syscall(KEYCTL, JOIN_SESSION_KEYRING, None)
            text = []
            return code_of(lambda: text.append((root / "keys").read_text())), "".join(text)

        with mounted.Mount("/proc", self.point, before=with_key):
            for role in ("stranger", "root"):
                code, text = as_user(role, lambda: keys_of(self.point))
                self.assertEqual(code, "EACCES" if role == "stranger" else "done")
                self.assertEqual("penstock_callers" in text, role == "root")

    def make_with_bits(self, role, folder, mask):
        """The modes of a file and a node that this user makes in a folder of the file's group."""

        def make():
            os.umask(mask)
            fd = os.open(folder / "file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o6777)
            os.close(fd)
            os.mknod(folder / "node", 0o6777 | stat.S_IFREG)
            return [mode_of(folder / name) for name in ("file", "node")]

        return as_user(role, make)

    def make_folders(self, name, mode):
        for root in (self.source, self.plain):
            (root / name).mkdir()
            os.chown(root / name, 0, FILE_GROUP)
            os.chmod(root / name, mode)

    def test_new_files_have_the_set_group_bit_that_their_maker_may_set(self):
        with mounted.Mount(self.source, self.point):
            for role in USERS:
                for mask in (0o077, 0):
                    name = f"{role} {mask:o}"
                    self.make_folders(name, 0o2777)
                    seen = [
                        self.make_with_bits(role, root / name, mask)
                        for root in (self.plain, self.point)
                    ]
                    self.assertEqual(seen[0], seen[1], name)

    def test_the_groups_of_the_mount_set_no_bit(self):
        with mounted.Mount(self.source, self.point, before=lambda: os.setgroups([FILE_GROUP])):
            self.make_folders("d", 0o777)
            (self.point / "d").stat()  # the kernel believes for a second that it has no such bit
            for root in (self.source, self.plain):
                os.chmod(root / "d", 0o2777)
            seen = [
                self.make_with_bits("stranger", root / "d", 0) for root in (self.plain, self.point)
            ]
            self.assertEqual(seen[0], seen[1])

    def test_a_change_of_owner_takes_bits_as_in_the_source(self):
        further = {"owner": FILE_OWNER, "owner in the file's group": FILE_OWNER}
        USERS["owner in the file's group"] = (FILE_OWNER, FILE_OWNER, [FILE_GROUP])
        self.addCleanup(USERS.pop, "owner in the file's group")
        changes = [(-1, FILE_GROUP), (FILE_OWNER, -1), (-1, FILE_OWNER)]
        with mounted.Mount(self.source, self.point):
            for role in (*further, "root"):
                for mode in (0o2644, 0o2755, 0o6644, 0o644):
                    for number, change in enumerate(changes):
                        seen = []
                        for made_at, used_at in (
                            (self.plain, self.plain),
                            (self.source, self.point),
                        ):
                            name = f"{role} {mode:o} {number}"
                            (made_at / name).touch()
                            os.chown(made_at / name, FILE_OWNER, FILE_GROUP)
                            os.chmod(made_at / name, mode)
                            done = as_user(
                                role,
                                lambda at=used_at / name, to=change: code_of(
                                    lambda: os.chown(at, *to)
                                ),
                            )
                            seen.append((done, mode_of(made_at / name)))
                        self.assertEqual(seen[0], seen[1], f"{name}: {change}")


if __name__ == "__main__":
    mounted.need_fuse()
    if os.geteuid() != 0:
        mounted.skip("only root can act as other users")
    unittest.main(verbosity=1)
