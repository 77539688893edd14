"""
One SQLite file: the only connection that may write, on a thread of its own, and one that can only read.

Everything that is kept on disk goes through here; no other module imports aiosqlite.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sqlite3
import struct
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from spool.errors import SpoolUnavailable
from spool.listing import folded
from spool.sql.connection import SqlConnection
from spool.turns.threads import lower_priority

T = TypeVar("T")
WAL_BYTES = (
    64 << 20
)  # a log that stays larger than this is one that something keeps from being moved into the file
CHECKPOINT_EVERY_S = 60.0  # beside SQLite's own, whose errors nobody is told

_DAMAGE = ("unsupported file format", "Could not decode to UTF-8", "no such table", "no such column")

_log = logging.getLogger(__name__)

Watch = Callable[
    [str, Callable[[], bool]], None
]  # is told a file's name, and what says whether it is in its place

# The space of deleted entries goes back to the disk in steps. It only takes hold before the first table, and where
# it has, saying so again is a commit of its own: before a start has looked at what a power cut left of the log.
IN_STEPS = 2
GIVE_BACK = f"PRAGMA auto_vacuum = {IN_STEPS}"
# Every setting with the promise it buys. page_size, too, only takes hold before the first table.
SETTINGS = (
    # entries are tens of kilobytes: half the overflow pages and index levels of 4096
    "PRAGMA page_size = 8192",
    "PRAGMA journal_mode = WAL",  # a commit is one append and one flush; readers never wait for it
    "PRAGMA synchronous = FULL",  # the flush happens before COMMIT returns: a 2xx means it is on disk
    # 16 MiB of log before pages move: fewer, longer checkpoints at high rates
    "PRAGMA wal_autocheckpoint = 2000",
    f"PRAGMA journal_size_limit = {WAL_BYTES}",  # a burst does not leave a large log file behind for ever
    "PRAGMA busy_timeout = 5000",  # only a backup or a reader's recovery ever holds the file
    "PRAGMA cell_size_check = ON",  # damage is found where it is, not where it leads
    "PRAGMA trusted_schema = OFF",  # a prepared file runs no code
    "PRAGMA mmap_size = 0",  # a torn page is an error to handle, not a signal
)


def _end_statements(error: BaseException | None) -> None:
    """
    End what the frames of an error have left unread.

    A statement that was not read to its end keeps the connection at the state of that moment, for all that is
    asked of it next; and an error lives on until its answer is sent, or until the collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def is_corrupt(error: sqlite3.Error) -> bool:
    """True if the file itself is wrong, as opposed to the disk under it or a lock of another process."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A header that names a format from the future, text that is none, and what the version says is there and
    # is not have no code of their own.
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith(_DAMAGE)


def damage(why: str) -> sqlite3.DatabaseError:
    """The error with which SQLite would have found it, had it looked."""
    error = sqlite3.DatabaseError(why)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


PAGE = 8192
# What the header of every file says, by its place there: the size of pages, that the log is a write-ahead
# log, how full pages are, the form of the tables, text in UTF-8, and that empty pages go back to the disk in
# steps.
HEADER = {
    16: (">H", (PAGE,)),
    18: (">5B", (2, 2, 0, 64, 32)),
    44: (">I", (4,)),
    56: (">I", (1,)),
    64: (">I", (1,)),
}


class _Connection(aiosqlite.Connection):
    """Runs a whole function on the connection's thread, so that a transaction costs one thread hop."""

    path = Path()
    flush_seconds = 0.0
    checkpoint_problem = ""
    _checkpoint_at = 0.0
    began: float | None = None  # what runs on the thread now; None when nothing does
    met_damage: Callable[[sqlite3.Error], None] = staticmethod(lambda error: None)

    def run(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        result: Coroutine[Any, Any, T] = self._execute(self._timed, lambda: work(self._conn))  # type: ignore[no-untyped-call]
        return result

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        result: Coroutine[Any, Any, T] = self._execute(self._timed, lambda: self._transact(work))  # type: ignore[no-untyped-call]
        return result

    def _timed(self, work: Callable[[], T]) -> T:
        self.began = time.monotonic()
        try:
            return work()
        except BaseException as error:
            _end_statements(error)
            if isinstance(error, UnicodeDecodeError):
                found = damage("a text in the file is none")
                self.met_damage(found)
                raise found from error
            if isinstance(error, sqlite3.Error) and is_corrupt(error):
                self.met_damage(error)
            raise
        finally:
            self.began = None

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._conn
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            began = time.perf_counter()
            connection.execute("COMMIT")
            self.flush_seconds = time.perf_counter() - began
        except BaseException:
            # SQLite has already rolled back after some errors (disk full); then there is nothing left to
            # undo.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if time.monotonic() >= self._checkpoint_at:
            self._try_checkpoint()
        return result

    def _try_checkpoint(self) -> None:
        """Move the log into the file, which SQLite does by itself, to learn whether it can be moved."""
        self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S
        problem = ""
        try:
            _, pages, moved = self._conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            problem = f"cannot be moved into the file: {error}"
        else:
            if moved < pages and _size(_wal(self.path)) > WAL_BYTES:
                problem = "grows, because another process reads an old state of the file (a backup, a shell)"
        if problem and problem != self.checkpoint_problem:
            extra = {"action": "checkpoint_failed", "file": self.path.name}
            _log.error("the log of %s %s", self.path.name, problem, extra=extra)
        self.checkpoint_problem = problem


class Database:
    """
    One file with one writing connection (SQLite before 3.51.3 can corrupt a WAL that two connections write).

    `transaction` runs a function between BEGIN IMMEDIATE and COMMIT: either everything it did is on disk when
    it returns, or nothing is. `read` runs a function on the second connection, which cannot write and never
    checkpoints. Both run on threads, so the functions must not touch what belongs to the event loop.
    """

    def __init__(self, path: Path, writer: _Connection, reader: _Connection) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._wal = _wal(path)
        status = path.stat()
        self._identity = (status.st_dev, status.st_ino)

    @classmethod
    async def open(
        cls, path: Path, prepare: Callable[[sqlite3.Connection], None], *, durable: bool = True
    ) -> Database:
        """Open or create the file (mode 0600) and run `prepare`, the migrations, before it is used."""
        _check_header(path)
        _create(path)
        writer = await _opened(lambda: _connect(path, durable=durable))
        writer.path = path
        try:
            await writer.run(prepare)
            # A start looks at pages that no commit needs: they go out of memory.
            await writer.run(lambda connection: connection.execute("PRAGMA shrink_memory").fetchall())
            reader = await _opened(lambda: _connect_to_read(path))
        except BaseException:
            await writer.close()
            raise
        return cls(path, writer, reader)

    def watch_damage(self, met: Callable[[sqlite3.Error], None]) -> None:
        """Tell of all damage that is met from now on, whoever reads or writes."""
        self._writer.met_damage = self._reader.met_damage = met

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run `work` in one transaction; its error, or the error of the commit, leaves the file as it was."""
        return self._writer.transaction(work)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run `work` beside the writer: it sees every transaction that had returned."""
        return self._reader.run(work)

    async def snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` beside the writer: all that it reads is of one moment."""

        def within(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

        return await self._reader.run(within)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the writing connection outside any transaction (vacuum, checkpoint, backup)."""
        return await self._writer.run(work)

    @property
    def flush_seconds(self) -> float:
        """Return the duration of the last COMMIT: the write of the log and its flush."""
        return self._writer.flush_seconds

    def is_in_place(self) -> bool:
        """False when the file or its log was removed or replaced: what is written now is gone after the process."""
        try:
            self._wal.stat()
            status = self.path.stat()
            return (status.st_dev, status.st_ino) == self._identity
        except OSError:
            return False

    def wal_bytes(self) -> int:
        """The size of the log beside the file; 0 where it cannot be read."""
        return _size(self._wal)

    @property
    def checkpoint_problem(self) -> str:
        """Why the log cannot be moved into the file; empty while it can."""
        return self._writer.checkpoint_problem

    @property
    def busy_s(self) -> float:
        """Return how long the writing connection has been at its present work; 0 when it is idle."""
        began = self._writer.began
        return 0.0 if began is None else time.monotonic() - began

    async def close(self) -> None:
        """The reader first: the last connection to close moves the log into the file, and that must be the writer."""
        try:
            await self._reader.close()
        finally:
            await self._writer.close()


async def passes_quick_check(database: Database) -> bool:
    """True if SQLite finds the file whole; it reads all of it."""

    def check(connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))

    try:
        return await database.read(check)
    except sqlite3.Error as error:
        return not is_corrupt(error)


async def _opened(connector: Callable[[], sqlite3.Connection]) -> _Connection:
    connection = _Connection(connector, iter_chunk_size=64)
    # a connection that a failure left open must not keep the process from ending
    connection._thread.daemon = True
    try:
        await connection
    except BaseException:
        # aiosqlite asks its thread to end but does not wait: its last callback would reach a closed loop.
        await asyncio.to_thread(connection._thread.join)
        raise
    return connection


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_header(path: Path) -> None:
    """Damage if the header says what SETTINGS never let one say: SQLite would believe it."""
    if not path.exists() or path.stat().st_size <= PAGE:  # all but the first page may still be in the log
        return
    with path.open("rb") as file:
        header = file.read(100)
    if any(struct.unpack_from(form, header, at) != expected for at, (form, expected) in HEADER.items()):
        raise damage("the header of the file is damaged")


def _create(path: Path) -> None:
    """SQLite gives its log files the mode of the database, and the database the mode of the umask."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def add_functions(connection: sqlite3.Connection) -> None:
    """Add what statements call and SQLite does not have: `folded`, for texts that are not of ASCII alone."""
    connection.create_function("folded", 1, folded, deterministic=True)


def _connect(path: Path, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        page_size, *settings = SETTINGS
        connection.execute(page_size)
        if connection.execute("PRAGMA auto_vacuum").fetchone() != (IN_STEPS,):
            connection.execute(GIVE_BACK)
        for setting in settings:
            connection.execute(setting)
        if not durable:
            connection.execute("PRAGMA synchronous = OFF")
        add_functions(connection)
    except UnicodeDecodeError as error:  # SQLite names a damaged table as it is written
        connection.close()
        raise damage("the list of tables is damaged") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect on the reading thread, at a low priority: questions wait behind commits."""
    lower_priority()
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    connection.execute("PRAGMA busy_timeout = 5000")
    connection.execute("PRAGMA query_only = ON")
    add_functions(connection)
    return connection


# -- connections and transactions for the tables of `spool/sql` ----------------------------------------------


_PARAMETER = re.compile(r":([a-z]\w*)")
_LIST = re.compile(r"\bIN :(\w+)")


class SqliteConnection:
    """See `spool.sql.connection.SqlConnection`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, /, **values: object) -> int:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        text, values = _of_rows(statement)
        self._connection.executemany(text, map(values, rows))

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).fetchall()

    def one(self, statement: str, /, **values: object) -> Any:
        text, lists = _text(statement)
        return self._connection.execute(text, _bound(values, lists) if lists else values).fetchone()

    def folded(self, text: str) -> tuple[str, Mapping[str, object]]:
        return f"CASE WHEN {text} GLOB '*[^ -~]*' THEN folded({text}) ELSE lower({text}) END", {}


class SqliteTransactions:
    """See `spool.sql.connection.SqlTransactions`. Errors say what is kept: "billing hours"."""

    def __init__(self, database: Database, what: str) -> None:
        self._database = database
        self._what = what

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(self._database.read(lambda connection: work(SqliteConnection(connection))))

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._reading(
            self._database.snapshot(lambda connection: work(SqliteConnection(connection)))
        )

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        try:
            return await self._database.transaction(lambda connection: work(SqliteConnection(connection)))
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be written: {error}") from error

    async def _reading(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be read: {error}") from error


@cache
def _text(statement: str) -> tuple[str, Sequence[str]]:
    """A text of `spool/sql` as SQLite takes it, and which of its parameters are lists."""
    plain = statement.replace("{schema}.", "").replace("{for_update}", "")
    return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", plain), _LIST.findall(plain)


@cache
def _of_rows(statement: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """The text with places, which are bound faster than names, and what orders a row's values."""
    text, _ = _text(statement)
    names = _PARAMETER.findall(text)
    places = _PARAMETER.sub("?", text)
    return places, itemgetter(*names) if len(names) > 1 else lambda row: [row[name] for name in names]


def _bound(values: dict[str, Any], lists: Sequence[str]) -> dict[str, Any]:
    return values | {name: json.dumps(values[name]) for name in lists}
