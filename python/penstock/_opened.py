"""What arrays and regions have alike: their file, elements and runtime, and that they end."""
from __future__ import annotations

import math
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from ._errors import close_after
from ._runtime import Runtime


class _Core(Protocol):
    @property
    def closed(self) -> bool: ...


Core = TypeVar("Core", bound=_Core)
Self = TypeVar("Self", bound="Opened")  # type: ignore[type-arg]


class Opened(Generic[Core]):
    """Elements of files, opened in a runtime, which closes them with itself."""

    def __init__(self, core: Core, runtime: Runtime, path: str, mode: str, dtype: str,
                 shape: tuple[int, ...]) -> None:
        self._core = core
        self._runtime = runtime
        self._path = path
        self._mode = mode
        self._dtype = dtype
        self._shape = shape
        self._on_gpu = runtime.backend == "gpu"
        runtime._enter(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents, in C order: of an Array the number of rows, then the shape of a row."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def dtype(self) -> str:
        """The name of the elements' type, as numpy, ml_dtypes and torch have it: "float32",
        "bfloat16", "float8_e4m3fn". Raw bytes are "uint8"."""
        return self._dtype

    @property
    def path(self) -> str:
        """The file; of an Array that of its first row (``layout.pieces`` has all of them)."""
        return self._path

    @property
    def mode(self) -> str:
        """``"r"`` or ``"r+"``."""
        return self._mode

    @property
    def runtime(self) -> Runtime:
        """The runtime that it was opened in."""
        return self._runtime

    @property
    def closed(self) -> bool:
        """Whether ``close`` has been called, here or of the runtime."""
        return self._core.closed

    def close(self) -> None:
        """Ends it. A second call does nothing."""
        raise NotImplementedError

    def _check(self) -> None:
        """What Runtime.check asks each of those that are open."""

    def __reduce__(self) -> str:
        raise TypeError(f"{self!r} is open in this process and cannot be sent to another; open the "
                        "file there")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        close_after(self, error)

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<penstock.{type(self).__name__} {self._path!r}, shape {self._shape}, " \
               f"{self._dtype}{state}>"
