"""What programs ask the agent of their node for, but for the blocks that a runtime takes: where it
is, and ``warm``. penstock.agent gives both to users."""
from __future__ import annotations

import errno
import operator
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence

from ._agent_place import MOST_SOCKET_BYTES
from ._children import answers
from ._errors import Path, error_of, path_text, shown_path

_AGAIN_SECONDS = 0.5  # until `warm` asks a store again that failed
# An agent is there, and the store behind it fails; or the agent ended before it answered.
_STORE_FAILS = {-errno.EIO, -errno.ETIMEDOUT, -errno.ECONNRESET, -errno.EPIPE}
# No agent is there, which passes if there was one at the begin.
_NO_AGENT = {-errno.ENOTCONN, -errno.ECONNREFUSED}


def _is_of_another(folder: str) -> bool:
    """As a runtime finds out, so that both take one place."""
    try:
        return os.stat(folder).st_uid != os.geteuid()
    except OSError:
        return False


def default_socket() -> str:
    """Where the agent of this user is, unless it was given another place: ``PENSTOCK_STORE``, or
    ``agent`` in the directory of Penstock below ``XDG_RUNTIME_DIR``, if that is the user's own."""
    named = os.environ.get("PENSTOCK_STORE")
    if named:
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = runtime.startswith("/") and not _is_of_another(runtime)
    folder = f"{runtime}/penstock" if usable else f"/tmp/penstock-{os.geteuid()}"
    return f"{folder}/agent"


def _batches(blocks: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """The numbers as rows of up to 16: the first, the step, how many. A signal is heeded in
    between."""
    at = 0
    while at < len(blocks):
        step = blocks[at + 1] - blocks[at] if at + 1 < len(blocks) else 1
        many = 1
        while (many < 16 and at + many < len(blocks)
               and blocks[at + many] == blocks[at] + many * step):
            many += 1
        yield blocks[at], step, many
        at += many


def _numbers(blocks: Iterable[int], count: int) -> list[int]:
    """In order, each once; those behind the end of the file are left out."""
    numbers = sorted({operator.index(block) for block in blocks})
    if numbers and numbers[0] < 0:
        raise ValueError(f"blocks: {numbers[0]} is no block; the first is 0")
    return [number for number in numbers if number < count]


def _socket_of(socket: Path | None) -> str:
    """As a runtime takes it. ValueError: no agent can be there."""
    agent = path_text(socket or default_socket())
    if os.path.isabs(agent) and len(os.fsencode(agent)) <= MOST_SOCKET_BYTES:
        return agent
    raise ValueError(f"socket: '{shown_path(agent)}' is no path of a socket; give an absolute path "
                     f"of up to {MOST_SOCKET_BYTES} bytes, as penstock-agent prints it")


def _size_of(path: str) -> int:
    """Of a regular file; others have none that says what is in them."""
    facts = os.stat(path)
    if stat.S_ISREG(facts.st_mode):
        return facts.st_size
    raise error_of(errno.EINVAL, f"'{shown_path(path)}' is no file with a size; name a regular "
                   "file", path)


class _Patience:
    """How often `warm` asks a store again that fails."""

    def __init__(self, seconds: float, agent: str) -> None:
        self._seconds, self._agent = seconds, agent
        self._was_there = answers(agent)
        self._until = time.monotonic() + seconds

    def renew(self) -> None:
        """A block came through."""
        self._until = time.monotonic() + self._seconds

    def wait(self, code: int) -> None:
        """The store failed with this code. OSError: it is not asked again."""
        passes = _STORE_FAILS | (_NO_AGENT if self._was_there else set())
        if code not in passes or time.monotonic() >= self._until:
            raise OSError(-code, f"the store failed: {os.strerror(-code)}; look after "
                          "penstock-agent", self._agent)
        time.sleep(_AGAIN_SECONDS)


def warm(path: Path, part: int = 0, of: int = 1, *,
         blocks: Iterable[int] | None = None,
         socket: Path | None = None, wait_ms: int = 10000,
         namespace: str | None = None, retry_seconds: float = 30) -> dict[str, int]:
    """Brings blocks ``part``, ``part + of``, ... of a file into the store; those that it has are
    not read from the file. With ``blocks`` these instead. A block is 2 MiB.

    Returns how many ``blocks`` it looked at, and of these how many the store ``had``, how many were
    ``put``, and for how many it was ``full``. A file of a network file system has to rest for 4 s
    first, unless the agent has known it for so long (``penstock-agent --watch``).
    ``PENSTOCK_TRUST_TIMES`` counts, as for a runtime.

    A store that fails, or whose agent was there at the begin and is gone, is asked again until no
    block came through for ``retry_seconds``: Mooncake refuses blocks for 10 s after it lost a node,
    and an agent that was killed may be started again. The store is waited for ``wait_ms`` a block.

    ValueError: no such part, block, time or namespace; no path of a socket, which is absolute and
    has up to 107 bytes; no regular file. OSError: the file; or no agent is there, or
    the store went on failing; or (EOPNOTSUPP) times of the file system are not trusted.
    BlockingIOError: the file has changed so lately that its version cannot be told. What is in the
    store stays there.
    """
    from . import _core

    if of < 1 or not 0 <= part < of:
        raise ValueError(f"part={part} of={of}: give a part from 0 to {of - 1}"
                         if of > 0 else f"of={of}: give at least 1")
    wait_ms = operator.index(wait_ms)
    if not 0 < wait_ms < 1 << 32:
        raise ValueError(f"wait_ms: {wait_ms} is no time to wait; give ms from 1 to {2**32 - 1}")
    text, agent = path_text(path), _socket_of(socket)
    count = -(-_size_of(text) // _core.block_bytes)
    space = os.environ.get("PENSTOCK_STORE_NAMESPACE", "") if namespace is None else namespace
    if "\0" in space:
        raise ValueError(f"namespace: {space!r} has a zero byte; give text without one")
    counts = {"blocks": 0, "had": 0, "put": 0, "full": 0}
    patience = _Patience(retry_seconds, agent)
    for first, step, many in _batches(range(part, count, of) if blocks is None
                                      else _numbers(blocks, count)):
        while many > 0:
            *done, code = _core.warm_blocks(text, agent, space, first, step, many, wait_ms)
            for name, more in zip(("had", "put", "full"), done):
                counts[name] += more
                counts["blocks"] += more
            if code == 0:
                patience.renew()
                break
            if sum(done) > 0:
                patience.renew()
            first, many = first + sum(done) * step, many - sum(done)
            patience.wait(code)
    return counts
