"""Spend that names neither a team nor a user: nobody can be asked about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts, Spend
from gateway.insights.findings import finding, money, named, ordered, percent
from spool.registry.insights import LOW, Finding

NAME = "no_owner"
LEAST_SHARE = Decimal("0.05")  # of all spend of the week
LEAST = Decimal(1)  # dollars


def find(facts: Facts) -> Sequence[Finding]:
    total = sum((spend.cost for spend in facts.week), Decimal(0))
    sources: dict[str | None, list[Spend]] = defaultdict(list)
    for spend in facts.week:
        if spend.cost and not spend.team and not spend.user:
            sources[spend.source].append(spend)
    findings = []
    for source, spends in sources.items():
        cost = sum((spend.cost for spend in spends), Decimal(0))
        if cost < max(LEAST, LEAST_SHARE * total):
            continue
        keys = sorted({named(spend.api_key, "no key") for spend in spends})[:5]
        findings.append(
            finding(
                NAME,
                (source,),
                title=f"{money(cost)} of {named(source)} belong to nobody",
                seen=f"{percent(cost, total)} of a week's spend came from {named(source)} without team and user "
                f"({', '.join(keys)}).",
                advice="Label the Tollhouse key of that sender (`tollhouse keys edit NAME --label team=...`), or add "
                "an [[attribution]] rule for its api_key or service.",
                category="attribution",
                effort=LOW,
                impact=cost,
                newest=max(spend.start for spend in spends),
            )
        )
    return ordered(findings)
