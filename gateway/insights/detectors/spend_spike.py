"""Days on which a team, or everybody together, spent far more than on days like them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from statistics import median

from gateway.insights.facts import DAY_S, Facts, Spend
from gateway.insights.findings import day, finding, money, named, ordered
from gateway.insights.spikes import LEAST, TOLD, Spike, spikes_of, streaks
from spool.registry.insights import MEDIUM, Concerned, Finding

NAME = "spend_spike"
LEAST_SHARE = Decimal("0.1")  # of the whole spend of a usual day

EVERYBODY = "*"  # no team of its own


def find(facts: Facts) -> Sequence[Finding]:
    found = newest_streaks(facts.days, facts.now)
    return ordered(_finding(facts, streak, team) for team, streak in found)


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
        concerns=None if team == EVERYBODY else Concerned(include={"team": (team or "",)}),
    )
