"""
Fills a data directory with a month: through the intake into the log, counted by the ledger, looked at by the detectors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gateway.access import Bearer
from gateway.attribution import Attribution
from gateway.config import Config
from gateway.demo.month import DAY_S, Month, Report, Span
from gateway.demo.plants import LATE_DAYS, Plants
from gateway.demo.workloads import PEOPLE
from gateway.insights.gathering import Sources
from gateway.insights.inspector import Inspected, Inspector
from gateway.intake import Intake
from gateway.normalise.outcome import UNRECOGNISED_AI, Outcome
from gateway.prices import PriceBook
from gateway.shadows import Shadows
from spool.clock import Clock
from spool.devices import Device
from spool.errors import NotAllowed
from spool.ledger import Ledger
from spool.log import Deliveries, LogSettings, RouteSpec, Submission
from spool.operators import Actor
from spool.record import AI_TELEMETRY
from spool.registry import Registry
from spool.scopes import INGEST, SEND_AI_TELEMETRY
from spool.sqlite import SqliteSpool, open_spool

BATCH = 500  # records of a submission, as a busy sender's would have
ACTOR = Actor("tollhouse demo", "local")
SHAPE = ("acme.completion.model", "acme.completion.tokens", "acme.prompt.tokens")
SHAPES = 40
DEAD = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What the directory holds now."""

    records: int
    duplicates: int
    inspected: Inspected


@dataclass
class MonthClock:
    """Stands where it is put: keys of a month ago are made a month ago."""

    at: float

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


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
    async with AsyncExitStack() as stack:
        # Nothing is held open: no later report fills in what an earlier one left out.
        spool = await open_spool(directory, settings=LogSettings(hold_s=0), clock=clock)
        stack.push_async_callback(spool.close)
        if spool.log.closed_below(AI_TELEMETRY) > 1:
            raise NotAllowed("this directory holds records already: a demo needs a data directory of its own")
        ledger = await Ledger.open(directory, clock=clock)
        stack.push_async_callback(ledger.close)
        spool.log.holders.append(ledger.needs)
        set_clock = MonthClock(clock.now())
        registry = await Registry.open(directory, secret=spool.secret, clock=set_clock)
        stack.push_async_callback(registry.close)
        await _send(spool, Month(span, seed=seed, plants=planted, prices=book), book, clock, progress)
        await _furnish(spool, registry, set_clock, span, planted.words)
        await ledger.catch_up(spool.log)
        await ledger.tidy()
        terms = (await spool.log.books()).topics[AI_TELEMETRY]
        sources = Sources(
            ledger=ledger,
            log=spool.log,
            deliveries=spool.deliveries,
            keys=registry.keys.all,
            devices=spool.devices.all,
            prices=lambda: book,
        )
        inspected = await Inspector(sources, registry.insights, clock).inspect()
        return Filled(records=terms["accepted"], duplicates=terms.get("duplicates", 0), inspected=inspected)


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


async def _furnish(
    spool: SqliteSpool, registry: Registry, clock: MonthClock, span: Span, words: frozenset[str]
) -> None:
    """What is no traffic: keys, devices, and the plants among them."""
    now = clock.now()
    await _devices(spool, now, span, "mute-device" in words)
    if "unrecognised" in words:
        ignored = {UNRECOGNISED_AI: SHAPES}
        await spool.log.append(
            Submission(topic=AI_TELEMETRY, received=SHAPES, ignored=ignored, unrecognised=[SHAPE] * SHAPES)
        )
    routes = [word for word in ("parked-route", "dead-letters") if word in words]
    if routes:
        await _routes(spool.deliveries, routes, now)
    clock.at = now - 60 * DAY_S
    await _keys(registry, clock, now, words)
    clock.at = now


async def _keys(registry: Registry, clock: MonthClock, now: float, words: frozenset[str]) -> None:
    used = await registry.keys.create(name="Demo sender", use_cases=[SEND_AI_TELEMETRY], actor=ACTOR)
    reader = await registry.keys.create(name="Demo reader", scopes=["billing:read_costs"], actor=ACTOR)
    last = {used[0].id: now, reader[0].id: now - DAY_S}
    if "idle-key" in words:
        await registry.keys.create(name="Old integration", scopes=["billing:read_costs"], actor=ACTOR)
    if "wide-key" in words:
        wide = await registry.keys.create(name="Everything", scopes=[INGEST, "views:delete_view"], actor=ACTOR)
        last[wide[0].id] = now
    await registry.keys.accessed(last)


async def _devices(spool: SqliteSpool, now: float, span: Span, mute: bool) -> None:
    for place, person in enumerate(PEOPLE):
        silent = mute and place == 0
        device = Device(
            id=f"laptop-{person}",
            hostname=f"{person}-laptop",
            platform="darwin" if place % 2 else "linux",
            user=person,
            enrolled_at=float(span.begin),
            enrolled_by="demo",
            last_seen=now,
            last_heartbeat=now,
            last_telemetry=now - LATE_DAYS * DAY_S if silent else now - 600,
        )
        await spool.devices.keep(device)


async def _routes(deliveries: Deliveries, words: Sequence[str], now: float) -> None:
    names = {"parked-route": f"upstream/{AI_TELEMETRY}", "dead-letters": f"archive/{AI_TELEMETRY}"}
    await deliveries.declare([RouteSpec(name=names[word], topic=AI_TELEMETRY) for word in words])
    if "parked-route" in words:
        await deliveries.set_state(names["parked-route"], "parked", "401: the key is unknown")
    for _ in range(DEAD if "dead-letters" in words else 0):
        delivery = await deliveries.due(names["dead-letters"], now=now, max_records=1)
        if delivery is not None:
            await deliveries.set_aside(delivery, error="the record's model is not allowed here", status="422")
