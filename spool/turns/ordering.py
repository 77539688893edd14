"""
Long lists in order and sums of long lists, in steps of a few milliseconds.

Threads that answer questions share the interpreter with the event loop, which waits for as long as one step
of theirs: sorting a hundred thousand rows at once is a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from typing import Any, TypeVar

T = TypeVar("T")
STEP = 2048  # values


def ordered(values: Iterable[T], key: Callable[[T], Any]) -> list[T]:
    """Sort as `sorted` does, in calls of at most STEP values."""
    found = list(values)
    if len(found) <= STEP:
        return sorted(found, key=key)
    # Keys are made again for the merge: kept, they are so many objects that the collector looks through all
    # of them.
    runs = [sorted(found[begin : begin + STEP], key=key) for begin in range(0, len(found), STEP)]
    return list(merge(*runs, key=key))


def sums(rows: Sequence[Sequence[int]], width: int) -> tuple[int, ...]:
    """Sum each column of rows with `width` columns."""
    found = (0,) * width
    for begin in range(0, len(rows), STEP):
        columns = zip(*rows[begin : begin + STEP], strict=True)
        found = tuple([before + sum(column) for before, column in zip(found, columns, strict=True)])
    return found
