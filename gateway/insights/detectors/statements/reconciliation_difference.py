"""Settled days on which a provider billed something else than was counted, beyond the tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import day, finding, money, named, ordered, rows_of
from gateway.reconciliation.comparing import CENT, DIFFERS, Line, Reconciliation
from spool.ledger import money as units
from spool.registry.insights import MEDIUM, Finding

NAME = "reconciliation_difference"


def find(facts: Facts) -> Sequence[Finding]:
    findings = []
    for each in facts.reconciled:
        for found in each.providers:
            differing = [line for line in found.days if line.state == DIFFERS]
            if differing:
                findings.append(_finding(each.month.name, found, differing))
    return ordered(findings)


def _signed(amount: int) -> str:
    dollars = Decimal(units.text(amount))
    return f"{'-' if dollars < 0 else ''}{money(abs(dollars))}"


def _finding(month: str, found: Reconciliation, differing: Sequence[Line]) -> Finding:
    billed = Decimal(units.text(sum(line.billed for line in differing)))
    counted = Decimal(units.text(sum(line.counted for line in differing)))
    newest = max(int(line.name) for line in differing)
    cause = found.claims[0] if found.claims else None
    why = (
        f" The largest cause is {cause.cause} ({cause.sure}): {cause.evidence}."
        if cause
        else " No cause was found."
    )
    left = found.total.unexplained
    rows = [
        f"{each.cause} ({each.sure}): {_signed(each.amount)}"
        for each in found.claims
        if abs(each.moved) >= CENT
    ]
    rows += [f"unexplained: {_signed(left)}"] if abs(left) >= CENT else []
    count = f"{len(differing)} settled days of {month}"
    return finding(
        NAME,
        (found.provider, month),
        title=f"{named(found.provider)} billed {money(billed)} where {money(counted)} was counted, on {count}",
        seen=f"{count}, the last of them {day(newest)}, differ beyond the tolerance.{why}{rows_of(rows)}",
        advice=f"{cause.advice if cause else 'Look at the days.'} `tollhouse reconcile report --month {month} "
        f"--provider {named(found.provider)}` has every day, model and cause.",
        category="prices",
        effort=MEDIUM,
        impact=abs(billed - counted),
        newest=newest + DAY_S,
    )
