"""Copies every readable row of a damaged file to a new file. Records keep their numbers."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spool.sqlite.damage import numbers, write_ahead_log
from spool.sqlite.damage.notes import RecoveryNote
from spool.sqlite.damage.soundness import RowCheck, raise_at_page_loop
from spool.sqlite.database import PAGE, damage_error, is_corrupt

# -- opening a damaged file so that as much as possible can be read -------------------------------------------


INTERIOR = 5  # kind of page with cells that lead to other pages
COPY = "spool.sqlite.copy"
# opened with its write-ahead log applied


@contextmanager
def open_damaged_database(
    damaged_path: Path, empty_database: sqlite3.Connection
) -> Iterator[sqlite3.Connection]:
    """
    Open a damaged file for reading. `empty_database`: of this version. Raises sqlite3.DatabaseError if it is
    unreadable.
    """
    copy = damaged_path.with_name(COPY)
    try:
        with _open_database_or_repaired_copy(damaged_path, copy, empty_database) as connection:
            yield connection
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


@contextmanager
def _open_database_or_repaired_copy(
    damaged_path: Path, copy_path: Path, empty_database: sqlite3.Connection
) -> Iterator[sqlite3.Connection]:
    log = _write_ahead_log_path(damaged_path)
    if write_ahead_log.is_undamaged(log, PAGE):
        with closing(_connect_read_only(damaged_path)) as connection:
            if _has_tables_of_empty_database(connection, empty_database):
                yield connection
                return
    _copy_with_write_ahead_log(damaged_path, copy_path, log)
    with closing(_connect_read_only(copy_path)) as connection:
        if _has_tables_of_empty_database(connection, empty_database):
            yield connection
            return
    _replace_first_page(copy_path, empty_database)
    with closing(_connect_read_only(copy_path)) as connection:
        yield connection


def _write_ahead_log_path(damaged_path: Path) -> Path:
    kept_log = damaged_path.with_name(f"{damaged_path.name}-wal.kept")
    return kept_log if kept_log.exists() else damaged_path.with_name(f"{damaged_path.name}-wal")


def _connect_read_only(path: Path) -> sqlite3.Connection:
    # a read-only connection cannot read its own write-ahead log
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = lambda text: text.decode(errors="replace")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    # a wrong page count, or damage in one table, must not hide other tables
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("PRAGMA cell_size_check = OFF")
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _has_tables_of_empty_database(connection: sqlite3.Connection, empty_database: sqlite3.Connection) -> bool:
    try:
        return all(
            _column_names(connection, table)
            == _column_names(empty_database, table)[: len(_column_names(connection, table))]
            != []
            for table in ("facts", "entries", "amendments", "commits", "books", "routes", "deliveries")
        )
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


def _column_names(connection: sqlite3.Connection, table: str) -> list[str]:
    return [
        name for (name,) in connection.execute(f"SELECT name FROM pragma_table_info('{table}') ORDER BY cid")
    ]


def _copy_with_write_ahead_log(damaged_path: Path, copy_path: Path, log_path: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        copy_path.with_name(copy_path.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(damaged_path, copy_path)
    write_ahead_log.write_log_pages_into(log_path, copy_path, PAGE)
    with copy_path.open("r+b") as file:
        file.truncate(-(-file.seek(0, 2) // PAGE) * PAGE)


def _replace_first_page(damaged_copy: Path, empty_database: sqlite3.Connection) -> None:
    """
    Replace the first page, which leads to every table, by the first page of a new file.

    In every file of one version, the tables begin at the same pages (see `spool.sqlite.migrations`). If the
    list of tables needs more pages, they are appended.
    """
    data = empty_database.serialize()
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    first = bytearray(pages[0])
    with damaged_copy.open("r+b") as file:
        count = max(1, file.seek(0, 2) // PAGE)
        if first[100] == INTERIOR:
            cells = struct.unpack_from(">H", first, 103)[0]
            links = [108, *struct.unpack_from(f">{cells}H", first, 112)]
            for offset in links:
                (child,) = struct.unpack_from(">I", first, offset)
                file.seek(count * PAGE)
                file.write(pages[child - 1])
                count += 1
                struct.pack_into(">I", first, offset, count)
        struct.pack_into(">I", first, 28, count)
        struct.pack_into(">II", first, 32, 0, 0)  # no free pages
        file.seek(0)
        file.write(first)


# -- salvaging -----------------------------------------------------------------------------------------------


# if a larger skip of row ids is needed, the rest of the table is given up
FARTHEST = 1 << 40

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Salvaged:
    """
    The number of copied rows by table, and of lost record numbers by topic. `left_out`: rows that were
    invalid.
    """

    read: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    lost: dict[str, int] = field(default_factory=dict)


def salvage_rows(
    connection: sqlite3.Connection, damaged_path: Path, empty_database: sqlite3.Connection, note: RecoveryNote
) -> Salvaged:
    """
    Copy the rows within the caller's transaction. `empty_database`: an empty database of this version. Raises
    sqlite3.DatabaseError if nothing can be read.
    """
    salvaged = Salvaged()
    check = RowCheck(empty_database)
    with open_damaged_database(damaged_path, empty_database) as old:
        _create_missing_tables(connection, old)
        for table in _table_names(connection):
            for row in _read_rows(old, table):
                problem = check.find_problem(table, row) or _copy_row_or_return_error(
                    connection, table, row, check
                )
                if problem:
                    salvaged.left_out[table] += 1
                else:
                    salvaged.read[table] += 1
    for table, count in salvaged.left_out.items():
        _log.warning(
            "damaged rows were left out", extra={"action": "rows_lost", "table": table, "rows": count}
        )
    salvaged.lost.update(numbers.repair_counters_after_loss(connection, note))
    return salvaged


def _copy_row_or_return_error(
    connection: sqlite3.Connection, table: str, row: Sequence[Any], check: RowCheck
) -> str:
    columns = (
        f" ({', '.join(check.first_column_names(table, len(row)))})" if table in check.table_names else ""
    )
    marks = ", ".join("?" * len(row))
    try:
        connection.execute(f"INSERT OR REPLACE INTO {table}{columns} VALUES ({marks})", row)
    except (sqlite3.IntegrityError, sqlite3.OperationalError) as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise
        return str(error)
    return ""


def _create_missing_tables(connection: sqlite3.Connection, old: sqlite3.Connection) -> None:
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    schema = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' ORDER BY type DESC"
    for name, statement in _read_until_damage(old, schema):
        if name not in known:
            try:
                connection.execute(statement)
            except (sqlite3.DatabaseError, sqlite3.Warning, TypeError):
                _log.warning(
                    "a table could not be created again", extra={"action": "table_lost", "table": str(name)}
                )


def _table_names(connection: sqlite3.Connection) -> list[str]:
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [name for (name,) in connection.execute(tables)]


def _read_rows(old: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Yield a table's rows. Tables without row ids are read from both ends. A missing table has no rows."""
    try:
        columns = old.execute(f"SELECT name, pk FROM pragma_table_info('{table}')").fetchall()
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return
    if not columns:
        return
    try:
        old.execute(f"SELECT rowid FROM {table} LIMIT 1").fetchall()
    except sqlite3.OperationalError:  # without rowid, the table is read by its key
        key = next(name for name, position in columns if position == 1)
        for direction in ("ASC", "DESC"):
            yield from _read_until_damage(old, f"SELECT * FROM {table} ORDER BY {key} {direction}")
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        _raise_unless_damage(error)
        yield from _read_past_damage(old, table)
    else:
        yield from _read_past_damage(old, table)


