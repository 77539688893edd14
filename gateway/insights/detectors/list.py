"""The detectors that run, in the order in which their findings are listed."""

from __future__ import annotations

from gateway.insights.detectors import (
    cost_gap,
    doubled_source,
    expiring_key,
    idle_key,
    late_reports,
    missed_records,
    missing_price,
    missing_rate,
    moved_clock,
    no_owner,
    read_otherwise,
    repeated_ids,
    retry_storm,
    spend_spike,
    unmapped_events,
    unrecognised_shape,
    view_anomaly,
    wide_key,
)
from gateway.insights.detectors.delivery import (
    dead_letters,
    lake_differs,
    refused_records,
    stuck_route,
    unknown_arrival,
)
from gateway.insights.detectors.senders import (
    crowding_key,
    many_series,
    mute_device,
    silent_cluster,
    unapplied_config,
)
from gateway.insights.detectors.shared_storage import different_settings, old_transaction
from gateway.insights.detectors.statements import (
    coverage_drop,
    reconciliation_difference,
    rows_left_out,
    statement_stale,
)
from gateway.insights.facts import Detector

DETECTORS: tuple[Detector, ...] = (
    spend_spike, view_anomaly, missing_price, missing_rate, cost_gap, reconciliation_difference, coverage_drop,
    no_owner, doubled_source, retry_storm, unrecognised_shape, stuck_route, unknown_arrival,
    dead_letters, refused_records, idle_key, wide_key, expiring_key, mute_device, silent_cluster, unapplied_config,
    crowding_key, many_series, statement_stale, repeated_ids, moved_clock, unmapped_events, different_settings,
    old_transaction, missed_records, lake_differs, read_otherwise, rows_left_out, late_reports,
)  # fmt: skip

# What these find is a state of the moment: a route, a key, a device. That it ended is seen within a minute.
OF_STATES: tuple[Detector, ...] = (
    stuck_route,
    unknown_arrival,
    idle_key,
    wide_key,
    expiring_key,
    mute_device,
    silent_cluster,
    unapplied_config,
)

# Recommendations tell these now: what they found is gone, and goes from the list.
RETIRED = ("unused_cache", "dear_model")
