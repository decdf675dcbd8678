"""The path of an agent's socket, which one process serves at a time.

The process that holds the lock of a file beside the socket has the place, also while it starts and
nothing answers yet. The kernel releases the lock however the process ends, so the next agent knows
whether a socket that nothing answers at is a stale one."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import signal
import socket
import stat
import time

from ._children import answers
from ._errors import Path, path_text, shown_path

SIGNALS = {signal.SIGINT, signal.SIGTERM}  # by which an agent ends

START_SECONDS = 60.0  # for so long the program waits for an agent that starts or ends
_LOOK_SECONDS = 0.05
MOST_SOCKET_BYTES = 107  # of the name of a Unix socket


def pause(seconds: float) -> None:
    """Where the signals are blocked. InterruptedError: one of them came."""
    if signal.sigtimedwait(SIGNALS, seconds) is not None:
        raise InterruptedError(errno.EINTR, "a signal ended it before it was ready")


def check_folder(path: str) -> None:
    """Makes the socket's folder if it is not there. OSError: other users may put a socket there, as
    they may into a sticky folder before the agent comes."""
    folder = pathlib.Path(path).parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.stat()
    if facts.st_uid != os.geteuid() or facts.st_mode & 0o022:
        raise OSError(errno.EPERM, f"others may put a socket into '{shown_path(str(folder))}'; "
                      "give --socket a path in a directory of your own that no other user may "
                      "write")


class Place:
    """The place of an agent, from before its store is set up until it leaves. Waits up to
    ``wait_seconds`` for another agent that starts or ends; that takes the signals, which the caller
    has blocked.

    OSError: EADDRINUSE, another agent has it; EEXIST, something else lies there; ENAMETOOLONG."""

    def __init__(self, path: Path, wait_seconds: float = 0) -> None:
        self.path = path_text(path)
        if len(os.fsencode(self.path)) > MOST_SOCKET_BYTES:
            raise OSError(errno.ENAMETOOLONG, f"'{shown_path(self.path)}' is no path of a socket; "
                          f"give --socket one of up to {MOST_SOCKET_BYTES} bytes")
        self._lock_path = f"{self.path}.lock"
        self._bound: tuple[int, int] | None = None
        self._lock: int | None = self._take_lock(wait_seconds)
        try:
            self._remove_stale()
        except BaseException:
            self.leave()
            raise

    def _take_lock(self, wait_seconds: float) -> int:
        until = time.monotonic() + wait_seconds
        while True:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
                           0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if answers(self.path) or time.monotonic() >= until:
                    os.close(lock)
                    raise OSError(errno.EADDRINUSE, "an agent serves at "
                                  f"'{shown_path(self.path)}' already, or is about to; end it, or "
                                  "give --socket another path") from None
                os.close(lock)
                pause(_LOOK_SECONDS)
                continue
            except OSError as error:
                os.close(lock)
                raise OSError(error.errno, f"'{shown_path(self._lock_path)}' cannot be locked "
                              f"({error.strerror}); give --socket a path on a local file system"
                              ) from None
            try:
                if self._is_there(lock):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)

    def _is_there(self, lock: int) -> bool:
        """Whether the locked file is the one of that name: an agent that leaves takes it away."""
        try:
            there = os.lstat(self._lock_path)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(lock))

    def _remove_stale(self) -> None:
        """An agent that was killed leaves its socket."""
        try:
            facts = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(facts.st_mode):
            raise OSError(errno.EEXIST, f"'{shown_path(self.path)}' is there and no socket; remove "
                          "it, or give --socket another path")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            probe.settimeout(5)
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except BlockingIOError:  # it has more connections to accept than it can
                pass
        raise OSError(errno.EADDRINUSE, f"something serves at '{shown_path(self.path)}' already; "
                      "end it, or give --socket another path")

    def listen(self) -> socket.socket:
        """The socket, for this user alone."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            before = os.umask(0o177)
            try:
                listener.bind(self.path)
            finally:
                os.umask(before)
            facts = os.lstat(self.path)
            self._bound = facts.st_dev, facts.st_ino
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
        return listener

    def leave(self) -> None:
        """Takes the socket away if it is still this agent's, then the lock. A second call does
        nothing."""
        lock, self._lock = self._lock, None
        if lock is None:
            return
        try:
            with contextlib.suppress(OSError):
                facts = os.lstat(self.path)
                if (facts.st_dev, facts.st_ino) == self._bound:
                    os.unlink(self.path)
            with contextlib.suppress(OSError):
                if self._is_there(lock):
                    os.unlink(self._lock_path)
        finally:
            os.close(lock)
