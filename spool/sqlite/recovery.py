"""
Opening spool.sqlite whatever state it is in: the log always starts.

A damaged file is moved aside, whole, and what can be read of it goes into a fresh one.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from spool.clock import Clock
from spool.disks import flush_directory
from spool.errors import SpoolDamaged, SpoolUnavailable
from spool.record import TOPICS
from spool.sqlite.damage import notes, numbers, write_ahead_log
from spool.sqlite.damage.soundness import VALUE_ERRORS, RowCheck, with_an_end
from spool.sqlite.damage.write_ahead_log import KEPT_LOG
from spool.sqlite.database import PAGE, Database, damage, is_corrupt, passes_quick_check
from spool.sqlite.directory import SPOOL
from spool.sqlite.log import queries
from spool.sqlite.log.entries import accepted
from spool.sqlite.migrations import migrate, statements, version
from spool.sqlite.streams import forget_whole

INCARNATION = "incarnation"
SALVAGED = "salvaged"  # the name of the damaged file whose rows are here
SMALL_TABLES = (
    "facts",
    "books",
    "conflicts",
    "unrecognised",
    "routes",
    "deliveries",
    "dead",
    "devices",
    "unenrolled",
    "streams",
    "pending",
    "event_types",
    "stream_sizes",
    "clusters",
    "container_files",
    "container_books",
)
_log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from spool.sqlite.damage.salvage import Salvaged


class _NothingRead(Exception):
    """A damaged file of which not one row can be read, or one that is gone."""


async def open_database(path: Path, clock: Clock) -> Database:
    """The spool's file at today's version, salvaged first when it is damaged."""
    directory = path.parent
    kept_log = path.with_name(KEPT_LOG)
    try:
        name = notes.name_aside(directory)
        if not name or not path.with_name(name).exists():
            _keep_log(path, kept_log)
        if notes.is_marked(directory):
            raise SpoolDamaged("damage was met before")
        database = await Database.open(path, partial(_prepare, path=path, kept_log=kept_log))
        _forget_log(kept_log)
        database.watch_damage(partial(notes.mark, directory))
        return database
    except (SpoolDamaged, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and not is_corrupt(error):
            raise SpoolUnavailable(f"{path} cannot be opened: {error}") from error
        aside = _move_aside(path, kept_log, clock, error)
    database = await Database.open(path, partial(_prepare_from, aside=aside))
    notes.unmark(directory)
    database.watch_damage(partial(notes.mark, directory))
    return database


def incarnation(connection: sqlite3.Connection) -> str:
    """Another one for every log that was begun: progress through a log of another incarnation means nothing."""
    name: bytes = connection.execute(queries.FACT, (INCARNATION,)).fetchone()[0]
    return name.decode()


async def is_damage(database: Database, error: BaseException | None) -> bool:
    """
    True if an error came from damage of the file, which is marked then: opening again salvages.

    A value that no reader expects is damage only if SQLite finds some, too: else it is an error of the program.
    """
    directory = database.path.parent
    while error is not None and not notes.is_marked(directory):
        is_found = isinstance(error, sqlite3.Error) and is_corrupt(error)
        if is_found or (isinstance(error, VALUE_ERRORS) and not await passes_quick_check(database)):
            notes.mark(directory, error)
        error = error.__cause__
    return notes.is_marked(directory)


@contextmanager
def damage_remembered(directory: Path) -> Iterator[None]:
    """Turn an error of damage into SpoolDamaged and set the marker, so that the next start salvages."""
    try:
        yield
    except sqlite3.Error as error:
        if not is_corrupt(error):
            raise
        notes.mark(directory, error)
        raise SpoolDamaged(
            f"spool.sqlite is damaged ({error}): restart to salvage what can be read"
        ) from error


def _keep_log(path: Path, kept_log: Path) -> None:
    """
    A copy of the log from before SQLite opens it.

    A crash since the last copy leaves one beside an empty log: then it is the copy that tells what there was.
    So it is whole and on disk before it has its name: a salvage believes it.
    """
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return
    draft = kept_log.with_name(f"{kept_log.name}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with log.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    draft.rename(kept_log)
    flush_directory(path.parent)


def _forget_log(kept_log: Path) -> None:
    """
    Delete the copy of the log for good: after a power cut it would come back with commits that the file has outgrown.
    """
    if kept_log.exists():
        kept_log.unlink()
        flush_directory(kept_log.parent)


def _prepare(connection: sqlite3.Connection, path: Path, kept_log: Path) -> None:
    """Migrate, and try everything that a start reads or a commit touches: damage there is found now and not later."""
    with damage_remembered(path.parent):
        seen = _commits_seen(connection, path, kept_log)
        known = notes.read_note(path.parent)
        if version(connection) == 0 and known.kept:
            _log.error(
                "the spool begins empty although records were kept here before",
                extra={"action": "spool_lost", "records": sum(known.kept.values())},
            )
            known = notes.Note()
            notes.write_note(path.parent, known)
        migrate_spool(connection)
        _check_tables(connection)
        _try_everything(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            _settle_what_is_lost(connection, known, seen_all=seen)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _commits_seen(connection: sqlite3.Connection, path: Path, kept_log: Path) -> bool:
    """True if SQLite took all that the log holds; damage if it dropped commits that were on disk."""
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not kept_log.exists():
        return True
    shared = path.with_name(f"{path.name}-shm")
    seen = write_ahead_log.count_seen(shared)
    if seen >= write_ahead_log.count_marked(kept_log, PAGE):
        return True
    frames = write_ahead_log.frames(kept_log, PAGE)
    if frames and not version(connection):
        raise damage("the log holds commits and the file next to it is empty")
    if write_ahead_log.has_hidden_commits(frames, seen):
        raise damage("commits in the log lie behind a damaged one")
    return False


def _settle_what_is_lost(connection: sqlite3.Connection, known: notes.Note, *, seen_all: bool) -> None:
    try:
        problem = numbers.do_not_meet(connection)
    except VALUE_ERRORS as error:
        raise damage(f"a value is not of its column ({type(error).__name__})") from error
    if problem:
        raise damage(problem)
    missing = numbers.behind(connection, known.accepted)
    if missing and not seen_all:
        raise damage("commits in the log that were acknowledged cannot be read")
    if missing:
        lost = numbers.settle(connection, known)
        forget_whole(connection)
        _log.error(
            "the file ends before what was acknowledged: its last commits are lost, and count as damaged",
            extra={"action": "commits_lost", "records_lost": sum(lost.values())},
        )
    else:
        numbers.settle_routes(connection)


def _prepare_from(connection: sqlite3.Connection, aside: Path) -> None:
    migrate_spool(connection)
    done = connection.execute(queries.FACT, (SALVAGED,)).fetchone()
    if done is not None and done[0] == aside.name.encode():  # killed before the marker was removed
        return
    from spool.sqlite.damage.salvage import resize  # a sound file needs none of what salvages

    note = notes.read_note(aside.parent)
    connection.execute("BEGIN IMMEDIATE")
    try:
        salvaged = _salvaged(connection, aside, note)
        forget_whole(connection)
        resize(connection)
        connection.execute(queries.KEEP_FACT, (SALVAGED, aside.name.encode()))
        connection.execute("COMMIT")
    except _NothingRead as error:
        connection.execute("ROLLBACK")
        notes.write_note(aside.parent, notes.Note())
        _log.error(
            "nothing could be read of the damaged file: an empty one is begun (%s)",
            error,
            extra={"action": "spool_lost", "records": sum(note.kept.values()) or "unknown"},
        )
    else:
        lost = {"records_lost": sum(salvaged.lost.values()), "rows_lost": salvaged.left_out.total()}
        _log.warning("the damaged file was salvaged", extra={"action": "spool_salvaged", **lost})
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _salvaged(connection: sqlite3.Connection, aside: Path, note: notes.Note) -> Salvaged:
    from spool.sqlite.damage.salvage import salvage

    with closing(empty_database()) as fresh:
        try:
            salvaged = salvage(connection, aside, fresh, note)
        except (sqlite3.DatabaseError, FileNotFoundError) as error:
            if isinstance(error, sqlite3.Error) and not is_corrupt(error):
                raise
            raise _NothingRead(str(error)) from error
    if not salvaged.read:
        raise _NothingRead("no row of it can be read")
    return salvaged


def empty_database() -> sqlite3.Connection:
    """An empty spool.sqlite of this version in memory: its tables, at the pages where every file has them."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    migrate(connection, statements(SPOOL))
    return connection


