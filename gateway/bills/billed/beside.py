"""What is told beside billed money: how final its days are, what nobody has of it, and what no statement is about."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace

from gateway.bills.reconciliation.counting import seller
from spool.ledger import money
from spool.ledger.billed import AMORTIZED, CLOSED, FROZEN, INVOICED, OPEN, PROVISIONAL, BilledDay
from spool.ledger.ledger import Ledger
from spool.ledger.queries import BILLED_DIMENSIONS, CostQuery, CostRow
from spool.ledger.sums import DAY_S
from spool.record import moment
from spool.statements import day_text


async def billed_beside(
    ledger: Ledger, query: CostQuery, now: float, *, states_alone: bool = False
) -> dict[str, object]:
    """
    Return it for the days of a question, whatever it filters by. `without_statement` alone keeps its filters: what
    was counted, of sellers and days of which no bill tells. A day is as final as the least final bill of it.
    `states_alone` is for who may see some calls alone: the rest is of the whole bill.
    """
    days = _days(query, now)
    told = await ledger.billed_days(days.start, days.stop)
    made = [day for day in told if day.source and not day.is_apart]
    found: dict[str, object] = {
        "through": day_text(max(day.day for day in made)) if made else None,
        "days": _states(made, days),
    }
    if states_alone:
        return found
    reasons: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    for day in told:
        if query.arranged != INVOICED or (day.state in (CLOSED, FROZEN) and not day.corrects):
            reasons.update(day.reasons)
            reasons.update(day.accrued if query.arranged & AMORTIZED else {})
        foreign.update(day.foreign)
    return {
        **found,
        "unallocated": money.text(sum(reasons.values())),
        "by_reason": {reason: money.text(amount) for reason, amount in sorted(reasons.items()) if amount},
        "without_statement": await _without(ledger, query, made),
        "sources": _sources([day for day in told if day.source and not day.corrects]),
        "foreign": dict(sorted(foreign.items())),
    }


def _days(query: CostQuery, now: float) -> range:
    """Return the days of a question, up to the one that is not over."""
    first = int(query.since.timestamp()) // DAY_S * DAY_S
    return range(first, int(min(query.until.timestamp(), now)), DAY_S)


def _states(made: Sequence[BilledDay], days: Sequence[int]) -> dict[str, int]:
    states: dict[int, set[str]] = defaultdict(set)
    for day in made:
        states[day.day].add(day.state)
    found = Counter(_least_final(states[day]) if day in states else OPEN for day in days)
    shown = (CLOSED, PROVISIONAL, OPEN, *([FROZEN] if found[FROZEN] else []))
    return {state: found[state] for state in shown}


def _least_final(states: set[str]) -> str:
    return next(state for state in (PROVISIONAL, CLOSED, FROZEN) if state in states)


def _sources(made: Sequence[BilledDay]) -> list[dict[str, str]]:
    newest: dict[tuple[str, str], float] = {}
    for day in made:
        place = (day.seller, day.source)
        newest[place] = max(day.read_at, newest.get(place, 0.0))
    return [
        {"provider": provider, "source": source, "read_at": moment(read_at)}
        for (provider, source), read_at in sorted(newest.items())
    ]


async def _without(ledger: Ledger, query: CostQuery, made: Sequence[BilledDay]) -> list[dict[str, str]]:
    told = {(day.provider, day.day) for day in made}
    include = {name: values for name, values in query.include.items() if name not in BILLED_DIMENSIONS}
    exclude = {name: values for name, values in query.exclude.items() if name not in BILLED_DIMENSIONS}
    asked = replace(
        query,
        granularity="daily",
        group_by=("source", "provider", "model"),
        include=include,
        exclude=exclude,
        measures=("cost",),
        arranged=0,
        kept=None,  # these are of other dimensions
        top=None,
    )
    return await asyncio.to_thread(_by_seller, await ledger.costs(asked), told)


def _by_seller(rows: Sequence[CostRow], told: Collection[tuple[str, int]]) -> list[dict[str, str]]:
    """Return what was counted of days and sellers beside those that are told."""
    counted: Counter[str] = Counter()
    for row in rows:
        name = seller(*row.group)
        if (name, int(row.start.timestamp()) // DAY_S * DAY_S) not in told:
            counted[name] += money.units(row.cost)
    return [
        {"provider": name, "real_cost": money.text(amount)}
        for name, amount in sorted(counted.items())
        if amount
    ]
