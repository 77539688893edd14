"""The ledger's rows without a disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from spool.ledger.derived import Derived
from spool.ledger.queries import DIMENSIONS, TAG, CostQuery
from spool.ledger.rows import GroupSum, LedgerRows
from spool.ledger.sums import DAY_S, HOUR_S, INPUT_UNKNOWN, Dimensions, Measures
from spool.memory import transactions

T = TypeVar("T")


class MemoryLedgerRows:
    """See `spool.ledger.rows.LedgerRows`."""

    def __init__(self) -> None:
        self._state: dict[str, int] = {}
        self._dimensions: list[Dimensions] = []  # at their numbers
        self._numbers: dict[Dimensions, int] = {}
        self._sums: dict[tuple[int, int, int], Measures] = {}  # (width, start, number)
        self._firsts: dict[tuple[int, int], int] = {}  # (width, start)
        self._frozen: set[tuple[int, int]] = set()

    def state(self) -> Mapping[str, int]:
        return self._state

    def set_state(self, **values: int) -> None:
        self._state.update(values)

    def number(self, dimensions: Dimensions) -> int:
        if dimensions not in self._numbers:
            self._numbers[dimensions] = len(self._dimensions)
            self._dimensions.append(dimensions)
        return self._numbers[dimensions]

    def find_number(self, dimensions: Dimensions) -> int | None:
        return self._numbers.get(dimensions)

    def drop_unused_numbers(self) -> int:
        used = {number for _, _, number in self._sums}
        gone = [dimensions for dimensions, number in self._numbers.items() if number not in used]
        for dimensions in gone:  # its place in the list stays: numbers are places
            del self._numbers[dimensions]
        return len(gone)

    def numbers(self, width: int, start: int) -> set[int]:
        return {number for begin, number, _ in self._of(width) if begin == start}

    def add(self, width: int, sums: Iterable[tuple[int, int, Measures]]) -> None:
        for start, number, measures in sums:
            place = (width, start, number)
            before = self._sums.get(place)
            self._sums[place] = list(measures) if before is None else _added(before, measures)

    def remove(self, width: int, places: Iterable[tuple[int, int]]) -> None:
        for start, number in places:
            self._sums.pop((width, start, number), None)

    def starts(self, width: int, since: int) -> Sequence[int]:
        return sorted({start for start, _, _ in self._of(width) if start >= since})

    def priceable(self, width: int, start: int) -> Sequence[tuple[int, Dimensions, Measures]]:
        found = []
        for begin, number, measures in self._of(width):
            dimensions = self._dimensions[number]
            if begin == start and dimensions.kind == "call" and dimensions.size != INPUT_UNKNOWN:
                found.append((number, dimensions, list(measures)))
        return found

    def sums(self, width: int, start: int) -> Sequence[tuple[Dimensions, Measures]]:
        return [(self._dimensions[number], list(sums)) for begin, number, sums in self._of(width) if begin == start]

    def oldest_hour(self, since: int) -> int | None:
        return min(self.starts(HOUR_S, since), default=None)

    def sum_up_day(self, day: int) -> None:
        end = day + DAY_S
        hours = [(day, number, sums) for start, number, sums in self._of(HOUR_S) if day <= start < end]
        self.add(DAY_S, hours)

    def drop_days(self, since: int) -> None:
        self._drop(lambda width, start: width == DAY_S and start >= since)

    def drop_hours(self, before: int) -> int:
        hours = [place for place in self._firsts if place[0] == HOUR_S and place[1] < before]
        self.note_periods([(DAY_S, place[1] // DAY_S * DAY_S, self._firsts[place]) for place in hours])
        self._forget_periods(hours)
        return self._drop(lambda width, start: width == HOUR_S and start < before)

    def note_periods(self, firsts: Iterable[tuple[int, int, int]]) -> None:
        for width, start, first in firsts:
            self._firsts[width, start] = min(first, self._firsts.get((width, start), first))

    def forget_firsts(self) -> None:
        self._firsts = dict.fromkeys(self._firsts, 0)
        self._frozen = set()

    def freeze_periods(self, below: int) -> None:
        self._frozen = {place for place, first in self._firsts.items() if first < below}

    def frozen_periods(self) -> set[tuple[int, int]]:
        return set(self._frozen)

    def firsts(self) -> Mapping[tuple[int, int], int]:
        return dict(self._firsts)

    def calls(self, width: int) -> Mapping[int, int]:
        found: Counter[int] = Counter()
        for start, _, sums in self._of(width):
            found[start] += sums[0]
        return found

    def drop_open_periods(self) -> int:
        gone = self._firsts.keys() - self._frozen
        self._drop(lambda width, start: (width, start) in gone)
        self._forget_periods(gone)
        return len(gone)

    def count_rows(self) -> int:
        return len(self._sums)

    def totals(
        self, width: int, since: int, until: int, query: CostQuery, *, by_start: bool = False
    ) -> Iterable[GroupSum]:
        groups: dict[tuple[tuple[str | None, ...], str, str, int], Measures] = {}
        for start, number, measures in self._of(width):
            dimensions = self._dimensions[number]
            if not since <= start < until or not _passes(dimensions, query):
                continue
            group = tuple(_value(dimensions, query.derived.get(name, name)) or None for name in query.group_by)
            key = (group, dimensions.status, dimensions.cost_source, start if by_start else 0)
            groups[key] = _added(groups[key], measures) if key in groups else measures
        return [GroupSum(*key[:3], measures, key[3]) for key, measures in groups.items()]

    def first_known(self, width: int, dimension: str) -> int | None:
        known = (start for start, number, _ in self._of(width) if _value(self._dimensions[number], dimension))
        return min(known, default=None)

    def values(self, dimension: str | Derived, limit: int) -> Sequence[str]:
        found = {_value(dimensions, dimension) for dimensions in self._numbers}
        return sorted(found - {""})[:limit]

    def _of(self, width: int) -> Iterator[tuple[int, int, Measures]]:
        return ((start, number, sums) for (of, start, number), sums in self._sums.items() if of == width)

    def _drop(self, goes: Callable[[int, int], bool]) -> int:
        gone = [place for place in self._sums if goes(place[0], place[1])]
        for place in gone:
            del self._sums[place]
        return len(gone)

    def _forget_periods(self, places: Iterable[tuple[int, int]]) -> None:
        for place in places:
            self._firsts.pop(place, None)
            self._frozen.discard(place)


class MemoryLedger:
    """See `spool.ledger.rows.LedgerStore`."""

    shares_log = False

    def __init__(self) -> None:
        self._rows = MemoryLedgerRows()

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        return transactions.change(self._rows, work)

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return work(self._rows)

    async def close(self) -> None:
        """Nothing is open."""


def _added(first: Measures, second: Measures) -> Measures:
    return [a + b for a, b in zip(first, second, strict=True)]


def _passes(dimensions: Dimensions, query: CostQuery) -> bool:
    for name, wanted in query.include.items():
        if _value(dimensions, query.derived.get(name, name)) not in wanted:
            return False
    excluded = query.exclude.items()
    return not any(_value(dimensions, query.derived.get(name, name)) in unwanted for name, unwanted in excluded)


def _value(dimensions: Dimensions, name: str | Derived) -> str:
    """A dimension's value; "" if unknown."""
    if isinstance(name, Derived):
        return name.value(tuple(_value(dimensions, source) for source in name.sources))
    if name in DIMENSIONS:
        return str(getattr(dimensions, name))
    tags: dict[str, str] = json.loads(dimensions.tags) if dimensions.tags else {}
    return tags.get(name.removeprefix(TAG), "")
