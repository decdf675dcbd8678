"""What programs ask the agent of their node for, but for the blocks that a runtime takes: where it
is, and ``warm``. penstock.agent gives both to users."""
from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from ._errors import Path, path_text


def default_socket() -> str:
    """Where the agent of this user is, unless it was given another place: ``PENSTOCK_STORE``, or
    ``agent`` in the directory of Penstock below ``XDG_RUNTIME_DIR``."""
    named = os.environ.get("PENSTOCK_STORE")
    if named:
        return named
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = f"{runtime}/penstock" if runtime.startswith("/") else f"/tmp/penstock-{os.geteuid()}"
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


def warm(path: Path, part: int = 0, of: int = 1, *,
         blocks: Iterable[int] | None = None,
         socket: Path | None = None, wait_ms: int = 10000,
         namespace: str | None = None) -> dict[str, int]:
    """Brings blocks ``part``, ``part + of``, ... of a file into the store; those that it has are
    not read from the file. With ``blocks`` these instead. A block is 2 MiB.

    Returns how many ``blocks`` it looked at, and of these how many the store ``had``, how many were
    ``put``, and for how many it was ``full``. A file of a network file system has to rest for 4 s
    first, unless the agent has known it for so long (``penstock-agent --watch``).
    ``PENSTOCK_TRUST_TIMES`` counts, as for a runtime. OSError: the file, or the agent, or
    (EOPNOTSUPP) times of its file system are not trusted; BlockingIOError: the file has changed so
    lately that its version cannot be told.
    """
    from . import _core

    if of < 1 or not 0 <= part < of:
        raise ValueError(f"part={part} of={of}: give a part from 0 to {of - 1}"
                         if of > 0 else f"of={of}: give at least 1")
    text, agent = path_text(path), path_text(socket or default_socket())
    count = -(-os.stat(text).st_size // _core.block_bytes)
    space = os.environ.get("PENSTOCK_STORE_NAMESPACE", "") if namespace is None else namespace
    counts = {"blocks": 0, "had": 0, "put": 0, "full": 0}
    for first, step, many in _batches(range(part, count, of) if blocks is None
                                      else sorted(set(blocks))):
        done = _core.warm_blocks(text, agent, space, first, step, many, wait_ms)
        for name, more in zip(("had", "put", "full"), done):
            counts[name] += more
            counts["blocks"] += more
    return counts
