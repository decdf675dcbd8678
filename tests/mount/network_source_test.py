#!/usr/bin/env python3
"""A mount whose source other machines change: network_source_test.py PROGRAM SERVER.

SERVER is shared_server, by which the source is that of a server; its kernel keeps attributes for a
second. A write below it is another machine's. What that machine closed is there at each open.
"""

import contextlib
import mmap
import os
import subprocess
import sys
import unittest

import mounted

SERVER = sys.argv.pop(1)
ROUNDS = 40
KEPT_MS = 1000


def read(path, most=1 << 16):
    with open(path, "rb", buffering=0) as file:
        return file.read(most)


def write(path, data):
    """Closed when it returns. The file stays the same inode."""
    with open(path, "r+b" if path.exists() else "wb", buffering=0) as file:
        file.write(data)
        file.truncate(len(data))


class NetworkSource(unittest.TestCase):
    FLAGS = ()

    def setUp(self):
        # The server's files, what this machine sees of them, and the mount of that.
        self.files, self.source, self.point = mounted.folders()
        server = subprocess.Popen([SERVER, self.files, self.source, "0", str(KEPT_MS)])
        self.addCleanup(server.wait)
        self.addCleanup(subprocess.run, ["umount", "-l", self.source], check=False)
        come = mounted.wait_until(
            lambda: mounted.is_mounted(self.source) or server.poll() is not None
        )
        self.assertTrue(come and server.poll() is None, "the server's mount did not come")
        write(self.files / "f", bytes(8192))
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(mounted.Mount(self.source, self.point, *self.FLAGS))

    def rounds(self, length, look):
        """A few reads, a change by another machine, and what `look` finds at the next open."""
        wrong = 0
        for i in range(1, ROUNDS + 1):
            read(self.point / "f"), read(self.point / "f")
            data = bytes([i]) * length(i)
            write(self.files / "f", data)
            wrong += look(data) != data
        self.assertEqual(wrong, 0, f"of {ROUNDS} opens")

    def test_bytes_that_changed(self):
        self.rounds(lambda i: 8192, lambda data: read(self.point / "f"))

    def test_lengths_that_changed(self):
        self.rounds(lambda i: 7000 + 997 * (i % 5), lambda data: read(self.point / "f"))

    def test_mappings(self):
        def look(data):
            fd = os.open(self.point / "f", os.O_RDONLY)
            try:
                with mmap.mmap(fd, len(data), prot=mmap.PROT_READ) as memory:
                    return bytes(memory)
            finally:
                os.close(fd)

        self.rounds(lambda i: 8192, look)

    def test_sizes_that_are_told_after_an_open(self):
        def look(data):
            fd = os.open(self.point / "f", os.O_RDONLY)
            try:
                return data if os.fstat(fd).st_size == len(data) else None
            finally:
                os.close(fd)

        self.rounds(lambda i: 7000 + 997 * (i % 5), look)

    def test_while_another_program_has_it_open(self):
        fd = os.open(self.point / "f", os.O_RDONLY)
        self.addCleanup(os.close, fd)
        self.rounds(lambda i: 7000 + 997 * (i % 5), lambda data: read(self.point / "f"))


class BufferedNetworkSource(NetworkSource):
    FLAGS = mounted.buffer_flags("gram", "1M", "1M")


if __name__ == "__main__":
    mounted.need_fuse()
    if os.geteuid() != 0:
        mounted.skip("only root can mount and unmount here")
    unittest.main()
