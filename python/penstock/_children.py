"""Programs that an actor runs and starts again, and looks at sockets that they serve."""
from __future__ import annotations

import ctypes
import os
import signal
import socket as sockets
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

_SHORTEST_REST, _LONGEST_REST = 0.1, 5.0
_LONG_RUN = 10.0  # a program that ran for so long is started again at once
_LOOK_SECONDS = 0.1
_DEATH_OF_PARENT = 1  # PR_SET_PDEATHSIG

_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent(parent: int) -> None:
    _libc.prctl(_DEATH_OF_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the call
        os._exit(1)


def answers(path: str) -> bool:
    """Whether a process of this user, or of root, accepts connections at this Unix socket, one of
    messages."""
    try:
        with sockets.socket(sockets.AF_UNIX, sockets.SOCK_SEQPACKET) as probe:
            probe.settimeout(1)
            probe.connect(path)
            credentials = probe.getsockopt(sockets.SOL_SOCKET, sockets.SO_PEERCRED, 12)
            _, user, _ = struct.unpack("iII", credentials)
            return user in (os.geteuid(), 0)
    except BlockingIOError:  # more connections wait there than it takes
        return True
    except OSError:
        return False


class Kept:
    """A program that is started again whenever it ends, after a rest that grows up to 5 s while it
    ends early. It dies with this process. While `is_done_elsewhere()` it is not started."""

    def __init__(self, command: Sequence[str],
                 is_done_elsewhere: Callable[[], bool] = lambda: False) -> None:
        self._command = list(command)
        self._is_done_elsewhere = is_done_elsewhere
        self._starts, self._ends, self._status, self._number = 0, 0, 0, 0
        # The kernel kills the program when the thread that started it ends: this one never does.
        threading.Thread(target=self._run, name="penstock child", daemon=True).start()

    def state(self) -> dict[str, int]:
        """`process` is 0 while it does not run; `status` is that of the last end."""
        return {"starts": self._starts, "ends": self._ends, "status": self._status,
                "process": self._number}

    def _run(self) -> None:
        rest = _SHORTEST_REST
        while True:
            if self._is_done_elsewhere():
                time.sleep(_LOOK_SECONDS)
                continue
            began = time.monotonic()
            try:
                child = subprocess.Popen(self._command, stdin=subprocess.DEVNULL,
                                         preexec_fn=partial(_die_with_parent, os.getpid()))
                self._starts += 1
                self._number = child.pid
                self._status = child.wait()
            except (OSError, subprocess.SubprocessError) as error:  # no process just now
                self._status = -(getattr(error, "errno", None) or 1)
            self._ends, self._number = self._ends + 1, 0
            if time.monotonic() - began > _LONG_RUN:
                rest = _SHORTEST_REST
            time.sleep(rest)
            rest = min(2 * rest, _LONGEST_REST)
