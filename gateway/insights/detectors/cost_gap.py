"""Reported and estimated cost of calls differ: a wrong price, a contract, or a mistake of the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, money, named, ordered, percent, rows_of
from spool.record import NS, Inference
from spool.registry.insights import MEDIUM, Finding

NAME = "cost_gap"
LEAST_CALLS = 20
LEAST_GAP = Decimal("0.15")  # of the larger of the two
LEAST = Decimal(1)  # dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """What calls of one model of a source cost by its report and by the price book."""

    provider: str | None
    model: str | None
    calls: Sequence[Inference]
    reported: Decimal
    estimated: Decimal

    @property
    def apart(self) -> Decimal:
        return abs(self.reported - self.estimated)

    @property
    def row(self) -> str:
        return (
            f"{named(self.model)} ({named(self.provider)}): reported {money(self.reported)}, list prices "
            f"{money(self.estimated)}, {len(self.calls):,} calls"
        )


def find(facts: Facts) -> Sequence[Finding]:
    calls: dict[tuple[str, str | None, str | None], list[Inference]] = defaultdict(list)
    for call in facts.recent:
        if call.status == "ok" and call.cost is not None and call.estimated_cost is not None:
            calls[call.source, call.provider, call.response_model or call.request_model].append(call)
    gaps: dict[str, list[_Gap]] = defaultdict(list)
    for (source, provider, model), group in calls.items():
        reported = sum((Decimal(call.cost or 0) for call in group), Decimal(0))
        estimated = sum((Decimal(call.estimated_cost or 0) for call in group), Decimal(0))
        gap = _Gap(provider=provider, model=model, calls=group, reported=reported, estimated=estimated)
        if len(group) >= LEAST_CALLS and gap.apart >= max(LEAST, LEAST_GAP * max(reported, estimated)):
            gaps[source].append(gap)
    return ordered(_finding(source, sorted(each, key=_dearest)) for source, each in gaps.items())


def _dearest(gap: _Gap) -> tuple[Decimal, str]:
    return -gap.apart, gap.row


def _finding(source: str, gaps: Sequence[_Gap]) -> Finding:
    """Make one finding for a source, whose table of prices is the cause; its models are rows."""
    reported = sum((gap.reported for gap in gaps), Decimal(0))
    estimated = sum((gap.estimated for gap in gaps), Decimal(0))
    apart = sum((gap.apart for gap in gaps), Decimal(0))
    models = named(gaps[0].model) if len(gaps) == 1 else f"{len(gaps)} models"
    count = sum(len(gap.calls) for gap in gaps)
    return finding(
        NAME,
        (source,),
        title=f"{named(source)} reports {money(reported)} for {models}, list prices say {money(estimated)}",
        seen=f"{count:,} of the newest calls of {models} have both costs, and they are "
        f"{percent(apart, max(reported, estimated))} apart. What is reported "
        f"counts.{rows_of([g.row for g in gaps])}",
        advice="Compare one call with the provider's invoice. If the report is right (a contract), put its "
        "prices in [[prices.override]]; if not, correct the price table of the source.",
        category="prices",
        effort=MEDIUM,
        impact=apart,
        newest=_newest([call for gap in gaps for call in gap.calls]),
    )


def _newest(calls: Sequence[Inference]) -> float | None:
    starts = [call.start_time for call in calls if call.start_time is not None]
    return max(starts) / NS if starts else None
