"""
Fills a data directory with a month: through the intake into the log, counted by the ledger, looked at by the detectors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.authentication.access import Bearer
from gateway.configuration.sections import Config
from gateway.demo.furniture import SetClock, furnish
from gateway.demo.month import Month, Report, Span
from gateway.demo.plants import Plants
from gateway.insights.gathering import Sources
from gateway.insights.inspector import Inspected, Inspector
from gateway.intake.attribution import Attribution
from gateway.intake.intake import Intake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import Shadows
from gateway.normalise.outcome import Outcome
from spool.clock import Clock
from spool.errors import NotAllowed
from spool.record import AI_TELEMETRY
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.sqlite import SqliteSpool, open_spool
from spool.sqlite.ledger.ledger import Ledger
from spool.sqlite.registry.store import open_registry

BATCH = 500  # records of a submission, as a busy sender's would have


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What the directory holds now."""

    records: int
    duplicates: int
    inspected: Inspected


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rooms:
    """What a server opens, without its doors."""

    spool: SqliteSpool
    ledger: Ledger
    registry: Registry
    clock: SetClock  # the registry's


async def fill(
    directory: Path,
    span: Span,
    *,
    seed: int,
    plants: Collection[str] = (),
    clock: Clock,
    progress: Callable[[int], None] = lambda _: None,
) -> Filled:
    """
    Fill an empty directory; NotAllowed when it holds records, SpoolLocked while a server runs in it.

    `progress` hears the number of reports after each batch.
    """
    planted = Plants(plants, end=span.end)
    book = PriceBook.load()
    async with _opened(directory, clock) as rooms:
        await _send(rooms.spool, Month(span, seed=seed, plants=planted, prices=book), book, clock, progress)
        await furnish(rooms.spool, rooms.registry, rooms.clock, begin=span.begin, words=planted.words)
        await rooms.ledger.catch_up(rooms.spool.log)
        await rooms.ledger.tidy()
        inspected = await _inspected(rooms, book, clock)
        terms = (await rooms.spool.log.books()).topics[AI_TELEMETRY]
        return Filled(records=terms["accepted"], duplicates=terms.get("duplicates", 0), inspected=inspected)


@asynccontextmanager
async def _opened(directory: Path, clock: Clock) -> AsyncIterator[_Rooms]:
    async with AsyncExitStack() as stack:
        # Nothing is held open: no later report fills in what an earlier one left out.
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=clock)
        stack.push_async_callback(spool.close)
        if spool.log.closed_below(AI_TELEMETRY) > 1:
            raise NotAllowed("this directory holds records already: a demo needs a data directory of its own")
        ledger = await Ledger.open(directory, clock=clock)
        stack.push_async_callback(ledger.close)
        spool.log.holders.append(ledger.needs)
        set_clock = SetClock(clock.now())
        registry = await open_registry(directory, secret=spool.secret, clock=set_clock)
        stack.push_async_callback(registry.close)
        yield _Rooms(spool=spool, ledger=ledger, registry=registry, clock=set_clock)


async def _inspected(rooms: _Rooms, book: PriceBook, clock: Clock) -> Inspected:
    sources = Sources(
        ledger=rooms.ledger,
        log=rooms.spool.log,
        deliveries=rooms.spool.deliveries,
        keys=rooms.registry.keys.all,
        devices=rooms.spool.devices.all,
        prices=lambda: book,
    )
    return await Inspector(sources, rooms.registry.insights, clock).inspect()


async def _send(
    spool: SqliteSpool, month: Month, book: PriceBook, clock: Clock, progress: Callable[[int], None]
) -> None:
    intake = Intake(spool.log, attribution=Attribution(Config()), prices=book, shadows=Shadows(clock))
    bearer = Bearer("demo", frozenset({INGEST}))
    sent = 0
    for _, reports in month.days():
        for first in range(0, len(reports), BATCH):
            batch = reports[first : first + BATCH]
            await intake.take(_outcome(batch), bearer)
            sent += len(batch)
            progress(sent)


def _outcome(reports: Sequence[Report]) -> Outcome:
    outcome = Outcome(received=len(reports))
    for record, identity in reports:
        outcome.add(record, identity)
    return outcome
