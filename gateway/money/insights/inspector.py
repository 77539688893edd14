"""Runs all detectors in the background or on request, and stores their findings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.money.insights.detector_facts import Detector, InsightFacts, needs_only_states
from gateway.money.insights.detectors import (
    calls,
    contracts,
    enforcers,
    fields,
    fleet,
    machines,
    prices,
    records,
    senders,
    service,
    spending,
    statements,
    tokens,
)
from gateway.money.insights.findings import MAX_FINDINGS
from gateway.money.insights.gathering import FactSources, gather_facts, gather_states
from spool.clock import Clock, clock_ahead_and_deletion_delay_s
from spool.errors import TotalsIncomplete
from spool.loops import repeat
from spool.registry.insights import Finding, FindingMergeCounts
from spool.registry.notices import CRITICAL, WARNING
from spool.registry.tables.insights import InsightTable

EVERY_S = 600.0
STATES_EVERY_S = 60.0  # seconds between checks whether a reported state has ended, or a severe one has begun
_log = logging.getLogger(__name__)

# The detectors in the order in which findings are listed.
DETECTORS: tuple[Detector, ...] = (
    spending.spend_spike,
    spending.view_anomaly,
    prices.missing_price,
    prices.missing_usage,
    prices.missing_tier_price,
    prices.old_prices,
    prices.missing_rate,
    contracts.contract_not_applied,
    contracts.contract_ends,
    contracts.plan_without_seats,
    prices.cost_gap,
    statements.reconciliation_difference,
    statements.coverage_drop,
    fields.lost_field,
    fields.uncounted_calls,
    fields.misdated_calls,
    enforcers.enforcer_counter,
    enforcers.enforcer_window,
    enforcers.enforcer_not_refusing,
    enforcers.enforcer_limit_differs,
    enforcers.enforcer_unpriced,
    calls.no_owner,
    calls.doubled_source,
    calls.retry_storm,
    records.unrecognised_shape,
    records.stuck_route,
    service.channel_down,
    records.unknown_arrival,
    records.dead_letters,
    records.refused_records,
    senders.stopped_sender,
    senders.idle_key,
    senders.wide_key,
    senders.expiring_key,
    service.ending_certificate,
    fleet.fleet_losing,
    fleet.policy_outdated,
    fleet.machine_trouble,
    fleet.stopped_agent,
    fleet.missing_device,
    machines.copied_device,
    machines.shared_hardware,
    machines.reinstalled_device,
    tokens.token_strangers,
    tokens.token_burst,
    senders.silent_cluster,
    senders.unapplied_config,
    senders.crowding_key,
    records.many_series,
    statements.statement_stale,
    calls.repeated_ids,
    service.moved_clock,
    records.unmapped_events,
    service.different_settings,
    service.old_transaction,
    service.missed_records,
    records.lake_differs,
    records.late_reports,
)

# Detectors that report a current state of a route, a sender, a key or a device. These detectors run every
# STATES_EVERY_S, so the end of a state is noticed within a minute, and so is the begin of a severe one.
STATE_DETECTORS = tuple(filter(needs_only_states, DETECTORS))


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorRun:
    """
    The result of a run: the findings, and three lists of detector names. `looked_for` has the detectors that
    ran, `cut` has detectors with more findings than the limit, and `failed` has detectors that failed.
    """

    findings: Sequence[Finding]
    looked_for: Sequence[str]
    cut: Sequence[str]
    failed: Sequence[str]


def run_detectors(facts: InsightFacts, detectors: Sequence[Detector] = DETECTORS) -> DetectorRun:
    """Run the detectors. This is slow, so call it outside the event loop."""
    findings: list[Finding] = []
    looked_for = []
    cut = []
    failed = []
    for detector in detectors:
        try:
            new = detector(facts)
        except Exception:  # noqa: BLE001 - the supervised loop: a mistake in one detector must not stop the others
            _log.exception(
                "a detector failed, so its findings stay as they were",
                extra={"action": "detector_failed", "detector": detector.__name__},
            )
            failed.append(detector.__name__)
        else:
            looked_for.append(detector.__name__)
            findings += new
            if len(new) >= MAX_FINDINGS:
                cut.append(detector.__name__)
    return DetectorRun(findings=findings, looked_for=looked_for, cut=cut, failed=failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectionReport:
    """
    The result of an inspection: how stored insights changed, and the names of the detectors that failed.
    """

    merged: FindingMergeCounts
    failed: Sequence[str]


class InsightUpdater:
    def __init__(self, sources: FactSources, table: InsightTable, clock: Clock) -> None:
        self._sources = sources
        self._table = table
        self._clock = clock
        self._turn = asyncio.Lock()

    async def find_and_store_insights(self) -> InspectionReport:
        async with self._turn:
            step_s, _ = clock_ahead_and_deletion_delay_s(self._clock)
            facts = await gather_facts(self._sources, now=self._clock.now(), clock_step_s=step_s)
            run = await asyncio.to_thread(run_detectors, facts)
            merged = await self._table.merge_findings(
                run.findings, looked_for=run.looked_for, truncated_detectors=run.cut
            )
            return InspectionReport(merged=merged, failed=run.failed)

    async def has_changed_state(self) -> bool:
        """
        Return whether a route, a sender, a key or a device has left a state that an insight reports, or whether a
        severe state has begun. No calls are read.
        """
        known = {
            insight.finding: insight for insight in await self._table.detector_insights() if insight.present
        }
        names = {detector.__name__ for detector in STATE_DETECTORS}
        facts = await gather_states(self._sources, now=self._clock.now())
        run = await asyncio.to_thread(run_detectors, facts, STATE_DETECTORS)
        current = {finding.key: finding for finding in run.findings}
        certain = names - {*run.cut, *run.failed}
        has_ended = any(
            key not in current for key in known if key is not None and key.partition(":")[0] in certain
        )
        return has_ended or any(
            finding.severity in (WARNING, CRITICAL)
            and (key not in known or known[key].severity != finding.severity)
            for key, finding in current.items()
        )

    async def run(self) -> None:
        """
        Run the detectors periodically, and earlier if a reported state has ended or a severe one has begun.
        """
        due = self._clock.monotonic()

        async def inspect_if_due() -> None:
            nonlocal due
            if self._clock.monotonic() >= due or await self.has_changed_state():
                due = self._clock.monotonic() + EVERY_S
                try:
                    await self.find_and_store_insights()
                except TotalsIncomplete:
                    due = self._clock.monotonic()
                    raise

        await repeat(
            inspect_if_due,
            every_s=min(STATES_EVERY_S, EVERY_S),
            failed="the insights could not be updated; the next run tries again",
            action="inspection_put_off",
        )
