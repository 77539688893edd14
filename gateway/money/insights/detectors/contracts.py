"""Detectors for contracts and plans: changes that earlier calls do not have, ends, and plans that nobody uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    UnappliedChange,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import (
    MAX_FINDINGS,
    build_finding,
    day_in_words,
    format_day,
    printable_name,
)
from spool.registry.insights import LOW, MEDIUM, Finding
from spool.registry.notices import CRITICAL, INFO, WARNING
from spool.statements import parse_day

if TYPE_CHECKING:
    from gateway.bills.contracts.declared import Contract
    from gateway.bills.plans.declared import AssistantPlan

# Thresholds of the detector contract_ends, in days.
WARNED_D, URGENT_D, FORGOTTEN_D = 30, 7, 30


@mark_impossible_in_demo("a demo month is recalculated after its contract")
def contract_not_applied(facts: InsightFacts) -> Sequence[Finding]:
    """Find contracts and own prices that were changed after calls that they may cover."""
    newest_first = sorted(facts.unapplied_changes, key=lambda change: -change.changed_at)
    return [_unapplied_change_finding(change) for change in newest_first[:MAX_FINDINGS]]


def _unapplied_change_finding(change: UnappliedChange) -> Finding:
    kind = "contract" if change.kind == "contract" else "own price of"
    return build_finding(
        "contract_not_applied",
        (change.kind, change.name),
        title=f"Calls from before the change of the {kind} {printable_name(change.name)} keep their estimates",
        seen=(
            f"It changed on {day_in_words(change.changed_at)}. {change.calls:,} calls since "
            f"{day_in_words(change.since)} that it may cover came before, and have the estimates of that time. Until "
            "they are recalculated, a fee and the calls that it pays for both count."
        ),
        advice=(
            f"Run `tollhouse ledger reprice --from {format_day(change.since)}`. The console offers the same after each "
            "change of a contract or a price."
        ),
        category="prices",
        effort=LOW,
        newest=change.changed_at,
        severity=WARNING,
    )


@mark_impossible_in_demo("the contract of a demo month has no end")
def contract_ends(facts: InsightFacts) -> Sequence[Finding]:
    """Find contracts that end soon or have ended, unless other contracts continue all kinds of their terms."""
    return list(_contract_end_findings(facts))[:MAX_FINDINGS]


def _contract_end_findings(facts: InsightFacts) -> Iterator[Finding]:
    for contract in sorted(facts.contracts, key=lambda each: (each.until, each.name)):
        if contract.until:
            days_left = (parse_day(contract.until) - facts.now) / DAY_S
            if -FORGOTTEN_D <= days_left < WARNED_D and not _is_continued(contract, facts.contracts):
                yield _contract_end_finding(contract, days_left)


def _is_continued(contract: Contract, contracts: Sequence[Contract]) -> bool:
    later_kinds = {
        term.kind
        for other in contracts
        if other.provider == contract.provider
        and other.since <= contract.until
        and (not other.until or other.until > contract.until)
        for term in other.terms
    }
    return later_kinds.issuperset(term.kind for term in contract.terms)


def _contract_end_finding(contract: Contract, days_left: float) -> Finding:
    name, last = printable_name(contract.name), day_in_words(parse_day(contract.until) - DAY_S)
    return build_finding(
        "contract_ends",
        (contract.id, contract.until),
        title=f"The contract {name} {'ends with' if days_left > 0 else 'ended with'} {last}",
        seen=(
            f"Calls of {printable_name(contract.provider)} after that day are estimated at list prices, and no other "
            "contract has the same kinds of terms."
        ),
        advice=(
            "Set the day `until` of the contract, or enter its successor, on the page Contracts or with `tollhouse "
            "contracts`. If it is not continued, dismiss the insight."
        ),
        category="prices",
        effort=MEDIUM,
        severity=CRITICAL if days_left < URGENT_D else WARNING,
    )


@mark_impossible_in_demo("the plans of a demo month have seats")
def plan_without_seats(facts: InsightFacts) -> Sequence[Finding]:
    """Find plans in which nobody has a seat, so that they cover no call."""
    today = format_day(facts.now)
    idle = [
        plan for plan in facts.plans if not any(seat.until == "" or seat.until > today for seat in plan.seats)
    ]
    return [_idle_plan_finding(plan) for plan in sorted(idle, key=lambda plan: plan.name)[:MAX_FINDINGS]]


def _idle_plan_finding(plan: AssistantPlan) -> Finding:
    return build_finding(
        "plan_without_seats",
        (plan.id,),
        title=f"Nobody has a seat in the plan {printable_name(plan.name)}",
        seen="A plan covers the calls of people with a seat. Without a seat it covers no call and costs nothing.",
        advice="Enter the seats on the page Plans or with `tollhouse plans`, or delete the plan.",
        category="prices",
        effort=LOW,
        severity=INFO,
    )
