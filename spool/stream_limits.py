"""
How much the totals of unit-cost streams may take up, shared by the keys that created the streams.

No key gets more than it leaves free, so one that floods its streams leaves room for another. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from spool.streams import StreamSize, Total

OVERHEAD = 192  # of a row and its place in the index, keys included
NEARLY_FULL, ROOM = 0.9, 0.8  # of what a key may hold: over the one, totals that are settled go down to the other


def size_of(total: Total) -> int:
    """About what a total takes up on disk."""
    dimensions = json.dumps({name: list(values) for name, values in total.dimensions.items()})
    texts = len(total.element_name or "") + len(dimensions) + len(total.value)
    return OVERHEAD + 2 * len(total.stream.encode()) + texts


def has_room(sizes: Sequence[StreamSize], key: str, max_bytes: int) -> bool:
    """Whether totals may be added to the streams of a key."""
    held, total = _held(sizes)
    return held[key] < max_bytes - total


def may_create(sizes: Sequence[StreamSize], key: str, n: int, max_streams: int) -> bool:
    """Whether a key may create `n` more streams."""
    own = sum(size.created_by == key for size in sizes)
    return own + n <= max_streams - len(sizes)


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
