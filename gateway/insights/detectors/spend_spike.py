"""
Days that cost far more than days like them: the same weekday in the weeks before, or the days before.

Medians, so that neither the rhythm of the week nor an earlier spike moves what is expected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import day, finding, money, named, ordered
from spool.registry.insights import MEDIUM, Finding

NAME = "spend_spike"
TOLD = 7  # days in which a spike is told
LOOK_BACK = 2 * TOLD  # to find where it began
TOGETHER = 3  # days from one spike to the next that belongs to it: a weekend may lie between
WEEKS = 4
ENOUGH_WEEKS = 3
ENOUGH_DAYS = 7
TIMES = 2  # what is expected
SPREADS = Decimal("6") * Decimal("1.4826")  # deviations, from the median deviation
LEAST = Decimal(1)  # dollars over what is expected
LEAST_SHARE = Decimal("0.1")  # of the whole spend of a usual day

EVERYBODY = "*"  # no team of its own

Days = Mapping[int, Decimal]  # day number -> spend


class Spike(NamedTuple):
    """A day that stands out."""

    number: int
    spent: Decimal
    expected: Decimal


def find(facts: Facts) -> Sequence[Finding]:
    teams: dict[str | None, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    total: dict[int, Decimal] = defaultdict(Decimal)
    for spend in facts.days:
        number = int(spend.start // DAY_S)
        teams[spend.team][number] += spend.cost
        total[number] += spend.cost
    today = int(facts.now // DAY_S)
    first = min((number for number, cost in total.items() if cost), default=today)
    least = max(LEAST, LEAST_SHARE * median(total.values())) if total else LEAST
    found = []
    explained: set[int] = set()
    for team, days in teams.items():
        spikes = list(_spikes(days, first, today, least))
        explained.update(spike.number for spike in spikes)
        found += [_finding(facts, streak, team) for streak in _streaks(spikes)]
    spikes = [spike for spike in _spikes(total, first, today, least) if spike.number not in explained]
    found += [_finding(facts, streak, EVERYBODY) for streak in _streaks(spikes)]
    since = (today - TOLD) * DAY_S
    return ordered(each for each in found if each.newest is not None and each.newest >= since)


def _spikes(days: Days, first: int, today: int, least: Decimal) -> Iterator[Spike]:
    """The newest days that stand out. Today so far is held against whole days."""
    for number in range(today - LOOK_BACK, today + 1):
        before = _before(days, number, first)
        if not before or not (expected := median(before)):
            continue
        spread = median(abs(each - expected) for each in before)
        excess = days.get(number, Decimal(0)) - expected
        if excess >= max(least, (TIMES - 1) * expected, SPREADS * spread):
            yield Spike(number, expected + excess, expected)


def _before(days: Days, number: int, first: int) -> list[Decimal]:
    """Returns the days to compare a day with; none if there is too little history."""
    same_weekdays = (number - 7 * week for week in range(1, WEEKS + 1))
    weeks = [days.get(each, Decimal(0)) for each in same_weekdays if each >= first]
    if len(weeks) >= ENOUGH_WEEKS:
        return weeks
    every = [days.get(each, Decimal(0)) for each in range(max(first, number - 7 * WEEKS), number)]
    return every if len(every) >= ENOUGH_DAYS else []


def _streaks(spikes: Sequence[Spike]) -> list[list[Spike]]:
    """Spikes that follow each other are one: what lasts for a week is told once."""
    streaks: list[list[Spike]] = []
    for spike in spikes:
        if streaks and spike.number - streaks[-1][-1].number <= TOGETHER:
            streaks[-1].append(spike)
        else:
            streaks.append([spike])
    return streaks


def _finding(facts: Facts, streak: Sequence[Spike], team: str | None) -> Finding:
    first, last = (each.number * DAY_S for each in (streak[0], streak[-1]))
    starts = {each.number * DAY_S for each in streak}
    models: dict[str | None, Decimal] = defaultdict(Decimal)
    for spend in facts.days:
        if spend.start in starts and team in (EVERYBODY, spend.team):
            models[spend.model] += spend.cost
    model = max(models, key=lambda each: models[each])
    spent, expected = (
        sum(amounts, Decimal(0)) for amounts in ((e.spent for e in streak), (e.expected for e in streak))
    )
    who = "All traffic" if team == EVERYBODY else f"Team {named(team)}" if team else "Traffic without a team"
    when = f"on {day(first)}" if first == last else f"on {len(streak)} days from {day(first)} to {day(last)}"
    return finding(
        NAME,
        (day(first), team),
        title=f"{who} spent {money(spent)} {when}, {money(expected)} was expected",
        seen=f"{who} cost {money(spent)} {when}; days like it cost {money(expected)} before. The largest part was "
        f"{named(model, 'a model without a name')} with {money(models[model])}.",
        advice="Look at that time with `tollhouse report --per hourly --by user,api_key,model`, and ask who leads it.",
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=last,
    )
