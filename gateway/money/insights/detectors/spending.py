"""Detectors for days on which a team, the whole organization or a view spent far more than before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from statistics import median
from typing import NamedTuple

from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    PeriodSpend,
    ViewSpend,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import (
    build_finding,
    day_in_words,
    format_day,
    format_money,
    printable_name,
    sort_by_impact,
)
from spool.registry.insights import MEDIUM, CallFilter, Finding
from spool.registry.views import PERCENT

REPORTED_DAYS = 7  # days for which a spike stays listed after it occurred
LOOK_BACK_DAYS = 2 * REPORTED_DAYS  # days of history, which suffice to find the start of a spike
# maximum days between two spikes of one streak, so that a weekend does not split the streak
STREAK_GAP_DAYS = 3
WEEKS = 4
ENOUGH_WEEKS = 3
ENOUGH_DAYS = 7
TIMES = 2  # a spike is at least this multiple of the expected spend of its day
# A spike exceeds the expected spend by this multiple of the median deviation. The factor 1.4826 converts a
# median deviation to a standard deviation.
SPREADS = Decimal("6") * Decimal("1.4826")
LEAST = Decimal(1)  # minimum dollars by which a spike exceeds the expected spend
# A spike exceeds the expected spend by at least this share of the organization's median spend per day.
LEAST_SHARE = Decimal("0.1")
EVERYBODY = "*"  # stands for the whole organization in place of a team; no team has this name

Days = Mapping[int, Decimal]  # day number -> spend


class Spike(NamedTuple):
    """A day with far more spend than expected, in dollars."""

    number: int
    spent: Decimal
    expected: Decimal


def spend_spike(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find days on which a team, or the whole organization, spent far more than on comparable days. Days that a view with
    equal calls reports are left out.
    """
    today = int(facts.now // DAY_S)
    days_of_views = [
        {spike[:2] for streak in _anomaly_streaks(view, today) for spike in streak} for view in facts.views
    ]
    team_streaks = [
        (team, streak)
        for team, streak in newest_streaks(facts.days, facts.now)
        if not any(days.issuperset(spike[:2] for spike in streak) for days in days_of_views)
    ]
    return sort_by_impact(_spike_finding(facts, streak, team) for team, streak in team_streaks)


def newest_streaks(spends: Sequence[PeriodSpend], now: float) -> list[tuple[str | None, list[Spike]]]:
    """
    Return the spikes per team and for EVERYBODY that ended within the last REPORTED_DAYS days.

    For the whole organization, days that a spike of a team explains are excluded.
    """
    teams: dict[str | None, dict[int, Decimal]] = defaultdict(lambda: defaultdict(Decimal))
    total: dict[int, Decimal] = defaultdict(Decimal)
    for spend in spends:
        number = int(spend.start // DAY_S)
        teams[spend.team][number] += spend.cost
        total[number] += spend.cost
    today = int(now // DAY_S)
    first = min((number for number, cost in total.items() if cost), default=today)
    least = max(LEAST, LEAST_SHARE * median(total.values())) if total else LEAST
    team_streaks: list[tuple[str | None, list[Spike]]] = []
    explained: set[int] = set()
    for team, days in teams.items():
        spikes = list(find_spikes(days, first, today, least))
        explained.update(spike.number for spike in spikes)
        team_streaks += [(team, streak) for streak in group_streaks(spikes)]
    spikes = [spike for spike in find_spikes(total, first, today, least) if spike.number not in explained]
    team_streaks += [(EVERYBODY, streak) for streak in group_streaks(spikes)]
    return [(team, streak) for team, streak in team_streaks if streak[-1].number >= today - REPORTED_DAYS]


def _spike_finding(facts: InsightFacts, streak: Sequence[Spike], team: str | None) -> Finding:
    first, last = (spike.number * DAY_S for spike in (streak[0], streak[-1]))
    starts = {spike.number * DAY_S for spike in streak}
    models: dict[str | None, Decimal] = defaultdict(Decimal)
    for spend in facts.days:
        if spend.start in starts and team in (EVERYBODY, spend.team):
            models[spend.model] += spend.cost
    model = max(models, key=lambda name: models[name])
    spent, expected = (
        sum(amounts, Decimal(0)) for amounts in ((e.spent for e in streak), (e.expected for e in streak))
    )
    who = (
        "All traffic"
        if team == EVERYBODY
        else f"Team {printable_name(team)}"
        if team
        else "Traffic without a team"
    )
    begin, end = day_in_words(first), day_in_words(last)
    when = f"on {begin}" if first == last else f"on {len(streak)} days from {begin} to {end}"
    return build_finding(
        "spend_spike",
        (format_day(first), team),
        title=f"{who} spent {format_money(spent)} {when}, but {format_money(expected)} was expected",
        seen=(
            f"{who} cost {format_money(spent)} {when}. Comparable days cost {format_money(expected)} before. The "
            f"largest part was {printable_name(model, 'a model without a name')} with {format_money(models[model])}."
        ),
        advice=(
            "Look at that time with `tollhouse report --per hourly --by user,api_key,model`, and ask the "
            "owner of the largest share."
        ),
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=last,
        concerns=None if team == EVERYBODY else CallFilter(include={"team": (team or "",)}),
    )


@mark_impossible_in_demo("a demo month has no views")
def view_anomaly(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find days on which a view spent far more than before.

    By default, a day is compared with similar days. If a view sets a percentage, each day is compared with
    the day before.
    """
    today = int(facts.now // DAY_S)
    findings = [
        _anomaly_finding(spend, streak) for spend in facts.views for streak in _anomaly_streaks(spend, today)
    ]
    since = (today - REPORTED_DAYS) * DAY_S
    recent = [finding for finding in findings if finding.newest is not None and finding.newest >= since]
    # keep all findings about views, because people chose these views; those about teams are limited to the
    # most costly
    return sort_by_impact(recent, max_findings=len(recent))


def _anomaly_streaks(spend: ViewSpend, today: int) -> Iterator[Sequence[Spike]]:
    days = {int(start // DAY_S): sum(parts.values(), Decimal(0)) for start, parts in spend.days.items()}
    first = min((number for number, cost in days.items() if cost), default=today)
    if spend.view.anomalies.threshold_type == PERCENT:
        yield from (
            [spike]
            for spike in _days_above_growth(days, first, today, spend.view.anomalies.threshold_value or 0)
        )
    else:
        yield from group_streaks(list(find_spikes(days, first, today, LEAST)))


def _days_above_growth(days: Days, first_day: int, today: int, percent: int) -> Iterator[Spike]:
    """
    Yield days that cost at least `percent` more than the day before, after the view's first day with costs.
    """
    for number in range(max(first_day + 1, today - REPORTED_DAYS), today + 1):
        before = days.get(number - 1, Decimal(0))
        spent = days.get(number, Decimal(0))
        if spent - before >= max(LEAST, before * percent / 100):
            yield Spike(number, spent, before)


def _anomaly_finding(spend: ViewSpend, streak: Sequence[Spike]) -> Finding:
    view = spend.view
    first, last = (spike.number * DAY_S for spike in (streak[0], streak[-1]))
    spent, expected = (
        sum(amounts, Decimal(0)) for amounts in ((e.spent for e in streak), (e.expected for e in streak))
    )
    starts = [spike.number * DAY_S for spike in streak]
    parts = {part for start in starts for part in spend.days.get(start, {})}
    costs = {
        part: sum((spend.days[start].get(part, Decimal(0)) for start in starts), Decimal(0)) for part in parts
    }
    largest = max(costs, key=lambda part: (costs[part], part or ""))
    begin, end = day_in_words(first), day_in_words(last)
    when = f"on {begin}" if first == last else f"on {len(streak)} days from {begin} to {end}"
    usual = "on the day before" if view.anomalies.threshold_type == PERCENT else "on comparable days"
    return build_finding(
        "view_anomaly",
        (view.id, format_day(first)),
        title=(
            f"The view {printable_name(view.name)} spent {format_money(spent)} {when}, but "
            f"{format_money(expected)} was expected"
        ),
        seen=(
            f"The view {printable_name(view.name)} cost {format_money(spent)} {when}, and "
            f"{format_money(expected)} {usual}. The "
            f"largest part was the {view.principal_dimension} {printable_name(largest)} with "
            f"{format_money(costs[largest])}."
        ),
        advice=(
            "Look at that time with `tollhouse report --view` and `--per hourly --by "
            "user,api_key,model`, and ask the owner of the largest share. `tollhouse views edit` changes "
            "the threshold of a view."
        ),
        category="spend",
        effort=MEDIUM,
        impact=spent - expected,
        newest=last,
        # Send no alert for a spike on a day before the view existed.
        channels=view.channels if last + DAY_S > view.created else (),
        concerns=CallFilter(include=view.include, exclude=view.exclude),
    )


def find_spikes(days: Days, first_day: int, today: int, least: Decimal) -> Iterator[Spike]:
    """
    Yield recent days that cost far more than comparable days.

    Comparable days are the same weekday in earlier weeks. If there are too few weeks, all earlier days are
    compared. Today's spend so far is compared with whole days. Medians are used, so that weekly patterns and
    earlier spikes do not change the expected cost.
    """
    for number in range(today - LOOK_BACK_DAYS, today + 1):
        before = _comparable_day_costs(days, number, first_day)
        if not before or not (expected := median(before)):
            continue
        spread = median(abs(amount - expected) for amount in before)
        excess = days.get(number, Decimal(0)) - expected
        if excess >= max(least, (TIMES - 1) * expected, SPREADS * spread):
            yield Spike(number, expected + excess, expected)


def _comparable_day_costs(days: Days, examined_day: int, first_counted_day: int) -> list[Decimal]:
    same_weekdays = (examined_day - 7 * week for week in range(1, WEEKS + 1))
    weeks = [
        days.get(day_number, Decimal(0)) for day_number in same_weekdays if day_number >= first_counted_day
    ]
    if len(weeks) >= ENOUGH_WEEKS:
        return weeks
    every = [
        days.get(day_number, Decimal(0))
        for day_number in range(max(first_counted_day, examined_day - 7 * WEEKS), examined_day)
    ]
    return every if len(every) >= ENOUGH_DAYS else []


def group_streaks(spikes: Sequence[Spike]) -> list[list[Spike]]:
    """
    Group spikes that are at most STREAK_GAP_DAYS days apart, so that a week-long increase is reported once.
    """
    streaks: list[list[Spike]] = []
    for spike in spikes:
        if streaks and spike.number - streaks[-1][-1].number <= STREAK_GAP_DAYS:
            streaks[-1].append(spike)
        else:
            streaks.append([spike])
    return streaks
