"""Creates the monitoring of a Tollhouse: health and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from exporters.forwarder import RouteForwarder
from gateway.core.first_use import LazyValue
from gateway.money.budgets.declared import BudgetTable
from gateway.monitoring.health import ServerHealth
from gateway.monitoring.metrics import Exposition, ProcessMetrics
from gateway.monitoring.snapshot import Limit, ReconciledRatio, Snapshot
from gateway.operations.holders.receivers import ReceiverServices
from gateway.operations.money.reports.declared import REPORT_STATES, ScheduledReportTable, report_state
from gateway.service.assembly.lakes import lake_states
from gateway.service.assembly.limits import current_limits
from gateway.service.assembly.parts import Assembler
from spool.clock import clock_ahead_and_deletion_delay_s
from spool.installation import public_id
from spool.registry.notices import ChannelState
from spool.settings import MAX_SENDERS

if TYPE_CHECKING:
    from gateway.bills.reconciliation.reconciler import Reconciler
    from gateway.configuration.certificates import CertificateExpiry
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.monitoring.snapshot import BudgetGauge, KeyGauges, SenderGauges
    from gateway.monitoring.spend import SpendSeries


def build_health(parts: Assembler, receivers: ReceiverServices, routes: RouteForwarder) -> ServerHealth:
    registry = parts.storage.registry
    return ServerHealth(
        parts.storage.log,
        parts.storage.deliveries,
        clock=parts.clock,
        keys_read=lambda: registry is not None,
        closing=lambda: receivers.in_hand.closed,
        syncs=routes.sync_states,
        leases=parts.storage.leases,
        ledger=parts.storage.ledger.comparison_state,
    )


def build_exposition(
    parts: Assembler,
    metrics: ProcessMetrics,
    receivers: ReceiverServices,
    routes: RouteForwarder,
    budgets: LazyValue[BudgetEvaluator] | None,
    reconciler: LazyValue[Reconciler] | None,
    spend: SpendSeries | None,
    certificates: Callable[[], Awaitable[Sequence[CertificateExpiry]]],
) -> Exposition:
    storage = parts.storage
    devices = parts.devices
    installation = public_id(storage.secret)

    async def take_snapshot() -> Snapshot:
        stats = await storage.log.stats()
        step_s, held_s = clock_ahead_and_deletion_delay_s(parts.clock)
        channels = await parts.channel_states()
        states = await storage.deliveries.route_states()
        soundness = await storage.ledger.comparison_state()
        coverage = parts.fleet.measure_coverage(await parts.fleet.machine_rows())
        # costs that change with each call would show the calls of one person
        shows_costs = storage.registry is None or not storage.registry.people.min_group
        return Snapshot(
            clock_step_s=step_s,
            clock_held_s=held_s,
            missed=soundness.missed,
            differing=soundness.differing,
            stats=stats,
            installation=installation,
            database=await storage.health(),
            routes=[*states, *routes.sync_states()],
            fenced=storage.deliveries.fenced,
            devices=devices.device_counts_by_state(),
            fleet_states=coverage.states,
            assistants=coverage.assistants,
            clusters=parts.clusters.count_by_state(),
            waiting_files=await storage.container_files.waiting_files(),
            failed_attempts=receivers.access.failed_attempts,
            budgets=_budget_gauges(budgets.made) if shows_costs and budgets and budgets.made else (),
            reconciled=_ratios_of_newest_reconciliations(reconciler.made)
            if shows_costs and reconciler and reconciler.made
            else (),
            insights=await storage.registry.insights.count_open_insights() if storage.registry else {},
            spend=spend.counts if shows_costs and spend else None,
            lakes=await lake_states(parts.config, storage),
            senders=await _sender_gauges(parts, receivers),
            keys=await _key_gauges(parts, receivers),
            certificates={end.setting: end.ends_at or 0.0 for end in await certificates()},
            limits=[
                *current_limits(
                    parts.config,
                    stats,
                    receivers,
                    states,
                    await storage.streams.stream_sizes(),
                    len(devices.table),
                    storage.container_files,
                ),
                Limit(MAX_SENDERS, parts.config.spool.max_senders, len(parts.shadows or ())),
                Limit("clusters.max", parts.config.clusters.max, len(storage.clusters)),
                Limit(
                    "server.max_operator_connections",
                    parts.operator_connections.limit,
                    parts.operator_connections.count,
                ),
                Limit("server.max_event_streams", parts.event_streams.limit, parts.event_streams.count),
                *_metric_name_limits(spend, parts.config.server.metrics_names),
            ],
            shares=await parts.read_key_shares(),
            channels=channels,
            unheard_budgets=_count_budgets_without_channel(parts, channels),
            scheduled_reports=_count_reports_by_state(parts, channels),
            senders_pushed_out=parts.shadows.evicted_caller_count if parts.shadows else 0,
            now=parts.clock.now(),
        )

    return Exposition(metrics, take_snapshot, parts.clock.monotonic)


def build_spend_series(parts: Assembler) -> SpendSeries | None:
    """Return the task that reads cost and tokens for `/metrics`, or None if `/metrics` does not show them."""
    top = parts.config.server.metrics_names
    if not top:
        return None
    from gateway.monitoring.spend import SpendSeries

    return SpendSeries(parts.storage.ledger, parts.clock, top=top)


def _metric_name_limits(spend: SpendSeries | None, max_names: int) -> Sequence[Limit]:
    return (
        [Limit("server.metrics_names", max_names, spend.counts.largest_value_count_of_a_dimension)]
        if spend
        else []
    )


async def _sender_gauges(parts: Assembler, receivers: ReceiverServices) -> SenderGauges | None:
    if parts.sender_hours is None:
        return None
    from gateway.money.insights.rhythms import sender_gauges

    hours = await parts.sender_hours.current_hours()
    return await asyncio.to_thread(sender_gauges, hours, receivers.access.keys(), now=parts.clock.now())


async def _key_gauges(parts: Assembler, receivers: ReceiverServices) -> KeyGauges | None:
    if parts.storage.registry is None:
        return None
    from gateway.money.insights.key_troubles import key_gauges
    from gateway.money.insights.rhythms import MOST_SHOWN

    access = receivers.access
    tries = await access.expired_tries()
    return key_gauges(access.keys(), tries, now=parts.clock.now(), max_keys=MOST_SHOWN)


def _budget_gauges(budgets: BudgetEvaluator) -> Sequence[BudgetGauge]:
    if not budgets.figures:
        return ()
    from gateway.money.budgets.evaluator import budget_gauges

    return [*budget_gauges(budgets.figures.values())]


def _count_budgets_without_channel(parts: Assembler, channels: Sequence[ChannelState]) -> int:
    registry = parts.storage.registry
    if registry is None or not (budgets := registry.declared_table(BudgetTable).all()):
        return 0
    from gateway.money.budgets.judging import count_budgets_without_channel

    return count_budgets_without_channel(budgets, {view.id: view for view in registry.views.all()}, channels)


def _count_reports_by_state(parts: Assembler, channels: Sequence[ChannelState]) -> Mapping[str, int]:
    registry = parts.storage.registry
    reports = () if registry is None else registry.declared_table(ScheduledReportTable).all()
    by_state = Counter(report_state(report, channels) for report in reports)
    return {state: by_state[state] for state in REPORT_STATES}


def _ratios_of_newest_reconciliations(reconciler: Reconciler) -> Sequence[ReconciledRatio]:
    from gateway.bills.reconciliation.reconciler import reconciliation_gauges

    return [*reconciliation_gauges(reconciler.newest.values())]
