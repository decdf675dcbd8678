"""The runtime: a page cache on one device or several, and the threads that fill it."""
from __future__ import annotations

import atexit
import errno
import logging
import operator
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Protocol, SupportsIndex, Union

from . import _core
from ._cache_memory import Memory, memory_of
from ._errors import Path, close_after, error_of, path_text

Size = Union[int, str]
Log = Union[str, None, Callable[[str], object]]

_TO_STDERR, _TO_QUEUE, _NOWHERE = 0, 1, 2

# What Runtime() calls otherwise than options.hpp.
_OPTION_NAMES = {
    "cache": "cache_bytes",
    "page": "page_bytes",
    "host_tier": "tier_bytes",
    "windows": "window_bytes",
    "table": "table_bytes",
    "staging": "staging_bytes",
}


def _text_of(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, SupportsIndex):
        return str(operator.index(value))
    if isinstance(value, (str, bytes, os.PathLike)):
        try:
            return path_text(value)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    if isinstance(value, Sequence):
        return ",".join(str(item) for item in value)
    raise ValueError(f"{name}: {value!r} is no value of an option; give a number, text or a bool")


def _size_text(name: str, value: object) -> str:
    """Of an option that counts bytes."""
    if isinstance(value, (str, bytes)) or \
            (isinstance(value, SupportsIndex) and not isinstance(value, bool)):
        return _text_of(name, value)
    raise ValueError(f"{name}: {value!r} is no size; give a whole number of bytes, or text such as "
                     '"8GiB"')


def _device_settings(device: object) -> list[tuple[str, str, str]]:
    """The settings for "auto", "cpu", "gpu", "cuda:1", 1, a torch.device, or a list of numbers."""
    if isinstance(device, (list, tuple)):
        return [("devices", "device", ",".join(str(item) for item in device))]
    if isinstance(device, int) and not isinstance(device, bool):
        return [("where", "device", "gpu"), ("device", "device", str(device))]
    text = str(device)
    name, _, number = text.partition(":")
    if name in ("cuda", "gpu"):
        settings = [("where", "device", "gpu")]
        if number:
            settings.append(("device", "device", number))
        return settings
    return [("where", "device", "cpu" if text == "cpu:0" else text)]  # as torch names it


def _settings_for(memory: Memory, device: object) -> list[tuple[str, str, str]]:
    """Device and cache of frames in that memory. ValueError: the device is another."""
    has = "cpu" if memory.device < 0 else f"cuda:{memory.device}"
    settings = _device_settings(has if device in ("auto", "gpu", "cuda") and has != "cpu" else
                                "cpu" if device == "auto" else device)
    names = dict((name, text) for name, _, text in settings)
    if (names.get("where", "gpu") == "cpu") != (has == "cpu"):
        raise ValueError(f"cache_memory: it lies on {has}, and device is {device}; give memory of "
                         "the device, or leave device out")
    return [*settings, ("cache_bytes", "cache", str(memory.size))]


def _drain(queue: _core.LogQueue, write: Callable[[str], object]) -> None:
    """Runs on a thread of its own until the queue is closed and empty."""
    closed = False
    while not closed:
        closed = queue.closed
        for line in queue.take(60.0):
            try:
                write(line)
            except Exception:
                logging.getLogger("penstock").exception("the log function of a Runtime failed")


class _User(Protocol):
    """An array or a region that is open: each ends with its runtime."""

    @property
    def closed(self) -> bool: ...

    def close(self) -> None: ...

    def _check(self) -> None: ...


def _log_ends(errors: Sequence[Exception]) -> None:
    for error in errors:
        logging.getLogger("penstock").warning("closing the runtime: %s", error)


