"""
Entries in the database as readers see them: closed records, amended, damaged ones set aside as None.

Functions of a connection, so that they work inside a transaction as well as beside it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

import msgspec

from spool.errors import EntryUnreadable
from spool.log.amendments import amended
from spool.log.commits.following import by_topic
from spool.log.entries import codec
from spool.log.entries.codec import EntryBody
from spool.log.entries.damage import Damage, log_damaged_amendment
from spool.log.values import Entry
from spool.postgres.database import Connection, Database
from spool.postgres.log import queries
from spool.record import TOPICS, Inference, Record

RAW_BYTES = 72  # of an undecoded record beside its own bytes
DECODED = 6  # a decoded record takes that many times its packed bytes


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


class ShelvedEntry:
    """The records of an entry: all undecoded, and those that a reader had decoded."""

    __slots__ = ("decoded", "is_kept", "raws", "size")

    def __init__(self, raws: list[msgspec.Raw], size: int) -> None:
        self.raws = raws
        self.decoded: list[Record | None] = [None] * len(raws)
        self.size = size + RAW_BYTES * len(raws)  # bytes in memory, about
        self.is_kept = True  # on the shelf: one that had to go may still be read from


class Shelf:
    """
    The records of the entries last read; entries never change, so nothing here grows stale.

    Several threads may read. Nobody changes a record.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, int], ShelvedEntry] = OrderedDict()
        self.bytes = 0

    def find(self, topic: str, first: int) -> ShelvedEntry | None:
        with self._lock:
            entry = self._kept.get((topic, first))
            if entry is not None:
                self._kept.move_to_end((topic, first))
            return entry

    def entries(self, topic: str) -> dict[int, ShelvedEntry]:
        """By their first numbers."""
        with self._lock:
            return {first: entry for (of, first), entry in self._kept.items() if of == topic}

    def put(self, topic: str, first: int, raws: list[msgspec.Raw], size: int) -> ShelvedEntry:
        entry = ShelvedEntry(raws, size)
        with self._lock:
            before = self._kept.pop((topic, first), None)
            self._kept[topic, first] = entry
            if before is not None:
                before.is_kept = False
            self._make_room(entry.size - (before.size if before else 0))
        return entry

    def records(self, entry: ShelvedEntry, begin: int, end: int) -> list[Record]:
        """Those at the places from `begin` until before `end`."""
        found = []
        added = 0
        for place in range(begin, end):
            record = entry.decoded[place]
            if record is None:
                record = entry.decoded[place] = codec.record(entry.raws[place])
                added += DECODED * len(entry.raws[place])
            found.append(record)
        if added:
            with self._lock:
                entry.size += added
                if entry.is_kept:
                    self._make_room(added)
        return found

    def clear(self) -> None:
        """What was read is not what is in the database any more."""
        with self._lock:
            for entry in self._kept.values():
                entry.is_kept = False
            self._kept.clear()
            self.bytes = 0

    def _make_room(self, added: int) -> None:
        self.bytes += added
        while self.bytes > self._max_bytes and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            gone.is_kept = False
            self.bytes -= gone.size


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
    shelf: Shelf,
    damage: list[Damage] | None = None,
) -> Sequence[Entry]:
    """
    Every kept number from first to last, cut to that range, amended, in order.

    An entry that cannot be read is None. New finds are added to `damage`, for the caller to set aside.
    """
    if first > last:
        return []
    rows, fields = _select(database, connection, topic, first, last, (first, last))
    entries = _shelved(database, connection, topic, rows, shelf)
    found = []
    for row in rows:
        begin, end = max(first, row.first), min(last, row.last)
        if begin > end:
            continue
        records: list[Record | None]
        try:
            entry = entries[row.first]
            if isinstance(entry, EntryUnreadable):
                raise entry
            records = [*shelf.records(entry, begin - row.first, end - row.first + 1)]
        except EntryUnreadable as error:
            records = [None] * (end - begin + 1)
            if damage is not None and not row.is_damaged:
                damage.append(Damage(row.first, row.records, str(error)))
        for number in fields.keys() & range(begin, end + 1):
            record = records[number - begin]
            if isinstance(record, Inference):
                records[number - begin] = amended(record, fields[number])
        found.append(Entry(topic=topic, first=begin, committed_at=row.committed_at, records=records))
    return found


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
    """When a record was committed; None when it is gone or not there yet."""
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


def _shelved(
    database: Database, connection: Connection, topic: str, rows: Sequence[EntryRow], shelf: Shelf
) -> dict[int, ShelvedEntry | EntryUnreadable]:
    """The records of entries, from the shelf or from the database."""
    found: dict[int, ShelvedEntry | EntryUnreadable] = {}
    for row in rows:
        entry = shelf.find(topic, row.first)
        if entry is not None:
            found[row.first] = entry
    missing = {row.first: row for row in rows if row.first not in found}
    if missing:
        where = {"topic": code(topic), "firsts": list(missing)}
        for first, data in connection.execute(database.sql(queries.BODIES), where, binary=True):
            found[first] = shelve(topic, missing[first], data, shelf)
    return {row.first: found.get(row.first, EntryUnreadable("the entry has no body")) for row in rows}


def shelve(topic: str, row: EntryRow, data: bytes, shelf: Shelf) -> ShelvedEntry | EntryUnreadable:
    body = EntryBody(row.version, row.checksum, data)
    try:
        raws, size = codec.stored_raws(body, topic, row.first, row.records)
    except EntryUnreadable as error:
        return error
    return shelf.put(topic, row.first, raws, size)


def unpacked_fields(topic: str, rows: Sequence[tuple[int, int, bytes]]) -> Mapping[int, dict[str, object]]:
    """Amendments by number; a damaged one is left out, so the record stands as it first came."""
    return dict(_checked(topic, rows))


def _checked(topic: str, rows: Sequence[tuple[int, int, bytes]]) -> Iterator[tuple[int, dict[str, object]]]:
    for number, checksum, packed in rows:
        try:
            yield number, codec.checked_fields(topic, number, checksum, packed)
        except EntryUnreadable as error:
            log_damaged_amendment(topic, number, error)
