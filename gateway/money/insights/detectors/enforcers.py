"""Detectors for limits that others enforce: counters, windows and amounts that differ from the totals."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.bills.enforcers import faults
from gateway.bills.enforcers.faults import EnforcerFault
from gateway.money.insights.detector_facts import InsightFacts, mark_impossible_in_demo
from gateway.money.insights.findings import build_finding, printable_name, sort_by_impact
from spool.registry.insights import LOW, Finding

_NONE = "a demo month reads no enforcer"
_ADVICE = {
    faults.COUNTER: (
        "Do not rely on this limit until the counter is right. Compare the calls of one hour with those that the "
        "enforcer logged. `tollhouse enforcers list` shows each limit with the counted cost."
    ),
    faults.WINDOW: "Set a calendar window in the enforcer, or change the granularity of the budget.",
    faults.NOT_REFUSING: (
        "Check whether the limit applies to these calls, and whether each instance of the enforcer has it. Until then, "
        "lower the limit at the provider."
    ),
    faults.LIMIT_DIFFERS: "Set the same amount in both places, or delete one of them.",
    faults.UNPRICED: (
        "Set prices of these models in the enforcer and with `tollhouse prices`. Until then, no limit in money holds "
        "for them."
    ),
}


def _fault_findings(facts: InsightFacts, detector: str) -> Sequence[Finding]:
    return sort_by_impact(
        _fault_finding(fault) for fault in facts.enforcer_faults if fault.detector == detector
    )


def _fault_finding(fault: EnforcerFault) -> Finding:
    return build_finding(
        fault.detector,
        (fault.enforcer, *fault.limit.key),
        title=f"{printable_name(fault.enforcer)}: {fault.title}",
        seen=fault.seen,
        advice=_ADVICE[fault.detector],
        category="budget",
        effort=LOW,
        newest=fault.newest,
    )


@mark_impossible_in_demo(_NONE)
def enforcer_counter(facts: InsightFacts) -> Sequence[Finding]:
    """Find spend counters of enforcers that lie outside of the range that the counted calls allow."""
    return _fault_findings(facts, faults.COUNTER)


@mark_impossible_in_demo(_NONE)
def enforcer_window(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find spend counters that are reset at another time than their enforcer states, or at no month boundary.
    """
    return _fault_findings(facts, faults.WINDOW)


@mark_impossible_in_demo(_NONE)
def enforcer_not_refusing(facts: InsightFacts) -> Sequence[Finding]:
    """Find limits that were reached but after which calls still succeed."""
    return _fault_findings(facts, faults.NOT_REFUSING)


@mark_impossible_in_demo(_NONE)
def enforcer_limit_differs(facts: InsightFacts) -> Sequence[Finding]:
    """Find limits whose amount differs from a budget of the same calls and period."""
    return _fault_findings(facts, faults.LIMIT_DIFFERS)


@mark_impossible_in_demo(_NONE)
def enforcer_unpriced(facts: InsightFacts) -> Sequence[Finding]:
    """Find limits over models without a price."""
    return _fault_findings(facts, faults.UNPRICED)