class Runtime:
    """A page cache on a GPU, or in host memory for CPU threads, and what fills it.

    Open arrays and regions in it; close it when they are no longer used, or use it in a ``with``
    statement. Several may live in one process, each with a cache of its own.

    device
        ``"auto"`` takes a GPU if one is usable, else CPU threads; ``backend`` tells which, and a
        log line why. ``"gpu"`` or ``"cuda:1"`` make it an error if there is none; ``"cpu"``
        takes CPU threads. A list of numbers gives one cache for each of these GPUs.
    cache
        Bytes of page frames on the device: ``"8GiB"`` or a number. None: a quarter of the free
        memory of a GPU, a sixteenth of the memory of the machine (at most 1 GiB) on CPU threads.
        Frameworks budget GPU memory themselves, so say how much, and make the Runtime first.
    page
        Bytes of a page, a power of two from 512 to 2 MiB. None: 64 KiB. For a table choose
        ``describe(path).page_bytes``; ``open_array`` without a runtime does so by itself.
    host_tier
        Bytes of host memory (pinned, on a GPU) for pages that the cache dropped. None: no tier.
    windows
        Most bytes of the operating system's page cache that GPUs read in place. None: half of the
        machine's memory.
    writable
        Whether arrays and regions may be opened with mode ``"r+"``. Costs an eighth of ``cache``.
        None: as ``PENSTOCK_WRITABLE`` says, else not.
    cache_memory
        Memory of yours in which the cache lies, part of a framework's budget: a tensor of torch, an
        array of cupy or numpy, or anything with DLPack, ``__cuda_array_interface__`` or a buffer;
        contiguous, and of any elements. ``device`` is where it lies, and ``cache`` all of it but
        for up to 255 bytes at its begin. It is held until the last call of this runtime has ended;
        until then nothing else may read, write or resize it, and work on it has to have ended
        before. What it holds then is undefined.
    roots
        Directories below which kernels may open files by name, in which a relative name is one of
        the first. None: the working directory. Arrays and regions are opened wherever they lie,
        relative paths from the working directory of the moment.
    log
        ``"stderr"``; ``"logging"`` for the logger ``penstock`` (level INFO); a function that takes
        a line, called on a thread of Python; or None for no log. The thread holds the function
        until ``close``: a Runtime that it refers to, also by an owner of both, ends by ``close``
        alone.
    options
        Every other option of penstock/options.hpp by its name, for instance ``share="job1"``,
        ``worker_threads=4``. What is not set comes from the environment (``PENSTOCK_CACHE`` ...),
        then from the library.

    Raises ValueError for a value that cannot be used, MemoryError if memory is missing, and
    OSError: ENODEV without the GPU that was asked for. Takes 50 to 100 ms for each GPU, and 0.2
    to 0.3 s more where nothing has used CUDA yet; on CPU threads some milliseconds.
    Thread-safe, but for ``close``. In a child of ``os.fork`` every call raises ChildProcessError,
    but for those that only tell of settings and counts.
    """

    def __init__(
        self,
        device: object = "auto",
        cache: Size | None = None,
        page: Size | None = None,
        host_tier: Size | None = None,
        windows: Size | None = None,
        writable: bool | None = None,
        roots: Path | Iterable[Path] | None = None,
        log: Log = "stderr",
        *,
        cache_memory: object = None,
        _suits: _core.Layout | None = None,
        **options: object,
    ) -> None:
        memory = None if cache_memory is None else memory_of(cache_memory, cache)
        if memory is not None:
            settings, cache = _settings_for(memory, device), None
        else:
            settings = [] if device == "auto" else _device_settings(device)
        named = {"cache": cache, "page": page, "host_tier": host_tier, "windows": windows}
        for name, value in {**named, **options}.items():
            if value is None:
                continue
            option = _OPTION_NAMES.get(name, name)
            if option != name and options.get(option) is not None:
                raise ValueError(f"{name}: it is given as {option} too; leave one out")
            text_of = _size_text if option.endswith("_bytes") else _text_of
            settings.append((option, name, text_of(name, value)))
        if writable is not None:
            settings.append(("writable", "writable", _text_of("writable", writable)))
        write: Callable[[str], object] | None = None
        if log == "logging":
            write = logging.getLogger("penstock").info
        elif callable(log):
            write = log
        elif log not in ("stderr", None):
            raise ValueError(f'log: {log!r} is no place for lines; give "stderr", "logging", a '
                             "function or None")
        where = _TO_QUEUE if write is not None else _NOWHERE if log is None else _TO_STDERR
        if isinstance(roots, (str, bytes, os.PathLike)):
            roots = [roots]
        folders = None if roots is None else [path_text(folder) for folder in roots]
        self._users: weakref.WeakSet[_User] = weakref.WeakSet()
        self._users_lock = threading.RLock()  # a signal handler may call too
        self._closing = False  # guarded by the lock
        self._process = os.getpid()
        self._core = _core.make_runtime(settings, folders, _suits, where,
                                        memory.address if memory is not None else 0,
                                        memory.keep if memory is not None else None)
        self._writer: threading.Thread | None = None
        if write is not None:
            self._writer = threading.Thread(target=_drain, args=(self._core.log, write),
                                            name="penstock log", daemon=True)
            self._writer.start()
        _runtimes.add(self)
        _watch_end_of_worker()

    # What runs on which device

    @property
    def backend(self) -> str:
        """``"gpu"`` or ``"cpu"``."""
        return self._core.backend

    @property
    def device_count(self) -> int:
        """How many devices, each with a cache of its own."""
        return self._core.device_count

    @property
    def device_names(self) -> list[str]:
        """The names of the devices, for people."""
        return [self._core.device_name(i) for i in range(self.device_count)]

    @property
    def device_numbers(self) -> list[int]:
        """The CUDA numbers of the devices; on CPU threads only names."""
        return [self._core.device_number(i) for i in range(self.device_count)]

    @property
    def page_bytes(self) -> int:
        """Bytes of a page."""
        return self._core.page_bytes()

    @property
    def writable(self) -> bool:
        """Whether arrays and regions may be opened with mode ``"r+"``."""
        return self._core.writable

    @property
    def io(self) -> str:
        """How requested pages are read: ``"io_uring"`` or ``"pread"``."""
        return self._core.io_name

    @property
    def linked_processes(self) -> int:
        """With ``share``: how many other processes this cache is linked with now."""
        return self._core.linked_processes()

    def settings(self, device: int = 0) -> dict[str, str]:
        """Every option of that device as resolved, for people: ``{"cache_bytes": "8 GiB"}``."""
        return {name: shown for name, _, shown in self._core.settings(device)}

    def ref_bytes(self, device: int = 0) -> bytes:
        """The bytes of ``penstock::runtime_ref``, the argument by which a kernel of your own uses
        this runtime on that device. Valid until ``close``."""
        return self._core.ref(device)

    # What went wrong, and the end

    def check(self) -> None:
        """Raises the first error since the last check, of any array of this runtime, of writing
        files, or of the device; the error is forgotten then, unless the device is broken. Reads
        words of host memory and waits for nothing: work on a stream has to have ended to be seen.
        IndexError and OSError name file, row and cause."""
        self._core.check()
        for user in self._open_users():
            user._check()

    def _enter(self, user: _User) -> None:
        with self._users_lock:
            if self._closing:  # another thread closed it while this one opened a file
                raise error_of(errno.EBADF, "the runtime is closed; make another")
            self._users.add(user)

    def _open_users(self) -> list[_User]:
        with self._users_lock:
            return list(self._users)

    @property
    def closed(self) -> bool:
        """Whether ``close`` has been called."""
        return self._core.closed

    def close(self) -> None:
        """Ends the runtime with its arrays and regions: waits until no kernel runs on its devices,
        writes changed pages of files, and frees the memory. OSError: what could not be written,
        after everything is closed; the logger ``penstock`` gets further errors. Captured graphs
        that gather from its arrays must not be launched any more. Where other threads are in calls
        of its arrays, what was written before is in the files when this returns, and the memory is
        freed after the last of these calls; the logger has a warning of a file that they change
        meanwhile. A second call does nothing. In a child of ``os.fork`` it leaves all to the
        parent."""
        if self._core.closed:
            return
        told: list[Exception] = []
        with self._users_lock:
            self._closing = True
        try:
            for user in self._open_users():
                try:
                    user.close()
                except Exception as error:
                    told.append(error)
                    if isinstance(error, BlockingIOError) and not user.closed:
                        raise  # its kernels could not be waited for, as those of the others now
            for path in self._core.close():
                logging.getLogger("penstock").warning(
                    "closing the runtime: %s: changed pages are not in the file before the calls "
                    "of other threads end", path)
        except BaseException as error:
            if not isinstance(error, Exception) or not self._core.closed:  # it is open as before
                self._closing = False
                _log_ends([earlier for earlier in told if earlier is not error])
                raise
            told.append(error)
        in_child = self._process != os.getpid()
        if self._writer not in (None, threading.current_thread()) and not in_child:
            assert self._writer is not None
            self._writer.join()
        _runtimes.discard(self)
        if told:
            # The runtime's own is the last, and says what is lost; others may have been brought
            # to their files by its end.
            _log_ends(told[:-1])
            raise told[-1]

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} belongs to this process and cannot be sent to another, or "
                        "copied; make one there")

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        close_after(self, error)

    def __repr__(self) -> str:
        if self.closed:
            return "<penstock.Runtime, closed>"
        return f"<penstock.Runtime on {self.backend}: {', '.join(self.device_names)}>"


