"""
Opening spool.sqlite whatever state it is in: the log always starts.

A damaged file is moved aside, whole, and what can be read of it goes into a fresh one. A note
beside it holds the last known counts of its records, for a file of which nothing can be read.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.record import TOPICS
from spool.sqlite.database import Database
from spool.sqlite.log import queries
from spool.sqlite.log.entries import accepted, is_corrupt
from spool.sqlite.migrations import migrate, script, version
from spool.sqlite.salvage import salvage
from spool.sqlite.streams import forget_whole

NOTE = "spool.note.json"  # records kept by topic, as of the last upkeep
DAMAGED = "spool.damaged"  # exists after the running log met damage: the next start salvages
INCARNATION = "incarnation"
SMALL_TABLES = (
    "facts", "books", "conflicts", "unrecognised", "routes", "deliveries", "dead", "devices", "unenrolled", "streams",
    "pending", "event_types",
)  # fmt: skip

_log = logging.getLogger(__name__)


class _Damaged(Exception):
    """The file must be salvaged before anything is kept in it."""


async def open_database(path: Path, clock: Clock) -> Database:
    """The spool's file at today's version, salvaged first when it is damaged."""
    try:
        if (path.parent / DAMAGED).exists():
            raise _Damaged("damage was met before")
        return await Database.open(path, lambda connection: _prepare(connection, path))
    except (_Damaged, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and not is_corrupt(error):
            raise SpoolUnavailable(f"{path} cannot be opened: {error}") from error
        aside = _move_aside(path, clock, error)
    database = await Database.open(path, partial(_prepare_from, aside=aside))
    (path.parent / DAMAGED).unlink()
    return database


def met_damage(directory: Path, error: sqlite3.Error) -> None:
    """Remember across the restart that the file must be salvaged."""
    marker = directory / DAMAGED
    if not marker.exists():
        _write(marker, "")
        message = "spool.sqlite is damaged (%s): restart to salvage what can be read"
        _log.error(message, error, extra={"action": "spool_damaged"})


def incarnation(connection: sqlite3.Connection) -> str:
    """Another one for every log that was begun: progress through a log of another incarnation means nothing."""
    name: bytes = connection.execute(queries.FACT, (INCARNATION,)).fetchone()[0]
    return name.decode()


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate, and try everything that a start reads or a commit touches: damage there is found now and not later."""
    if version(connection) == 0 and (known := read_note(path.parent)):
        _log.error(
            "the spool begins empty although records were kept here before",
            extra={"action": "spool_lost", "records": sum(known.values())},
        )
    _migrate(connection)
    _try_everything(connection)


def _prepare_from(connection: sqlite3.Connection, aside: Path) -> None:
    _migrate(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        lost = salvage(connection, aside)
    except sqlite3.DatabaseError as error:
        connection.execute("ROLLBACK")
        known = read_note(aside.parent)
        _log.error(
            "nothing could be read of the damaged file: an empty one is begun (%s)",
            error,
            extra={"action": "spool_lost", "records": sum(known.values()) if known else "unknown"},
        )
    else:
        forget_whole(connection)
        _remember_incarnation(connection)
        connection.execute("COMMIT")
        _log.warning(
            "the damaged file was salvaged", extra={"action": "spool_salvaged", "records_lost": sum(lost.values())}
        )


def _migrate(connection: sqlite3.Connection) -> None:
    first = script("schema.sql") + script("deliveries/deliveries.sql")
    later = ("devices.sql", "streams.sql", "pending.sql", "log/event_types.sql", "deliveries/ambiguous.sql")
    migrate(connection, (first, *map(script, later)))
    _remember_incarnation(connection)


def _remember_incarnation(connection: sqlite3.Connection) -> None:
    if connection.execute(queries.FACT, (INCARNATION,)).fetchone() is None:
        connection.execute(queries.KEEP_FACT, (INCARNATION, secrets.token_hex(8).encode()))


def _try_everything(connection: sqlite3.Connection) -> None:
    """Read the small tables whole and write where the next commit will write, then take it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for table in SMALL_TABLES:
            connection.execute(f"SELECT count(*) FROM (SELECT * FROM {table})").fetchone()
        connection.execute(queries.ADD_COMMIT, (0.0, 0, b""))
        for topic in TOPICS:
            number = accepted(connection, topic) + 1
            connection.execute(queries.NEXT_NUMBER, (topic,)).fetchone()
            connection.execute(queries.ADD_ENTRY, (topic, number, 1, 0.0, 0, 0, b""))
            connection.execute(queries.AMEND, (topic, number, 0, b""))
    except sqlite3.IntegrityError as error:  # a number that is given twice: the tables do not belong together
        raise _Damaged(str(error)) from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def write_note(directory: Path, kept: Mapping[str, int]) -> None:
    """Beside and renamed, so that a crash leaves the old note or the new one."""
    draft = directory / f"{NOTE}.new"
    _write(draft, json.dumps(dict(kept)))
    draft.rename(directory / NOTE)


def read_note(directory: Path) -> dict[str, int]:
    """Records kept by topic when last noted; empty when nothing is known."""
    try:
        note = json.loads((directory / NOTE).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(note, dict):
        return {}
    return {topic: kept for topic, kept in note.items() if isinstance(kept, int) and kept > 0}


def _move_aside(path: Path, clock: Clock, error: Exception) -> Path:
    """A crash in between is found by the marker, which names where the rest belongs."""
    marker = path.parent / DAMAGED
    name = marker.read_text() if marker.exists() else ""
    if not name:
        name = f"{path.name}.damaged-{int(clock.now())}"
        _write(marker, name)
    for suffix in ("", "-wal", "-shm"):
        source, target = path.with_name(path.name + suffix), path.with_name(name + suffix)
        if source.exists() and not target.exists():
            source.rename(target)
    _log.error(
        "spool.sqlite is damaged: it is moved aside",
        extra={"action": "spool_moved_aside", "moved_to": name, "reason": str(error)},
    )
    return path.with_name(name)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
