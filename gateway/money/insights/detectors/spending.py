"""Days on which a team, everybody together, or a view spent far more than before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from gateway.money.insights.facts import DAY_S, Facts, Spend, ViewSpend
from gateway.money.insights.findings import day, finding, money, named, ordered
from spool.registry.insights import MEDIUM, Concerned, Finding
from spool.registry.views import PERCENT

TOLD = 7  # days in which a spike is reported
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


def spend_spike(facts: Facts) -> Sequence[Finding]:
    """Find days on which a team, or everybody together, spent far more than on days like them."""
    found = newest_streaks(facts.days, facts.now)
    return ordered(_spike(facts, streak, team) for team, streak in found)


def newest_streaks(spends: Sequence[Spend], now: float) -> list[tuple[str | None, list[Spike]]]:
    """Return the streaks of each team, and of EVERYBODY, that ended within the last days."""
    teams: dict[str | None, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    total: dict[int, Decimal] = defaultdict(Decimal)
    for spend in spends:
        number = int(spend.start // DAY_S)
        teams[spend.team][number] += spend.cost
        total[number] += spend.cost
    today = int(now // DAY_S)
    first = min((number for number, cost in total.items() if cost), default=today)
    least = max(LEAST, LEAST_SHARE * median(total.values())) if total else LEAST
    found: list[tuple[str | None, list[Spike]]] = []
    explained: set[int] = set()
    for team, days in teams.items():
        spikes = list(spikes_of(days, first, today, least))
        explained.update(spike.number for spike in spikes)
        found += [(team, streak) for streak in streaks(spikes)]
    spikes = [spike for spike in spikes_of(total, first, today, least) if spike.number not in explained]
    found += [(EVERYBODY, streak) for streak in streaks(spikes)]
    return [(team, streak) for team, streak in found if streak[-1].number >= today - TOLD]


def _spike(facts: Facts, streak: Sequence[Spike], team: str | None) -> Finding:
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
        "spend_spike",
        (day(first), team),
        title=f"{who} spent {money(spent)} {when}, {money(expected)} was expected",
        seen=f"{who} cost {money(spent)} {when}; days like it cost {money(expected)} before. The largest part was "
        f"{named(model, 'a model without a name')} with {money(models[model])}.",
        advice="Look at that time with `tollhouse report --per hourly --by user,api_key,model`, and ask who leads it.",
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=last,
        concerns=None if team == EVERYBODY else Concerned(include={"team": (team or "",)}),
    )


def view_anomaly(facts: Facts) -> Sequence[Finding]:
    """
    Find days on which a view spent far more than before: than on days like them, or by a percentage that the view sets
    than on the day before.
    """
    today = int(facts.now // DAY_S)
    found = [_anomaly(spend, streak) for spend in facts.views for streak in _anomalies(spend, today)]
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


def _anomaly(spend: ViewSpend, streak: Sequence[Spike]) -> Finding:
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
        "view_anomaly",
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


def spikes_of(days: Days, first: int, today: int, least: Decimal) -> Iterator[Spike]:
    """
    Yield the newest days that cost far more than days like them: the same weekday in the weeks before, or the days
    before. Today so far is compared with whole days.

    Medians, so that neither the rhythm of the week nor an earlier spike moves what is expected.
    """
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


def streaks(spikes: Sequence[Spike]) -> list[list[Spike]]:
    """Spikes that follow each other are one: what lasts for a week is told once."""
    streaks: list[list[Spike]] = []
    for spike in spikes:
        if streaks and spike.number - streaks[-1][-1].number <= TOGETHER:
            streaks[-1].append(spike)
        else:
            streaks.append([spike])
    return streaks
