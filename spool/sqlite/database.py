"""
One SQLite file with its only writing connection, which has a thread of its own, and one read-only connection.

All data on disk are accessed through this module. No other module imports aiosqlite.
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
from contextlib import closing
from functools import cache, partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite

from spool.errors import SpoolUnavailable
from spool.listing import fold_case
from spool.sql.connection import SqlConnection
from spool.turns.threads import lower_priority

T = TypeVar("T")
# of the write-ahead log; if it stays larger, something keeps SQLite from moving it into the file
WAL_BYTES = 64 << 20
# seconds between checkpoints that report errors; SQLite's own checkpoints hide them
CHECKPOINT_EVERY_S = 60.0

_DAMAGE = ("unsupported file format", "Could not decode to UTF-8", "no such table", "no such column")

_log = logging.getLogger(__name__)

# function that gets the name of a file, and a function that returns whether the file is in its place
Watch = Callable[[str, Callable[[], bool]], None]
Visit = Callable[[str, Sequence[object]], None]  # function that gets a table and one of its rows

# Pages of deleted entries are returned to the disk in steps. This setting only works before the first table
# exists. On an existing file, it would be a commit before the start has checked the log for damage.
IN_STEPS = 2
GIVE_BACK = f"PRAGMA auto_vacuum = {IN_STEPS}"
# page_size also works only before the first table exists
SETTINGS = (
    # entries have tens of kilobytes; compared with 4096, this halves the number of overflow pages and index levels
    "PRAGMA page_size = 8192",
    "PRAGMA journal_mode = WAL",  # a commit is one append and one flush, and readers never wait for it
    # the flush happens before COMMIT returns, so a 2xx means that the data are on disk
    "PRAGMA synchronous = FULL",
    # fewer and longer checkpoints at high rates
    "PRAGMA wal_autocheckpoint = 2000",
    f"PRAGMA journal_size_limit = {WAL_BYTES}",  # after a burst, the log file becomes small again
    # in milliseconds; only a backup, or the recovery by a reader, ever locks the file
    "PRAGMA busy_timeout = 5000",
    # finds damage on the damaged page itself, not on the page to which it leads
    "PRAGMA cell_size_check = ON",
    "PRAGMA trusted_schema = OFF",  # prevents a manipulated file from running code
    "PRAGMA mmap_size = 0",  # turns a torn page into an error that can be handled, instead of a signal
)


def _close_unfinished_statements_of_error(error: BaseException | None) -> None:
    """
    End the unfinished statements in the stack frames of an error.

    An unfinished statement makes its connection use an old snapshot for all later reads. The error, and so
    the statement, may exist until its response is sent or the garbage collector runs.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def is_corrupt(error: sqlite3.Error) -> bool:
    """Return whether the error means damage of the file, not a failed disk or a lock."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A header with an unknown format, invalid text, and missing tables or columns have no error code of their
    # own.
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith(_DAMAGE)


def damage_error(reason: str) -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError(reason)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


PAGE = 8192
# Values that are the same in the header of every file, by offset: page size, write-ahead log, page fill,
# schema format, UTF-8, and incremental vacuum.
HEADER = {
    16: (">H", (PAGE,)),
    18: (">5B", (2, 2, 0, 64, 32)),
    44: (">I", (4,)),
    56: (">I", (1,)),
    64: (">I", (1,)),
}


class _Connection(aiosqlite.Connection):
    """
    A connection that runs a whole function on its thread, so that a transaction costs one thread switch.
    """

    path = Path()
    flush_seconds = 0.0
    checkpoint_problem = ""
    _checkpoint_at = 0.0
    began: float | None = None  # timer at the beginning of the job on the thread; None if there is none
    met_damage: Callable[[sqlite3.Error], None] = staticmethod(lambda error: None)

    def run(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        result: Coroutine[Any, Any, T] = self._execute(self._run_timed, lambda: work(self._conn))  # type: ignore[no-untyped-call]
        return result

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        result: Coroutine[Any, Any, T] = self._execute(self._run_timed, lambda: self._run_transaction(work))  # type: ignore[no-untyped-call]
        return result

    def _run_timed(self, work: Callable[[], T]) -> T:
        self.began = time.monotonic()
        try:
            return work()
        except BaseException as error:
            _close_unfinished_statements_of_error(error)
            if isinstance(error, UnicodeDecodeError):
                as_damage = damage_error("a text in the file is not valid UTF-8")
                self.met_damage(as_damage)
                raise as_damage from error
            if isinstance(error, sqlite3.Error) and is_corrupt(error):
                self.met_damage(error)
            raise
        finally:
            self.began = None

    def _run_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._conn
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = work(connection)
            began = time.perf_counter()
            connection.execute("COMMIT")
            self.flush_seconds = time.perf_counter() - began
        except BaseException:
            # after some errors, such as a full disk, SQLite has already rolled back
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        if time.monotonic() >= self._checkpoint_at:
            self._try_checkpoint()
        return result

    def _try_checkpoint(self) -> None:
        """Run a checkpoint, because SQLite does not report whether its own checkpoints succeed."""
        self._checkpoint_at = time.monotonic() + CHECKPOINT_EVERY_S
        problem = ""
        try:
            _, pages, moved_pages = self._conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            problem = f"cannot be moved into the file: {error}"
        else:
            if moved_pages < pages and _file_bytes(_wal_path(self.path)) > WAL_BYTES:
                problem = "grows, because another process reads an old state of the file (a backup, a shell)"
        if problem and problem != self.checkpoint_problem:
            extra = {"action": "checkpoint_failed", "file": self.path.name}
            _log.error("the write-ahead log of %s %s", self.path.name, problem, extra=extra)
        self.checkpoint_problem = problem


class Database:
    """
    One file with a single writing connection. Before SQLite 3.51.3, two connections that write can corrupt a
    WAL.

    `transaction` runs a function between BEGIN IMMEDIATE and COMMIT. When it returns, all changes are on
    disk. If it raises, nothing changes. `read` runs a function on the second connection, which cannot write
    and never makes checkpoints. Both use threads, so the functions must not use objects of the event loop.
    """

    def __init__(self, path: Path, writer: _Connection, reader: _Connection) -> None:
        self.path = path
        self._writer = writer
        self._reader = reader
        self._wal = _wal_path(path)
        status = path.stat()
        self._identity = (status.st_dev, status.st_ino)

    @classmethod
    async def open(
        cls, path: Path, prepare: Callable[[sqlite3.Connection], None], *, durable: bool = True
    ) -> Database:
        """Open or create the file (mode 0600), and run the migrations in `prepare` before first use."""
        _check_header(path)
        _create_private_file(path)
        writer = await _open_connection(lambda: _connect_to_write(path, durable=durable))
        writer.path = path
        try:
            await writer.run(prepare)
            # A start reads pages that no commit needs, so their memory is freed.
            await writer.run(lambda connection: connection.execute("PRAGMA shrink_memory").fetchall())
            reader = await _open_connection(lambda: _connect_to_read(path))
        except BaseException:
            await writer.close()
            raise
        return cls(path, writer, reader)

    def watch_damage(self, met: Callable[[sqlite3.Error], None]) -> None:
        """Call `met` whenever either connection finds damage."""
        self._writer.met_damage = self._reader.met_damage = met

    def transaction(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run `work` in one transaction. If `work` or the commit raises, the file is unchanged."""
        return self._writer.transaction(work)

    def read(self, work: Callable[[sqlite3.Connection], T]) -> Coroutine[Any, Any, T]:
        """Run `work`, which sees the changes of every `transaction` call that has returned."""
        return self._reader.run(work)

    async def snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:

        def run_work_in_transaction(connection: sqlite3.Connection) -> T:
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

        return await self._reader.run(run_work_in_transaction)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work`, such as a vacuum, a checkpoint or a backup, outside a transaction."""
        return await self._writer.run(work)

    @property
    def last_commit_seconds(self) -> float:
        """Return how long the last commit took to write and flush, in seconds."""
        return self._writer.flush_seconds

    def are_files_in_place(self) -> bool:
        """
        Return whether the file and its log are in their places. If one was deleted or replaced, new data
        would be lost at the end of the process.
        """
        try:
            self._wal.stat()
            status = self.path.stat()
            return (status.st_dev, status.st_ino) == self._identity
        except OSError:
            return False

    def wal_bytes(self) -> int:
        """Return the size of the write-ahead log, or 0 if it cannot be read."""
        return _file_bytes(self._wal)

    @property
    def checkpoint_problem(self) -> str:
        return self._writer.checkpoint_problem

    @property
    def busy_s(self) -> float:
        """Return the seconds for which the writing connection has been busy, 0 if it is idle."""
        began = self._writer.began
        return 0.0 if began is None else time.monotonic() - began

    async def close(self) -> None:
        """
        Close both connections. The writer is closed last, because the last connection moves the log
        into the file.
        """
        try:
            await self._reader.close()
        finally:
            await self._writer.close()


# bytes of the largest file in use that is rewritten, because commits wait for this
MOST_REWRITTEN = 512 << 20


async def overwrite_deleted_rows(database: Database) -> str:
    """Overwrite what deleted and replaced rows left behind. Return why some may remain, or ""."""

    def vacuum_file(connection: sqlite3.Connection) -> str:
        name = database.path.name
        pages: int = connection.execute("PRAGMA page_count").fetchone()[0]
        if pages * PAGE > MOST_REWRITTEN:
            return f"{name} is too large to be rewritten, so remains of rows stay until their space is reused"
        connection.execute("VACUUM")
        is_busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return f"a reader kept the write-ahead log of {name} from being emptied" if is_busy else ""

    try:
        return await database.run(vacuum_file)
    except sqlite3.OperationalError as error:
        if is_corrupt(error):
            raise
        return f"{database.path.name} cannot be rewritten: {error}"


async def passes_quick_check(database: Database) -> bool:
    """Return whether SQLite finds no damage. This reads the whole file."""

    def run_quick_check(connection: sqlite3.Connection) -> bool:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))

    try:
        return await database.read(run_quick_check)
    except sqlite3.Error as error:
        return not is_corrupt(error)


async def _open_connection(connector: Callable[[], sqlite3.Connection]) -> _Connection:
    connection = _Connection(connector, iter_chunk_size=64)
    # a connection left open after a failure does not keep the process from ending
    connection._thread.daemon = True
    try:
        await connection
    except BaseException:
        # the last callback of its thread may reach a closed event loop otherwise
        await asyncio.to_thread(connection._thread.join)
        raise
    return connection


def _wal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _file_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _check_header(path: Path) -> None:
    """Raise a damage error if the file's header has unexpected values, because SQLite would trust it."""
    # a file of at most one page may have all its content in the write-ahead log
    if not path.exists() or path.stat().st_size <= PAGE:
        return
    with path.open("rb") as file:
        header = file.read(100)
    if any(struct.unpack_from(form, header, at) != expected for at, (form, expected) in HEADER.items()):
        raise damage_error("the header of the file is damaged")


def _create_private_file(path: Path) -> None:
    """
    Create the file with mode 0600. SQLite would apply the umask, and it copies this file's mode to its log
    files.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def add_functions(connection: sqlite3.Connection) -> None:
    """Add the SQL function `folded`, which also folds characters outside ASCII."""
    connection.create_function("folded", 1, fold_case, deterministic=True)


def _connect_to_write(path: Path, *, durable: bool) -> sqlite3.Connection:
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
    except UnicodeDecodeError as error:  # a table's name is damaged
        connection.close()
        raise damage_error("the list of tables is damaged") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Open a read-only connection. Its thread has a lower priority, so that queries do not delay commits."""
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
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, statement: str, /, **values: object) -> int:
        text, lists = _translate_statement(statement)
        return self._connection.execute(text, _encode_lists(values, lists) if lists else values).rowcount

    def run_each(self, statement: str, rows: Iterable[Mapping[str, object]]) -> None:
        text, values = _positional_statement(statement)
        self._connection.executemany(text, map(values, rows))

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        text, lists = _translate_statement(statement)
        return self._connection.execute(text, _encode_lists(values, lists) if lists else values).fetchall()

    def first_row(self, statement: str, /, **values: object) -> Any:
        text, lists = _translate_statement(statement)
        return self._connection.execute(text, _encode_lists(values, lists) if lists else values).fetchone()

    def folded_expression(self, text: str) -> tuple[str, Mapping[str, object]]:
        return f"CASE WHEN {text} GLOB '*[^ -~]*' THEN folded({text}) ELSE lower({text}) END", {}


class SqliteTransactions:
    """Transactions in which errors name `what`, such as "billing hours"."""

    def __init__(self, database: Database, what: str) -> None:
        self._database = database
        self._what = what

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._translate_read_errors(
            self._database.read(lambda connection: work(SqliteConnection(connection)))
        )

    async def snapshot(self, work: Callable[[SqlConnection], T]) -> T:
        return await self._translate_read_errors(
            self._database.snapshot(lambda connection: work(SqliteConnection(connection)))
        )

    async def transaction(self, work: Callable[[SqlConnection], T]) -> T:
        try:
            return await self._database.transaction(lambda connection: work(SqliteConnection(connection)))
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be written: {error}") from error

    async def _translate_read_errors(self, running: Awaitable[T]) -> T:
        try:
            return await running
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"{self._what} cannot be read: {error}") from error


@cache
def _translate_statement(statement: str) -> tuple[str, Sequence[str]]:
    plain = statement.replace("{schema}.", "").replace("{for_update}", "")
    return _LIST.sub(r"IN (SELECT value FROM json_each(:\1))", plain), _LIST.findall(plain)


@cache
def _positional_statement(statement: str) -> tuple[str, Callable[[Mapping[str, Any]], Sequence[Any]]]:
    """
    Return a statement with positional parameters, which bind faster, and a function that puts a row's values
    in their order.
    """
    text, _ = _translate_statement(statement)
    names = _PARAMETER.findall(text)
    places = _PARAMETER.sub("?", text)
    return places, itemgetter(*names) if len(names) > 1 else lambda row: [row[name] for name in names]


def _encode_lists(values: dict[str, Any], lists: Sequence[str]) -> dict[str, Any]:
    return values | {name: json.dumps(values[name]) for name in lists}


async def visit_rows_of_files(directory: Path, visit: Visit) -> None:
    """Read the files over connections of their own, because commits and other readers must not wait."""
    try:
        await asyncio.to_thread(_visit_rows_of_directory, directory, visit)
    except sqlite3.Error as error:
        raise SpoolUnavailable(f"the data cannot be searched: {error}") from error


async def visit_rows_in_memory(database: Database, visit: Visit) -> None:
    await database.read(partial(_visit_rows, visit=visit))


def _visit_rows_of_directory(directory: Path, visit: Visit) -> None:
    for path in sorted(directory.absolute().glob("*.sqlite")):
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = lambda text: text.decode(errors="replace")
            _visit_rows(connection, visit)


def _visit_rows(connection: sqlite3.Connection, visit: Visit) -> None:
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    for (table,) in tables:
        for row in connection.execute(f'SELECT * FROM "{table}"'):
            visit(table, row)
