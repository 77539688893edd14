"""Number ranges (first, last), both included. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

Range = tuple[int, int]


def count_numbers(span: Range) -> int:
    return span[1] - span[0] + 1


def clip_ranges(ranges: Iterable[Range], bounds: Range) -> Iterator[Range]:
    for first, last in ranges:
        if first <= bounds[1] and last >= bounds[0]:
            yield max(first, bounds[0]), min(last, bounds[1])


def subtract_ranges(ranges: Iterable[Range], holes: Iterable[Range]) -> Iterator[Range]:
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


def merge_ranges(ranges: Iterable[Range]) -> Iterator[Range]:
    """Join adjacent ranges. The input must be sorted and must not overlap."""
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


def split_range(span: Range, size: int) -> Iterator[Range]:
    for first in range(span[0], span[1] + 1, size):
        yield first, min(first + size - 1, span[1])
