"""
What both implementations of the deliveries share: limits, terms, and the arithmetic of ranges of numbers.

Pure functions. A range is (first, last), both included.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator

Range = tuple[int, int]

# A route that cannot deliver cuts no more deliveries than this; the rest of its backlog stays in the log, uncut.
MAX_WAITING = 16
STUCK_AFTER = 8  # 5xx answers while others passed: a single record that met them is shown as stuck
REPLAY_RECORDS = 1000
KEPT_REFUSALS = 1000  # partial refusals listed for each route

# What becomes of the numbers of a route, but for those that are queued.
TERMS = (
    "before_start", "delivered", "refused_upstream", "dead", "discarded", "skipped", "damaged", "unknown", "shadow",
    "by_sync",
)  # fmt: skip

NOBODY_NEEDS = 2**63 - 1  # every route on the topic may be skipped


def new_key() -> str:
    """An idempotency key: random, so that it says nothing about what it stands for."""
    return secrets.token_hex(16)


def count(span: Range) -> int:
    return span[1] - span[0] + 1


def without(ranges: Iterable[Range], holes: Iterable[Range]) -> Iterator[Range]:
    """The ranges less the holes, in order."""
    remaining = sorted(holes)
    for first, last in sorted(ranges):
        for hole_first, hole_last in remaining:
            if hole_last < first or hole_first > last:
                continue
            if hole_first > first:
                yield first, hole_first - 1
            first = hole_last + 1
        if first <= last:
            yield first, last


def joined(ranges: Iterable[Range]) -> Iterator[Range]:
    """Sorted ranges, neighbours made one."""
    current: Range | None = None
    for first, last in ranges:
        if current is not None and first == current[1] + 1:
            current = current[0], last
        else:
            if current is not None:
                yield current
            current = first, last
    if current is not None:
        yield current


def chunks(span: Range, size: int) -> Iterator[Range]:
    """A range in pieces of at most `size`."""
    for first in range(span[0], span[1] + 1, size):
        yield first, min(first + size - 1, span[1])
