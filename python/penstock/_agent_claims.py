"""Which blocks are being read from the file server, so that other readers of them wait for them.

Nodes that go through a file side by side miss the same block at the same time. The first of them
claims it: its agent keeps a small object in the store until the block is put. The others see that,
and look for the block until it is there or their time is over. A claim is a hint, and no right: a
lost or stale one costs a wait or a second read, never a byte.
"""
from __future__ import annotations

import threading
import time
from typing import Protocol

_LOOK_SECONDS = 0.02  # between two looks for a block that another node reads
_CLAIM_SECONDS = 10.0  # a claim that was first seen so long ago is of a node that died, or hangs
# Clients that want a block look often: a claim that is found after a longer pause may be a new one.
_SAME_SECONDS = 1.0
_MOST_SEEN = 65536


class ClaimStore(Protocol):
    """Where the agents of all nodes see each other's claims."""

    def claim(self, key: str) -> bool:
        """Notes that a client here reads this object from its file. False: another one does. Two
        at the same time may both be told True, and so is a caller if the store fails."""

    def unclaim(self, key: str) -> None:
        """It is not claimed any more, by this agent or another one."""


class Claims:
    """Those of one agent, by its clients, and those of others that it met."""

    def __init__(self, store: ClaimStore) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._ours: set[str] = set()
        self._seen: dict[str, tuple[float, float]] = {}  # of others: since when, and the last look

    def take(self, key: str) -> bool:
        """The caller reads this block from now on. False: another one does."""
        with self._changed:
            if key in self._ours:
                return False
            self._ours.add(key)
        is_ours = False
        try:
            is_ours = self._is_first(key)
        finally:
            if not is_ours:
                with self._changed:
                    self._ours.discard(key)
        return is_ours

    def _is_first(self, key: str) -> bool:
        if self._store.claim(key):
            self.found(key)
            return True
        now = time.monotonic()
        with self._changed:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            since, last = self._seen.get(key, (now, now))
            if now - last > _SAME_SECONDS:
                since = now
            self._seen[key] = (since, now)
        if now - since < _CLAIM_SECONDS:
            return False
        self.found(key)
        self._store.unclaim(key)
        return self._store.claim(key)

    def found(self, key: str) -> None:
        """The block is there, or its claim is stale: a later claim is another one."""
        with self._changed:
            self._seen.pop(key, None)

    def end(self, key: str) -> None:
        """The block was put, or will not be."""
        try:
            self._store.unclaim(key)
        finally:
            with self._changed:
                self._ours.discard(key)
                self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Until a client of this agent ended a claim, or it is time to look for those of others."""
        with self._changed:
            self._changed.wait(min(seconds, _LOOK_SECONDS))


class Held:
    """The claim of one client, which reads one block at a time: its next request ends it."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims
        self._key: str | None = None

    def take(self, key: str) -> bool:
        if not self._claims.take(key):
            return False
        self._key = key
        return True

    def end(self) -> None:
        key, self._key = self._key, None
        if key is not None:
            self._claims.end(key)