def migrate_spool(connection: sqlite3.Connection) -> None:
    """Bring the file to this version."""
    migrate(connection, statements(SPOOL))
    _remember_incarnation(connection)


def _remember_incarnation(connection: sqlite3.Connection) -> None:
    if connection.execute(queries.FACT, (INCARNATION,)).fetchone() is None:
        connection.execute(queries.KEEP_FACT, (INCARNATION, secrets.token_hex(8).encode()))


def _check_tables(connection: sqlite3.Connection) -> None:
    """Damage if a table is not as this version has it: the list of tables is damaged."""
    for table, columns in _made().columns.items():
        if _columns(connection, table) != columns:
            raise damage(f"the table {table} is not as it was made")


class _Made(NamedTuple):
    """The tables of this version."""

    check: RowCheck
    columns: Mapping[str, Sequence[tuple[object, ...]]]


@cache
def _made() -> _Made:
    """Read the tables of an empty file, once in a process: to make one takes a fifth of a start."""
    with closing(empty_database()) as fresh:
        check = RowCheck(fresh)
        return _Made(check, {table: _columns(fresh, table) for table in check.tables})


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    columns = f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{table}') ORDER BY cid"
    found: list[tuple[object, ...]] = connection.execute(columns).fetchall()
    return found


def _try_everything(connection: sqlite3.Connection) -> None:
    """Read the small tables whole and write where the next commit will write, then take it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        check = _made().check  # _check_tables found no others
        for table in SMALL_TABLES:
            for row in with_an_end(connection.execute(f"SELECT * FROM {table}")):
                problem = check.problem(table, row)
                if problem:
                    raise damage(f"a row of {table} is damaged: {problem}")
        connection.execute(queries.ADD_COMMIT, (0.0, 0, b""))
        for topic in TOPICS:
            number = accepted(connection, topic) + 1
            connection.execute(queries.NEXT_NUMBER, (topic,)).fetchone()
            connection.execute(queries.ADD_ENTRY, (topic, number, 1, 0.0, 0, 0, b""))
            connection.execute(queries.AMEND, (topic, number, 0, b""))
    except sqlite3.IntegrityError as error:  # a number that is given twice: the tables do not belong together
        raise damage(str(error)) from error
    except VALUE_ERRORS as error:
        raise damage(f"a value is not of its column ({type(error).__name__})") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _move_aside(path: Path, kept_log: Path, clock: Clock, error: Exception) -> Path:
    """
    A crash in between is found by the marker, which names where the rest belongs.

    The file itself goes last. Once it is there, what has its old name is what a salvage has made so far: its
    log must not come beside the damaged file.
    """
    name = notes.choose_name_aside(path.parent, clock.now())
    if path.with_name(name).exists():
        return path.with_name(name)
    moves = {kept_log: f"{name}-wal.kept"}
    moves |= {path.with_name(path.name + suffix): name + suffix for suffix in ("-wal", "-shm", "")}
    for source, target in moves.items():
        if source.exists() and not path.with_name(target).exists():
            source.rename(path.with_name(target))
    flush_directory(path.parent)
    _log.error(
        "spool.sqlite is damaged: it is moved aside",
        extra={"action": "spool_moved_aside", "moved_to": name, "reason": str(error)},
    )
    return path.with_name(name)
