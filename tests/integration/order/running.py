"""A gateway that receives requests with restarts in between, and its result independent of order."""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import spool.sqlite.in_memory
import spool.sqlite.spool
from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.assignment import DeviceAssignment
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.merge_window import ReportMergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.intake.waiting_counters import WaitingCounters
from gateway.normalise import any_format
from gateway.normalise.formats.langfuse.merger import ReportMerger
from gateway.normalise.outcome import ReadOptions
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.table import DeviceTable
from spool.record import AI_TELEMETRY, Record, record_to_json
from spool.settings import SpoolSettings
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.gateway.normalise.formats.payloads import run
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.contract.examples import NOON, Observed, assert_books_balance, everything

HOLD_S = 10
WINDOW_S = 600
WAIT_S = 90
SETTINGS = SpoolSettings(hold=HOLD_S)
SENDER = AuthenticatedKey("sender", frozenset())
prices = cache(PriceBook.load)
attributor = cache(lambda: RecordAttributor(Config()))

SEED = int(os.environ.get("TOLLHOUSE_ORDER_SEED", "1")) or random.SystemRandom().randrange(1, 2**31)
# number of orders per case; mixed reports use three times this number
ORDERS = 100 if IS_LONG else 1

Row = dict[str, Any]
Told = tuple[list[Row], int]  # the sorted records, and the number of conflicts


@dataclass(frozen=True)
class Request:
    format: str
    body: bytes
    bearer: AuthenticatedKey = SENDER


async def normalised(request: Request) -> Any:
    """Return the outcome and the partial reports of a request, assigned to the device if the bearer is one."""
    (outcome, reports), _ = run(
        any_format.normalise_body(request.format, request.body, options=ReadOptions())
    )
    if request.bearer.device is not None:
        table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
        lifecycle = DeviceLifecycle(
            table, settings=DeviceSettings(), clock=MovedClock(NOON), secret=b"s" * 32
        )
        await DeviceAssignment(lifecycle).assign_or_reject_items(outcome, request.bearer)
        await table.close()
    return outcome, reports


