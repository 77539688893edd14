"""
Opening of spool.sqlite in any state, so that the log can always start.

A damaged file is moved aside as a whole, and its readable rows are copied into a new file.
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
from spool.disks import flush_directory, replace_file
from spool.errors import SpoolDamaged, SpoolUnavailable
from spool.record import TOPICS
from spool.sql import facts
from spool.sqlite.damage import notes, numbers, write_ahead_log
from spool.sqlite.damage.soundness import VALUE_ERRORS, RowCheck, raise_at_page_loop
from spool.sqlite.damage.write_ahead_log import KEPT_LOG
from spool.sqlite.database import (
    PAGE,
    Database,
    SqliteConnection,
    damage_error,
    is_corrupt,
    passes_quick_check,
)
from spool.sqlite.directory import SPOOL
from spool.sqlite.log import queries
from spool.sqlite.log.entries import highest_accepted_number
from spool.sqlite.migrations import migrate, read_migration_statements, schema_version
from spool.sqlite.streams import mark_totals_incomplete

INCARNATION = "incarnation"
# name of the damaged file from which these rows were salvaged
SALVAGED = "salvaged"
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
    "use_days",
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
    """Raised if the damaged file has no readable row, or no longer exists."""


async def open_database(path: Path, clock: Clock) -> Database:
    """Open the file and migrate it. If it is damaged, salvage it first."""
    directory = path.parent
    kept_log = path.with_name(KEPT_LOG)
    try:
        name = notes.read_new_name_of_damaged_file(directory)
        if not name or not path.with_name(name).exists():
            _copy_log(path, kept_log)
        if notes.is_marked_damaged(directory):
            raise SpoolDamaged("damage was found earlier")
        database = await Database.open(path, partial(_migrate_and_find_damage, path=path, kept_log=kept_log))
        _delete_log_copy(kept_log)
        database.watch_damage(partial(notes.mark_damaged, directory))
        return database
    except (SpoolDamaged, sqlite3.Error) as error:
        if isinstance(error, sqlite3.Error) and not is_corrupt(error):
            raise SpoolUnavailable(f"{path} cannot be opened: {error}") from error
        damaged_path = _move_aside(path, kept_log, clock, error)
    database = await Database.open(path, partial(_salvage_from, damaged_file=damaged_path))
    notes.unmark_damaged(directory)
    database.watch_damage(partial(notes.mark_damaged, directory))
    return database


def read_log_id(connection: sqlite3.Connection) -> str:
    """Return the log's id. Progress stored for a log with another id is invalid."""
    name = facts.read_fact(SqliteConnection(connection), INCARNATION)
    assert name is not None
    return name.decode()


async def mark_if_damaged(database: Database, error: BaseException | None) -> bool:
    """
    Return whether damage of the file caused an error. If so, mark the file, so that the next opening salvages
    it.

    An unexpected value counts as damage only if SQLite also finds damage. Otherwise the program has a defect.
    """
    directory = database.path.parent
    while error is not None and not notes.is_marked_damaged(directory):
        is_found = isinstance(error, sqlite3.Error) and is_corrupt(error)
        if is_found or (isinstance(error, VALUE_ERRORS) and not await passes_quick_check(database)):
            notes.mark_damaged(directory, error)
        error = error.__cause__
    return notes.is_marked_damaged(directory)


@contextmanager
def mark_and_raise_damage(directory: Path) -> Iterator[None]:
    """
    If the block raises an error about damage, mark the file for the next start, and raise SpoolDamaged
    instead.
    """
    try:
        yield
    except sqlite3.Error as error:
        if not is_corrupt(error):
            raise
        notes.mark_damaged(directory, error)
        raise SpoolDamaged(
            f"spool.sqlite is damaged ({error}): restart to salvage what can be read"
        ) from error


