"""
The ledger itself: its one writing connection, its reading of the log, and what operators may ask of it.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from spool.clock import Clock
from spool.errors import NotAllowed, SpoolUnavailable
from spool.ledger.sums import HOUR_S, Sums
from spool.log.protocols import ReadableLog
from spool.record import AI_TELEMETRY
from spool.sqlite.database import Database
from spool.sqlite.ledger import queries, store
from spool.sqlite.ledger.queries import CostQuery, CostRow
from spool.sqlite.ledger.repricing import Pricer, Repriced, reprice
from spool.sqlite.ledger.store import DAY_S, Keys

T = TypeVar("T")
FILE = "ledger.sqlite"
CHUNK = 8192  # numbers in one transaction: a quarter of a second of full ingest
PAUSE_S = 1.0  # between transactions: at rest the ledger costs the disk one write a second, not one a commit
RETRY_S = 10.0
LATE_S = 6 * HOUR_S  # a day is summed up when most of what comes late is there
HOURS_KEPT_S = 62 * DAY_S  # then the day alone stays
MAX_ROWS = 5000  # distinct sets of dimensions in one period; further ones are "(other)"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """How far the sums reach, and the numbers they could not count: removed before, damaged, or absurd."""

    reach: int  # the next number to count
    rebuilding: int  # 0, or the number at which a rebuild will be done
    missed: int
    damaged: int
    absurd: int
    rows: int
    hourly_since: datetime | None  # before it, sums are kept by day; None: all hours are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """Periods that are counted anew, periods that stay because some of their records are gone, and where these end."""

    periods: int
    kept: int
    border: datetime | None
    first: int


class Ledger:
    """Open it, let `follow` run, ask it. A damaged file is moved aside and made again from what the log still has."""

    def __init__(
        self, database: Database, *, clock: Clock, tags: Sequence[str], max_rows: int, chunk: int = CHUNK
    ) -> None:
        self._database = database
        self._clock = clock
        self.tags = tuple(tags)
        self._keys = Keys(max_rows)
        self._chunk = chunk
        self._turn = asyncio.Lock()
        self._repair = asyncio.Lock()
        self._reach = 1

    @classmethod
    async def open(
        cls,
        directory: Path,
        *,
        clock: Clock,
        tags: Sequence[str] = ("service",),
        max_rows: int = MAX_ROWS,
        chunk: int = CHUNK,
    ) -> Ledger:
        """The ledger of a data directory whose lock the caller holds."""
        database = await _open(directory / FILE, clock)
        ledger = cls(database, clock=clock, tags=tags, max_rows=max_rows, chunk=chunk)
        try:
            ledger._reach = (await database.read(store.state))["reach"]
        except BaseException:
            await database.close()
            raise
        return ledger

    def needs(self, topic: str) -> int | None:
        """The lowest number of a topic that the log must keep for the ledger (a holder, see spool.retention)."""
        return self._reach if topic == AI_TELEMETRY else None

    async def follow(self, log: ReadableLog) -> None:
        """Count what is closed, for as long as the log lives. Runs until cancelled; a full disk only delays it."""
        async for _ in log.changes(AI_TELEMETRY):
            try:
                await self.catch_up(log)
                await self.tidy()
            except SpoolUnavailable:
                _log.exception("the ledger cannot write", extra={"action": "ledger_waits"})
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(PAUSE_S)

    async def catch_up(self, log: ReadableLog) -> int:
        """Count every closed record that was not counted yet; returns the reach."""
        async with self._turn:
            if (below := log.closed_below(AI_TELEMETRY)) < self._reach:
                await self._begin_anew(below)
            while self._reach < (below := log.closed_below(AI_TELEMETRY)):
                await self._count(log, below)
            return self._reach

    async def _begin_anew(self, below: int) -> None:
        _log.error(
            "the log ends before what was counted of it: it was lost or restored, and the sums stay as they are",
            extra={"action": "log_begun_anew", "reach": self._reach, "number": below},
        )
        await self._write(lambda connection: store.begin_anew(connection, below))
        self._reach = below

    async def _count(self, log: ReadableLog, below: int) -> None:
        first = self._reach
        rebuilding = (await self._read(store.state))["rebuilding"]
        last = min(first + self._chunk, below, rebuilding if rebuilding > first else below) - 1
        entries = await log.read(AI_TELEMETRY, first, last)
        missed = last - first + 1 - sum(len(entry.records) for entry in entries)

        def work(connection: sqlite3.Connection) -> None:
            held, until, hourly = store.frozen(connection)

            def skip(number: int, hour: int) -> bool:
                return number < until and store.period(hour, hourly) in held

            sums = Sums(self.tags, skip=skip if held else None)
            sums.add(entries)
            store.write(connection, sums, self._keys, reach=last + 1, missed=missed)

        await self._write(work)
        self._reach = last + 1

    async def tidy(self) -> int:
        """Sum up days that are over and let go of hours that are old; returns the rows that went."""
        async with self._turn:
            if (await self._read(store.state))["rebuilding"]:
                return 0
            now = int(self._clock.now())
            while await self._write(lambda connection: store.sum_up(connection, now - LATE_S)):
                pass
            old = (now - HOURS_KEPT_S) // DAY_S * DAY_S
            return await self._write(lambda connection: store.drop_hours(connection, old))

    async def rebuild(self, log: ReadableLog) -> Rebuilt:
        """
        Count anew every hour whose records are all kept; the rest stays as it is.

        Returns at once: the counting goes on with `follow` or `catch_up`, over restarts too, and until then the hours
        concerned show what was counted so far. NotAllowed while another rebuild goes on.
        """
        async with self._turn:
            if (await self._read(store.state))["rebuilding"]:
                raise NotAllowed("a rebuild of the ledger is still going on")
            first = await _oldest(log)
            periods, kept, border = await self._write(lambda connection: store.begin_rebuild(connection, first))
            self._reach = min(first, self._reach)
        return Rebuilt(periods=periods, kept=kept, border=_moment(border), first=first)

    async def reprice(self, pricer: Pricer, *, since: datetime) -> Repriced:
        """Estimate again what happened since then, all of it or nothing."""
        async with self._turn:
            start = int(since.timestamp())
            return await self._write(lambda connection: reprice(connection, self._keys, pricer, start))

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """ValueError for a dimension that does not exist."""
        return await self._read(lambda connection: queries.costs(connection, query))

    async def values(self, dimension: str) -> Sequence[str]:
        """The known values of a dimension, the first thousand; ValueError when there is none of that name."""
        return await self._read(lambda connection: queries.values(connection, dimension))

    def dimensions(self) -> Sequence[str]:
        """What costs can be grouped and filtered by."""
        return (*queries.DIMENSIONS, *(f"{queries.TAG}{name}" for name in self.tags))

    async def state(self) -> LedgerState:
        def work(connection: sqlite3.Connection) -> LedgerState:
            values = store.state(connection)
            counts = [connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone() for name in store.TABLES.values()]
            return LedgerState(
                reach=values["reach"],
                rebuilding=values["rebuilding"],
                missed=values["missed"],
                damaged=values["damaged"],
                absurd=values["absurd"],
                rows=sum(count for (count,) in counts),
                hourly_since=_moment(values["hourly"]),
            )

        return await self._read(work)

    async def close(self) -> None:
        """After what is being counted."""
        async with self._turn:
            await self._database.close()

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await self._guarded(Database.transaction, work)
        except BaseException:
            self._keys.forget()
            raise

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await self._guarded(Database.read, work)

    async def _guarded(
        self, run: Callable[[Database, Callable[[sqlite3.Connection], T]], Awaitable[T]], work: Callable[..., T]
    ) -> T:
        """Damage is answered with a new file and SpoolUnavailable: whoever asked asks again and sees it grow."""
        database = self._database
        try:
            return await run(database, work)
        except sqlite3.DatabaseError as error:
            if _is_damage(error):
                await self._start_again(database)
            raise SpoolUnavailable(f"{FILE}: {error}") from error

    async def _start_again(self, damaged: Database) -> None:
        async with self._repair:
            if self._database is not damaged:  # somebody else met the damage first
                return
            await damaged.close()
            _move_aside(damaged.path, self._clock)
            self._database = await _open(damaged.path, self._clock)
            self._keys.forget()
            self._reach = 1


async def _open(path: Path, clock: Clock) -> Database:
    try:
        return await Database.open(path, _prepare)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise SpoolUnavailable(f"{path}: {error}") from error
        _move_aside(path, clock)
        return await Database.open(path, _prepare)


def _prepare(connection: sqlite3.Connection) -> None:
    # After a power cut the file may be some transactions back, and its reach with it: they are counted again.
    connection.execute("PRAGMA synchronous = NORMAL")
    store.prepare(connection)
    store.state(connection)


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


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


async def _oldest(log: ReadableLog) -> int:
    """The lowest number that the log keeps; removal is from the low end, so halving finds it."""
    low, high = 1, log.closed_below(AI_TELEMETRY)
    while low < high:
        middle = (low + high) // 2
        if await log.read(AI_TELEMETRY, middle, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _moment(seconds: int) -> datetime | None:
    return datetime.fromtimestamp(seconds, UTC) if seconds else None
