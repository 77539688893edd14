"""Reported and estimated cost of calls differ: a wrong price, a contract, or a mistake of the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, money, named, ordered, percent
from spool.record import NS, Inference
from spool.registry.insights import MEDIUM, Finding

NAME = "cost_gap"
LEAST_CALLS = 20
LEAST_GAP = Decimal("0.15")  # of the larger of the two
LEAST = Decimal(1)  # dollars


def find(facts: Facts) -> Sequence[Finding]:
    calls: dict[tuple[str, str | None, str | None], list[Inference]] = defaultdict(list)
    for call in facts.recent:
        if call.status == "ok" and call.cost is not None and call.estimated_cost is not None:
            calls[call.source, call.provider, call.response_model or call.request_model].append(call)
    found = []
    for (source, provider, model), group in calls.items():
        reported = sum((Decimal(call.cost or 0) for call in group), Decimal(0))
        estimated = sum((Decimal(call.estimated_cost or 0) for call in group), Decimal(0))
        gap = abs(reported - estimated)
        if len(group) >= LEAST_CALLS and gap >= max(LEAST, LEAST_GAP * max(reported, estimated)):
            found.append(
                finding(
                    NAME,
                    (source, provider, model),
                    title=f"{named(source)} reports {money(reported)} for {named(model)}, the price book says "
                    f"{money(estimated)}",
                    seen=f"{len(group):,} of the newest calls of {named(model)} ({named(provider)}) have both costs, "
                    f"and they are {percent(gap, max(reported, estimated))} apart. What is reported counts.",
                    advice="Compare one call with the provider's invoice. If the report is right (a contract), put its "
                    "prices in [[prices.override]]; if not, correct the price table of the source.",
                    category="prices",
                    effort=MEDIUM,
                    impact=gap,
                    newest=_newest(group),
                )
            )
    return ordered(found)


def _newest(calls: Sequence[Inference]) -> float | None:
    starts = [call.start_time for call in calls if call.start_time is not None]
    return max(starts) / NS if starts else None