def _copy_log(path: Path, kept_log: Path) -> None:
    """
    Copy the write-ahead log before SQLite opens and shortens it.

    If the last start crashed, there may be a copy and an empty log; then the copy is the valid log. A salvage
    trusts a copy, so it gets its name only when it is complete and on disk.
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
    replace_file(draft, kept_log)
    flush_directory(path.parent)


def _delete_log_copy(kept_log: Path) -> None:
    """
    Delete the copy of the log, and flush the deletion, because otherwise the copy could reappear after a
    power cut and restore outdated commits.
    """
    if kept_log.exists():
        kept_log.unlink()
        flush_directory(kept_log.parent)


def _migrate_and_find_damage(connection: sqlite3.Connection, path: Path, kept_log: Path) -> None:
    """
    Migrate the file, and find damage now, by reading and writing everything that a start or a commit needs.
    """
    with mark_and_raise_damage(path.parent):
        seen = _has_read_whole_log(connection, path, kept_log)
        known = notes.read_note(path.parent)
        if schema_version(connection) == 0 and known.kept:
            _log.error(
                "the spool starts empty, although records were stored here before",
                extra={"action": "spool_lost", "records": sum(known.kept.values())},
            )
            known = notes.RecoveryNote()
            notes.write_note(path.parent, known)
        migrate_spool(connection)
        _check_tables(connection)
        _check_rows_and_writes(connection)
        connection.execute("BEGIN IMMEDIATE")
        try:
            _account_for_lost_record_numbers(connection, known, has_read_whole_log=seen)
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _has_read_whole_log(connection: sqlite3.Connection, path: Path, kept_log: Path) -> bool:
    """
    Return whether SQLite read the whole log. Raises a damage error if it dropped commits that were on disk.
    """
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not kept_log.exists():
        return True
    shared = path.with_name(f"{path.name}-shm")
    seen = write_ahead_log.frame_count_in_shared_index(shared)
    if seen >= write_ahead_log.count_frames(kept_log, PAGE):
        return True
    frames = write_ahead_log.read_frames(kept_log, PAGE)
    if frames and not schema_version(connection):
        raise damage_error("the write-ahead log has commits, but the file next to it is empty")
    if write_ahead_log.has_hidden_commits(frames, seen):
        raise damage_error("the write-ahead log has commits after a damaged one")
    return False


def _account_for_lost_record_numbers(
    connection: sqlite3.Connection, known: notes.RecoveryNote, *, has_read_whole_log: bool
) -> None:
    try:
        problem = numbers.describe_contradiction_in_log(connection)
    except VALUE_ERRORS as error:
        raise damage_error(f"a value has the wrong type for its column ({type(error).__name__})") from error
    if problem:
        raise damage_error(problem)
    missing = numbers.count_missing_record_numbers(connection, known.accepted)
    if missing and not has_read_whole_log:
        raise damage_error("acknowledged commits in the write-ahead log cannot be read")
    if missing:
        lost = numbers.repair_counters_after_loss(connection, known)
        mark_totals_incomplete(connection)
        _log.error(
            "the last acknowledged commits are missing from the file: their records are counted as damaged",
            extra={"action": "commits_lost", "records_lost": sum(lost.values())},
        )
    else:
        numbers.repair_unbalanced_route_counters(connection)


def _salvage_from(connection: sqlite3.Connection, damaged_file: Path) -> None:
    migrate_spool(connection)
    rows, source = SqliteConnection(connection), damaged_file.name.encode()
    # already salvaged: an earlier process was killed before it removed the marker
    if facts.read_fact(rows, SALVAGED) == source:
        return
    from spool.sqlite.damage.salvage import recompute_billing_sizes

    note = notes.read_note(damaged_file.parent)
    connection.execute("BEGIN IMMEDIATE")
    try:
        salvaged = _salvage_rows_of_file(connection, damaged_file, note)
        mark_totals_incomplete(connection)
        recompute_billing_sizes(connection)
        facts.store_fact(rows, SALVAGED, source)
        connection.execute("COMMIT")
    except _NothingRead as error:
        connection.execute("ROLLBACK")
        notes.write_note(damaged_file.parent, notes.RecoveryNote())
        _log.error(
            "nothing in the damaged file can be read: starting with an empty one (%s)",
            error,
            extra={"action": "spool_lost", "records": sum(note.kept.values()) or "unknown"},
        )
    else:
        lost = {"records_lost": sum(salvaged.lost.values()), "rows_lost": salvaged.left_out.total()}
        _log.warning("the damaged file was salvaged", extra={"action": "spool_salvaged", **lost})
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _salvage_rows_of_file(
    connection: sqlite3.Connection, damaged_file: Path, note: notes.RecoveryNote
) -> Salvaged:
    from spool.sqlite.damage.salvage import salvage_rows

    with closing(empty_database()) as fresh:
        try:
            salvaged = salvage_rows(connection, damaged_file, fresh, note)
        except (sqlite3.DatabaseError, FileNotFoundError) as error:
            if isinstance(error, sqlite3.Error) and not is_corrupt(error):
                raise
            raise _NothingRead(str(error)) from error
    if not salvaged.read:
        raise _NothingRead("the damaged file has no readable row")
    return salvaged


def empty_database() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute(f"PRAGMA page_size = {PAGE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    migrate(connection, read_migration_statements(SPOOL))
    return connection


def migrate_spool(connection: sqlite3.Connection) -> None:
    migrate(connection, read_migration_statements(SPOOL))
    _store_log_id_if_missing(connection)


def _store_log_id_if_missing(connection: sqlite3.Connection) -> None:
    rows = SqliteConnection(connection)
    if facts.read_fact(rows, INCARNATION) is None:
        facts.store_fact(rows, INCARNATION, secrets.token_hex(8).encode())


def _check_tables(connection: sqlite3.Connection) -> None:
    """Raise a damage error if the columns of a table differ from this version's."""
    for table, columns in _tables_of_empty_file().columns.items():
        if _read_columns(connection, table) != columns:
            raise damage_error(f"the definition of the table {table} is damaged")


