#!/usr/bin/env python3
"""Access control lists give the same rights on a mount as in its source: lists_test.py PROGRAM.

Needs root and a file system that has lists.
"""

import errno
import json
import os
import stat
import struct
import subprocess
import sys
import unittest

import mounted

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {
    "owner": 0x01, "user": 0x02, "group of file": 0x04, "group": 0x08, "mask": 0x10, "others": 0x20
}
NO_ID = 0xFFFFFFFF
FILE_OWNER, FILE_GROUP = 1001, 100

# Name: user, group, further groups.
USERS = {
    "root": (0, 0, []), "owner": (FILE_OWNER, 1001, []),
    "in the file's group": (1002, FILE_GROUP, []),
    "in the file's group by the way": (1003, 1003, [FILE_GROUP]),
    "named": (2000, 2000, []), "in a named group": (2001, 2001, [300]), "stranger": (3000, 3000, [])
}


def lists():
    """Twenty: rights of owner, group and others, named users and groups, and the mask, as of
    chmod."""
    yield from [(6, 0, 0, {}, {}, None), (6, 4, 0, {}, {}, None), (6, 6, 6, {}, {}, None),
                (6, 0, 0, {2000: 6}, {}, 6), (6, 0, 0, {2000: 6}, {}, 4),
                (6, 0, 0, {2000: 4}, {}, 6), (6, 6, 0, {2000: 0}, {}, 6),
                (6, 4, 4, {2000: 0}, {}, 7), (6, 0, 0, {}, {300: 6}, 6), (6, 0, 6, {}, {300: 0}, 6),
                (6, 0, 0, {}, {300: 4}, 6), (6, 6, 6, {}, {FILE_GROUP: 0}, 6),
                (6, 0, 0, {}, {FILE_GROUP: 6}, 6), (0, 0, 0, {2000: 6}, {300: 6}, 6),
                (0, 6, 6, {}, {300: 4}, 0), (6, 4, 0, {1002: 0, 1003: 6}, {}, 6),
                (6, 0, 0, {FILE_OWNER: 0, 3000: 6}, {}, 6), (4, 6, 6, {2000: 2}, {300: 2}, 6),
                (7, 5, 5, {2001: 0}, {300: 7}, 7),
                (6, 2, 2, {2000: 4, 2001: 2}, {300: 6, FILE_GROUP: 4}, 6)]


def packed(owner, group, others, users, groups, mask):
    """As the kernel takes and gives a list in an extended attribute."""
    entries = [("owner", owner, NO_ID),
               *[("user", users[number], number) for number in sorted(users)],
               ("group of file", group, NO_ID), *[("group", groups[number], number)
                                                  for number in sorted(groups)],
               *([("mask", mask, NO_ID)] if mask is not None else []), ("others", others, NO_ID)]
    return struct.pack("<I", 2) + b"".join(
        struct.pack("<HHI", TAGS[tag], permissions, number) for tag, permissions, number in entries)


def with_search(entry):
    """The same list for a folder: a user that may write there may also go in."""

    def more(permissions):
        return permissions | 1 if permissions & 2 else permissions

    owner, group, others, users, groups, mask = entry
    return (more(owner), more(group), more(others), {k: more(v) for k, v in users.items()},
            {k: more(v) for k, v in groups.items()}, None if mask is None else more(mask))


def code_of(call):
    try:
        call()
        return "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def as_user(role, work):
    """What `work` gives in a process of that user."""
    user, group, more = USERS[role]
    down, up = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(more)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            with os.fdopen(up, "w") as out:
                json.dump(work(), out)
        except OSError as e:
            print(f"{role}: {e}", file=sys.stderr, flush=True)
        finally:
            os._exit(0)
    os.close(up)
    with os.fdopen(down) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return json.loads(text)


def use_all(root, count):
    """One user's attempts on every object of the table."""
    out = {}
    for i in range(count):
        file, folder = root / f"f{i}", root / f"d{i}"
        out[f"{i} read"] = code_of(lambda: os.close(os.open(file, os.O_RDONLY)))
        out[f"{i} write"] = code_of(lambda: os.close(os.open(file, os.O_WRONLY)))
        out[f"{i} access"] = [os.access(file, access) for access in (os.R_OK, os.W_OK, os.X_OK)]
        out[f"{i} create"] = code_of(
            lambda: os.close(os.open(folder / "made", os.O_CREAT | os.O_EXCL | os.O_WRONLY)))
        out[f"{i} remove"] = code_of(lambda: os.unlink(folder / "made"))
        out[f"{i} list"] = code_of(lambda: os.listdir(folder))
    return out


