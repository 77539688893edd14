"""
Entries in the database as readers see them: closed records, amended, damaged ones set aside as None.

Functions of a connection, so that they work inside a transaction as well as beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spool.errors import EntryUnreadable
from spool.log.amendments import amended
from spool.log.commits.following import by_topic
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry, EntryCache
from spool.log.entries.codec import EntryBody
from spool.log.entries.damage import Damage, log_damaged_amendment
from spool.log.horizon import check_closed
from spool.log.values import Entry
from spool.packed.native import Native
from spool.packed.records import packed_records
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.record import TOPICS, Inference, Record


class EntryRow(NamedTuple):
    """An entry without its body."""

    first: int
    records: int
    committed_at: float
    version: int
    checksum: int
    is_damaged: bool

    @property
    def last(self) -> int:
        return self.first + self.records - 1


def code(topic: str) -> int:
    """The number of a topic in the rows."""
    return TOPICS.index(topic)


def read_entries(
    database: Database,
    connection: Connection,
    topic: str,
    first: int,
    last: int,
    *,
    cache: EntryCache,
    damage: list[Damage] | None = None,
    whole: bool = False,
    packed: Native | None = None,
) -> Sequence[Entry]:
    """
    Every kept number from first to last, cut to that range, amended, in order.

    An entry that cannot be read is None. New finds are added to `damage`, for the caller to set aside.
    `whole`: NotClosed if this database, which may be another than before, has not given all of these numbers.
    With `packed` plain records stay packed.
    """
    if first > last:
        return []
    if whole:
        check_closed(last, accepted(database, connection, topic) + 1)
    rows, fields = _select(database, connection, topic, first, last, (first, last))
    entries = _cached_entries(database, connection, topic, rows, cache)
    result = []
    for row in rows:
        begin = max(first, row.first)
        end = min(last, row.last)
        if begin > end:
            continue
        records: list[Record | None]
        try:
            entry = entries[row.first]
            if isinstance(entry, EntryUnreadable):
                raise entry
            if packed is not None:
                kept = packed_records(packed, entry, row.first, begin, end, fields)
                if kept is not None:
                    result.append(
                        Entry(topic=topic, first=begin, committed_at=row.committed_at, records=kept)
                    )
                    continue
            records = cache.records(entry, begin - row.first, end - row.first + 1)
        except EntryUnreadable as error:
            records = [None] * (end - begin + 1)
            if damage is not None and not row.is_damaged:
                damage.append(Damage(row.first, row.records, str(error)))
        for number in fields.keys() & range(begin, end + 1):
            record = records[number - begin]
            if isinstance(record, Inference):
                records[number - begin] = amended(record, fields[number])
        result.append(Entry(topic=topic, first=begin, committed_at=row.committed_at, records=records))
    return result


def accepted(database: Database, connection: Connection, topic: str) -> int:
    """The highest number given in a topic; 0 before the first."""
    row = connection.execute(database.sql(queries.NEWEST)).fetchone()
    return by_topic(row[1])[topic] - 1 if row else 0


def oldest(database: Database, connection: Connection, topic: str) -> int:
    """The lowest number that is kept, or the next one to be given."""
    row = connection.execute(database.sql(queries.MARKS)).fetchone()
    assert row is not None
    return by_topic(row[2])[topic]


def committed_at(database: Database, connection: Connection, topic: str, number: int) -> float | None:
    """Return the time of a record's commit; None if it is gone or not there yet."""
    where = {"topic": code(topic), "number": number}
    row = connection.execute(database.sql(queries.COMMITTED_AT), where).fetchone()
    return row[0] if row else None


def _select(
    database: Database, connection: Connection, topic: str, first: int, last: int, around: tuple[int, int]
) -> tuple[list[EntryRow], Mapping[int, dict[str, object]]]:
    """The entries of a range, and what was filled into the records of another one: asked at once."""
    with connection.pipeline():
        where = {"topic": code(topic), "first": first, "last": last}
        rows = connection.execute(database.sql(queries.ENTRIES_BETWEEN), where, binary=True)
        where = {"topic": code(topic), "first": around[0], "last": around[1]}
        filled = connection.execute(database.sql(queries.AMENDMENTS), where, binary=True)
    return [EntryRow._make(row) for row in rows.fetchall()], unpacked_fields(topic, filled.fetchall())


def _cached_entries(
    database: Database, connection: Connection, topic: str, rows: Sequence[EntryRow], cache: EntryCache
) -> dict[int, CachedEntry | EntryUnreadable]:
    """The records of entries, from the cache or from the database."""
    found: dict[int, CachedEntry | EntryUnreadable] = {}
    for row in rows:
        entry = cache.find(topic, row.first)
        if entry is not None:
            found[row.first] = entry
    missing = {row.first: row for row in rows if row.first not in found}
    if missing:
        where = {"topic": code(topic), "firsts": list(missing)}
        for first, data in connection.execute(database.sql(queries.BODIES), where, binary=True):
            found[first] = cache_entry(topic, missing[first], data, cache)
    return {row.first: found.get(row.first, EntryUnreadable("the entry has no body")) for row in rows}


def cache_entry(topic: str, row: EntryRow, data: bytes, cache: EntryCache) -> CachedEntry | EntryUnreadable:
    body = EntryBody(row.version, row.checksum, data)
    try:
        raws, packed = codec.stored_raws(body, topic, row.first, row.records)
    except EntryUnreadable as error:
        return error
    return cache.put(topic, row.first, raws, packed)


def unpacked_fields(topic: str, rows: Sequence[tuple[int, int, bytes]]) -> Mapping[int, dict[str, object]]:
    """Amendments by number; a damaged one is left out, so the record stands as it first came."""
    return dict(_check_amendments(topic, rows))


def _check_amendments(
    topic: str, rows: Sequence[tuple[int, int, bytes]]
) -> Iterator[tuple[int, dict[str, object]]]:
    for number, checksum, packed in rows:
        try:
            yield number, codec.check_fields(topic, number, checksum, packed)
        except EntryUnreadable as error:
            log_damaged_amendment(topic, number, error)
