"""
Log entries as readers see them: closed records, with later reports added. A damaged record is None.

The functions get a connection, and work inside and outside a transaction.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from spool.errors import EntryUnreadable
from spool.log.amendments import replace_fields
from spool.log.commits.following import numbers_by_topic
from spool.log.duplicates import decode_log_position
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry, EntryCache
from spool.log.entries.codec import EntryBody, EntryDamage, log_damaged_amendment
from spool.log.values import LogEntry
from spool.log.watermarks import require_closed
from spool.packed.native import NativeModule
from spool.packed.records import packed_records
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.record import TOPICS, Inference, Record


class EntryRow(NamedTuple):
    first: int
    records: int
    committed_at: float
    version: int
    checksum: int
    is_damaged: bool

    @property
    def last(self) -> int:
        return self.first + self.records - 1


def topic_code(topic: str) -> int:
    return TOPICS.index(topic)


def read_entries(
    database: Database,
    connection: Connection,
    topic: str,
    first_number: int,
    last_number: int,
    *,
    cache: EntryCache,
    damage: list[EntryDamage] | None = None,
    whole: bool = False,
    native: NativeModule | None = None,
) -> Sequence[LogEntry]:
    """
    Return the stored records with numbers from `first_number` to `last_number`, as entries in order, with later reports
    added.

    The records of a damaged entry are None. Newly found damage is appended to `damage`, so that the caller
    can mark it. With `whole`, raises NotClosed if this database, which may have changed, has not assigned all
    of these numbers. With `native`, plain records stay packed.
    """
    if first_number > last_number:
        return []
    if whole:
        require_closed(last_number, highest_accepted_number(database, connection, topic) + 1)
    rows, fields = _read_rows_and_amendments(
        database, connection, topic, first_number, last_number, (first_number, last_number)
    )
    entries = _read_or_reuse_cached_entries(database, connection, topic, rows, cache)
    result = []
    for row in rows:
        begin = max(first_number, row.first)
        end = min(last_number, row.last)
        if begin > end:
            continue
        records: list[Record | None]
        try:
            entry = entries[row.first]
            if isinstance(entry, EntryUnreadable):
                raise entry
            if native is not None:
                packed_part = packed_records(native, entry, row.first, begin, end, fields)
                if packed_part is not None:
                    result.append(
                        LogEntry(topic=topic, first=begin, committed_at=row.committed_at, records=packed_part)
                    )
                    continue
            records = cache.decode_records(entry, begin - row.first, end - row.first + 1)
        except EntryUnreadable as error:
            records = [None] * (end - begin + 1)
            if damage is not None and not row.is_damaged:
                damage.append(EntryDamage(row.first, row.records, str(error)))
        for number in fields.keys() & range(begin, end + 1):
            record = records[number - begin]
            if isinstance(record, Inference):
                records[number - begin] = replace_fields(record, fields[number])
        result.append(LogEntry(topic=topic, first=begin, committed_at=row.committed_at, records=records))
    return result


def highest_accepted_number(database: Database, connection: Connection, topic: str) -> int:
    row = connection.execute(database.fill_in_table_names(queries.NEWEST)).fetchone()
    return numbers_by_topic(row[1])[topic] - 1 if row else 0


def lowest_stored_number(database: Database, connection: Connection, topic: str) -> int:
    row = connection.execute(database.fill_in_table_names(queries.MARKS)).fetchone()
    assert row is not None
    return numbers_by_topic(row[2])[topic]


def read_committed_at(
    database: Database, connection: Connection, topic: str, record_number: int
) -> float | None:
    """Return when a record was committed, or None if it is deleted or not stored yet."""
    where = {"topic": topic_code(topic), "number": record_number}
    row = connection.execute(database.fill_in_table_names(queries.COMMITTED_AT), where).fetchone()
    return row[0] if row else None


def _read_rows_and_amendments(
    database: Database,
    connection: Connection,
    topic: str,
    first_number: int,
    last_number: int,
    amendment_range: tuple[int, int],
) -> tuple[list[EntryRow], Mapping[int, dict[str, object]]]:
    with connection.pipeline():
        where = {"topic": topic_code(topic), "first": first_number, "last": last_number}
        rows = connection.execute(database.fill_in_table_names(queries.ENTRIES_BETWEEN), where, binary=True)
        where = {"topic": topic_code(topic), "first": amendment_range[0], "last": amendment_range[1]}
        filled = connection.execute(database.fill_in_table_names(queries.AMENDMENTS), where, binary=True)
    return [EntryRow._make(row) for row in rows.fetchall()], unpack_amendments(topic, filled.fetchall())


def _read_or_reuse_cached_entries(
    database: Database, connection: Connection, topic: str, rows: Sequence[EntryRow], cache: EntryCache
) -> dict[int, CachedEntry | EntryUnreadable]:
    """
    Return entries by first number, from the cache or decoded. Entries that were set aside are never taken
    from the cache.
    """
    entries: dict[int, CachedEntry | EntryUnreadable] = {}
    for row in rows:
        entry = None if row.is_damaged else cache.find(topic, row.first, row.checksum)
        if entry is not None:
            entries[row.first] = entry
    missing = {row.first: row for row in rows if row.first not in entries}
    if missing:
        where = {"topic": topic_code(topic), "firsts": list(missing)}
        for first, data in connection.execute(
            database.fill_in_table_names(queries.BODIES), where, binary=True
        ):
            entries[first] = decode_and_cache_entry(topic, missing[first], data, cache)
    return {row.first: entries.get(row.first, EntryUnreadable("the entry has no body")) for row in rows}


def decode_and_cache_entry(
    topic: str, row: EntryRow, data: bytes, cache: EntryCache
) -> CachedEntry | EntryUnreadable:
    body = EntryBody(row.version, row.checksum, data)
    try:
        raws, packed = codec.unpack_entry(body, topic, row.first, row.records)
    except EntryUnreadable as error:
        return error
    return cache.put_entry(topic, row.first, raws, packed, checksum=row.checksum)


def unpack_amendments(topic: str, rows: Sequence[tuple[int, int, bytes]]) -> Mapping[int, dict[str, object]]:
    """
    Return the fields of reports added to records, by number. Damaged fields are left out, so that their
    record appears as it was first stored.
    """
    return dict(_undamaged_amendments(topic, rows))


def _undamaged_amendments(
    topic: str, rows: Sequence[tuple[int, int, bytes]]
) -> Iterator[tuple[int, dict[str, object]]]:
    for number, checksum, packed in rows:
        try:
            yield number, codec.unpack_checked_fields(topic, number, checksum, packed)
        except EntryUnreadable as error:
            log_damaged_amendment(topic, number, error)


# -- single records ------------------------------------------------------------------------------------------


APART = 256  # two numbers farther apart are read as separate ranges
RANGES_AT_ONCE = 256  # ranges per round trip, because each may return an entry


class StoredRecordReader:
    """
    Single records that planning a commit reads. The first read fetches all of `read_log_positions` (topic and number),
    the records that may be needed.
    """

    def __init__(
        self,
        database: Database,
        connection: Connection,
        cache: EntryCache,
        read_log_positions: Callable[[], Iterable[int]],
    ) -> None:
        self._database = database
        self._connection = connection
        self._cache = cache
        self._places: Callable[[], Iterable[int]] | None = read_log_positions
        self._asked: set[tuple[str, int]] = set()
        # records that were requested and exist, by topic and number
        self._raws: dict[tuple[str, int], msgspec.Raw] = {}
        # fields that later reports added to the requested records
        self.fields: dict[tuple[str, int], dict[str, object]] = {}

    def read_record(self, topic: str, record_number: int) -> Record | None:
        if (topic, record_number) not in self._asked:
            self._fetch_record_and_planned_records(topic, record_number)
        raw = self._raws.get((topic, record_number))
        if raw is None:
            return None
        try:
            record = codec.decode_record(raw)
        except EntryUnreadable:
            return None
        fields = self.fields.get((topic, record_number))
        return replace_fields(record, fields) if fields and isinstance(record, Inference) else record

    def _fetch_record_and_planned_records(self, topic: str, record_number: int) -> None:
        wanted_numbers: dict[str, set[int]] = defaultdict(set, {topic: {record_number}})
        if self._places is not None:
            for place in self._places():
                of_topic, known = decode_log_position(place)
                wanted_numbers[of_topic].add(known)
            self._places = None
        remaining = {
            of_topic: group_into_ranges(sorted(numbers)) for of_topic, numbers in wanted_numbers.items()
        }
        while remaining:
            with self._connection.pipeline():
                pending_answers = [
                    self._send_queries(queried_topic, parts[:RANGES_AT_ONCE], wanted_numbers[queried_topic])
                    for queried_topic, parts in remaining.items()
                ]
            for answer in pending_answers:
                answer()
            remaining = {
                queried_topic: rest
                for queried_topic, parts in remaining.items()
                if (rest := parts[RANGES_AT_ONCE:])
            }
        self._asked.update(
            (of_topic, number) for of_topic, numbers in wanted_numbers.items() for number in numbers
        )

    def _send_queries(
        self, topic: str, number_ranges: Sequence[tuple[int, int]], wanted_numbers: set[int]
    ) -> Callable[[], None]:
        firsts, lasts = map(list, zip(*number_ranges, strict=True))
        known = self._cache.entries(topic)
        near = [first for first in known if firsts[0] - codec.MAX_RECORDS < first <= lasts[-1]]
        within: dict[str, Any] = {
            "topic": topic_code(topic),
            "firsts": firsts,
            "lasts": lasts,
            "cached": near,
        }
        rows = self._connection.execute(
            self._database.fill_in_table_names(queries.ENTRIES_OF), within, binary=True
        )
        filled = self._connection.execute(
            self._database.fill_in_table_names(queries.AMENDMENTS_OF), within, binary=True
        )

        def receive_records_and_amendments() -> None:
            for *facts, body in rows.fetchall():
                row = EntryRow._make(facts)
                entry = (
                    known[row.first]
                    if body is None
                    else decode_and_cache_entry(topic, row, body, self._cache)
                )
                if not isinstance(entry, EntryUnreadable):
                    for number in wanted_numbers.intersection(range(row.first, row.last + 1)):
                        self._raws[topic, number] = entry.raw_records[number - row.first].copy()
            for number, fields in unpack_amendments(topic, filled.fetchall()).items():
                self.fields[topic, number] = fields

        return receive_records_and_amendments


def group_into_ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Divide ascending numbers into ranges at large gaps."""
    grouped = [(numbers[0], numbers[0])]
    for number in numbers[1:]:
        first, last = grouped[-1]
        if number - last > APART:
            grouped.append((number, number))
        else:
            grouped[-1] = first, number
    return grouped
