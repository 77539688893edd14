"""
What a plan reads of the records that are kept, under the head: whoever waits for the head waits for it too, so
that all records that a group may tell again are asked for in one round trip, or in few if they lie far apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from spool.errors import EntryUnreadable
from spool.log.amendments import amended
from spool.log.duplicates import place_of
from spool.log.entries import codec
from spool.log.entries.cache import EntryCache
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.postgres.log.entries import EntryRow, cache_entry, code, unpacked_fields
from spool.record import Inference, Record

APART = 256  # numbers that are further apart are of different ranges
RANGES_AT_ONCE = 256  # each may bring an entry


class KeptRecords:
    """`places` are those of the records that may be asked for; they are looked up when the first one is."""

    def __init__(
        self,
        database: Database,
        connection: Connection,
        cache: EntryCache,
        places: Callable[[], Iterable[int]],
    ) -> None:
        self._database = database
        self._connection = connection
        self._cache = cache
        self._places: Callable[[], Iterable[int]] | None = places
        self._asked: set[tuple[str, int]] = set()
        self._raws: dict[
            tuple[str, int], msgspec.Raw
        ] = {}  # of the records that were asked for and are there
        self.fields: dict[
            tuple[str, int], dict[str, object]
        ] = {}  # by place, of the records that were asked for

    def record(self, topic: str, number: int) -> Record | None:
        if (topic, number) not in self._asked:
            self._read(topic, number)
        raw = self._raws.get((topic, number))
        if raw is None:
            return None
        try:
            record = codec.record(raw)
        except EntryUnreadable:
            return None
        fields = self.fields.get((topic, number))
        return amended(record, fields) if fields and isinstance(record, Inference) else record

    def _read(self, topic: str, number: int) -> None:
        wanted: dict[str, set[int]] = defaultdict(set, {topic: {number}})
        if self._places is not None:
            for place in self._places():
                of_topic, known = place_of(place)
                wanted[of_topic].add(known)
            self._places = None
        left = {of_topic: ranges(sorted(numbers)) for of_topic, numbers in wanted.items()}
        while left:
            with self._connection.pipeline():
                asked = [
                    self._ask(each, parts[:RANGES_AT_ONCE], wanted[each]) for each, parts in left.items()
                ]
            for answer in asked:
                answer()
            left = {each: rest for each, parts in left.items() if (rest := parts[RANGES_AT_ONCE:])}
        self._asked.update((of_topic, number) for of_topic, numbers in wanted.items() for number in numbers)

    def _ask(self, topic: str, parts: Sequence[tuple[int, int]], wanted: set[int]) -> Callable[[], None]:
        firsts, lasts = map(list, zip(*parts, strict=True))
        known = self._cache.entries(topic)
        near = [first for first in known if firsts[0] - codec.MAX_RECORDS < first <= lasts[-1]]
        within: dict[str, Any] = {"topic": code(topic), "firsts": firsts, "lasts": lasts, "cached": near}
        rows = self._connection.execute(self._database.sql(queries.ENTRIES_OF), within, binary=True)
        filled = self._connection.execute(self._database.sql(queries.AMENDMENTS_OF), within, binary=True)

        def answer() -> None:
            for *facts, body in rows.fetchall():
                row = EntryRow._make(facts)
                entry = known[row.first] if body is None else cache_entry(topic, row, body, self._cache)
                if not isinstance(entry, EntryUnreadable):
                    for number in wanted.intersection(range(row.first, row.last + 1)):
                        self._raws[topic, number] = entry.raws[number - row.first].copy()
            for number, fields in unpacked_fields(topic, filled.fetchall()).items():
                self.fields[topic, number] = fields

        return answer


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """The first and the last of each, of ascending numbers of which none is far from the one before."""
    found = [(numbers[0], numbers[0])]
    for number in numbers[1:]:
        first, last = found[-1]
        if number - last > APART:
            found.append((number, number))
        else:
            found[-1] = first, number
    return found
