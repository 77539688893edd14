"""Reads the facts for detectors from storage, with a bounded number of rows and records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Never

from gateway.bills.contracts.declared import Contract
from gateway.bills.enforcers.faults import EnforcerFault
from gateway.bills.plans.declared import AssistantPlan
from gateway.bills.reconciliation.reconciler import ReconciledMonth
from gateway.bills.statements.arrivals import ReportArrival
from gateway.clusters.clusters import UnappliedConfig
from gateway.configuration.certificates import CertificateExpiry
from gateway.devices.fleet.coverage import FleetRow
from gateway.intake.prices import PriceBook
from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    PeriodSpend,
    RouteDeadLetters,
    UnappliedChange,
    UnrecognisedShape,
    ViewSpend,
)
from gateway.money.insights.detectors.spending import EVERYBODY, newest_streaks
from spool.clusters import Cluster
from spool.cost_kinds import KINDS, NONE, WITHOUT_USAGE
from spool.deliveries.protocols import Deliveries, LakeState
from spool.deliveries.routes import routes_with_refusals
from spool.deliveries.values import RouteState
from spool.devices.device import Device
from spool.errors import NotKept
from spool.leases import Leases, SoleNode
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow, narrow_query, next_full_hour
from spool.ledger.sums import OTHER
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, NS, Correction, Inference
from spool.registry.enrolment_tokens import EnrolmentToken
from spool.registry.keys import ApiKey
from spool.registry.notices import ChannelState
from spool.registry.tables.expired_tries import ExpiredKeyUses
from spool.registry.tables.sender_hours import SenderHours
from spool.registry.views import SavedView
from spool.sender_fields import SenderDay
from spool.shares import KeyShare
from spool.storage import DatabaseHealth, no_database

if TYPE_CHECKING:
    from gateway.money.lost_calls import FleetLosses
    from gateway.monitoring.late_reports import LateReportSaver

RECENT = 20_000  # maximum records; they take some tens of megabytes while the detectors run
STEP = 4096
MAX_DEAD = 5_000  # maximum dead letters read per route; further dead letters are only counted

_HOUR_S = 3600.0
_WHAT = ("source", "provider", "model")
_MEASURES = ("cost", "calls", "errors", *KINDS, "input_tokens", "output_tokens")


async def _no_rows() -> Sequence[Never]:
    return ()


async def _no_rows_by_key_id() -> Mapping[int, Never]:
    return {}


async def _no_losses() -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class FactSources:
    ledger: Ledger
    log: RecordLog
    deliveries: Deliveries
    keys: Callable[[], Sequence[ApiKey]]
    devices: Callable[[], Sequence[Device]]
    prices: Callable[[], PriceBook]
    tokens: Callable[[], Sequence[EnrolmentToken]] = tuple
    certificates: Callable[[], Awaitable[Sequence[CertificateExpiry]]] = _no_rows
    expired_tries: Callable[[], Awaitable[Mapping[int, ExpiredKeyUses]]] = _no_rows_by_key_id
    sender_hours: Callable[[], Awaitable[Sequence[SenderHours]]] = _no_rows
    sender_fields: Callable[[], Awaitable[Mapping[int, SenderDay]]] = _no_rows_by_key_id
    enforcer_faults: Callable[[], Awaitable[Sequence[EnforcerFault]]] = _no_rows
    views: Callable[[], Sequence[SavedView]] = tuple
    silent_clusters: Callable[[], Sequence[Cluster]] = tuple
    unapplied_configs: Callable[[], Sequence[UnappliedConfig]] = tuple
    fleet: Callable[[], Awaitable[Sequence[FleetRow]]] = _no_rows
    losses: Callable[[], Awaitable[FleetLosses | None]] = _no_losses
    shares: Callable[[], Awaitable[Sequence[KeyShare]]] = _no_rows
    is_unmapped: Callable[[str], bool] = lambda _: False
    late_reports: LateReportSaver | None = None  # late reports, None while the registry is damaged
    reconciled: Callable[[], Awaitable[Sequence[ReconciledMonth]]] = _no_rows
    arrivals: Callable[[], Awaitable[Sequence[ReportArrival]]] = _no_rows
    contracts: Callable[[], Sequence[Contract]] = tuple
    plans: Callable[[], Sequence[AssistantPlan]] = tuple
    unapplied_changes: Callable[[], Awaitable[Sequence[UnappliedChange]]] = _no_rows
    lakes: Callable[[], Awaitable[Sequence[LakeState]]] = _no_rows
    destination_types: Callable[[], Mapping[str, str]] = dict
    channels: Callable[[], Awaitable[Sequence[ChannelState]]] = _no_rows
    leases: Leases = field(default_factory=SoleNode)
    database: Callable[[], Awaitable[DatabaseHealth | None]] = no_database


async def gather_facts(sources: FactSources, *, now: float, clock_step_s: float = 0.0) -> InsightFacts:
    """Read all facts, after the ledger has counted every closed (final) record."""
    await sources.ledger.require_complete_totals(sources.log)
    ledger = SpendReader(sources.ledger, now)
    soundness = await sources.ledger.comparison_state()
    stats = await sources.log.stats()
    book = await asyncio.to_thread(sources.prices)
    midnight = now // DAY_S * DAY_S
    hour = now // _HOUR_S * _HOUR_S
    database = await sources.database()
    return replace(
        await _gather_states_beside(await routes_with_refusals(sources.deliveries, now), sources, now),
        days=await ledger.daily_team_spend(midnight - 42 * DAY_S),
        views=[
            await ledger.view_spend(view, midnight - 42 * DAY_S)
            for view in sources.views()
            if ledger.is_watched_for_anomalies(view)
        ],
        week=await ledger.daily_spend_by_model(midnight - 7 * DAY_S),
        unpriced=await ledger.read_spends(
            midnight - 7 * DAY_S, "daily", _WHAT, include={"cost_source": (NONE, WITHOUT_USAGE)}
        ),
        unconverted=await ledger.unconverted_amounts(midnight - 7 * DAY_S),
        hours=await ledger.read_spends(hour - 72 * _HOUR_S, "hourly", ("source", "model", "team")),
        failed=await ledger.read_spends(
            hour - 72 * _HOUR_S, "hourly", ("source", "model", "team"), include={"status": ("error",)}
        ),
        recent=await recent_calls(sources.log, now - 7 * DAY_S),
        dead=await _routes_with_dead_letters(sources.deliveries, now),
        shapes=await _unrecognised_shapes(sources.log),
        late_reports=await sources.late_reports.store_and_sum_recent_late_reports()
        if sources.late_reports
        else (),
        sender_fields=await sources.sender_fields(),
        enforcer_faults=await sources.enforcer_faults(),
        unmapped=[seen for seen in await sources.log.event_types() if sources.is_unmapped(seen.type)],
        series=stats.series,
        max_series=stats.max_series,
        repeated_ids=await sources.log.count_repeated_ids(),
        missed_records=soundness.missed,
        differing_periods=soundness.differing,
        clock_step_s=clock_step_s,
        node_settings=await sources.leases.differing_node_settings(),
        oldest_transaction_s=None if database is None else database.oldest_transaction_s,
        shares=await sources.shares(),
        reconciled=await sources.reconciled(),
        arrivals=await sources.arrivals(),
        contracts=sources.contracts(),
        plans=sources.plans(),
        unapplied_changes=await sources.unapplied_changes(),
        lakes=await sources.lakes(),
        prices=book.version,
        prices_day=book.card.source.get("date", ""),
        estimate=book.estimate_record,
    )


async def gather_states(sources: FactSources, *, now: float) -> InsightFacts:
    """Read only the facts about routes, keys, senders, devices and clusters, and no single calls."""
    return await _gather_states_beside(await sources.deliveries.route_states(), sources, now)


async def _gather_states_beside(
    routes: Sequence[RouteState], sources: FactSources, now: float
) -> InsightFacts:
    return InsightFacts(
        now=now,
        routes=routes,
        destination_types=sources.destination_types(),
        channels=await sources.channels(),
        keys=sources.keys(),
        expired_tries=await sources.expired_tries(),
        certificates=await sources.certificates(),
        sender_hours=await sources.sender_hours(),
        devices=sources.devices(),
        tokens=sources.tokens(),
        fleet=await sources.fleet(),
        losses=await sources.losses(),
        silent_clusters=sources.silent_clusters(),
        unapplied_configs=sources.unapplied_configs(),
    )


async def _unrecognised_shapes(record_log: RecordLog) -> list[UnrecognisedShape]:
    shapes: list[UnrecognisedShape] = []
    for row in await record_log.unrecognised_items():
        names = row["names"]
        count = row["count"]
        last_seen = row["last_seen"]
        shapes.append(UnrecognisedShape(names=names, count=count, last_seen=last_seen))  # type: ignore[arg-type]
    return shapes


class SpendReader:
    """Reads the totals up to now as `PeriodSpend` rows."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        self._ledger = ledger
        self._now = now
        self._known = ledger.dimensions()
        self._until = next_full_hour(now)

    async def daily_team_spend(self, since: float) -> list[PeriodSpend]:
        """
        Return spend by day and team. On days on which a team has a spike, the team's spend is also
        split by model.
        """
        spends = await self.read_spends(since, "daily", ("team",))
        spikes = await asyncio.to_thread(_teams_with_spend_spikes_by_day, spends, self._now)
        for start, teams in spikes.items():
            which = {} if EVERYBODY in teams else {"team": tuple(sorted(team or "" for team in teams))}
            spends = await asyncio.to_thread(_without_teams_on_day, spends, start, teams)
            spends += await self.read_spends(
                start, "daily", ("team", "model"), until=start + DAY_S, include=which
            )
        return spends

    async def daily_spend_by_model(self, since: float) -> list[PeriodSpend]:
        """
        Return spend by day, source, provider and model. Calls without a team and a user are also split by key.
        """
        nobody = {"team": ("",), "user": ("",)}
        of_users = await self.read_spends(
            since, "daily", _WHAT, include={"team": ("",)}, exclude={"user": ("",)}
        )
        of_teams = await self.read_spends(since, "daily", _WHAT, exclude={"team": ("",)})
        return [
            *await self.read_spends(since, "daily", (*_WHAT, "api_key"), include=nobody),
            *await asyncio.to_thread(lambda: [replace(spend, user=OTHER) for spend in of_users]),
            *await asyncio.to_thread(lambda: [replace(spend, team=OTHER) for spend in of_teams]),
        ]

    async def read_spends(
        self,
        since: float,
        per: str,
        dimensions: Sequence[str],
        *,
        until: float | None = None,
        include: Mapping[str, tuple[str, ...]] = {},
        exclude: Mapping[str, tuple[str, ...]] = {},
    ) -> list[PeriodSpend]:
        start = datetime.fromtimestamp(since, UTC)
        query = CostQuery(
            since=await self._ledger.earliest_moment_with_hourly_sums(start) if per == "hourly" else start,
            until=self._until if until is None else min(self._until, datetime.fromtimestamp(until, UTC)),
            granularity=per,
            group_by=[name for name in dimensions if name in self._known],
            include=include,
            exclude=exclude,
            measures=_MEASURES,
        )
        return await asyncio.to_thread(_rows_to_spends, query.group_by, await self._ledger.costs(query))

    async def unconverted_amounts(self, since: float) -> Mapping[str, str]:
        """Return the amounts without an exchange rate, as decimal text by currency."""
        start = datetime.fromtimestamp(since, UTC)
        query = CostQuery(since=start, until=self._until, granularity=TOTAL, measures=("cost",))
        return next((row.unconverted for row in await self._ledger.costs(query)), {})

    def is_watched_for_anomalies(self, view: SavedView) -> bool:
        return view.anomalies.enabled and view.broken_reason(self._known) is None

    async def view_spend(self, view: SavedView, since: float) -> ViewSpend:
        query = CostQuery(
            since=datetime.fromtimestamp(since, UTC),
            until=self._until,
            group_by=[view.principal_dimension],
            measures=("cost",),
        )
        try:
            rows = await self._ledger.costs(narrow_query(query, include=view.include, exclude=view.exclude))
        except NotKept:  # the view filters by a unit of work that is no longer listed, so it has no rows
            rows = []
        return ViewSpend(view=view, days=await asyncio.to_thread(_cost_by_day, rows))


