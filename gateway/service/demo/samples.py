"""
The demo's data besides calls: sample keys, devices, routes, unrecognized items, a plan and an allocation
definition. The names of planted keys, devices and routes begin with "planted".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec

from gateway.bills.plans.declared import NewPlan, PlanTable, Seat
from gateway.configuration.sections import AllocationSettings
from gateway.devices.fleet.assistant_states import (
    OFF,
    OTHER_CALLS,
    RememberedEvidence,
    encode_remembered_evidence,
)
from gateway.devices.fleet.heartbeat_facts import TELEMETRY_OFF, UNUSED
from gateway.money.allocation.declared import DEFAULT, AllocationTable
from gateway.money.allocation.language import Limits
from gateway.money.allocation.published import AllocationDefinitionHolder
from gateway.money.allocation.publishing import DefinitionPublisher
from gateway.normalise.assistants import assistant_of_source
from gateway.normalise.outcome import UNRECOGNISED_AI
from gateway.service.demo.note import CHANNEL, REFUSAL, DemoNote
from gateway.service.demo.planted_problems import (
    DAY_S,
    EXAMPLES,
    LATE_DAYS,
    LOSING_LAPTOP,
    PLANTS,
    STOPPED_S,
    STOPPED_SOURCE,
)
from gateway.service.demo.workloads import CLAUDE_CODE, PEOPLE, WORKLOADS
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import PARKED, RouteSpec
from spool.devices.device import Device
from spool.identity import RecordIdentity, dedup_key_of_cloud_event
from spool.ledger.ledger import Ledger
from spool.log.accounting import route_topic
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, UNIT_COST, USAGE_EVENTS, UnitCostOperation, UsageEvent, utc_iso
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST, SEND_AI_TELEMETRY
from spool.registry.tables.sender_hours import HOUR_S, RUNNING
from spool.registry.views import NewView
from spool.storage import Storage

ACTOR = Actor("demo@example.com", "tollhouse demo")
SENDER = "Demo sender"  # name of the key that sent the calls
OLD_S = 60 * DAY_S  # age of the demo's keys
SHAPE = ("acme.completion.model", "acme.completion.tokens", "acme.prompt.tokens")
SHAPES = 40
DEAD = 5
SUMS = 3
EVENT_TYPE = "order.shipped"
EVENTS, EVENT_INTERVAL_S = 60, 3 * 3600
ROUTES = {
    "parked-route": f"planted-service/{AI_TELEMETRY}",
    "dead-letters": f"planted-archive/{AI_TELEMETRY}",
    "unknown-arrival": f"planted-service/{UNIT_COST}",
}
SEATS = ("mara", CLAUDE_CODE.users[0])  # people who have a seat; mara makes no calls
MOST = 10
# The published definition of the demo. It assigns each team's calls to a cost centre.
DEFINITION = b"""\
Dimensions:
  CostCentre:
    Name: Cost centre
    Source: team
    DefaultValue: Overhead
    Rules:
      - Type: Group
        Name: Product
        Conditions:
          - Equals: [search, support]
      - Type: Group
        Name: Engineering
        Conditions:
          - HasValue: true
