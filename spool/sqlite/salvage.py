"""
From a damaged file into a fresh one: every row that can still be read, at the numbers it had.

Deletion only ever takes the oldest entries, so the books say which numbers must be there; those that are not become
damaged entries, whose numbers readers skip and count.
"""

from __future__ import annotations

import logging
import sqlite3
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from spool.log import books, codec
from spool.record import TOPICS
from spool.sqlite.log import queries
from spool.sqlite.log.entries import is_corrupt, place_name

FARTHEST = 1 << 40  # rows to leap over at once before the rest of a table is given up

_log = logging.getLogger(__name__)


def salvage(connection: sqlite3.Connection, damaged: Path) -> dict[str, int]:
    """Copy from the damaged file within the caller's transaction; returns the numbers lost by topic."""
    with closing(sqlite3.connect(damaged, isolation_level=None)) as old:  # writable, or its log could not be read
        old.execute("PRAGMA query_only = ON")
        _make_tables(connection, old)
        for table in _tables(connection):
            for row in _rows(old, table):
                if table != "entries" or _is_whole(row):
                    _copy(connection, table, row)
    lost = {topic: _fill(connection, topic) for topic in TOPICS}
    connection.execute(queries.RECOUNT_ENTRIES)
    _carry_lost_commits(connection)
    return {topic: count for topic, count in lost.items() if count}


def _is_whole(entry: Sequence[Any]) -> bool:
    """A damaged page can yield rows that nobody wrote; what was set aside before is kept as it is."""
    topic, first, count, _, damaged, _, checksum, body = entry
    return bool(damaged) or codec.checksum(body, place_name(topic, first, count)) == checksum


def _copy(connection: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
    marks = ", ".join("?" * len(row))
    try:
        connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)
    except sqlite3.IntegrityError as error:
        _log.warning("a damaged row is left out: %s", error, extra={"action": "row_lost", "table": table})


def _make_tables(connection: sqlite3.Connection, old: sqlite3.Connection) -> None:
    """Tables that others keep in the file, beside those of this version."""
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    schema = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC"
    for name, statement in old.execute(schema).fetchall():
        if name not in known:
            connection.execute(statement)


def _tables(connection: sqlite3.Connection) -> list[str]:
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(tables)]


def _rows(old: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Rows from the front, leaping over what is damaged; without row ids from both ends."""
    try:
        old.execute(f"SELECT rowid FROM {table} LIMIT 1").fetchall()
    except sqlite3.OperationalError:  # WITHOUT ROWID
        (key,) = old.execute(f"SELECT name FROM pragma_table_info('{table}') WHERE pk = 1").fetchone()
        for direction in ("ASC", "DESC"):
            yield from _until_damaged(old, f"SELECT * FROM {table} ORDER BY {key} {direction}")
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise
        yield from _leaping(old, table)
    else:
        yield from _leaping(old, table)


def _until_damaged(old: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from old.execute(query)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise


def _leaping(old: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    last, leap = 0, 1
    while leap < FARTHEST:
        try:
            rows = old.execute(f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid", (last,))
            for number, *row in rows:
                last, leap = number, 1
                yield tuple(row)
        except sqlite3.DatabaseError as error:
            if not is_corrupt(error):
                raise
            last += leap
            leap *= 2
        else:
            return


def _fill(connection: sqlite3.Connection, topic: str) -> int:
    """Damaged entries for the numbers that are gone; returns how many."""
    counters = {term: n for of, term, n, _ in connection.execute(queries.BOOKS) if of == topic}
    entries = "SELECT first, count, committed_at FROM entries WHERE topic = ? ORDER BY first"
    kept = connection.execute(entries, (topic,)).fetchall()
    accepted = counters.get(books.ACCEPTED, 0)
    if kept and kept[-1][0] + kept[-1][1] - 1 > accepted:
        accepted = kept[-1][0] + kept[-1][1] - 1
        count = {"topic": topic, "term": books.ACCEPTED, "n": accepted - counters.get(books.ACCEPTED, 0)}
        connection.execute(queries.COUNT, count)
    if kept and books.ACCEPTED not in counters:  # the counters are lost: what came before the oldest is not known
        counters[books.RETIRED] = kept[0][0] - 1
        connection.execute(queries.COUNT, {"topic": topic, "term": books.RETIRED, "n": kept[0][0] - 1})
    expected = counters.get(books.EXPIRED, 0) + counters.get(books.RETIRED, 0) + 1
    lost = 0
    committed_at = 0.0
    for first, records, at in [*kept, (accepted + 1, 0, 0.0)]:
        committed_at = committed_at or at
        if first > expected:
            lost += first - expected
            row = (topic, expected, first - expected, committed_at, 0, 0, b"")
            connection.execute(queries.ADD_ENTRY, row)
            connection.execute(queries.MARK_DAMAGED, (topic, expected))
        expected = max(expected, first + records)
        committed_at = at
    if lost:
        connection.execute(queries.COUNT, {"topic": topic, "term": books.DAMAGED, "n": lost})
    return lost


def _carry_lost_commits(connection: sqlite3.Connection) -> None:
    """What the counters hold and no commit row explains any more is carried forward, so that the books balance."""
    explained: Counter[tuple[str, str]] = Counter()
    for checksum, packed in connection.execute("SELECT checksum, terms FROM commits").fetchall():
        if zlib.crc32(packed) == checksum:
            explained.update(books.totals(books.unpack_terms(packed)))
    for topic, term, n, carried in connection.execute(queries.BOOKS).fetchall():
        missing = n - carried - explained[topic, term]
        if missing and term not in books.BY_KEEPING:
            _log.warning(
                "commit rows are lost, their counts are carried forward",
                extra={"action": "commits_lost", "topic": topic, "term": term, "count": missing},
            )
            connection.execute(queries.CARRY, {"topic": topic, "term": term, "n": missing})
