"""
Opening spool.sqlite whatever state it is in: the log always starts.

A file that SQLite cannot open is moved aside, whole, and a fresh one begun. What the house last knew of its contents
stands in a note beside it, so that the operator learns how much is in the file that was moved.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from spool.clock import Clock
from spool.errors import SpoolUnavailable
from spool.sqlite import queries
from spool.sqlite.database import Database
from spool.sqlite.entries import is_corrupt
from spool.sqlite.migrations import migrate, script, version

NOTE = "spool.note.json"  # records kept by topic, as of the last upkeep
INCARNATION = "incarnation"

_log = logging.getLogger(__name__)


async def open_database(path: Path, clock: Clock) -> Database:
    """The spool's file at today's version; a damaged one is moved aside first."""
    try:
        return await Database.open(path, lambda connection: prepare(connection, path))
    except sqlite3.Error as error:
        if not is_corrupt(error):
            raise SpoolUnavailable(f"{path} cannot be opened: {error}") from error
        _move_aside(path, clock, error)
    return await Database.open(path, lambda connection: prepare(connection, path))


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Migrate, and try everything that a commit touches first: damage there is found now and not later."""
    if version(connection) == 0 and (known := read_note(path.parent)):
        _log.error(
            "the spool begins empty although records were kept here before",
            extra={"action": "spool_lost", "records": sum(known.values())},
        )
    migrate(connection, (script("schema.sql") + script("deliveries.sql"),))
    connection.execute("BEGIN IMMEDIATE")
    try:
        if connection.execute(queries.FACT, (INCARNATION,)).fetchone() is None:
            connection.execute(queries.KEEP_FACT, (INCARNATION, secrets.token_hex(8).encode()))
        connection.execute(queries.BOOKS).fetchall()
        connection.execute(queries.LAST_COMMIT).fetchone()
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def incarnation(connection: sqlite3.Connection) -> str:
    """Another one for every file that was begun: progress through a log of another incarnation means nothing."""
    name: bytes = connection.execute(queries.FACT, (INCARNATION,)).fetchone()[0]
    return name.decode()


def write_note(directory: Path, kept: Mapping[str, int]) -> None:
    """Beside and renamed, so that a crash leaves the old note or the new one."""
    draft = directory / f"{NOTE}.new"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(kept), file)
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


def _move_aside(path: Path, clock: Clock, error: sqlite3.Error) -> None:
    aside = path.with_name(f"{path.name}.damaged-{int(clock.now())}")
    for suffix in ("-wal", "-shm", ""):  # the file last: a crash in between finds the same damage again
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.rename(aside.with_name(aside.name + suffix))
    known = read_note(path.parent)
    (path.parent / NOTE).unlink(missing_ok=True)
    _log.error(
        "spool.sqlite is damaged: it was moved aside and an empty one begun",
        extra={
            "action": "spool_moved_aside",
            "moved_to": str(aside),
            "reason": str(error),
            "records": known or "unknown",
        },
    )
