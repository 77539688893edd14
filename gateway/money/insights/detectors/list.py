"""The detectors that run, in the order in which their findings are listed."""

from __future__ import annotations

from gateway.money.insights.detectors import (
    calls,
    delivery,
    intake,
    keys,
    prices,
    senders,
    service,
    spending,
    statements,
)
from gateway.money.insights.facts import Detector

DETECTORS: tuple[Detector, ...] = (
    spending.spend_spike,
    spending.view_anomaly,
    prices.missing_price,
    prices.missing_rate,
    prices.cost_gap,
    statements.reconciliation_difference,
    statements.coverage_drop,
    calls.no_owner,
    calls.doubled_source,
    calls.retry_storm,
    intake.unrecognised_shape,
    delivery.stuck_route,
    delivery.unknown_arrival,
    delivery.dead_letters,
    delivery.refused_records,
    keys.idle_key,
    keys.wide_key,
    keys.expiring_key,
    senders.mute_device,
    senders.silent_cluster,
    senders.unapplied_config,
    keys.crowding_key,
    intake.many_series,
    statements.statement_stale,
    calls.repeated_ids,
    service.moved_clock,
    delivery.unmapped_events,
    service.different_settings,
    service.old_transaction,
    service.missed_records,
    delivery.lake_differs,
    intake.read_otherwise,
    intake.late_reports,
)

# These find a state of the moment: a route, a key, a device. Its end is noticed within a minute.
OF_STATES: tuple[Detector, ...] = (
    delivery.stuck_route,
    delivery.unknown_arrival,
    keys.idle_key,
    keys.wide_key,
    keys.expiring_key,
    senders.mute_device,
    senders.silent_cluster,
    senders.unapplied_config,
)

# Recommendations tell these now: what they found is gone, and goes from the list.
RETIRED = ("unused_cache", "dear_model")