def _read_until_damage(old: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from raise_at_page_loop(old.execute(query))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        _raise_unless_damage(error)


def _read_past_damage(old: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """
    Yield rows in order. Damage is passed by a jump; rows that the jump missed follow in descending order.

    The row before a damaged one is read separately, because Python would drop it when the next row raises.
    """
    upwards = f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? ORDER BY rowid"
    downwards = (
        f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid > ? AND rowid < ? ORDER BY rowid DESC LIMIT 1"
    )
    begin = last = 0
    leap = 1
    while leap < FARTHEST:
        try:
            for number, *row in old.execute(upwards, (last,)):
                if number <= last:
                    raise damage_error("a page leads back to an earlier one")
                above = number
                while (
                    leap > 1
                    and (found_row := _first_row(old, downwards, (begin, above)))
                    and found_row[0] < above
                ):
                    above = found_row[0]
                    yield found_row[1:]
                begin = number
                last = number
                leap = 1
                yield tuple(row)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            _raise_unless_damage(error)
            found_row = _first_row(old, f"{upwards} LIMIT 1", (last,)) if leap == 1 else None
            if found_row and found_row[0] > last:
                begin = last = found_row[0]
                yield found_row[1:]
            else:
                last += leap
                leap *= 2
        else:
            return


def _first_row(old: sqlite3.Connection, query: str, values: tuple[int, ...]) -> tuple[Any, ...] | None:
    try:
        row: tuple[Any, ...] | None = old.execute(query, values).fetchone()
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        _raise_unless_damage(error)
        return None
    return row


def _raise_unless_damage(error: sqlite3.DatabaseError | UnicodeDecodeError) -> None:
    if isinstance(error, UnicodeDecodeError):
        return
    if not is_corrupt(error) and not str(error).startswith(("no such", "malformed", "database schema")):
        raise error


# -- sizes of months of hourly files -------------------------------------------------------------------------


_RESIZE = """
    INSERT INTO billing_months (connection, month, rows, bytes, stored, newest)
    SELECT r.connection, r.month, sum(r.rows), sum(r.bytes), sum(r.stored),
           coalesce((SELECT max(at) FROM billing_drops d WHERE d.connection = r.connection AND d.month = r.month), 0)
      FROM billing_rows r GROUP BY r.connection, r.month"""


def recompute_billing_sizes(connection: sqlite3.Connection) -> None:
    """Compute the stored sizes again. Billing drops without rows are deleted."""
    connection.execute("DELETE FROM billing_drops WHERE number NOT IN (SELECT number FROM billing_rows)")
    connection.execute("DELETE FROM billing_months")
    connection.execute(_RESIZE)
