"""What the tests of the program penstock share."""
import os
import pathlib
import pwd
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "apps"))
from program_support import (  # noqa: F401, E402
    COMPILER, backend_flags, clean_environment, preloaded, with_failing_close)

PROGRAM = os.path.abspath(sys.argv.pop(1))
FLAGS = backend_flags()
# Small, so that the tests also cover what does not fit.
SMALL = ["--cache", "8MiB", "--page", "64KiB"]


def at_most(size_bytes):
    """For a program whose files may not grow further."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


def penstock(*arguments, program=None, environment=None, **more):
    """Runs the program to its end; standard output and error are caught as bytes unless given in
    `more`."""
    more.setdefault("stdout", subprocess.PIPE)
    more.setdefault("stderr", subprocess.PIPE)
    return subprocess.run([program or PROGRAM, *map(str, arguments)],
                          env=environment or clean_environment(), check=False,
                          stdin=subprocess.DEVNULL, timeout=1000, **more)


def pattern_parts(size, seed=1):
    """Bytes that repeat only after a long time, so that a page in the wrong place is noticed."""
    block, state = bytearray(), seed
    for _ in range(min(size, 1 << 20) // 8 + 1):
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        block += state.to_bytes(8, "little")
    block, number, left = bytes(block), 0, size
    while left > 0:
        for part in (number.to_bytes(8, "little"), block):
            yield part[:left]
            left -= min(len(part), left)
        number += 1


def pattern(size, seed=1):
    return b"".join(pattern_parts(size, seed))


def same_bytes(one, other, size=None):
    """Compares two files, or their first `size` bytes, by pieces: large ones need no memory."""
    left = max(one.stat().st_size, other.stat().st_size) if size is None else size
    with open(one, "rb") as first, open(other, "rb") as second:
        while left > 0:
            piece = min(left, 65536)
            if first.read(piece) != second.read(piece):
                return False
            left -= piece
    return True


def another_user(place):
    """What penstock() takes, so that root runs a copy of the program as another user. The copy lies
    in the folder `place`, which that user must reach; the program itself may lie where only root
    does."""
    account = pwd.getpwnam("nobody")
    program = pathlib.Path(shutil.copy(PROGRAM, place))
    program.chmod(0o755)
    return {"program": program, "user": account.pw_uid, "group": account.pw_gid,
            "extra_groups": [], "cwd": place}


class InFolder(unittest.TestCase):
    """A test with a folder of its own, which goes away with it."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def make(self, name, content=b""):
        path = self.folder / name
        path.write_bytes(content)
        return path

    def make_pattern(self, name, size, seed=1):
        path = self.folder / name
        with open(path, "wb") as file:
            file.writelines(pattern_parts(size, seed))
        return path

    def assert_one_line(self, text, *parts):
        """Exactly one line on standard error, with all these parts in it."""
        lines = text.decode().splitlines()
        self.assertEqual(len(lines), 1, text)
        for part in parts:
            self.assertIn(part, lines[0])