def _teams_with_spend_spikes_by_day(
    spends: Sequence[PeriodSpend], now: float
) -> Mapping[float, set[str | None]]:
    spikes: dict[float, set[str | None]] = defaultdict(set)
    for team, streak in newest_streaks(spends, now):
        for spike in streak:
            spikes[spike.number * DAY_S].add(team)
    return spikes


def _without_teams_on_day(
    spends: Sequence[PeriodSpend], start: float, teams: Collection[str | None]
) -> list[PeriodSpend]:
    is_all = EVERYBODY in teams
    return [spend for spend in spends if spend.start != start or not (is_all or spend.team in teams)]


def _cost_by_day(rows: Sequence[CostRow]) -> dict[float, dict[str | None, Decimal]]:
    days: dict[float, dict[str | None, Decimal]] = {}
    for row in rows:
        days.setdefault(row.start.timestamp(), {})[row.group[0]] = Decimal(row.cost)
    return days


def _rows_to_spends(dimensions: Sequence[str], rows: Sequence[CostRow]) -> list[PeriodSpend]:
    return [_row_to_spend(dimensions, row) for row in rows]


def _row_to_spend(dimensions: Sequence[str], row: CostRow) -> PeriodSpend:
    who: Mapping[str, str | None] = dict(zip(dimensions, row.group, strict=True))
    return PeriodSpend(
        start=row.start.timestamp(),
        **who,
        calls=row.calls,
        errors=row.errors,
        unpriced=row.unpriced,
        without_usage=row.without_usage,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost=Decimal(row.cost),
    )