class Gateway:
    """The path from a body to the log, on disk or in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._clock = MovedClock(NOON)
        self._spool: Any = None
        self.observed = Observed()

    async def start(self) -> None:
        options: Any = {"settings": SETTINGS, "clock": self._clock, "observer": self.observed}
        if self._directory is None:
            self._spool = await spool.sqlite.in_memory.open_spool(**options)
        else:
            self._spool = await spool.sqlite.spool.open_spool(self._directory, **options)
        log, stored = self._spool.log, self._spool.partial_reports
        self._shadows = ReportedCallers(self._clock, heard=self._spool.heard)
        await self._shadows.restore_missing_callers(log)
        limits: Any = {"max_items": 1000, "max_bytes": 2**24}
        self._counters = WaitingCounters(log, self._shadows, self._clock, wait_s=WAIT_S, **limits)
        await self._counters.load_waiting_counters(stored, record_hold_s=HOLD_S)
        intake = PayloadIntake(
            log, attributor=attributor(), prices=prices(), shadows=self._shadows, counters=self._counters
        )
        merger = ReportMerger(window_s=WINDOW_S, hold_s=HOLD_S, max_reports=1000, max_bytes=2**24)
        self._window = ReportMergeWindow(stored, intake, self._clock, merger)
        await self._window.load_stored_reports()

    async def restart(self) -> None:
        """Stop cleanly and start again. In memory, do nothing."""
        if self._directory is not None:
            await self._spool.close()
            await self.start()

    async def take(self, request: Request) -> None:
        outcome, reports = await normalised(request)
        await self._window.store_outcome(outcome, request.bearer, reports)

    def place_of(self, id: bytes) -> int:
        """Return the number of the record that is known under an id."""
        found = self._spool.log.find_id_position(id)
        assert found is not None
        _, number = found.place
        return int(number)

    async def pass_time(self, seconds: float) -> None:
        """Move the clock and run the background work."""
        self._clock.move(seconds)
        await self._shadows.forget_old_callers()
        await self._counters.record_due_and_reverse_repeated_counters()

    async def end(self) -> Told:
        """Close everything that is open or waiting; return the result."""
        records, conflicts = await self.closed()
        return in_order([record_to_json(record) for record in records]), conflicts

    async def closed(self) -> tuple[list[Record], int]:
        """Close everything that is open or waiting; return the records and the number of conflicts."""
        self._clock.move(WINDOW_S + 1)
        await self._window.release_due_reports()
        # In the first round, counters are stored. In the second round, they are reversed if
        # calls arrived meanwhile.
        for _ in range(2):
            await self.pass_time(HOLD_S + 1)
        self._clock.move(HOLD_S + 1)
        await assert_books_balance(self._spool.log)
        records = [record for record in await everything(self._spool.log) if record is not None]
        conflicts = (await self._spool.log.books()).topics.get(AI_TELEMETRY, {}).get("conflict", 0)
        await self._spool.close()
        return records, conflicts


async def _told(
    requests: Sequence[Request], restarts: Sequence[bool], pauses: Sequence[float], directory: Path | None
) -> Told:
    gateway = Gateway(directory)
    await gateway.start()
    for place, request in enumerate(requests):
        await gateway.take(request)
        if pauses:
            await gateway.pass_time(pauses[place % len(pauses)])
        if restarts and restarts[place % len(restarts)]:
            await gateway.restart()
    return await gateway.end()


async def records_of(requests: Sequence[Request], directory: Path, *, pause: float) -> list[Record]:
    """Return the records of requests, with a restart after each one and no conflicts between them."""
    gateway = Gateway(directory)
    await gateway.start()
    for each in requests:
        await gateway.take(each)
        await gateway.pass_time(pause)
        await gateway.restart()
    records, conflicts = await gateway.closed()
    assert conflicts == 0
    return records


def told_in_memory(requests: Sequence[Request], pauses: Sequence[float] = ()) -> Told:
    return asyncio.run(_told(requests, (), pauses, None))


def told_on_disk(requests: Sequence[Request], restarts: Sequence[bool], pauses: Sequence[float] = ()) -> Told:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_told(requests, restarts, pauses, Path(directory)))


def told(requests: Sequence[Request], restarts: Sequence[bool], pauses: Sequence[float] = ()) -> Told:
    """Run on disk if there are restarts, else in memory."""
    return told_on_disk(requests, restarts, pauses) if any(restarts) else told_in_memory(requests, pauses)


def is_on_disk(place: int, orders: Sequence[object]) -> bool:
    """Return whether a matrix also tries this order on disk: each in proofs, else only the last one."""
    return IS_LONG or place == len(orders) - 1


def told_in_every_order(
    requests: Sequence[Request], pauses: Sequence[float] = (), *, times: int = 2
) -> Iterator[Told]:
    """
    Yield the result of each order in memory, and on disk with a restart after each request. Outside proofs, only the
    last order is on disk.
    """
    orders = [order * times for order in permutations(requests)]
    for place, order in enumerate(orders):
        yield told_in_memory(order, pauses)
        if is_on_disk(place, orders):
            yield told_on_disk(order, [True], pauses)


def cut(items: Sequence[Any], cuts: Sequence[bool]) -> Iterator[list[Any]]:
    """Yield the items in groups. True begins a new group."""
    group: list[Any] = []
    for item, begins in zip(items, cuts, strict=True):
        if begins and group:
            yield group
            group = []
        group.append(item)
    yield group


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Sort records so that the order of arrival does not matter."""
    return sorted(rows, key=lambda found: json.dumps(found, sort_keys=True))


def without(told: Told, *names: str) -> Told:
    return in_order([{name: row[name] for name in row if name not in names} for row in told[0]]), told[1]


def summed(rows: Sequence[Row]) -> dict[str, Decimal]:
    """Return the sums of counters by all other values they state, without counters kept for reference."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        if row["kind"] == "usage_metric" and not row["shadow"]:
            stated = {
                name: row[name] for name in row if name not in ("id", "value", "start_time", "end_time")
            }
            sums[json.dumps(stated, sort_keys=True)] += Decimal(row["value"])
    return {stated: value for stated, value in sums.items() if value}
