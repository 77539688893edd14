"""ledger.sqlite itself. A damaged file is moved aside and made again from what the log still has."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from spool.clock import Clock
from spool.errors import LedgerLost, SpoolUnavailable
from spool.ledger.ledger import CHUNK, Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.packed.native import Native
from spool.sqlite.database import Database, Watch, damage, is_corrupt, passes_quick_check
from spool.sqlite.directory import LEDGER
from spool.sqlite.ledger.ledger_rows import SqliteLedgerRows, prepare

T = TypeVar("T")
VALUE_ERRORS = (TypeError, KeyError, AttributeError, ArithmeticError)  # of a value that nobody wrote

_log = logging.getLogger(__name__)


class SqliteLedger:
    """See `spool.ledger.ledger_rows.LedgerStore`."""

    shares_log = False

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._repair = asyncio.Lock()

    @classmethod
    async def open(cls, directory: Path, clock: Clock) -> SqliteLedger:
        return cls(await _open(directory / LEDGER, clock), clock)

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._guarded(lambda database, inner: database.transaction(inner), work)

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._guarded(lambda database, inner: database.snapshot(inner), work)

    def is_in_place(self) -> bool:
        return self._repair.locked() or self._database.is_in_place()

    async def close(self) -> None:
        await self._database.close()

    async def _guarded(
        self,
        run: Callable[[Database, Callable[[sqlite3.Connection], T]], Awaitable[T]],
        work: Callable[[LedgerRows], T],
    ) -> T:
        database = self._database
        try:
            return await run(database, lambda connection: work(SqliteLedgerRows(connection)))
        except sqlite3.DatabaseError as error:
            is_odd = isinstance(error, sqlite3.IntegrityError) and not await passes_quick_check(database)
            if (is_corrupt(error) or is_odd) and await self._begin_anew(database):
                raise LedgerLost(f"{LEDGER}: {error}") from error
            raise SpoolUnavailable(f"{LEDGER}: {error}") from error
        except VALUE_ERRORS as error:
            if await passes_quick_check(database) or not await self._begin_anew(database):
                raise
            raise LedgerLost(f"{LEDGER}: {type(error).__name__}") from error

    async def _begin_anew(self, damaged: Database) -> bool:
        """Replace a damaged file by a new one; False when another caller who met the damage has done so."""
        async with self._repair:
            if self._database is not damaged:
                return False
            await damaged.close()
            _move_aside(damaged.path, self._clock)
            self._database = await _open(damaged.path, self._clock)
            return True


async def open_ledger(
    directory: Path,
    *,
    clock: Clock,
    tags: Sequence[str] = ("service",),
    chunk: int = CHUNK,
    packed: Native | None = None,
    watch: Watch | None = None,
) -> Ledger:
    """The ledger of a data directory whose lock the caller holds."""
    store = await SqliteLedger.open(directory, clock)
    if watch is not None:
        watch(LEDGER, store.is_in_place)
    return await Ledger(store, clock=clock, tags=tags, chunk=chunk, packed=packed).load()


async def _open(path: Path, clock: Clock) -> Database:
    try:
        return await Database.open(path, _prepare)
    except sqlite3.DatabaseError as error:
        if not is_corrupt(error):
            raise SpoolUnavailable(f"{path}: {error}") from error
        _move_aside(path, clock)
        return await Database.open(path, _prepare)


def _prepare(connection: sqlite3.Connection) -> None:
    """Every sum is flushed, as the log's records are: a full log lets entries go as soon as they are counted."""
    prepare(connection)
    if any(type(value) is not int for value in SqliteLedgerRows(connection).state().values()):
        raise damage("a value of its state has another type")  # found now and not later


def _move_aside(path: Path, clock: Clock) -> None:
    aside = path.with_name(f"{path.name}.damaged-{int(clock.now())}")
    _log.error(
        "the ledger is damaged: it is moved aside and made again from the log",
        extra={"action": "ledger_damaged", "file": str(aside)},
    )
    for ending in ("", "-wal", "-shm"):
        part = path.with_name(path.name + ending)
        if part.exists():
            part.rename(aside.with_name(aside.name + ending))
