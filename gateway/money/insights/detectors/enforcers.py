"""Detectors for limits that others enforce: counters, windows and amounts that differ from the totals."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.bills.enforcers import faults
from gateway.bills.enforcers.faults import EnforcerFault
from gateway.money.insights.facts import Facts, no_plant
from gateway.money.insights.findings import finding, named, ordered
from spool.registry.insights import LOW, Finding

_NONE = "it reads no enforcer"
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


def _found(facts: Facts, detector: str) -> Sequence[Finding]:
    return ordered(_finding(fault) for fault in facts.enforcer_faults if fault.detector == detector)


def _finding(fault: EnforcerFault) -> Finding:
    return finding(
        fault.detector,
        (fault.enforcer, *fault.limit.key),
        title=f"{named(fault.enforcer)}: {fault.title}",
        seen=fault.seen,
        advice=_ADVICE[fault.detector],
        category="budget",
        effort=LOW,
        newest=fault.newest,
    )


@no_plant(_NONE)
def enforcer_counter(facts: Facts) -> Sequence[Finding]:
    """Find counters of enforcers that are outside of what our calls cost."""
    return _found(facts, faults.COUNTER)


@no_plant(_NONE)
def enforcer_window(facts: Facts) -> Sequence[Finding]:
    """Find counters that are reset at another time than stated, or in no calendar month."""
    return _found(facts, faults.WINDOW)


@no_plant(_NONE)
def enforcer_not_refusing(facts: Facts) -> Sequence[Finding]:
    """Find limits after which calls still succeed."""
    return _found(facts, faults.NOT_REFUSING)


@no_plant(_NONE)
def enforcer_limit_differs(facts: Facts) -> Sequence[Finding]:
    """Find limits whose amount differs from a budget of the same calls and period."""
    return _found(facts, faults.LIMIT_DIFFERS)


@no_plant(_NONE)
def enforcer_unpriced(facts: Facts) -> Sequence[Finding]:
    """Find limits over models without a price."""
    return _found(facts, faults.UNPRICED)