_runtimes: weakref.WeakSet[Runtime] = weakref.WeakSet()
_defaults: dict[tuple[int, bool], Runtime] = {}
_defaults_lock = threading.RLock()  # a signal handler may call too


def _page_of_environment() -> int:
    """The pages of a runtime of which nothing is said; 0: it will say what is wrong with them."""
    try:
        return _core.parse_size("page", os.environ.get("PENSTOCK_PAGE") or "64KiB")
    except ValueError:
        return 0


def default(page: Size | None = None, *, writable: bool = False,
            _suits: _core.Layout | None = None) -> Runtime:
    """The process's runtime for pages of so many bytes, made on first use with the settings of the
    environment (``PENSTOCK_CACHE`` ...) and logging to the logger ``penstock``. Each has a cache of
    its own, so programs that budget memory make a ``Runtime`` and pass it to ``open_array``."""
    if page is None:
        page_bytes = _page_of_environment() if _suits is None else _suits.page_bytes
    else:
        page_bytes = _core.parse_size("page", _size_text("page", page))
    with _defaults_lock:
        found = _defaults.get((page_bytes, writable))
        if found is None or found._closing or found.closed:
            made = Runtime(page=page, writable=writable or None, log="logging", _suits=_suits)
            # A handler of a signal may have asked for it meanwhile, on this very thread.
            found = _defaults.get((page_bytes, writable))
            if found is not None and not found._closing and not found.closed:
                made.close()
                return found
            found = _defaults[page_bytes, writable] = made
        return found


