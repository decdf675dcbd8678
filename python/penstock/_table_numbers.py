"""Numbers by which programs that another library has traced, compiled or saved know an array.

Such a program has the number as a constant and may outlive the process. So a number must not stand
for another table elsewhere: it is made of the identity of the files (device, inode, size, time of
the last change), of the layout and of the mode. Files that were replaced or changed in between, or
lie on another machine, have other numbers, and the program says that its table is gone. The same
files, opened alike, have the same numbers in every process: a saved program works again, ranks
compile equal programs, and torch finds what it compiled before in its cache.

Arrays of one process that are alike (of two runtimes, or opened again) are counted and never have
equal numbers. So the second of them is the second in another process too; rows of both are equal.
"""
from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from typing import Any

from . import _core

_BITS = 62  # so that sums and signs stay within the int64 of torch's operators

arrays: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_alike: dict[int, itertools.count[int]] = {}  # by the first number; two threads may use it


# Which file a name stands for, and its last change.
_Facts = tuple[int, int, int, int]


def enter(array: object, layout: _core.Layout, mode: str,
          files: dict[str, _Facts] | None) -> int:
    """The number of a new array, which ``arrays`` has from now on, as long as the array lives.
    ``files``: as ``files_of`` gave them before the array opened its files. If they are others by
    now, the array may have either, and gets a number that no other array has."""
    if files is None or files != files_of(layout):
        first = _number_of([os.urandom(16)])
    else:
        facts: list[object] = [mode, layout.dtype, layout.row_shape, layout.row_bytes,
                               layout.stride_bytes]
        for path, first_byte, rows in layout.pieces:
            facts += [files[path], first_byte, rows]
        first = _number_of(facts)
    count = _alike.setdefault(first, itertools.count())
    number = (first + next(count)) % (1 << _BITS)
    arrays[number] = array
    return number


def files_of(layout: _core.Layout) -> dict[str, _Facts] | None:
    """The files that the names of the layout stand for. None: a name is gone."""
    files: dict[str, _Facts] = {}
    try:
        for path, _, _ in layout.pieces:
            if path not in files:
                found = os.stat(path)
                files[path] = (found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns)
    except OSError:
        return None
    return files


def _number_of(facts: list[object]) -> int:
    digest = hashlib.blake2b(repr(facts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> (64 - _BITS)
