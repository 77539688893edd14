"""
Log entries as readers see them: closed records, with later reports added. A damaged record is None.

The functions get a connection, which may be inside a transaction or the read-only one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from spool.errors import EntryUnreadable
from spool.log.amendments import replace_fields
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry, EntryCache
from spool.log.entries.codec import EntryBody, EntryDamage, log_damaged_amendment, unpack_checked_fields
from spool.log.values import LogEntry
from spool.packed.native import NativeModule
from spool.record import TOPICS, Inference, Record
from spool.sqlite.database import damage_error, is_corrupt
from spool.sqlite.log import queries

_NUMBERS = {int, float}


class EntryRow(NamedTuple):
    rowid: int
    first: int
    records: int
    committed_at: float
    damaged: int
    version: int
    checksum: int


def read_entries(
    connection: sqlite3.Connection,
    topic: str,
    first_number: int,
    last_number: int,
    *,
    cache: EntryCache | None = None,
    damage: list[EntryDamage] | None = None,
    native: NativeModule | None = None,
) -> Sequence[LogEntry]:
    """
    Return the stored records with numbers from `first_number` to `last_number`, as entries in order, with later reports
    added.

    The records of a damaged entry are None. Newly found damage is appended to `damage`, so that the caller
    can mark it. A damaged page that leads to entries raises an error, because these entries may be intact,
    and a salvage can find them. With `native`, plain records stay packed.
    """
    if first_number > last_number:
        return []
    rows = read_entry_rows(connection, topic, first_number, last_number)
    amendments = _read_amendments(connection, topic, first_number, last_number) if rows else {}
    cache = EntryCache(0) if cache is None else cache
    entries = []
    for row in rows:
        entry = None
        if native is not None:
            entry = _packed_entry(
                connection, topic, row, first_number, last_number, cache, native, amendments
            )
        if entry is None:
            entry = _read_entry(connection, topic, row, first_number, last_number, cache, damage)
            entry = _amend_entry(entry, amendments) if amendments else entry
        entries.append(entry)
    return entries


def read_entry_rows(
    connection: sqlite3.Connection, topic: str, first_number: int, last_number: int
) -> list[EntryRow]:
    cursor = connection.execute(
        queries.ENTRIES_BETWEEN, {"topic": topic, "first": first_number, "last": last_number}
    )
    rows = list(map(EntryRow._make, cursor))
    if not {*map(type, chain.from_iterable(rows))} <= _NUMBERS:
        raise damage_error("a row of the entries has values of another type")
    return [row for row in rows if row.first + row.records > first_number]


def read_record(
    connection: sqlite3.Connection,
    topic: str,
    record_number: int,
    cache: EntryCache,
    last_rows: dict[str, EntryRow],
) -> Record | None:
    """
    Return a closed or open record, or None if it is deleted or damaged.

    `last_rows`: the last entry read in each topic within a transaction, because duplicates are usually
    adjacent.
    """
    try:
        row = last_rows.get(topic)
        if row is None or not row.first <= record_number < row.first + row.records:
            rows = read_entry_rows(connection, topic, record_number, record_number)
            if not rows:
                return None
            row = last_rows[topic] = rows[0]
        record = codec.decode_record(
            _cached_entry(connection, topic, row, cache).raw_records[record_number - row.first]
        )
        amendment = connection.execute(queries.AMENDMENT, (topic, record_number)).fetchone()
        if amendment and isinstance(record, Inference):
            record = replace_fields(record, unpack_checked_fields(topic, record_number, *amendment))
        return record
    except EntryUnreadable:
        return None
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
    return None


def highest_accepted_number(connection: sqlite3.Connection, topic: str) -> int:
    row = connection.execute(queries.TERM, (topic, "accepted")).fetchone()
    return row[0] if row else 0


def lowest_stored_number(connection: sqlite3.Connection, topic: str) -> int:
    row = connection.execute(queries.OLDEST_NUMBER, (topic,)).fetchone()
    return highest_accepted_number(connection, topic) + 1 if row[0] is None else row[0]


def forget_removed_entries(connection: sqlite3.Connection, cache: EntryCache) -> None:
    cache.forget_below({topic: lowest_stored_number(connection, topic) for topic in TOPICS})


def _cached_entry(
    connection: sqlite3.Connection, topic: str, row: EntryRow, cache: EntryCache
) -> CachedEntry:
    """
    Return an entry from the cache, or decode its row. Raises EntryUnreadable if it is damaged. An entry that
    is marked as damaged is never taken from the cache.
    """
    entry = None if row.damaged else cache.find(topic, row.first, row.checksum)
    if entry is None:
        raws, packed = _read_raws(connection, topic, row)
        entry = cache.put_entry(topic, row.first, raws, packed, checksum=row.checksum)
    return entry


def _read_raws(connection: sqlite3.Connection, topic: str, row: EntryRow) -> tuple[list[msgspec.Raw], bytes]:
    try:
        body_row = connection.execute(queries.BODY, (row.rowid,)).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        raise EntryUnreadable(str(error)) from error
    if body_row is None or not isinstance(body_row[0], bytes):
        raise EntryUnreadable("the entry has no body")
    return codec.unpack_entry(
        EntryBody(row.version, row.checksum, body_row[0]), topic, row.first, row.records
    )


def _packed_entry(
    connection: sqlite3.Connection,
    topic: str,
    row: EntryRow,
    first_number: int,
    last_number: int,
    cache: EntryCache,
    native: NativeModule,
    amendments: Mapping[int, dict[str, object]],
) -> LogEntry | None:
    """Return an entry of packed records, or None if they must be decoded, for example to locate damage."""
    from spool.packed.records import packed_records  # imported only if the compiled module is used

    begin = max(first_number, row.first)
    end = min(last_number, row.first + row.records - 1)
    try:
        cached = _cached_entry(connection, topic, row, cache)
        records = packed_records(native, cached, row.first, begin, end, amendments)
    except EntryUnreadable:
        return None
    if records is None:
        return None
    return LogEntry(topic=topic, first=begin, committed_at=row.committed_at, records=records)


def _read_entry(
    connection: sqlite3.Connection,
    topic: str,
    row: EntryRow,
    first_number: int,
    last_number: int,
    cache: EntryCache,
    damage: list[EntryDamage] | None,
) -> LogEntry:
    begin = max(first_number, row.first)
    end = min(last_number, row.first + row.records - 1)
    records: list[Record | None]
    try:
        cached = _cached_entry(connection, topic, row, cache)
        records = cache.decode_records(cached, begin - row.first, end - row.first + 1)
    except EntryUnreadable as error:
        records = [None] * (end - begin + 1)
        if damage is not None and not row.damaged:
            damage.append(EntryDamage(row.first, row.records, str(error)))
    return LogEntry(topic=topic, first=begin, committed_at=row.committed_at, records=records)


def _read_amendments(
    connection: sqlite3.Connection, topic: str, first_number: int, last_number: int
) -> dict[int, dict[str, object]]:
    """
    Return the fields of reports added to records, by number. Damaged fields are left out, so that their
    record appears as it was first stored.
    """
    fields_by_number = {}
    for number, checksum, packed in connection.execute(
        queries.AMENDMENTS, (topic, first_number, last_number)
    ):
        try:
            fields_by_number[number] = unpack_checked_fields(topic, number, checksum, packed)
        except EntryUnreadable as error:
            log_damaged_amendment(topic, number, error)
    return fields_by_number


def _amend_entry(entry: LogEntry, amendments: dict[int, dict[str, object]]) -> LogEntry:
    records = list(entry.records)
    for number in range(entry.first, entry.last + 1):
        record = records[number - entry.first]
        if number in amendments and isinstance(record, Inference):
            records[number - entry.first] = replace_fields(record, amendments[number])
    return LogEntry(topic=entry.topic, first=entry.first, committed_at=entry.committed_at, records=records)
