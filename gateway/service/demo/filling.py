"""
Fills a data directory with a demo month: calls through the intake, totals, insights, and provider bills.

`python -m gateway.service.demo.filling DIRECTORY DAYS RECORDS` does this in its own process.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import NamedTuple

import msgspec

from gateway.bills.reconciliation.gathering import StatementSources
from gateway.bills.reconciliation.reconciler import BillReconciler
from gateway.bills.statements.sources.list import SOURCES
from gateway.configuration.sections import Config
from gateway.devices.fleet.fleet import Fleet
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.money.insights.gathering import FactSources
from gateway.money.insights.inspector import InsightUpdater, InspectionReport
from gateway.money.recommendations.adviser import AdviserRun, RecommendationUpdater
from gateway.money.recommendations.gathering import Sources
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.assembly.storage import open_storage
from gateway.service.demo.examples import add_examples
from gateway.service.demo.month import Period, Report, SimulatedMonth
from gateway.service.demo.note import write_note
from gateway.service.demo.planted_problems import (
    EXAMPLES,
    FOUND_BY,
    PLANTS,
    PlantedProblems,
    undetected_problem_names,
)
from gateway.service.demo.samples import (
    ACTOR,
    SENDER,
    SetClock,
    add_events_and_sums,
    add_idle_seat_plan,
    add_samples,
    build_note,
    publish_definition,
)
from spool.clock import Clock, SystemClock
from spool.errors import NotAllowed, RegistryDamaged
from spool.record import AI_TELEMETRY, NS, Inference
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.settings import SpoolSettings
from spool.statements import (
    DAY_S,
    DEMO,
    EXACT,
    REQUESTS,
    TOKENS,
    USD,
    Statement,
    StatementRow,
    StatementStore,
)
from spool.storage import Storage

SEED = 1  # random seed of the demo month in the console
BATCH = 500  # records per submission; a busy sender submits about this number

OPENAI, ANTHROPIC = "openai", "anthropic"
REPORTS = {OPENAI: ("openai_usage", "openai_costs"), ANTHROPIC: ("anthropic_usage", "anthropic_costs")}
# Cost of web searches as a share of a day's cost. The share is so small that the comparison tolerates it.
SEARCHES = Decimal("0.002")
CENT = Decimal("0.01")
SILENT_KEY, SILENT_MODEL = "notebooks", "gpt-4.1-mini"
SILENT_SHARE = 4  # the unreported key has 1/SILENT_SHARE of the tokens of all other keys


class _Use(NamedTuple):
    day: int
    provider: str
    key: str
    model: str
    tier: str


class DemoBills:
    """
    The provider bills for all calls of the demo month that a provider answered. `problem_names` name the planted
    problems; one adds calls of a key that sends no telemetry.
    """

    def __init__(self, prices: PriceBook, problem_names: frozenset[str]) -> None:
        self._prices = prices
        self._words = problem_names
        self._tokens: dict[_Use, Counter[str]] = defaultdict(Counter)
        self._dollars: dict[_Use, Decimal] = defaultdict(Decimal)

    def add_call(self, call: Inference) -> None:
        if call.provider not in REPORTS or call.status == "cached" or call.input_tokens is None:
            return
        use = _Use(
            day=(call.start_time or 0) // NS // DAY_S * DAY_S,
            provider=call.provider,
            key=call.api_key or "",
            model=call.response_model or call.request_model or "",
            tier=call.tags.get("service_tier", "default" if call.provider == OPENAI else "standard"),
        )
        read = call.cache_read_tokens or 0
        written = call.cache_write_tokens or 0
        self._tokens[use].update(
            input=call.input_tokens - read - written,
            cache_read=read,
            cache_write_5m=written,
            output=call.output_tokens or 0,
            request=1,
        )
        self._dollars[use] = EXACT.add(self._dollars[use], Decimal(self._prices.estimate_record(call) or 0))

    async def store_bills(self, statements: StatementStore, *, begin: int, end: int) -> None:
        """Store the bills of all days that have ended at `end`, as a provider would report them then."""
        start = begin // DAY_S * DAY_S
        until = end // DAY_S * DAY_S
        if start >= until:
            return
        if "unreported-key" in self._words:
            self._add_silent_key(start, until)
        for provider, sources in REPORTS.items():
            for source in sources:
                settled_until = end - SOURCES[source].settle_s
                rows = (
                    self._usage_rows(source, provider)
                    if source.endswith("usage")
                    else self._cost_rows(source, provider)
                )
                statement = Statement(
                    source=source,
                    account="",
                    start=start,
                    end=until,
                    rows=tuple(_with_settled_mark(row, settled_until) for row in rows if row.start < until),
                    read_at=end,
                    settled_until=settled_until,
                    name="a made-up month",
                )
                await statements.import_statement(statement, actor=ACTOR, way=DEMO)

    def _add_silent_key(self, start: int, until: int) -> None:
        for day in range(start, until, DAY_S):
            used = sum(
                tokens["input"]
                for use, tokens in self._tokens.items()
                if (use.day, use.provider) == (day, OPENAI)
            )
            self.add_call(
                Inference(
                    id=b"",
                    source="",
                    provider=OPENAI,
                    response_model=SILENT_MODEL,
                    api_key=SILENT_KEY,
                    start_time=day * NS,
                    input_tokens=used // SILENT_SHARE + 1,
                    output_tokens=used // SILENT_SHARE // 8,
                )
            )

    def _usage_rows(self, source: str, provider: str) -> Iterator[StatementRow]:
        for use, tokens in self._tokens.items():
            if use.provider != provider:
                continue
            for kind, amount in tokens.items():
                if kind == "request" and provider != OPENAI:  # Anthropic's report has no number of calls
                    continue
                unit = REQUESTS if kind == "request" else TOKENS
                yield _statement_row(source, use, unit, kind, Decimal(amount), key=use.key, tier=use.tier)

    def _cost_rows(self, source: str, provider: str) -> Iterator[StatementRow]:
        of_day: dict[int, Decimal] = defaultdict(Decimal)
        for use, dollars in self._dollars.items():
            if use.provider == provider and dollars:
                of_day[use.day] = EXACT.add(of_day[use.day], dollars)
                yield _statement_row(source, use, USD, "cost", dollars, tier=use.tier)
        for day, dollars in of_day.items() if provider == OPENAI else ():
            searches = (dollars * SEARCHES).quantize(CENT, rounding=ROUND_UP)
            yield _statement_row(source, _Use(day, provider, "", "", ""), USD, "web_search", searches)


def _statement_row(
    source: str, use: _Use, unit: str, kind: str, amount: Decimal, *, key: str = "", tier: str = ""
) -> StatementRow:
    return StatementRow(
        source=source,
        provider=use.provider,
        account=None,
        key=key or None,
        model=use.model or None,
        start=use.day,
        end=use.day + DAY_S,
        unit=unit,
        kind=kind,
        amount=amount,
        currency="USD" if unit == USD else None,
        tier=tier or None,
        region=None,
        batch=None,
        settled=True,
    )


def _with_settled_mark(row: StatementRow, settled_until: float) -> StatementRow:
    return msgspec.structs.replace(row, settled=row.end <= settled_until)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledDemoContent:
    """The content of a data directory that the demo filled."""

    records: int
    duplicates: int
    inspected: InspectionReport
    look: AdviserRun
    missed: Sequence[str]  # names of planted problems that no detector found


async def fill_directory(
    directory: Path,
    period: Period,
    *,
    seed: int,
    plants: Collection[str] = (),
    clock: Clock,
    progress: Callable[[int], None] = lambda _: None,
) -> FilledDemoContent:
    """
    Fill an empty directory with the data of a demo.

    Raises NotAllowed if it already has records, and SpoolLocked while a server runs on it.

    `progress` is called after each batch with the number of reports.
    """
    plan = PlantedProblems(plants, end=period.end)
    book = PriceBook.load()
    registry_clock = SetClock(clock.now())
    async with _open_empty_storage(directory, clock, registry_clock) as (storage, registry):
        ledger = storage.ledger
        bills = DemoBills(book, plan.words)
        month = SimulatedMonth(period, seed=seed, plants=plan, prices=book, bill=bills.add_call)
        await add_events_and_sums(storage, now=registry_clock.now(), problem_names=plan.words)
        await _send_month(storage, month, book, clock, progress)
        await add_samples(storage, registry, registry_clock, begin=period.begin, problem_names=plan.words)
        await ledger.catch_up(storage.log)
        await ledger.sum_up_and_delete_hours()
        await publish_definition(registry, ledger)
        await add_idle_seat_plan(registry, ledger, end=period.end, problem_names=plan.words)
        if EXAMPLES in plan.words:
            await add_examples(registry, ledger, storage.log, book, end=period.end)
        await bills.store_bills(registry.statements, begin=period.begin, end=period.end)
        inspected = await _run_inspection(storage, registry, book, clock)
        sources = Sources(ledger=ledger, log=storage.log, prices=lambda: book, registry=registry)
        look = await RecommendationUpdater(sources, registry.recommendations, clock).find_and_store_savings()
        await _comment_on_insights(registry, plan.words)
        write_note(directory, build_note(plan.words))
        terms = (await storage.log.books()).topics.get(AI_TELEMETRY, {})
        return FilledDemoContent(
            records=terms.get("accepted", 0),
            duplicates=terms.get("duplicates", 0),
            inspected=inspected,
            look=look,
            missed=undetected_problem_names(plants, await _titles_by_detector(registry)),
        )


async def _comment_on_insights(registry: Registry, problem_names: frozenset[str]) -> None:
    texts = {FOUND_BY[word]: text for word, text in PLANTS.items() if word in problem_names}
    for insight in await registry.insights.detector_insights():
        text = texts.get(str(insight.finding).partition(":")[0])
        if text is not None:
            await registry.insights.add_comment(insight.id, f"Planted by the demo: {text}.", actor=ACTOR)


async def _titles_by_detector(registry: Registry) -> dict[str, list[str]]:
    titles: dict[str, list[str]] = defaultdict(list)
    for insight in await registry.insights.detector_insights():
        titles[str(insight.finding).partition(":")[0]].append(insight.title)
    for recommendation in await registry.recommendations.all():
        titles[recommendation.saving.type].append("")
    return titles


@asynccontextmanager
async def _open_empty_storage(
    directory: Path, clock: Clock, registry_clock: Clock
) -> AsyncIterator[tuple[Storage, Registry]]:
    # The demo needs no waiting time, because no later report completes an earlier report in this month.
    config = Config(data_dir=directory, spool=SpoolSettings(hold=0.0))
    async with open_storage(config, clock=clock, registry_clock=registry_clock) as storage:
        if storage.registry is None:
            raise RegistryDamaged(storage.registry_problem)
        if storage.log.lowest_open_number(AI_TELEMETRY) > 1:
            raise NotAllowed("this directory already has records; use an empty data directory for a demo")
        yield storage, storage.registry


async def _run_inspection(
    storage: Storage, registry: Registry, price_book: PriceBook, clock: Clock
) -> InspectionReport:
    bills = StatementSources(
        ledger=storage.ledger, log=storage.log, prices=lambda: price_book, statements=registry.statements
    )
    devices = DeviceLifecycle(storage.devices, settings=Config().devices, clock=clock, secret=storage.secret)
    sources = FactSources(
        ledger=storage.ledger,
        log=storage.log,
        deliveries=storage.deliveries,
        keys=registry.keys.all,
        sender_hours=registry.sender_hours.all,
        devices=storage.devices.all,
        fleet=Fleet(devices, lambda: None).machine_rows,
        prices=lambda: price_book,
        reconciled=BillReconciler(bills, clock).reconcile_recent_months,
    )
    return await InsightUpdater(sources, registry.insights, clock).find_and_store_insights()


async def _send_month(
    storage: Storage,
    month: SimulatedMonth,
    price_book: PriceBook,
    clock: Clock,
    progress: Callable[[int], None],
) -> None:
    intake = PayloadIntake(
        storage.log, attributor=RecordAttributor(Config()), prices=price_book, shadows=ReportedCallers(clock)
    )
    bearer = AuthenticatedKey(SENDER, frozenset({INGEST}))
    sent = 0
    for _, reports in month.iterate_days():
        for first in range(0, len(reports), BATCH):
            batch = reports[first : first + BATCH]
            await intake.store_outcome(_reports_outcome(batch), bearer)
            sent += len(batch)
            progress(sent)


def _reports_outcome(reports: Sequence[Report]) -> ReadOutcome:
    outcome = ReadOutcome(received=len(reports))
    for record, identity in reports:
        outcome.add_record(record, identity)
    return outcome


async def _fill_demo_directory(directory: Path, days: int, records: int) -> None:
    clock = SystemClock()
    period = Period(end=int(clock.now()), days=days, records=records)
    await fill_directory(directory, period, seed=SEED, clock=clock)


if __name__ == "__main__":
    _, directory, days, records = sys.argv
    asyncio.run(_fill_demo_directory(Path(directory), int(days), int(records)))
