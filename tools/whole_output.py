"""An output file that appears whole or not at all, for scripts that make files."""
import contextlib
import errno
import io
import os
import select
import signal
import stat
import tempfile
import time
import typing

PIPE_SECONDS = 2.0  # in which the reader of a pipe must be there
ACCESS_LIST = "system.posix_acl_access"  # further users and groups of a file


def own_descriptor(path: str) -> int | None:
    """The one that a path names: 1 for /dev/stdout. Its link to a file is not followed."""
    own = {os.path.realpath(f"/proc/{of}/fd") for of in ("self", "thread-self")}
    for _ in range(40):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder or ".")
        if folder in own:
            return int(name) if name.isdecimal() else None
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None


def is_standard_output(path: str) -> bool:
    try:
        there, standard = os.stat(path), os.fstat(1)
    except OSError:
        return False
    takes_all = stat.S_ISCHR(there.st_mode) and there.st_rdev == os.makedev(1, 3)  # /dev/null
    return os.path.samestat(there, standard) and not takes_all


def open_special(path: str) -> int:
    """A device or a pipe. To open a pipe that no program reads would wait for ever."""
    until = time.monotonic() + PIPE_SECONDS
    while True:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > until:
                raise
            time.sleep(0.01)
            continue
        os.set_blocking(fd, True)
        return fd


def is_given(fd: int, user: int, group: int) -> bool:
    """In a user namespace an owner that it does not have is EINVAL, and else EPERM."""
    try:
        os.fchown(fd, user, group)
    except OSError:
        return False
    return True


def takes_access_list(fd: int, old: str) -> bool:
    """A new file without one may have got one from its folder. False if the two files do not let
    the same users in now."""
    users = b""
    with contextlib.suppress(OSError):  # there is none
        users = os.getxattr(old, ACCESS_LIST)
    try:
        if users:
            os.setxattr(fd, ACCESS_LIST, users)
        else:
            os.removexattr(fd, ACCESS_LIST)
    except OSError as error:
        return not users and error.errno in (errno.ENODATA, errno.EOPNOTSUPP)
    return True


class Patient(io.FileIO):
    """Writes of a descriptor whose writes do not wait, as a socket of another program may be, wait
    here."""

    def write(self, data: typing.Any) -> int:
        while (written := super().write(data)) is None:
            select.select([], [self], [])
        return written


class Output:
    """A file while it is written: as a context, whose end takes away what was not committed.

    A regular file appears whole or not at all, where links of its name lead, with the rights of the
    one that it replaces. A device, a pipe and a descriptor that the program was given are written
    to as they are. An error of the system names the path that was given."""

    def __init__(self, path: str) -> None:
        self.path, self.target, self.part = path, path, ""
        self.replaced: os.stat_result | None = None
        self.text = io.TextIOWrapper(io.BytesIO())  # until begin()

    def begin(self) -> typing.TextIO:
        """Within the context, so that a signal in between leaves nothing."""
        try:
            fd = self.open()
        except OSError as error:
            raise self.named(error) from None
        self.text = io.TextIOWrapper(io.BufferedWriter(Patient(fd, "w"), 1 << 16), encoding="utf-8",
                                     errors="surrogateescape", newline="\n")
        return self.text

    def open(self) -> int:
        there = None
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(self.path)
        if there is not None:
            # Before it is opened by its name: a socket cannot be, and what another user gave may
            # not be. A pipe whose writes do not wait is opened anew, so that they do.
            kind, own = there.st_mode, own_descriptor(self.path)
            if own is not None and (stat.S_ISREG(kind) or stat.S_ISSOCK(kind)
                                    or os.get_blocking(own)):
                return os.dup(own)
            if not stat.S_ISREG(kind):
                return open_special(self.path)
        self.target, self.replaced = os.path.realpath(self.path), there
        if there is not None and not os.access(self.target, os.W_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:  # no signal comes between the file and the note of it
            fd, self.part = tempfile.mkstemp(prefix=".penstock-trace-",
                                             dir=os.path.dirname(self.target))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return fd

    def named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, self.path)

    def take_rights(self, fd: int) -> None:
        """As far as the process may. What it may not give away costs rights: no user gains access.
        Where the group is lost, its members are among the others, and members of the new group
        were: both get what both had."""
        if self.replaced is None:
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(fd, 0o666 & ~mask)
            return
        old, made = self.replaced, os.fstat(fd)
        has_group = ((made.st_uid, made.st_gid) == (old.st_uid, old.st_gid)
                     or is_given(fd, old.st_uid, old.st_gid) or is_given(fd, -1, old.st_gid))
        mode = old.st_mode & 0o777
        both = mode & mode >> 3 & 0o7
        if not has_group:
            mode = mode & 0o700 | both << 3 | both
        if not takes_access_list(fd, self.target):
            mode &= 0o700
        os.fchmod(fd, mode)

    def commit(self) -> None:
        try:
            self.text.flush()
            if self.part:
                self.take_rights(self.text.fileno())
            self.text.close()  # file systems of networks may say only here that there is no room
            if self.part:
                os.replace(self.part, self.target)
                self.part = ""
        except OSError as error:
            raise self.named(error) from None

    def __enter__(self) -> "Output":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # what it says is no news
            self.text.close()
        with contextlib.suppress(FileNotFoundError):  # it has its place, or there is none
            os.unlink(self.part)