def attribute(path, name):
    try:
        return os.getxattr(path, name).hex()
    except OSError as e:
        return errno.errorcode.get(e.errno)


def facts(path):
    s = os.lstat(path)
    lists_of = ([] if stat.S_ISLNK(s.st_mode) else
                [attribute(path, ACCESS), attribute(path, DEFAULT)])
    return [stat.filemode(s.st_mode), s.st_uid, s.st_gid, *lists_of]


def make_everything(folder):
    """Each kind of thing in a folder, by each umask that differs; what came of it."""
    for mask in (0o022, 0o077, 0):
        os.umask(mask)
        os.close(os.open(folder / f"file{mask}", os.O_CREAT | os.O_RDWR, 0o666))
        os.close(os.open(folder / f"program{mask}", os.O_CREAT | os.O_RDWR, 0o777))
        os.mkdir(folder / f"folder{mask}", 0o777)
        deeper = folder / f"folder{mask}" / "deeper"
        code_of(lambda at=deeper: os.mkdir(at, 0o700))  # the list may not let its owner in
        os.mkfifo(folder / f"pipe{mask}", 0o666)
        os.symlink("nowhere", folder / f"link{mask}")
    return {
        os.path.relpath(os.path.join(at, name), folder): facts(os.path.join(at, name))
        for at, folders, files in os.walk(folder) for name in folders + files
    }