def _close_all() -> None:
    """Before CUDA's own end, and while threads of Python still run."""
    for runtime in list(_runtimes):
        try:
            runtime.close()
        except Exception as error:
            logging.getLogger("penstock").warning("closing a runtime at exit: %s", error)


# Lower than what multiprocessing and its users take, so that what they end comes before.
_LAST_OF_WORKER = -1_000_000
_watched_worker = 0  # process whose end as a worker is watched
_ender: threading.Thread | None = None  # of that process; waits for its other threads


def _watch_end_of_worker() -> None:
    """A worker of multiprocessing that was forked leaves by os._exit, so atexit does not run. What
    runs is told to multiprocessing, in each worker anew: it forgets what its parent was told."""
    global _watched_worker
    process = sys.modules.get("multiprocessing.process")
    if process is None or process.parent_process() is None or _watched_worker == os.getpid():
        return
    from multiprocessing.util import Finalize

    _watched_worker = os.getpid()
    Finalize(None, _end_of_worker, exitpriority=_LAST_OF_WORKER)
    if threading.current_thread() is not threading.main_thread():
        _await_threads()  # the worker's function may have ended, and with it all that was told


def _end_of_worker() -> None:
    """Threads that are no daemons still work, as at the end of a program before atexit, and some
    end only when they are told so after this. So a thread of that kind waits for them."""
    if _working_threads():
        _await_threads()
    elif _ender is None:
        _close_all()


def _await_threads() -> None:
    global _ender
    if _ender is None:
        _ender = threading.Thread(target=_close_after_threads, name="penstock end", daemon=False)
        _ender.start()


def _working_threads() -> list[threading.Thread]:
    own = (threading.main_thread(), threading.current_thread(), _ender)
    return [each for each in threading.enumerate() if not each.daemon and each not in own]


def _close_after_threads() -> None:
    threading.main_thread().join()
    while working := _working_threads():
        for each in working:
            each.join()
    _close_all()


def _forget_in_child() -> None:
    """A child of fork() has none of the parent's threads: it makes runtimes of its own."""
    global _defaults_lock, _ender
    _defaults_lock = threading.RLock()
    _ender = None
    for runtime in list(_runtimes):
        runtime._users_lock = threading.RLock()  # another thread may have held it
    _defaults.clear()
    _runtimes.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_in_child)