"""


@dataclass
class SetClock:
    """A clock that is set by hand, so that keys can have a creation time two months ago."""

    at: float

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


async def add_events_and_sums(storage: Storage, *, now: float, problem_names: frozenset[str]) -> None:
    """Add records that are no calls. They come before the calls, so that the newest records of a demo are calls."""
    if "unknown-arrival" in problem_names:
        await storage.log.append_submission(_unit_cost_submission(now))
    if EXAMPLES in problem_names:
        await storage.log.append_submission(_submission_of_shop_orders(now))


async def add_samples(
    storage: Storage, registry: Registry, clock: SetClock, *, begin: int, problem_names: frozenset[str]
) -> None:
    """Add keys and devices, and the problems named in `problem_names`. `begin` is the start of the month."""
    now = clock.now()
    await _add_devices(storage, now, begin, _laptops_losing_calls(problem_names))
    if "unrecognised" in problem_names:
        ignored = {UNRECOGNISED_AI: SHAPES}
        await storage.log.append_submission(
            Submission(topic=AI_TELEMETRY, received=SHAPES, ignored=ignored, unrecognised=[SHAPE] * SHAPES)
        )
    routes = [word for word in ROUTES if word in problem_names]
    if routes:
        await _add_routes(storage.deliveries, routes, now)
    await _add_hours_of_demo_senders(registry, now, problem_names)
    clock.at = now - OLD_S
    await _add_keys(registry, clock, now, problem_names)
    clock.at = now


def build_note(problem_names: frozenset[str]) -> DemoNote:
    losing = _laptops_losing_calls(problem_names)
    return DemoNote(
        planted=[text for word, text in PLANTS.items() if word in problem_names],
        laptops=[laptop for laptop in map(_laptop_name, PEOPLE) if laptop not in losing],
        losing_laptops=losing,
        routes=[name for word, name in ROUTES.items() if word in problem_names and word != "parked-route"],
        paused_routes=[ROUTES["parked-route"]] if "parked-route" in problem_names else [],
        channels=[CHANNEL] if EXAMPLES in problem_names else [],
    )


def _laptops_losing_calls(problem_names: frozenset[str]) -> Sequence[str]:
    return [LOSING_LAPTOP] if "losing-laptop" in problem_names else []


def _laptop_name(person: str) -> str:
    return f"laptop-{person}"


async def _add_keys(registry: Registry, clock: SetClock, now: float, plant_names: frozenset[str]) -> None:
    used = await registry.keys.create(name=SENDER, use_cases=[SEND_AI_TELEMETRY], actor=ACTOR)
    reader = await registry.keys.create(name="Demo reader", scopes=["billing:read_costs"], actor=ACTOR)
    last = {used[0].id: now, reader[0].id: now - DAY_S}
    if "idle-key" in plant_names:
        await registry.keys.create(name="Planted unused key", scopes=["billing:read_costs"], actor=ACTOR)
    if "wide-key" in plant_names:
        scopes = [INGEST, "views:delete_view"]
        wide = await registry.keys.create(name="Planted wide key", scopes=scopes, actor=ACTOR)
        last[wide[0].id] = now
    await registry.keys.store_access_times(last)


async def _add_hours_of_demo_senders(registry: Registry, now: float, problem_names: frozenset[str]) -> None:
    newest = {int(now // HOUR_S): now}
    arrivals = {(workload.source, SENDER): newest for workload in WORKLOADS}
    if "stopped-sender" in problem_names:
        hours = range(int(now // HOUR_S) - 28 * 24, int(now // HOUR_S) + 1)
        running = {hour: float(hour * HOUR_S) for hour in hours}
        arrivals[RUNNING] = running
        arrivals[STOPPED_SOURCE, SENDER] = {hour: at for hour, at in running.items() if at < now - STOPPED_S}
    await registry.sender_hours.add(arrivals, now=now)


async def _add_devices(storage: Storage, now: float, begin: int, laptops_losing_calls: Sequence[str]) -> None:
    for index, person in enumerate(PEOPLE):
        laptop = _laptop_name(person)
        loses = laptop in laptops_losing_calls
        newest = now - LATE_DAYS * DAY_S if loses else now
        sources = {workload.source for workload in WORKLOADS if person in workload.users}
        assistants = sorted({name for source in sources if (name := assistant_of_source(source)) is not None})
        claim = {"state": UNUSED, "used_at": utc_iso(now)}
        uses: Mapping[str, RememberedEvidence] = {}
        if loses:
            claim |= {"state": TELEMETRY_OFF, "cause": "settings"}
            uses = dict.fromkeys(assistants, RememberedEvidence(OFF, since=newest, unheard=newest + DAY_S))
        os = "macos 26.1" if index % 2 else "ubuntu 24.04"
        device = Device(
            id=laptop,
            hostname=f"planted-losing-{person}" if loses else f"{person}-laptop",
            platform="darwin" if index % 2 else "linux",
            user=person,
            enrolled_at=float(begin),
            enrolled_by="demo",
            last_seen=now,
            last_heartbeat=now,
            last_telemetry=newest,
            newest_calls=dict.fromkeys(assistants or [OTHER_CALLS], newest),
            uses=encode_remembered_evidence(uses),
            heartbeat=msgspec.json.encode({"assistants": dict.fromkeys(assistants, claim), "os": os}),
        )
        await storage.devices.replace_row(device)


async def _add_routes(deliveries: Deliveries, plant_names: Sequence[str], now: float) -> None:
    await deliveries.set_routes(
        [RouteSpec(name=ROUTES[word], topic=route_topic(ROUTES[word])) for word in plant_names]
    )
    if "parked-route" in plant_names:
        await deliveries.set_route_state(ROUTES["parked-route"], PARKED, REFUSAL)
    for _ in range(DEAD if "dead-letters" in plant_names else 0):
        delivery = await deliveries.take_due_delivery(ROUTES["dead-letters"], now=now, max_records=1)
        if delivery is not None:
            await deliveries.set_aside(delivery, error="the record's model is not allowed here", status="422")
    if "unknown-arrival" in plant_names:
        cut_off = await deliveries.take_due_delivery(ROUTES["unknown-arrival"], now=now, max_records=SUMS)
        if cut_off is not None:
            await deliveries.mark_outcome_unknown(
                cut_off, reason="no answer within 30 s; the cost service may have added the sums already"
            )


def _unit_cost_submission(now: float) -> Submission:
    operations = [
        UnitCostOperation(
            id=number.to_bytes(16),
            stream="requests",
            stream_type="allocation",
            operation="sum",
            start_time=int(now) * NS,
            granularity="DAILY",
            element_name=f"customer-{number}",
            value="100",
        )
        for number in range(1, SUMS + 1)
    ]
    return Submission(
        topic=UNIT_COST,
        received=SUMS,
        records=operations,
        identities=[RecordIdentity(operation.id) for operation in operations],
    )


def _submission_of_shop_orders(now: float) -> Submission:
    events = [
        UsageEvent(
            id=dedup_key_of_cloud_event("shop", f"order-{number}"),
            source="shop",
            event_id=f"order-{number}",
            event_type=EVENT_TYPE,
            subject=f"customer-{number % SUMS + 1}",
            start_time=int(now - number * EVENT_INTERVAL_S) * NS,
            data={"items": number % 5 + 1, "country": "DE" if number % 3 else "FR"},
        )
        for number in range(EVENTS)
    ]
    return Submission(
        topic=USAGE_EVENTS,
        received=EVENTS,
        records=events,
        identities=[RecordIdentity(event.id) for event in events],
    )


async def add_idle_seat_plan(
    registry: Registry, ledger: Ledger, *, end: int, problem_names: frozenset[str]
) -> None:
    """
    Add the plan with a seat that nobody uses, if `problem_names` contains this problem.

    Its billing cycles begin on the day of the month on which the demo month ends, so the last cycle is complete.
    """
    if "idle-seat" not in problem_names:
        return
    filter = {"source": (CLAUDE_CODE.source,)}
    view_draft = NewView(name="Claude Code", filter=filter, principal_dimension="user")
    view = await registry.views.create(
        view_draft, known_dimensions=ledger.dimensions(), max_rows=MOST, actor=ACTOR
    )
    last = datetime.fromtimestamp(end, UTC)
    since = (last - timedelta(seconds=OLD_S)).date().isoformat()
    draft = NewPlan(
        name="Claude Team",
        view=view.id,
        fee="25",
        included="40",
        overage_price="1",
        cycle_day=last.day,
        seats=tuple(Seat(user=user, since=since, team=CLAUDE_CODE.team) for user in SEATS),
    )
    await registry.declared_table(PlanTable).create(draft, max_rows=MOST, actor=ACTOR)


async def publish_definition(registry: Registry, ledger: Ledger) -> None:
    settings = AllocationSettings()
    publishing = DefinitionPublisher(
        registry.declared_table(AllocationTable),
        ledger,
        AllocationDefinitionHolder(ledger),
        limits=Limits,
        max_versions=lambda: settings.max_versions,
        max_jobs=lambda: settings.max_jobs,
        changed=lambda: None,
    )
    await publishing.publish(DEFINITION, namespace=DEFAULT, base=None, actor=ACTOR)
