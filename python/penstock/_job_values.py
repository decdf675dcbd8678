"""Values with which a job of many nodes is started, checked before anything of it starts: a keeper
or an agent that refuses one does so on its node, where its caller does not see it."""
from __future__ import annotations

import argparse
import operator
import os
import re
import stat
from collections.abc import Iterable, Sequence
from typing import SupportsFloat, SupportsIndex

from . import _core, agent
from ._array import has_header
from ._errors import Path, path_text
from ._runtime import Size, _size_text, _text_of

DEFAULT_PAGE = 64 << 10  # as of a Runtime of which nothing is said
_LEAST_PAGE, _MOST_PAGE = 512, 2 << 20
_LONGEST_WAIT = 60_000  # of PENSTOCK_STORE_WAIT_MS
_LONGEST_SOCKET = 107  # bytes of a Unix socket's name
_SHARE = re.compile("[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def list_of(paths: Path | Iterable[Path] | None) -> list[str]:
    """The names of none, one or many files."""
    if paths is None:
        return []
    given = [paths] if isinstance(paths, (str, bytes, os.PathLike)) else paths
    try:
        return [path_text(path) for path in given]
    except TypeError:
        raise ValueError(f"paths: {paths!r} names no files; give one, or several in a list"
                         ) from None


def files_of(paths: Path | Iterable[Path] | None) -> list[str]:
    """The names from the root on, of files that are there."""
    found = [os.path.abspath(name) for name in list_of(paths)]
    for name in found:
        if not stat.S_ISREG(os.stat(name).st_mode):
            raise ValueError(f"paths: {name!r} is no regular file; give the files themselves")
    return found


def memory_of(memory: object) -> int:
    """Bytes that a node gives to the store."""
    text = memory if isinstance(memory, str) else ""
    if isinstance(memory, SupportsIndex) and not isinstance(memory, bool):
        text = str(operator.index(memory))
    if not text:
        raise ValueError(f"memory: {memory!r} is no size; give for instance 4GiB")
    try:
        return agent.size_of(text)  # numbers too: the agents take no more
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"memory: {error}") from None


def _bytes_of(name: str, size: Size) -> int:
    return _core.parse_size(name, _size_text(name, size))


def cache_of(cache: Size | None) -> Size | None:
    """The cache of a keeper; None: as ``Runtime`` chooses."""
    if cache is None or cache == "auto":
        return None
    if _bytes_of("cache", cache) == 0:
        raise ValueError(f"cache: {cache!r} is no usable size; give one, such as 4GiB")
    return cache


def page_of(page: Size | None, files: Sequence[str]) -> int:
    """The pages of the keepers; None: those that suit the rows of the first file, where its header
    tells of them."""
    if page is None:
        try:
            if files and has_header(files[0]):
                return _core.describe(files[0], "").page_bytes
        except (OSError, ValueError):  # of several tensors, or of none
            pass
        return DEFAULT_PAGE
    size = _bytes_of("page", page)
    if not _LEAST_PAGE <= size <= _MOST_PAGE or size & (size - 1):
        raise ValueError(f"page: {page!r} is no size of a page; give a power of two from 512 to "
                         "2MiB")
    return size


def share_of(share: object, socket: str) -> str:
    """The name of the keepers, whose folder may lie where the agents' socket does."""
    if not isinstance(share, str) or not _SHARE.fullmatch(share):
        raise ValueError(f"share: {share!r} is no name; give up to 64 letters, digits, '.', '_' "
                         "and '-', the first no '.'")
    if share.removesuffix(".lock") in ("agent", os.path.basename(socket)):
        raise ValueError(f"share: {share!r} is the name of a socket of penstock-agent in the "
                         "same folder; give another name")
    return share


def wait_of(wait_ms: object) -> int | None:
    """For how many milliseconds a task waits for a block; None: as its environment says."""
    if wait_ms is None:
        return None
    text = "" if isinstance(wait_ms, bool) else _text_of("wait_ms", wait_ms)
    if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= _LONGEST_WAIT:
        raise ValueError(f"wait_ms: {wait_ms!r} is no time to wait; give a whole number from 1 to "
                         f"{_LONGEST_WAIT}")
    return int(text)


def trust_of(trust_times: object) -> str | None:
    """Whether times of files are proof; None: the environment does not say."""
    value = (os.environ.get("PENSTOCK_TRUST_TIMES") or None) if trust_times is None else trust_times
    if value is None:
        return None
    text = _text_of("trust_times", value)
    if text not in ("auto", "off", "on"):
        raise ValueError(f"trust_times: {text!r} does not say whether times are proof; give auto, "
                         "off or on")
    return text


def master_of(master: object) -> str | None:
    """Where the store's master is; None: one is to be started."""
    if master is None:
        return None
    try:
        return agent._master(master if isinstance(master, str) else repr(master))
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"master: {error}") from None


def socket_of(socket: Path | None) -> str:
    """The name of the agents' socket."""
    if socket is None:
        return f"/tmp/penstock-{os.getuid()}/ray-agent"
    name = path_text(socket)
    if not os.path.isabs(name):
        raise ValueError(f"socket: {name!r} is another file in each working directory; give an "
                         "absolute path")
    if len(os.fsencode(name)) > _LONGEST_SOCKET:
        raise ValueError(f"socket: {name!r} has more than {_LONGEST_SOCKET} bytes, which no socket "
                         "can; give a shorter path")
    return name


def words_of(options: Sequence[str]) -> list[str]:
    """More arguments of the agents."""
    if isinstance(options, (str, bytes)):
        raise ValueError(f"agent_options: {options!r} is one text; give a list of words")
    try:
        return [str(word) for word in options]
    except TypeError:
        raise ValueError(f"agent_options: {options!r} is no list; give a list of words") from None


def seconds_of(seconds: object) -> float:
    """For how long agents may take until they answer."""
    found = -1.0
    if isinstance(seconds, (SupportsFloat, SupportsIndex)) and not isinstance(seconds, bool):
        found = float(seconds)
    if not found >= 0:
        raise ValueError(f"seconds: {seconds!r} is no time to wait; give a number from 0 on")
    return found
