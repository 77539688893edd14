"""
Fills a data directory with a month: through the intake into the log, counted by the ledger, looked at
by the detectors. `python -m gateway.service.demo.filling DIRECTORY DAYS RECORDS` does so in a process of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.reconciler import Reconciler
from gateway.intake.attribution import Attribution
from gateway.intake.intake import Intake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import Shadows
from gateway.money.insights.gathering import FactSources
from gateway.money.insights.inspector import InspectionReport, Inspector
from gateway.money.recommendations.adviser import Adviser, Look
from gateway.money.recommendations.gathering import Sources
from gateway.normalise.outcome import Outcome
from gateway.people.authentication.access import Bearer
from gateway.service.assembly.storage import open_storage
from gateway.service.configuration.sections import Config
from gateway.service.demo.bills import Bills
from gateway.service.demo.month import Month, Period, Report
from gateway.service.demo.plants import Plants, missed
from gateway.service.demo.samples import SetClock, add_plan, add_samples, publish_definition
from spool.clock import Clock, SystemClock
from spool.errors import NotAllowed, RegistryDamaged
from spool.record import AI_TELEMETRY
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.storage import Storage

SEED = 1  # of a month for the console
BATCH = 500  # records of a submission, as a busy sender's would have


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What the directory holds now."""

    records: int
    duplicates: int
    inspected: InspectionReport
    look: Look
    missed: Sequence[str]  # words that were planted and that nothing found


async def fill(
    directory: Path,
    period: Period,
    *,
    seed: int,
    plants: Collection[str] = (),
    clock: Clock,
    progress: Callable[[int], None] = lambda _: None,
) -> Filled:
    """
    Fill an empty directory; NotAllowed when it holds records, SpoolLocked while a server runs in it.

    `progress` is called with the number of reports after each batch.
    """
    plan = Plants(plants, end=period.end)
    book = PriceBook.load()
    registry_clock = SetClock(clock.now())
    async with _open_empty(directory, clock, registry_clock) as (storage, registry):
        ledger = storage.ledger
        bills = Bills(book, plan.words)
        month = Month(period, seed=seed, plants=plan, prices=book, bill=bills.add)
        await _send(storage, month, book, clock, progress)
        await add_samples(storage, registry, registry_clock, begin=period.begin, words=plan.words)
        await ledger.catch_up(storage.log)
        await ledger.tidy()
        await publish_definition(registry, ledger)
        await add_plan(registry, ledger, end=period.end, words=plan.words)
        await bills.keep(registry.statements, begin=period.begin, end=period.end)
        inspected = await _inspect(storage, registry, book, clock)
        sources = Sources(ledger=ledger, log=storage.log, prices=lambda: book, registry=registry)
        look = await Adviser(sources, registry.recommendations, clock).look()
        terms = (await storage.log.books()).topics.get(AI_TELEMETRY, {})
        return Filled(
            records=terms.get("accepted", 0),
            duplicates=terms.get("duplicates", 0),
            inspected=inspected,
            look=look,
            missed=missed(plants, await _titles(registry)),
        )


async def _titles(registry: Registry) -> dict[str, list[str]]:
    """Collect the titles of insights and recommendations, by detector or type."""
    titles: dict[str, list[str]] = defaultdict(list)
    for insight in await registry.insights.found():
        titles[str(insight.finding).partition(":")[0]].append(insight.title)
    for each in await registry.recommendations.all():
        titles[each.saving.type].append("")
    return titles


@asynccontextmanager
async def _open_empty(
    directory: Path,
    clock: Clock,
    registry_clock: Clock,
) -> AsyncIterator[tuple[Storage, Registry]]:
    # Nothing is held open: no later report fills in what an earlier one left out.
    config = Config(data_dir=directory, spool=SpoolSettings(hold=0.0))
    async with open_storage(config, clock=clock, registry_clock=registry_clock) as storage:
        if storage.registry is None:
            raise RegistryDamaged(storage.registry_problem)
        if storage.log.closed_below(AI_TELEMETRY) > 1:
            raise NotAllowed("this directory holds records already: a demo needs a data directory of its own")
        yield storage, storage.registry


async def _inspect(storage: Storage, registry: Registry, book: PriceBook, clock: Clock) -> InspectionReport:
    bills = StatementSources(
        ledger=storage.ledger, log=storage.log, prices=lambda: book, statements=registry.statements
    )
    sources = FactSources(
        ledger=storage.ledger,
        log=storage.log,
        deliveries=storage.deliveries,
        keys=registry.keys.all,
        devices=storage.devices.all,
        prices=lambda: book,
        reconciled=Reconciler(bills, clock).look,
    )
    return await Inspector(sources, registry.insights, clock).inspect()


async def _send(
    storage: Storage,
    month: Month,
    book: PriceBook,
    clock: Clock,
    progress: Callable[[int], None],
) -> None:
    intake = Intake(storage.log, attribution=Attribution(Config()), prices=book, shadows=Shadows(clock))
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


async def _main(directory: Path, days: int, records: int) -> None:
    clock = SystemClock()
    period = Period(end=int(clock.now()), days=days, records=records)
    await fill(directory, period, seed=SEED, clock=clock)


if __name__ == "__main__":
    _, directory, days, records = sys.argv
    asyncio.run(_main(Path(directory), int(days), int(records)))
