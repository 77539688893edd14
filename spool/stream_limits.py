"""
How much the totals of unit-cost streams may take up, shared by the keys that created the streams.

No key gets more than it leaves free, so one that floods its streams leaves room for another. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from spool.shares import may_add
from spool.streams import StreamSize, Total

OVERHEAD = 192  # of a row and its place in the index, keys included
NEARLY_FULL, ROOM = (
    0.9,
    0.8,
)  # of what a key may hold: over the one, totals that are settled go down to the other


def size_of(total: Total) -> int:
    """About what a total takes up on disk."""
    dimensions = json.dumps({name: list(values) for name, values in total.dimensions.items()})
    texts = len(total.element_name or "") + len(dimensions) + len(total.value)
    return OVERHEAD + 2 * len(total.stream.encode()) + texts


class TotalsInHand:
    """Totals that a transaction has read, what it changes of them, and how the sizes of their streams change."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], Total | None] = {}  # by stream and key
        self._sizes: dict[tuple[str, str], int] = {}  # as they are stored
        self._changed: set[tuple[str, str]] = set()
        self._growth: Counter[str] = Counter()

    def __contains__(self, place: tuple[str, str]) -> bool:
        return place in self._totals

    def __getitem__(self, place: tuple[str, str]) -> Total | None:
        return self._totals[place]

    def note(self, place: tuple[str, str], total: Total | None) -> None:
        """Note a total as it is stored."""
        self._totals[place] = total
        self._sizes[place] = size_of(total) if total else 0

    def put(self, total: Total) -> None:
        """Replace a total that was noted before, also as None."""
        self._totals[total.stream, total.key] = total
        self._changed.add((total.stream, total.key))

    def remove(self, place: tuple[str, str]) -> None:
        """Note that a total is removed; the caller deletes the row."""
        self._changed.discard(place)
        self._totals[place] = None
        self._growth[place[0]] -= self._sizes.pop(place, 0)

    def settle(self) -> tuple[Sequence[Total], Sequence[tuple[str, int]]]:
        """The totals to store now, and by how many bytes streams grow with them; both in the order of their keys."""
        changed = [total for place in sorted(self._changed) if (total := self._totals[place]) is not None]
        for total in changed:
            place = (total.stream, total.key)
            size = size_of(total)
            self._growth[total.stream] += size - self._sizes.get(place, 0)
            self._sizes[place] = size
        growth = [(name, n) for name, n in sorted(self._growth.items()) if n]
        self._changed.clear()
        self._growth.clear()
        return changed, growth

    def clear(self) -> None:
        """Forget the totals after they were settled: they are stored no longer."""
        self._totals.clear()
        self._sizes.clear()


def has_room(sizes: Sequence[StreamSize], key: str, max_bytes: int) -> bool:
    """True if totals may be added to the streams of a key."""
    held, total = _held(sizes)
    return held[key] < max_bytes - total


def may_create(sizes: Sequence[StreamSize], key: str, n: int, max_streams: int) -> bool:
    """True if a key may create `n` more streams."""
    return may_add(sum(size.created_by == key for size in sizes), len(sizes), n, max_streams)


def to_free(sizes: Sequence[StreamSize], max_bytes: int) -> Mapping[str, int]:
    """Bytes to free by stream, the largest streams of a key first, where a key has nearly what it may."""
    held, total = _held(sizes)
    wanted: dict[str, int] = {}
    for key, own in held.items():
        allowed = max_bytes - total
        if own <= NEARLY_FULL * allowed:
            continue
        # What is freed counts twice: the key holds less, and more is free.
        excess = int((own - ROOM * allowed) / (1 + ROOM)) + 1
        for size in sorted(sizes, key=lambda one: -one.bytes):
            if size.created_by == key and excess > 0:
                wanted[size.name] = min(excess, size.bytes)
                excess -= size.bytes
    return wanted


def _held(sizes: Sequence[StreamSize]) -> tuple[Counter[str], int]:
    held: Counter[str] = Counter()
    for size in sizes:
        held[size.created_by] += size.bytes
    return held, held.total()