class _EmptyFileTables(NamedTuple):
    check: RowCheck
    columns: Mapping[str, Sequence[tuple[object, ...]]]


@cache
def _tables_of_empty_file() -> _EmptyFileTables:
    """Return the tables of an empty file, from a cache, because creating them takes a fifth of a start."""
    with closing(empty_database()) as fresh:
        check = RowCheck(fresh)
        return _EmptyFileTables(check, {table: _read_columns(fresh, table) for table in check.table_names})


def _read_columns(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    columns = f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{table}') ORDER BY cid"
    column_rows: list[tuple[object, ...]] = connection.execute(columns).fetchall()
    return column_rows


def _check_rows_and_writes(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        check = _tables_of_empty_file().check
        for table in SMALL_TABLES:
            for row in raise_at_page_loop(connection.execute(f"SELECT * FROM {table}")):
                problem = check.find_problem(table, row)
                if problem:
                    raise damage_error(f"a row of {table} is damaged: {problem}")
        connection.execute(queries.ADD_COMMIT, (0.0, 0, b""))
        for topic in TOPICS:
            number = highest_accepted_number(connection, topic) + 1
            connection.execute(queries.NEXT_NUMBER, (topic,)).fetchone()
            connection.execute(queries.ADD_ENTRY, (topic, number, 1, 0.0, 0, 0, b""))
            connection.execute(queries.AMEND, (topic, number, 0, b""))
    # an integrity error here means that the same number was assigned twice
    except sqlite3.IntegrityError as error:
        raise damage_error(str(error)) from error
    except VALUE_ERRORS as error:
        raise damage_error(f"a value has the wrong type for its column ({type(error).__name__})") from error
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _move_aside(path: Path, kept_log: Path, clock: Clock, error: Exception) -> Path:
    """
    Move the damaged file and its logs aside. Return its new path. A marker file stores the new name, so that
    a start after a crash moves the remaining files to it.

    The database file is moved last. If it was moved already, a file with the old name is a salvage's result;
    the log of that file must not be moved next to the damaged file.
    """
    name = notes.read_or_choose_new_name_of_damaged_file(path.parent, clock.now())
    if path.with_name(name).exists():
        return path.with_name(name)
    moves = {kept_log: f"{name}-wal.kept"}
    moves |= {path.with_name(path.name + suffix): name + suffix for suffix in ("-wal", "-shm", "")}
    for source, target in moves.items():
        if source.exists() and not path.with_name(target).exists():
            source.rename(path.with_name(target))
    flush_directory(path.parent)
    _log.error(
        "spool.sqlite is damaged and was moved aside",
        extra={"action": "spool_moved_aside", "moved_to": name, "reason": str(error)},
    )
    return path.with_name(name)
