"""Creates the monitoring of a Tollhouse: health and metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from exporters.forwarder import RouteForwarder
from gateway.money.budgets.declared import BudgetTable
from gateway.monitoring.health import ServerHealth
from gateway.monitoring.metrics import Exposition, ProcessMetrics
from gateway.monitoring.snapshot import Limit, ReconciledRatio, Snapshot
from gateway.operations.money.reports.declared import REPORT_STATES, ScheduledReportTable, report_state
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.service.assembly.lakes import lake_states
from gateway.service.assembly.limits import current_limits
from gateway.service.assembly.parts import ServicePartsBuilder
from spool.clock import clock_ahead_and_deletion_delay_s
from spool.installation import public_id
from spool.registry.notices import ChannelState
from spool.settings import MAX_SENDERS

if TYPE_CHECKING:
    from gateway.bills.reconciliation.reconciler import BillReconciler
    from gateway.money.budgets.evaluator import BudgetEvaluator
    from gateway.monitoring.snapshot import BudgetGauge, KeyGauges, SenderGauges
    from gateway.monitoring.spend import SpendSeries
    from gateway.operations.services import OperatorServices
    from gateway.people.authentication.access import KeyAccess


def build_health(
    parts_builder: ServicePartsBuilder, receivers: ReceiverServices, routes: RouteForwarder
) -> ServerHealth:
    registry = parts_builder.storage.registry
    return ServerHealth(
        parts_builder.storage.log,
        parts_builder.storage.deliveries,
        clock=parts_builder.clock,
        keys_read=lambda: registry is not None,
        closing=lambda: receivers.in_hand.closed,
        syncs=routes.sync_states,
        leases=parts_builder.storage.leases,
        ledger=parts_builder.storage.ledger.comparison_state,
    )


def build_exposition(
    parts_builder: ServicePartsBuilder,
    metrics: ProcessMetrics,
    receivers: ReceiverServices,
    routes: RouteForwarder,
    operators: OperatorServices,
    spend: SpendSeries | None,
) -> Exposition:
    storage = parts_builder.storage
    access, budgets, reconciler = (
        operators.senders.access,
        operators.money.budgets,
        operators.money.reconciler,
    )
    devices = parts_builder.devices
    installation = public_id(storage.secret)

    async def take_snapshot() -> Snapshot:
        stats = await storage.log.stats()
        step_s, held_s = clock_ahead_and_deletion_delay_s(parts_builder.clock)
        channels = await parts_builder.channel_states()
        states = await storage.deliveries.route_states()
        soundness = await storage.ledger.comparison_state()
        coverage = parts_builder.fleet.measure_coverage(await parts_builder.fleet.machine_rows())
        losses = await parts_builder.losses.losses_of_last_days()
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
            lost_calls=losses.calls,
            lost_cost=None if losses.estimated is None or not shows_costs else float(losses.estimated),
            clusters=parts_builder.clusters.count_by_state(),
            waiting_files=await storage.container_files.waiting_files(),
            failed_attempts=access.failed_attempts,
            budgets=_budget_gauges(budgets.made) if shows_costs and budgets and budgets.made else (),
            reconciled=_ratios_of_newest_reconciliations(reconciler.made)
            if shows_costs and reconciler and reconciler.made
            else (),
            insights=await storage.registry.insights.count_open_insights() if storage.registry else {},
            spend=spend.counts if shows_costs and spend else None,
            lakes=await lake_states(parts_builder.config, storage),
            senders=await _sender_gauges(parts_builder, access),
            keys=await _key_gauges(parts_builder, access),
            certificates={
                end.setting: end.ends_at or 0.0
                for end in await operators.installation.read_certificate_ends()
            },
            limits=[
                *current_limits(
                    parts_builder.config,
                    stats,
                    receivers,
                    states,
                    await storage.streams.stream_sizes(),
                    len(devices.table),
                    storage.container_files,
                ),
                Limit(MAX_SENDERS, parts_builder.config.spool.max_senders, len(parts_builder.shadows or ())),
                Limit("clusters.max", parts_builder.config.clusters.max, len(storage.clusters)),
                Limit(
                    "server.max_operator_connections",
                    parts_builder.operator_connections.limit,
                    parts_builder.operator_connections.count,
                ),
                Limit(
                    "server.max_event_streams",
                    parts_builder.event_streams.limit,
                    parts_builder.event_streams.count,
                ),
                *_metric_name_limits(spend, parts_builder.config.server.metrics_names),
            ],
            shares=await parts_builder.read_key_shares(),
            channels=channels,
            unheard_budgets=_count_budgets_without_channel(parts_builder, channels),
            scheduled_reports=_count_reports_by_state(parts_builder, channels),
            senders_pushed_out=parts_builder.shadows.evicted_caller_count if parts_builder.shadows else 0,
            now=parts_builder.clock.now(),
        )

    return Exposition(metrics, take_snapshot, parts_builder.clock.monotonic)


def build_spend_series(parts_builder: ServicePartsBuilder) -> SpendSeries | None:
    """Return the task that reads cost and tokens for `/metrics`, or None if `/metrics` does not show them."""
    top = parts_builder.config.server.metrics_names
    if not top:
        return None
    from gateway.monitoring.spend import SpendSeries

    return SpendSeries(parts_builder.storage.ledger, parts_builder.clock, top=top)


def _metric_name_limits(spend: SpendSeries | None, max_names: int) -> Sequence[Limit]:
    return (
        [Limit("server.metrics_names", max_names, spend.counts.largest_value_count_of_a_dimension)]
        if spend
        else []
    )


async def _sender_gauges(parts_builder: ServicePartsBuilder, access: KeyAccess) -> SenderGauges | None:
    if parts_builder.sender_hours is None:
        return None
    from gateway.money.insights.rhythms import sender_gauges

    hours = await parts_builder.sender_hours.current_hours()
    return await asyncio.to_thread(sender_gauges, hours, access.keys(), now=parts_builder.clock.now())


async def _key_gauges(parts_builder: ServicePartsBuilder, access: KeyAccess) -> KeyGauges | None:
    if parts_builder.storage.registry is None:
        return None
    from gateway.money.insights.key_troubles import key_gauges
    from gateway.money.insights.rhythms import MOST_SHOWN

    tries = await access.expired_tries()
    return key_gauges(access.keys(), tries, now=parts_builder.clock.now(), max_keys=MOST_SHOWN)


def _budget_gauges(budgets: BudgetEvaluator) -> Sequence[BudgetGauge]:
    if not budgets.figures:
        return ()
    from gateway.money.budgets.evaluator import budget_gauges

    return [*budget_gauges(budgets.figures.values())]


def _count_budgets_without_channel(
    parts_builder: ServicePartsBuilder, channels: Sequence[ChannelState]
) -> int:
    registry = parts_builder.storage.registry
    if registry is None or not (budgets := registry.declared_table(BudgetTable).all()):
        return 0
    from gateway.money.budgets.judging import count_budgets_without_channel

    return count_budgets_without_channel(budgets, {view.id: view for view in registry.views.all()}, channels)


def _count_reports_by_state(
    parts_builder: ServicePartsBuilder, channels: Sequence[ChannelState]
) -> Mapping[str, int]:
    registry = parts_builder.storage.registry
    reports = () if registry is None else registry.declared_table(ScheduledReportTable).all()
    by_state = Counter(report_state(report, channels) for report in reports)
    return {state: by_state[state] for state in REPORT_STATES}


def _ratios_of_newest_reconciliations(reconciler: BillReconciler) -> Sequence[ReconciledRatio]:
    from gateway.bills.reconciliation.reconciler import reconciliation_gauges

    return [*reconciliation_gauges(reconciler.newest.values())]
