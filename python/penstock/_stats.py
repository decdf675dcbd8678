"""What a runtime counted."""
from __future__ import annotations

import dataclasses
import json
import re
from types import TracebackType
from typing import Any

from . import _core
from ._runtime import Runtime

# What is so now; all else only grows.
_GAUGES = {"window_bytes", "device_bytes", "resident_pages", "service_threads", "store_is_paused"}


def _own_labels() -> set[str]:
    """Which the metrics have by themselves: a second of that name would make the text invalid."""
    return set(re.findall('[{,]([a-z_]+)="', _core.prometheus_text({}, [])))


@dataclasses.dataclass(frozen=True)
class Statistics:
    """The counts of a runtime since it was made, over all of its devices; ``b - a`` has what came
    between two of them. penstock/statistics.hpp says what each counts. ``window_bytes``,
    ``device_bytes``, ``resident_pages``, ``service_threads`` and ``store_is_paused`` are what is
    so now."""

    hits: int = 0
    misses: int = 0
    window_loads: int = 0
    through_reads: int = 0
    neighbour_reads: int = 0
    neighbour_loads: int = 0
    neighbour_waits: int = 0
    window_bytes: int = 0
    device_bytes: int = 0
    tier_loads: int = 0
    request_loads: int = 0
    resident_pages: int = 0
    tier_saves: int = 0
    tier_evictions: int = 0
    read_ahead_pages: int = 0
    read_ahead_failures: int = 0
    load_waits: int = 0
    evictions: int = 0
    clock_steps: int = 0
    frame_waits: int = 0
    ring_waits: int = 0
    copy_retries: int = 0
    requests: int = 0
    opens: int = 0
    open_requests: int = 0
    errors: int = 0
    bytes_loaded: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    write_backs: int = 0
    write_back_errors: int = 0
    dirty_victims: int = 0
    written_behind: int = 0
    file_writes: int = 0
    file_write_bytes: int = 0
    file_write_errors: int = 0
    file_syncs: int = 0
    kept_files: int = 0
    buffer_loads: int = 0
    buffer_device_loads: int = 0
    file_reads: int = 0
    file_read_bytes: int = 0
    file_read_errors: int = 0
    direct_reads: int = 0
    registered_reads: int = 0
    wishes: int = 0
    wishes_dropped: int = 0
    store_hits: int = 0
    store_misses: int = 0
    store_errors: int = 0
    store_bad_blocks: int = 0
    store_bytes: int = 0
    store_puts: int = 0
    store_pauses: int = 0
    store_is_paused: int = 0
    bad_requests: int = 0
    service_threads: int = 0
    helpers_for_backlog: int = 0
    helpers_for_stalls: int = 0
    batches: int = 0
    batch_size: tuple[int, ...] = ()
    """Bucket i: rounds in which 2**i to 2**(i+1)-1 requests were taken together."""
    latency_ns: tuple[int, ...] = ()
    """Bucket i: requests that took 2**i to 2**(i+1)-1 ns."""

    @classmethod
    def from_json(cls, text: str) -> Statistics:
        """From what ``to_json``, ``penstock`` or a library of another version wrote; names that are
        not known here are left out."""
        values: dict[str, Any] = json.loads(text)
        known = {field.name for field in dataclasses.fields(cls)}
        taken: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value
                                 for name, value in values.items() if name in known}
        return cls(**taken)

    def __sub__(self, before: Statistics) -> Statistics:
        def between(name: str) -> Any:
            now, then = getattr(self, name), getattr(before, name)
            if name in _GAUGES:
                return int(now)
            if isinstance(now, tuple):
                return tuple(a - b for a, b in zip(now, then)) if then else now
            return int(now - then)

        values: dict[str, Any] = {f.name: between(f.name) for f in dataclasses.fields(self)}
        return Statistics(**values)

    def latency_us(self, share: float) -> float | None:
        """The time in microseconds that this share of the requests took at most, by buckets of
        powers of two: ``latency_us(0.99)``. None: there was no request."""
        total = sum(self.latency_ns)
        seen = 0
        for bucket, count in enumerate(self.latency_ns):
            seen += count
            if count and seen >= share * total:
                return float(2 ** (bucket + 1)) / 1000
        return None

    def to_json(self) -> str:
        """One JSON object; the histograms are arrays."""
        return json.dumps(dataclasses.asdict(self))

    def to_prometheus(self, labels: dict[str, str] | None = None) -> str:
        """The text format of Prometheus, as ``penstock stat --prometheus`` prints it; for a file of
        node_exporter, or an answer of your own server. docs/guide/operating.md has the names.
        ValueError: a label that is none, or that the metrics use themselves (``source``, ``way``,
        ``le`` and others), or one that begins with ``__``."""
        if any(not isinstance(value, tuple) and value < 0
               for value in dataclasses.asdict(self).values()):
            raise ValueError("a count is below zero: the earlier statistics stand first in the "
                             "difference; take the earlier from the later")
        own = _own_labels() if labels else set()
        for name, value in (labels or {}).items():
            if name in own or str(name).startswith("__"):
                raise ValueError(f"labels: {name!r} is a label of the metrics themselves or of "
                                 "Prometheus; give another name")
            if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or not isinstance(value, str):
                raise ValueError(f"labels: {name!r}: {value!r} is no label; give a name of "
                                 "letters, digits and _, and text")
        letters = [(name, text.encode("utf-8", "replace").decode())  # os.fsdecode() gives others
                   for name, text in (labels or {}).items()]
        return _core.prometheus_text(dataclasses.asdict(self), letters)

    def __str__(self) -> str:
        asked = self.hits + self.misses + self.through_reads + self.neighbour_reads
        share = f"{100 * (1 - self.misses / asked):.1f} %" if asked else "none"
        text = (f"{asked} page accesses, {share} without a load: {self.hits} hits, "
                f"{self.through_reads} read in place, {self.neighbour_reads} in other caches, "
                f"{self.misses} misses "
                f"({self.window_loads} through windows, {self.tier_loads} from the host tier, "
                f"{self.neighbour_loads} copied from other caches); {self.bytes_loaded} bytes "
                "loaded")
        middle, late = self.latency_us(0.5), self.latency_us(0.99)
        if middle is not None:
            text += f"; half of {self.requests} requests took {middle:g} us, 99 % {late:g} us"
        return text + (f"; {self.errors} errors" if self.errors else "")


def stats(runtime: Runtime) -> Statistics:
    """What the runtime counted since it was made, over all of its devices. Work that is under way
    may be missing. Takes some tens of microseconds on a GPU."""
    return Statistics.from_json(runtime._core.statistics())


class monitor:
    """``with monitor(runtime) as m: ...``, then ``m.statistics`` has what was counted meanwhile,
    and ``print(m)`` says it. Work on a stream counts when it has ended."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._before = stats(runtime)
        self._after: Statistics | None = None

    @property
    def statistics(self) -> Statistics:
        """The counts from the beginning of the block to its end, or to now."""
        return (self._after or stats(self._runtime)) - self._before

    def __enter__(self) -> monitor:
        self._before = stats(self._runtime)
        self._after = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if not self._runtime.closed:
            self._after = stats(self._runtime)

    def __str__(self) -> str:
        return str(self.statistics)