async def recent_calls(record_log: RecordLog, since: float) -> list[Inference]:
    """
    Return up to RECENT of the newest closed calls that began at `since` or later. Duplicates kept for
    reference, and calls that a correction took back, are excluded.
    """
    below = record_log.lowest_open_number(AI_TELEMETRY)
    newest: list[Inference] = []
    taken_back: set[bytes] = set()
    for first in range(max(1, below - RECENT), below, STEP):
        for entry in await record_log.read(AI_TELEMETRY, first, min(first + STEP, below) - 1):
            calls = (
                record for record in entry.records if isinstance(record, Inference) and not record.shadow
            )
            newest += [call for call in calls if call.start_time is None or call.start_time >= since * NS]
            taken_back.update(
                record.corrects
                for record in entry.records
                if isinstance(record, Correction) and record.after.shadow
            )
    return [call for call in newest if call.id not in taken_back] if taken_back else newest


async def _routes_with_dead_letters(deliveries: Deliveries, now: float) -> list[RouteDeadLetters]:
    routes = [route for route in await deliveries.route_states() if route.dead]
    return [await _summarize_dead_letters(deliveries, route.name, route.dead, now) for route in routes]


async def _summarize_dead_letters(
    deliveries: Deliveries, route: str, count: int, now: float
) -> RouteDeadLetters:
    if count > MAX_DEAD:
        return RouteDeadLetters(
            route=route, count=count, recent=count, newest=None, newest_error="", cost=Decimal(0)
        )
    letters = await deliveries.dead_letters(route=route)
    newest = max(letters, key=lambda letter: letter.at, default=None)
    records = [letter.record for letter in letters if isinstance(letter.record, Inference)]
    costs = [Decimal(record.cost or record.estimated_cost or 0) for record in records]
    return RouteDeadLetters(
        route=route,
        count=len(letters),
        recent=sum(now - letter.at <= DAY_S for letter in letters),
        newest=newest.at if newest else None,
        newest_error=newest.error if newest else "",
        cost=sum(costs, Decimal(0)),
    )