class Lists(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()

    def make_table(self):
        table = list(lists())
        for i, entry in enumerate(table):
            (self.source / f"f{i}").write_text("secret")
            (self.source / f"d{i}").mkdir()
            for name, rights in ((f"f{i}", entry), (f"d{i}", with_search(entry))):
                os.chown(self.source / name, FILE_OWNER, FILE_GROUP)
                os.setxattr(self.source / name, ACCESS, packed(*rights))
        return table

    def test_twenty_lists_give_each_user_what_the_source_gives(self):
        table = self.make_table()
        with mounted.Mount(self.source, self.point):
            answers = set()
            for role in USERS:
                here, there = as_user(role, lambda: use_all(self.point, len(table))), as_user(
                    role, lambda: use_all(self.source, len(table)))
                for attempt, answer in there.items():
                    self.assertEqual(here[attempt], answer,
                                     f"{role}, list {table[int(attempt.split()[0])]}: {attempt}")
                answers |= {(attempt.split()[1], answer) for attempt, answer in there.items()
                            if isinstance(answer, str)}
        for operation in ("read", "write", "create", "list"):
            self.assertLessEqual({(operation, "done"), (operation, "EACCES")}, answers,
                                 "the table does not ask both ways")

    def test_a_list_that_is_set_through_the_mount_holds_at_once(self):
        for name in ("a", "b"):
            (self.source / name).write_text("secret")
            os.chown(self.source / name, FILE_OWNER, FILE_GROUP)
            os.chmod(self.source / name, 0o600)
        with mounted.Mount(self.source, self.point):

            def may_read(name):
                return as_user("named", lambda: code_of(lambda: (self.point / name).read_text()))

            self.assertEqual(may_read("a"), "EACCES")
            as_user(
                "owner",
                lambda: os.setxattr(self.point / "a", ACCESS, packed(6, 0, 0, {2000: 4}, {}, 4)))
            self.assertEqual(may_read("a"), "done")
            self.assertEqual(facts(self.point / "a"), facts(self.source / "a"))
            self.assertEqual(
                as_user(
                    "stranger",
                    lambda: code_of(lambda: os.setxattr(self.point / "b", ACCESS,
                                                        packed(6, 6, 6, {}, {}, None)))), "EPERM")
            self.assertEqual(
                as_user("named", lambda: code_of(lambda: os.removexattr(self.point / "a", ACCESS))),
                "EPERM")
            os.chmod(self.point / "a", 0o600)  # the mask goes, the list stays
            self.assertEqual(may_read("a"), "EACCES")
            os.chmod(self.point / "a", 0o640)
            self.assertEqual(may_read("a"), "done")
            self.assertEqual(facts(self.point / "a"), facts(self.source / "a"))
            os.removexattr(self.point / "a", ACCESS)
            self.assertEqual(may_read("a"), "EACCES")
            self.assertEqual(
                code_of(lambda: os.setxattr(self.point / "a", "system.penstock", b"x")), "ENOTSUP")

    def test_what_is_made_below_a_default_list_has_it_as_in_the_source(self):
        for i, entry in enumerate([(7, 5, 0, {2000: 7}, {}, 7), (6, 4, 4, {}, {300: 6}, 4),
                                   (7, 7, 7, {}, {}, None),
                                   (7, 0, 0, {2000: 5, 2001: 7}, {300: 0}, 5)]):
            for name in (f"on mount{i}", f"on source{i}"):
                (self.source / name).mkdir()
                os.chmod(self.source / name, 0o2777 if i == 3 else 0o777)
                os.setxattr(self.source / name, DEFAULT, packed(*entry))
        (self.source / "plain mount").mkdir()
        (self.source / "plain source").mkdir()
        with mounted.Mount(self.source, self.point):
            for role in ("root", "owner"):
                for i in range(4):
                    here, there = as_user(
                        role, lambda: make_everything(self.point / f"on mount{i}")), as_user(
                            role, lambda: make_everything(self.source / f"on source{i}"))
                    self.assertEqual(here, there, f"{role}, list {i}")
                    self.clear(f"on mount{i}", f"on source{i}")
            self.assertEqual(as_user("root", lambda: make_everything(self.point / "plain mount")),
                             as_user("root", lambda: make_everything(self.source / "plain source")))

    def clear(self, *names):
        """Through the mount, which would believe for a second that the names are there."""
        for name in names:
            for at, folders, files in os.walk(self.point / name, topdown=False):
                for file in files:
                    os.unlink(os.path.join(at, file))
                for folder in folders:
                    path = os.path.join(at, folder)
                    os.unlink(path) if os.path.islink(path) else os.rmdir(path)

    def test_users_of_a_file_system_without_lists_have_what_the_mode_says(self):
        if (subprocess.run(["mount", "-t", "ramfs", "ramfs", self.source],
                           stderr=subprocess.DEVNULL, check=False).returncode != 0):
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.source], check=False)
        os.chmod(self.source, 0o777)
        for mode in (0o600, 0o640, 0o660, 0o644, 0o666, 0o606):
            name = self.source / f"{mode:o}"
            name.write_text("x")
            os.chown(name, FILE_OWNER, FILE_GROUP)
            os.chmod(name, mode)
        self.assertEqual(attribute(self.source / "600", ACCESS), "ENOTSUP")

        def use(root):
            os.close(os.open(root / "made", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o664))
            out = [facts(root / "made")[:3], code_of(lambda: os.unlink(root / "made"))]
            return out + [
                code_of(lambda at=root / name, flags=flags: os.close(os.open(at, flags)))
                for name in sorted(os.listdir(root)) for flags in (os.O_RDONLY, os.O_WRONLY)
            ]

        with mounted.Mount(self.source, self.point):
            for role in USERS:
                self.assertEqual(as_user(role, lambda: use(self.point)),
                                 as_user(role, lambda: use(self.source)), role)

    def test_the_set_group_bit_falls_as_in_the_source(self):
        roles = ("owner", "in the file's group", "in the file's group by the way")
        for i, role in enumerate(roles):
            for name in (f"mount{i}", f"source{i}"):
                (self.source / name).write_text("x")
                os.chown(self.source / name, USERS[role][0], FILE_GROUP)
                os.chmod(self.source / name, 0o2755)
        with mounted.Mount(self.source, self.point):
            for i, role in enumerate(
                ("owner", "in the file's group", "in the file's group by the way")):
                for root, name in ((self.point, f"mount{i}"), (self.source, f"source{i}")):
                    as_user(
                        role,
                        lambda: os.setxattr(root / name, ACCESS, packed(7, 5, 5, {2000: 4}, {}, 5)))
                self.assertEqual(facts(self.source / f"mount{i}"),
                                 facts(self.source / f"source{i}"), role)


def need_lists():
    if os.geteuid() != 0:
        mounted.skip("only root can be several users")
    source, _, _ = mounted.folders()
    try:
        os.setxattr(source, ACCESS, packed(7, 5, 5, {2000: 7}, {}, 7))
    except OSError as e:
        mounted.skip(f"the file system of {source} has no access control lists: {e}")


if __name__ == "__main__":
    mounted.need_fuse()
    need_lists()
    unittest.main(verbosity=1)
