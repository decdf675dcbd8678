#!/usr/bin/env python3
"""What is judged by the rights of its caller is judged so through a mount: callers_test.py PROGRAM.

Needs root. The set-group bit of files.
"""

import os
import stat
import unittest

import mounted
from lists_test import FILE_GROUP, FILE_OWNER, USERS, as_user, code_of

def mode_of(path):
    return oct(stat.S_IMODE(path.stat().st_mode))


class Callers(unittest.TestCase):
    def setUp(self):
        self.source, self.point, self.plain = mounted.folders()
        os.chmod(self.source, 0o777)
        os.chmod(self.plain, 0o777)
        os.umask(0)

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
