"""
A damaged file, opened so that all that is readable of it can be read.

First as it is, with SQLite's own checks switched off. If its header or its list of tables is damaged, or the log
beside it, then a copy: padded to whole pages, the pages of the log laid over it, and under a fresh first page.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from spool.sqlite.damage import write_ahead_log
from spool.sqlite.database import PAGE

INTERIOR = 5  # the kind of a page whose cells lead to others
COPY = "spool.sqlite.copy"
# the log as it was before SQLite opened it and dropped what it took for its end


@contextmanager
def opened(damaged: Path, fresh: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """`fresh` is an empty database of this version in memory. sqlite3.DatabaseError when nothing can be read."""
    copy = damaged.with_name(COPY)
    try:
        with _connected(damaged, copy, fresh) as connection:
            yield connection
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)


@contextmanager
def _connected(damaged: Path, copy: Path, fresh: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    log = _log_of(damaged)
    if write_ahead_log.is_whole(log, PAGE):
        with closing(_connect(damaged)) as connection:
            if _has_tables(connection, fresh):
                yield connection
                return
    _copy(damaged, copy, log)
    with closing(_connect(copy)) as connection:
        if _has_tables(connection, fresh):
            yield connection
            return
    _lay_first_page(copy, fresh)
    with closing(_connect(copy)) as connection:
        yield connection


def _log_of(damaged: Path) -> Path:
    kept = damaged.with_name(f"{damaged.name}-wal.kept")
    return kept if kept.exists() else damaged.with_name(f"{damaged.name}-wal")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)  # writable, or its log could not be read
    connection.text_factory = lambda text: text.decode(errors="replace")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute(
        "PRAGMA writable_schema = ON"
    )  # a wrong page count or one damaged table hides no other
    connection.execute("PRAGMA cell_size_check = OFF")
    connection.execute("PRAGMA mmap_size = 0")
    return connection


def _has_tables(connection: sqlite3.Connection, fresh: sqlite3.Connection) -> bool:
    """True if the file has its first tables."""
    try:
        return all(
            _columns(connection, table) == _columns(fresh, table)[: len(_columns(connection, table))] != []
            for table in ("facts", "entries", "amendments", "commits", "books", "routes", "deliveries")
        )
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


def _columns(connection: sqlite3.Connection, table: str) -> list[str]:
    return [
        name for (name,) in connection.execute(f"SELECT name FROM pragma_table_info('{table}') ORDER BY cid")
    ]


def _copy(damaged: Path, copy: Path, log: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal"):
        copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(damaged, copy)
    write_ahead_log.lay_over(log, copy, PAGE)
    with copy.open("r+b") as file:
        file.truncate(-(-file.seek(0, 2) // PAGE) * PAGE)


def _lay_first_page(copy: Path, fresh: sqlite3.Connection) -> None:
    """
    The first page of a fresh file, which leads to every table.

    A table is made at the same page in every file of one version: see `spool.sqlite.migrations`. Where the
    list of the tables needs further pages, they are added at the end.
    """
    data = fresh.serialize()
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    first = bytearray(pages[0])
    with copy.open("r+b") as file:
        count = max(1, file.seek(0, 2) // PAGE)
        if first[100] == INTERIOR:
            cells = struct.unpack_from(">H", first, 103)[0]
            links = [108, *struct.unpack_from(f">{cells}H", first, 112)]
            for place in links:
                (child,) = struct.unpack_from(">I", first, place)
                file.seek(count * PAGE)
                file.write(pages[child - 1])
                count += 1
                struct.pack_into(">I", first, place, count)
        struct.pack_into(">I", first, 28, count)
        struct.pack_into(">II", first, 32, 0, 0)  # no list of free pages
        file.seek(0)
        file.write(first)
