"""The detectors that run, in the order in which their findings are listed."""

from __future__ import annotations

from gateway.insights.detectors import (
    cost_gap,
    dead_letters,
    dear_model,
    doubled_source,
    idle_key,
    missing_price,
    moved_clock,
    mute_device,
    no_owner,
    repeated_ids,
    retry_storm,
    spend_spike,
    stuck_route,
    unknown_arrival,
    unrecognised_shape,
    unused_cache,
    wide_key,
)
from gateway.insights.facts import Detector

DETECTORS: tuple[Detector, ...] = (
    spend_spike, missing_price, cost_gap, no_owner, doubled_source, unused_cache, dear_model, retry_storm,
    unrecognised_shape, stuck_route, unknown_arrival, dead_letters, idle_key, wide_key, mute_device, repeated_ids,
    moved_clock,
)  # fmt: skip
