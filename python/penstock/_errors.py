"""Errors of the library as exceptions of Python."""
from __future__ import annotations

import errno
import os


class FormatError(OSError, ValueError):
    """A file that holds no rows as they are asked for: it is damaged, of another format, or of a
    kind that Penstock does not read (Fortran order, big-endian numbers, records). ``errno`` and
    ``filename`` tell which; it is an OSError and a ValueError."""


_FORMAT = {errno.EBADMSG, errno.EOPNOTSUPP, errno.ENODATA}
_FORK_CURE = (
    "; a child of fork() cannot use them: let the parent gather (num_workers=0), or start the "
    'workers with multiprocessing_context="spawn"'
)


def error_of(code: int, text: str, path: str = "") -> Exception:
    """The exception for an errno. Every one of them has ``errno`` and ``filename``.

    ERANGE gives IndexError, EINVAL and EBADF (closed) give ValueError, ENOMEM gives MemoryError;
    all others are of the OSError family, which chooses FileNotFoundError and its like by itself.
    """
    if code == errno.ECHILD:
        text += _FORK_CURE
    error: Exception
    if code == errno.ERANGE:
        error = IndexError(text)
    elif code in (errno.EINVAL, errno.EBADF):
        error = ValueError(text)
    elif code == errno.ENOMEM:
        error = MemoryError(text)
    elif code in _FORMAT:
        return FormatError(code, text, path or None)
    else:
        # OSError appends the file name to its text; most texts begin with it already.
        shown = text.removeprefix(f"'{path}': ").removeprefix(f"{path}: ") if path else text
        return OSError(code, shown, path or None)
    vars(error).update(errno=code, filename=path or None)
    return error


def path_text(path: str | os.PathLike[str]) -> str:
    """The path as text. ValueError: it has a zero byte, which no file name has, or is no UTF-8."""
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if "\0" in text:
        raise ValueError(f"{text!r}: a file name has no zero byte")
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError(f"{text!r}: the name is no UTF-8; name it by a link that is")
    return text
