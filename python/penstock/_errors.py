"""Errors of the library as exceptions of Python."""
from __future__ import annotations

import errno
import logging
import os
from typing import Protocol, Union

# What names a file: text, or bytes where its name is no text.
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class FormatError(OSError, ValueError):
    """A file that holds no rows as they are asked for: it is damaged, of another format, or of a
    kind that Penstock does not read (Fortran order, big-endian numbers, records). ``errno`` and
    ``filename`` tell which; it is an OSError and a ValueError."""


_FORMAT = {errno.EBADMSG, errno.EOPNOTSUPP, errno.ENODATA}
_FORK_CURE = (
    "; a child of fork() cannot use them: let the parent gather (num_workers=0), or open arrays "
    "and runtime anew in the child"
)


def error_of(code: int, text: str, path: str = "") -> Exception:
    """The exception for an errno. Every one of them has ``errno``, and ``filename``: None, where
    the error is of no single file, or of a row.

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
        name = shown_path(path)
        rest = text.removeprefix(f"'{name}': ").removeprefix(f"{name}: ") if path else text
        return OSError(code, rest, path or None)
    vars(error).update(errno=code, filename=path or None)
    return error


class _Closing(Protocol):
    def close(self) -> None: ...


def close_after(opened: _Closing, error: BaseException | None) -> None:
    """The end of a ``with`` block. An exception that is under way is not hidden by one of
    ``close``, which goes to the logger ``penstock`` then."""
    try:
        opened.close()
    except Exception as other:
        if error is None or isinstance(error, GeneratorExit):  # which nothing ever sees
            raise
        logging.getLogger("penstock").warning("closing %r after an exception: %s", opened, other)


def path_text(path: Path) -> str:
    """The path as text, in which bytes that are no letters stand as os.fsdecode() has them.
    ValueError: it has a zero byte, which no file name has, or text that stands for no bytes."""
    text = os.fsdecode(path)
    if "\0" in text:
        raise ValueError(f"{text!r}: a file name has no zero byte")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        raise ValueError(f"{text!r}: {error.reason}, so it names no file; give the bytes of the "
                         "name, or os.fsdecode() of them") from None
    return text


def shown_path(text: str) -> str:
    """The path for people, as the library's texts and log have it: \\xff for a byte that is no
    letter, so that it can be printed."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
