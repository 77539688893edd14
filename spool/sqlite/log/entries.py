"""
Entries on disk as readers see them: closed records, amended, damaged ones set aside as None.

Functions of a connection, so that they work inside a transaction as well as on the reading connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from spool.errors import EntryUnreadable
from spool.log.amendments import amended
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry, EntryCache
from spool.log.entries.codec import Damage, EntryBody, check_fields, log_damaged_amendment
from spool.log.values import Entry
from spool.packed.native import Native
from spool.record import TOPICS, Inference, Record
from spool.sqlite.database import damage as damage_error
from spool.sqlite.database import is_corrupt
from spool.sqlite.log import queries

_NUMBERS = {int, float}


class EntryRow(NamedTuple):
    """An entry without its body."""

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
    first: int,
    last: int,
    *,
    cache: EntryCache | None = None,
    damage: list[Damage] | None = None,
    packed: Native | None = None,
) -> Sequence[Entry]:
    """
    Every kept number from first to last, cut to that range, amended, in order.

    An entry that cannot be read is None. New finds are added to `damage`, for the caller to set aside. A
    damaged page that leads to entries is an error of the file: what it hides is whole, and a salvage finds
    it. With `packed` plain records stay packed.
    """
    if first > last:
        return []
    rows = entry_rows(connection, topic, first, last)
    amendments = _amendments(connection, topic, first, last) if rows else {}
    cache = EntryCache(0) if cache is None else cache
    found = []
    for row in rows:
        entry = None
        if packed is not None:
            entry = _packed_entry(connection, topic, row, first, last, cache, packed, amendments)
        if entry is None:
            entry = _entry(connection, topic, row, first, last, cache, damage)
            entry = _with(entry, amendments) if amendments else entry
        found.append(entry)
    return found


def entry_rows(connection: sqlite3.Connection, topic: str, first: int, last: int) -> list[EntryRow]:
    """The entries that hold any number from first to last, without their bodies."""
    found = connection.execute(queries.ENTRIES_BETWEEN, {"topic": topic, "first": first, "last": last})
    rows = list(map(EntryRow._make, found))
    if not {*map(type, chain.from_iterable(rows))} <= _NUMBERS:
        raise damage_error("a row of the entries has values of another type")
    return [row for row in rows if row.first + row.records > first]


def read_record(
    connection: sqlite3.Connection, topic: str, number: int, cache: EntryCache, last_rows: dict[str, EntryRow]
) -> Record | None:
    """
    Read one record with its amendment, closed or open; None if it is gone or damaged.

    `last_rows` holds, by topic, the entry that the caller's transaction read last: repeats of a request are
    beside each other.
    """
    try:
        row = last_rows.get(topic)
        if row is None or not row.first <= number < row.first + row.records:
            rows = entry_rows(connection, topic, number, number)
            if not rows:
                return None
            row = last_rows[topic] = rows[0]
        record = codec.record(_cached_entry(connection, topic, row, cache).raws[number - row.first])
        amendment = connection.execute(queries.AMENDMENT, (topic, number)).fetchone()
        if amendment and isinstance(record, Inference):
            record = amended(record, check_fields(topic, number, *amendment))
        return record
    except EntryUnreadable:
        return None
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
    return None


def accepted(connection: sqlite3.Connection, topic: str) -> int:
    """The highest number given in a topic; 0 before the first."""
    row = connection.execute(queries.TERM, (topic, "accepted")).fetchone()
    return row[0] if row else 0


def oldest(connection: sqlite3.Connection, topic: str) -> int:
    """The lowest number that is kept, or the next one to be given."""
    row = connection.execute(queries.OLDEST_NUMBER, (topic,)).fetchone()
    return accepted(connection, topic) + 1 if row[0] is None else row[0]


def forget_removed(connection: sqlite3.Connection, cache: EntryCache) -> None:
    """Let go of the entries that are no longer in the log."""
    cache.forget_below({topic: oldest(connection, topic) for topic in TOPICS})


def _cached_entry(
    connection: sqlite3.Connection, topic: str, row: EntryRow, cache: EntryCache
) -> CachedEntry:
    """EntryUnreadable when the entry is damaged."""
    return cache.find(topic, row.first) or cache.put(topic, row.first, *_raws(connection, topic, row))


def _raws(connection: sqlite3.Connection, topic: str, row: EntryRow) -> tuple[list[msgspec.Raw], bytes]:
    try:
        found = connection.execute(queries.BODY, (row.rowid,)).fetchone()
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        raise EntryUnreadable(str(error)) from error
    if found is None or not isinstance(found[0], bytes):
        raise EntryUnreadable("the entry has no body")
    return codec.stored_raws(EntryBody(row.version, row.checksum, found[0]), topic, row.first, row.records)


def _packed_entry(
    connection: sqlite3.Connection,
    topic: str,
    row: EntryRow,
    first: int,
    last: int,
    cache: EntryCache,
    native: Native,
    amendments: Mapping[int, dict[str, object]],
) -> Entry | None:
    """None if its records are to be decoded, also to find what is damaged."""
    from spool.packed.records import packed_records  # only where the compiled module is

    begin = max(first, row.first)
    end = min(last, row.first + row.records - 1)
    try:
        cached = _cached_entry(connection, topic, row, cache)
        records = packed_records(native, cached, row.first, begin, end, amendments)
    except EntryUnreadable:
        return None
    if records is None:
        return None
    return Entry(topic=topic, first=begin, committed_at=row.committed_at, records=records)


def _entry(
    connection: sqlite3.Connection,
    topic: str,
    row: EntryRow,
    first: int,
    last: int,
    cache: EntryCache,
    damage: list[Damage] | None,
) -> Entry:
    begin = max(first, row.first)
    end = min(last, row.first + row.records - 1)
    records: list[Record | None]
    try:
        cached = _cached_entry(connection, topic, row, cache)
        records = cache.records(cached, begin - row.first, end - row.first + 1)
    except EntryUnreadable as error:
        records = [None] * (end - begin + 1)
        if damage is not None and not row.damaged:
            damage.append(Damage(row.first, row.records, str(error)))
    return Entry(topic=topic, first=begin, committed_at=row.committed_at, records=records)


def _amendments(
    connection: sqlite3.Connection, topic: str, first: int, last: int
) -> dict[int, dict[str, object]]:
    """Return the amended fields by number. A damaged amendment is left out, so its record stands as it first came."""
    found = {}
    for number, checksum, packed in connection.execute(queries.AMENDMENTS, (topic, first, last)):
        try:
            found[number] = check_fields(topic, number, checksum, packed)
        except EntryUnreadable as error:
            log_damaged_amendment(topic, number, error)
    return found


def _with(entry: Entry, amendments: dict[int, dict[str, object]]) -> Entry:
    records = list(entry.records)
    for number in range(entry.first, entry.last + 1):
        record = records[number - entry.first]
        if number in amendments and isinstance(record, Inference):
            records[number - entry.first] = amended(record, amendments[number])
    return Entry(topic=entry.topic, first=entry.first, committed_at=entry.committed_at, records=records)
