"""
A day that cost far more than days like it: the same weekday in the weeks before, or in a young house the days before.

Medians, so that neither the rhythm of the week nor an earlier spike moves what is expected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.words import day, finding, money, named, ordered
from spool.insights import MEDIUM, Finding

NAME = "spend_spike"
LOOK_BACK = 7  # days in which a spike is told
WEEKS = 4
ENOUGH_WEEKS = 3
ENOUGH_DAYS = 7
TIMES = 2  # what is expected
SPREADS = Decimal("6") * Decimal("1.4826")  # deviations, from the median deviation
LEAST = Decimal(5)  # dollars over what is expected

Days = Mapping[int, Decimal]  # day number -> spend


def find(facts: Facts) -> Sequence[Finding]:
    teams: dict[str | None, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    total: dict[int, Decimal] = defaultdict(Decimal)
    for spend in facts.days:
        number = int(spend.start // DAY_S)
        teams[spend.team][number] += spend.cost
        total[number] += spend.cost
    today = int(facts.now // DAY_S)
    first = min((number for number, cost in total.items() if cost), default=today)
    found = []
    explained = set()
    for team, days in teams.items():
        for number, expected in _spikes(days, first, today):
            explained.add(number)
            found.append(_finding(facts, number, days[number], expected, team))
    for number, expected in _spikes(total, first, today):
        if number not in explained:
            found.append(_finding(facts, number, total[number], expected, "*"))
    return ordered(found)


def _spikes(days: Days, first: int, today: int) -> Iterator[tuple[int, Decimal]]:
    """Days of the last week that stand out, with what was expected. Today so far is held against whole days."""
    for number in range(today - LOOK_BACK, today + 1):
        before = _before(days, number, first)
        if not before or not (expected := median(before)):
            continue
        spread = median(abs(each - expected) for each in before)
        excess = days.get(number, Decimal(0)) - expected
        if excess >= max(LEAST, (TIMES - 1) * expected, SPREADS * spread):
            yield number, expected


def _before(days: Days, number: int, first: int) -> list[Decimal]:
    """The days to hold a day against; none when the house is too young to tell."""
    weeks = [days.get(each, Decimal(0)) for week in range(1, WEEKS + 1) if (each := number - 7 * week) >= first]
    if len(weeks) >= ENOUGH_WEEKS:
        return weeks
    every = [days.get(each, Decimal(0)) for each in range(max(first, number - 7 * WEEKS), number)]
    return every if len(every) >= ENOUGH_DAYS else []


def _finding(facts: Facts, number: int, spent: Decimal, expected: Decimal, team: str | None) -> Finding:
    start = number * DAY_S
    models: dict[str | None, Decimal] = defaultdict(Decimal)
    for spend in facts.days:
        if spend.start == start and team in ("*", spend.team):
            models[spend.model] += spend.cost
    model = max(models, key=lambda each: models[each], default=None)
    who = "All traffic" if team == "*" else f"Team {named(team)}" if team else "Traffic without a team"
    return finding(
        NAME,
        (day(start), team),
        title=f"{who} spent {money(spent)} on {day(start)}, {money(expected)} was expected",
        seen=f"{who} cost {money(spent)} on {day(start)}; days like it cost {money(expected)}. The largest part was "
        f"{named(model, 'a model without a name')} with {money(models[model] if models else Decimal(0))}.",
        advice="Look at that day with `tollhouse report --per hourly --by user,api_key,model`, and ask who leads it.",
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=start,
    )
