"""Which node reads which block of a file.

As many seats as there were nodes at the start cut a file into equal stretches, so that a task
which works on a stretch has one node near it. The blocks of a seat whose node is gone go to the
others one by one, by rendezvous hash: no other block changes its reader, and no node gets all of
them."""
from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence

BLOCK_BYTES = 2 << 20


def _weight(*words: object) -> int:
    text = "\0".join(str(word) for word in words)
    letters = text.encode("utf-8", "surrogateescape")  # names of files may be any bytes
    return int.from_bytes(hashlib.blake2b(letters, digest_size=8).digest(), "big")


class Seats:
    """The nodes of a job by their names, in seats. A name may be of a node that is gone."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self._seats = list(dict.fromkeys(nodes))
        if not self._seats:
            raise ValueError("nodes: there is none; give at least one")

    def __len__(self) -> int:
        return len(self._seats)

    @property
    def names(self) -> list[str]:
        """The name in each seat."""
        return list(self._seats)

    def replace(self, living: Iterable[str]) -> list[str]:
        """Seats of nodes that are gone go to living nodes that have none, and what is left over
        gets new seats only if no node is gone. The names that were seated now."""
        alive = list(dict.fromkeys(living))
        new = [name for name in alive if name not in self._seats]
        empty = [seat for seat, name in enumerate(self._seats) if name not in alive]
        for seat, name in zip(empty, new):
            self._seats[seat] = name
        self._seats += new[len(empty):]
        return new

    def owner(self, path: str, block: int, blocks: int, living: Sequence[str]) -> str:
        """The living node that reads this block of so many."""
        if not living:
            raise ValueError("nodes: none is alive")
        turn = _weight(path) % len(self._seats)  # the first stretches of files go to all nodes
        middle = (2 * block + 1) * len(self._seats) // (2 * blocks)
        seat = (middle + turn) % len(self._seats)
        name = self._seats[seat]
        if name in living:
            return name
        return max(living, key=lambda other: (_weight(path, block, other), other))

    def shares(self, path: str, size: int, living: Sequence[str]) -> dict[str, list[int]]:
        """The numbers of the blocks that each living node reads of a file of `size` bytes."""
        blocks = -(-size // BLOCK_BYTES)
        found: dict[str, list[int]] = {name: [] for name in living}
        for block in range(blocks):
            found[self.owner(path, block, blocks, living)].append(block)
        return found

    def near(self, path: str, size: int, part: int, of: int, living: Sequence[str]) -> str:
        """The living node that reads most bytes of part `part` of `of` equal parts."""
        if of < 1 or not 0 <= part < of:
            raise ValueError(f"part: {part} of {of} is no part; give a number from 0 to of - 1")
        blocks = max(-(-size // BLOCK_BYTES), 1)
        begin, end = size * part // of, max(size * (part + 1) // of, size * part // of + 1)
        counts: Counter[str] = Counter()
        for block in range(begin // BLOCK_BYTES, min(-(-end // BLOCK_BYTES), blocks)):
            inside = min(end, (block + 1) * BLOCK_BYTES) - max(begin, block * BLOCK_BYTES)
            counts[self.owner(path, block, blocks, living)] += inside
        return counts.most_common(1)[0][0]
