"""
What a plan reads of the records that are kept, under the head: whoever waits for the head waits for it too,
so that all records that a group may tell again are asked for in one round trip.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from spool.errors import EntryUnreadable
from spool.log.amendments import amended
from spool.log.duplicates import place_of
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry, EntryCache
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.postgres.log.entries import EntryRow, cache_entry, code, unpacked_fields
from spool.record import Inference, Record

APART = 256  # numbers that are further apart are of different ranges


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
        self._firsts: dict[str, list[int]] = {}  # by topic, of the entries that were read
        self._entries: dict[tuple[str, int], tuple[EntryRow, CachedEntry]] = {}
        self.fields: dict[
            tuple[str, int], dict[str, object]
        ] = {}  # by place, of the records that were asked for

    def record(self, topic: str, number: int) -> Record | None:
        if (topic, number) not in self._asked:
            self._read(topic, number)
        firsts = self._firsts.get(topic, ())
        at = bisect_right(firsts, number)
        found = self._entries.get((topic, firsts[at - 1])) if at else None
        if found is None or number > found[0].last:
            return None
        row, entry = found
        try:
            (record,) = self._cache.records(entry, number - row.first, number - row.first + 1)
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
        with self._connection.pipeline():
            asked = [self._ask(of_topic, sorted(numbers)) for of_topic, numbers in wanted.items()]
        for answer in asked:
            answer()
        for of_topic, numbers in wanted.items():
            self._asked.update((of_topic, number) for number in numbers)
            self._firsts[of_topic] = sorted(first for of, first in self._entries if of == of_topic)

    def _ask(self, topic: str, numbers: Sequence[int]) -> Callable[[], None]:
        firsts, lasts = ranges(numbers)
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
                    self._entries[topic, row.first] = row, entry
            for number, fields in unpacked_fields(topic, filled.fetchall()).items():
                self.fields[topic, number] = fields

        return answer


def ranges(numbers: Sequence[int]) -> tuple[list[int], list[int]]:
    """The first and the last of each, of ascending numbers of which none is far from the one before."""
    firsts = [numbers[0]]
    lasts = []
    for before, number in pairwise(numbers):
        if number - before > APART:
            lasts.append(before)
            firsts.append(number)
    return firsts, [*lasts, numbers[-1]]
