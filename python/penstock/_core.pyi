"""
The library, for the package penstock alone: integers, addresses and text.
"""

from collections.abc import Sequence


version: str = '0.2.0'

with_cuda: bool = False

class Layout:
    """Where the rows of a table lie, and of which elements."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""

    @property
    def stride_bytes(self) -> int:
        """Bytes from one row to the next."""

    @property
    def dtype(self) -> str:
        """
        The name of the elements' type, as numpy and ml_dtypes have it. Empty: raw bytes.
        """

    @property
    def row_shape(self) -> list[int]:
        """The shape of a row."""

    @property
    def rows(self) -> int:
        """How many rows, of all pieces."""

    @property
    def pieces(self) -> list[tuple[str, int, int]]:
        """A tuple of path, first byte and rows for each."""

    @property
    def page_bytes(self) -> int:
        """Bytes of the pages that suit such rows."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

def describe(path: str, tensor: str) -> Layout:
    """Reads the header of a file or of a checkpoint."""

def describe_raw(path: str, row_bytes: int, stride_bytes: int, first_byte: int, rows: int, dtype: str, row_shape: Sequence[int]) -> Layout:
    """Rows of a file without a header."""

def join(parts: Sequence[Layout]) -> Layout:
    """The tables one behind the other."""

class LogQueue:
    """Log lines that wait for a thread of Python."""

    def take(self, seconds: float) -> list[str]:
        """All lines; waits up to so many seconds for the first."""

    def close(self) -> None: ...

    @property
    def closed(self) -> bool: ...

class Runtime:
    """A runtime of the library."""

    def close(self) -> list[str]:
        """
        Waits for the device, then ends the runtime. Returns the files of which calls of other threads have changed pages still.
        """

    @property
    def closed(self) -> bool: ...

    @property
    def log(self) -> LogQueue: ...

    @property
    def backend(self) -> str: ...

    @property
    def device_count(self) -> int: ...

    def device_name(self, arg: int, /) -> str: ...

    def device_number(self, arg: int, /) -> int: ...

    def page_bytes(self) -> int: ...

    def cache_bytes(self) -> int: ...

    @property
    def writable(self) -> bool: ...

    @property
    def io_name(self) -> str: ...

    @property
    def is_shared(self) -> bool: ...

    def linked_processes(self) -> int: ...

    def process_code(self) -> int: ...

    def settings(self, device: int) -> list[tuple[str, str, str]]:
        """Name, variable and value of each option, as resolved."""

    def check(self) -> None:
        """Raises what went wrong since, and forgets it."""

    def statistics(self) -> str: ...

    def ref(self, device: int) -> bytes:
        """The bytes of penstock::runtime_ref."""

def make_runtime(settings: Sequence[tuple[str, str, str]], roots: Sequence[str] | None, suits: Layout | None, log: int, memory: int, keep: object | None) -> Runtime: ...

def parse_size(label: str, text: str) -> int: ...

def format_size(bytes: int) -> str: ...

def prometheus_text(counts: dict[str, object], labels: Sequence[tuple[str, str]]) -> str:
    """The text of penstock stat --prometheus."""

class RegionUse:
    """Keeps the memory of a region."""

class Region:
    """A part of a file as plain memory."""

    def close(self, stream: int) -> None: ...

    def keep(self) -> None: ...

    @property
    def closed(self) -> bool: ...

    def data(self) -> int: ...

    def size_bytes(self) -> int: ...

    def use(self) -> RegionUse: ...

    def acquire(self, arg0: int, arg1: int | None, arg2: int, /) -> int: ...

    def release(self, arg0: int, arg1: int | None, arg2: int, /) -> int: ...

    def prefer(self, arg0: int, arg1: int, arg2: int, /) -> int: ...

    def sync(self) -> None: ...

    def traffic(self) -> list[tuple[str, int]]: ...

    def placement(self) -> tuple[int, str]: ...

    def dlpack(self, shape: Sequence[int], code: int, bits: int, front: int, device: int, versioned: bool, read_only: bool) -> object: ...

def make_region(runtime: Runtime, path: str, place: str, offset: int, bytes: int, writes: bool, outside_writers: bool, device_bytes: int | None, promote_hot: bool, device: int, placement: int) -> Region: ...

block_bytes: int = 2097152

block_object_bytes: int = 2097216

def warm_blocks(path: str, socket: str, space: str, first: int, step: int, count: int, wait_ms: int) -> tuple[int, int, int, int]:
    """
    Brings blocks into the store. How many it had, were put, and found no room; and 0, or the negative errno with which the store failed at the block after these.
    """

def rest_left_seconds(path: str) -> float:
    """
    How long a file has to rest yet, since this process knows it, for its times to be proof.
    """

def facts_of(path: str) -> bytes:
    """What stands for the version of a file that its file system tells now."""

class Table:
    """Rows of equal size in files."""

    def close(self) -> None:
        """Waits for the device, then closes the files."""

    @property
    def closed(self) -> bool: ...

    def gather(self, numbers: int, type: int, count: int, out: int, item_bytes: int, stride: int, stream: int, padding: int | None, device: int, waits: bool) -> None: ...

    def scatter(self, numbers: int, type: int, count: int, rows: int, item_bytes: int, stride: int, stream: int, padding: int | None, device: int, waits: bool) -> None: ...

    def gather_arrays(self, ids: object, out: object, padding: int | None) -> bool: ...

    def scatter_arrays(self, ids: object, values: object, padding: int | None) -> bool: ...

    def prefetch(self, numbers: int, type: int, count: int, stream: int, into_cache: bool, device: int, waits: bool) -> None: ...

    def check(self) -> None: ...

    def sync(self) -> None: ...

    def advise(self, kind: int, begin: int, end: int) -> int: ...

    def open_windows(self, begin: int, end: int) -> int: ...

    def grow_windows(self) -> int: ...

    def ref(self, device: int) -> bytes:
        """The bytes of penstock::table_ref."""

def make_table(runtime: Runtime, layout: Layout, writable: bool) -> Table: ...

def gpu_of_memory(address: int) -> int:
    """The number of its GPU; -1: the driver knows of none."""
