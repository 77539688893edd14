"""
Days on which a view spent far more than before: than on days like them, or by a percentage that the view sets
than on the day before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from gateway.insights.facts import DAY_S, Facts, ViewSpend
from gateway.insights.findings import day, finding, money, named, ordered
from gateway.insights.spikes import LEAST, TOLD, Days, Spike, spikes_of, streaks
from spool.registry.insights import MEDIUM, Concerned, Finding
from spool.registry.views import PERCENT

NAME = "view_anomaly"


def find(facts: Facts) -> Sequence[Finding]:
    today = int(facts.now // DAY_S)
    found = [_finding(spend, streak) for spend in facts.views for streak in _anomalies(spend, today)]
    since = (today - TOLD) * DAY_S
    told = [each for each in found if each.newest is not None and each.newest >= since]
    return ordered(told, most=len(told))  # people chose the views, so none of them hides another


def _anomalies(spend: ViewSpend, today: int) -> Iterator[Sequence[Spike]]:
    days = {int(start // DAY_S): sum(parts.values(), Decimal(0)) for start, parts in spend.days.items()}
    first = min((number for number, cost in days.items() if cost), default=today)
    if spend.view.anomalies.threshold_type == PERCENT:
        yield from (
            [spike] for spike in _grown(days, first, today, spend.view.anomalies.threshold_value or 0)
        )
    else:
        yield from streaks(list(spikes_of(days, first, today, LEAST)))


def _grown(days: Days, first: int, today: int, percent: int) -> Iterator[Spike]:
    """The days that cost so much more than the day before. The first day of a view has none."""
    for number in range(max(first + 1, today - TOLD), today + 1):
        before = days.get(number - 1, Decimal(0))
        spent = days.get(number, Decimal(0))
        if spent - before >= max(LEAST, before * percent / 100):
            yield Spike(number, spent, before)


def _finding(spend: ViewSpend, streak: Sequence[Spike]) -> Finding:
    view = spend.view
    first, last = (each.number * DAY_S for each in (streak[0], streak[-1]))
    spent, expected = (
        sum(amounts, Decimal(0)) for amounts in ((e.spent for e in streak), (e.expected for e in streak))
    )
    starts = [each.number * DAY_S for each in streak]
    parts = {part for start in starts for part in spend.days.get(start, {})}
    costs = {
        part: sum((spend.days[start].get(part, Decimal(0)) for start in starts), Decimal(0)) for part in parts
    }
    largest = max(costs, key=lambda part: (costs[part], part or ""))
    when = f"on {day(first)}" if first == last else f"on {len(streak)} days from {day(first)} to {day(last)}"
    usual = "on the day before" if view.anomalies.threshold_type == PERCENT else "on days like it"
    return finding(
        NAME,
        (view.id, day(first)),
        title=f"The view {named(view.name)} spent {money(spent)} {when}, {money(expected)} was expected",
        seen=f"The view {named(view.name)} cost {money(spent)} {when}, and {money(expected)} {usual}. The largest part "
        f"was the {view.principal_dimension} {named(largest)} with {money(costs[largest])}.",
        advice="Look at that time with `tollhouse report --view` and `--per hourly --by user,api_key,model`, and ask "
        "who leads it. `tollhouse views edit` changes what counts as far more.",
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=last,
        # What was over before anybody wanted the view is no news.
        channels=view.channels if last + DAY_S > view.created else (),
        concerns=Concerned(include=view.include, exclude=view.exclude),
    )
