"""
Looks at the house with every detector and keeps what they find: as a task of the house, or when an operator asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.insights import (
    cost_gap,
    dead_letters,
    dear_model,
    doubled_source,
    idle_key,
    missing_price,
    mute_device,
    no_owner,
    repeated_ids,
    retry_storm,
    spend_spike,
    stuck_route,
    unrecognised_shape,
    unused_cache,
    wide_key,
)
from gateway.insights.facts import Detector, Facts
from gateway.insights.gathering import Sources, gather
from spool.clock import Clock
from spool.registry.insights import Finding, Merged
from spool.registry.tables.insights import InsightTable

EVERY_S = 600.0
FIRST_S = 30.0  # after a start routes need a moment to find out how they are

DETECTORS: tuple[Detector, ...] = (
    spend_spike, missing_price, cost_gap, no_owner, doubled_source, unused_cache, dear_model, retry_storm,
    unrecognised_shape, stuck_route, dead_letters, idle_key, wide_key, mute_device, repeated_ids,
)  # fmt: skip

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one look found, by detector; a detector that failed is named and the others go on."""

    findings: Sequence[Finding]
    looked_for: Sequence[str]
    failed: Sequence[str]


def look(facts: Facts, detectors: Sequence[Detector] = DETECTORS) -> Look:
    """Pure, and not quick: call it off the loop."""
    findings: list[Finding] = []
    looked_for, failed = [], []
    for detector in detectors:
        try:
            findings += detector.find(facts)
        except Exception:  # noqa: BLE001 - the supervised loop: one detector's mistake must not silence the others
            _log.exception("a detector failed", extra={"action": "detector_failed", "detector": detector.NAME})
            failed.append(detector.NAME)
        else:
            looked_for.append(detector.NAME)
    return Look(findings=findings, looked_for=looked_for, failed=failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspected:
    """What a look changed, and the detectors that failed."""

    merged: Merged
    failed: Sequence[str]


class Inspector:
    """Takes one look at a time."""

    def __init__(self, house: Sources, table: InsightTable, clock: Clock) -> None:
        self._house = house
        self._table = table
        self._clock = clock
        self._turn = asyncio.Lock()

    async def inspect(self) -> Inspected:
        """Look once and keep what was found."""
        async with self._turn:
            facts = await gather(self._house, now=self._clock.now())
            seen = await asyncio.to_thread(look, facts)
            merged = await self._table.merge(seen.findings, looked_for=seen.looked_for)
            return Inspected(merged=merged, failed=seen.failed)

    async def run(self) -> None:
        """Look for ever, as a task of the house. Whatever goes wrong is put off: no insight is worth the house."""
        await asyncio.sleep(FIRST_S)
        while True:
            try:
                await self.inspect()
            except Exception:  # noqa: BLE001 - the supervised loop
                _log.exception("insights wait for the next look", extra={"action": "inspection_put_off"})
            await asyncio.sleep(EVERY_S)
