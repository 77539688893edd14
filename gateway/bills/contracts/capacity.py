"""
The cost of paid capacity by day, and which calls it covers. Pure.

A term by the hour costs 24 hours a day. A term by the month is divided among all days of the calendar month, and only
the days of the contract are charged. The amounts of a month's days add up to the price without remainder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from msgspec.structs import replace

from gateway.bills.billed.spreading import in_turn
from gateway.bills.contracts.declared import HOUR, Contract, Term, price_term
from gateway.intake.price_terms import CAPACITY, PriceTerm, covering
from gateway.intake.prices import PriceBook
from spool.ledger import money
from spool.ledger.days.usage import UsageSum
from spool.processing import PROVISIONED, STANDARD
from spool.record import NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A term of capacity in a month. `by_day` is its cost in units of the contract's currency."""

    contract: Contract
    term: Term
    price: PriceTerm
    by_day: Mapping[int, int]


def capacities(contracts: Iterable[Contract], days: Sequence[int], now: float) -> list[Capacity]:
    """Return the terms of capacity that apply on a day of a calendar month which has begun. `days` are its days."""
    found = []
    for contract in contracts:
        for term in contract.terms:
            price = price_term(contract, term)
            by_day = _by_day(term, price, days, now) if term.kind == CAPACITY else {}
            if by_day:
                found.append(Capacity(contract=contract, term=term, price=price, by_day=by_day))
    return found


def _by_day(term: Term, price: PriceTerm, days: Sequence[int], now: float) -> dict[int, int]:
    cost = Fraction(term.number) * Fraction(term.price) * money.UNIT
    number = len(days)
    parts = [int(cost * 24)] * number if term.per == HOUR else in_turn(int(cost), [1] * number)
    return {
        day: part
        for day, part in zip(days, parts, strict=True)
        if price.low <= day * NS < price.high and day <= now
    }


@dataclass(slots=True)
class TeamUse:
    """The covered calls of a team on a day, at list prices."""

    value: int = 0
    calls: int = 0
    unpriced: int = 0


@dataclass(slots=True)
class CapacityUse:
    """The covered calls of a term by day and team. `hours` are those with such a call, or None if they are unknown."""

    by_day: dict[int, dict[str, TeamUse]] = field(default_factory=lambda: defaultdict(dict))
    hours: set[int] | None = None


class CalledModel(NamedTuple):
    """What decides which term covers a call."""

    provider: str
    model: str
    request_model: str
    mode: str


class Covered:
    """The rule that decides which term of capacity covers a call: the rule of the prices of calls."""

    def __init__(self, terms: Sequence[Capacity]) -> None:
        self._prices = [term.price for term in terms]
        self._known: dict[CalledModel, Sequence[int]] = {}

    def index(self, called: CalledModel, at: int) -> int | None:
        """Return the position of the term that covers a call at a time (epoch seconds), or None."""
        places = self._known.get(called)
        if places is None:
            models = [name for name in dict.fromkeys((called.model, called.request_model)) if name]
            found = covering(self._prices, called.provider or None, models, called.mode)
            places = self._known[called] = [self._prices.index(term) for term in found]
        return next(
            (place for place in places if self._prices[place].low <= at * NS < self._prices[place].high), None
        )


def add_uses(
    uses: Sequence[CapacityUse], sums: Iterable[UsageSum], covered: Covered, listed: PriceBook
) -> None:
    """Add the sums of a day to the uses of the terms that cover them. `listed` has the prices without contracts."""
    for usage in sums:
        of = usage.dimensions
        index = covered.index(CalledModel(of.provider, of.model, of.request_model, of.mode), usage.day)
        if index is None:
            continue
        use = uses[index].by_day[usage.day].setdefault(of.team, TeamUse())
        use.calls += usage.tokens.calls
        is_prepaid = usage.tokens.mode == PROVISIONED
        text = listed.estimate_sum(replace(usage.tokens, mode=STANDARD) if is_prepaid else usage.tokens)
        if text is None:
            use.unpriced += usage.tokens.calls
        else:
            use.value += money.units(text)


def shares(cost: int, use: Mapping[str, TeamUse]) -> Iterator[tuple[str | None, int]]:
    """
    Divide a day's cost among teams by the list value of their calls, or by their number if no call has a list price.
    The parts add up exactly. A day without a covered call has one part without a team (None): it is unused.
    """
    teams = sorted(use)
    if not teams:
        yield None, cost
        return
    values = [use[team].value for team in teams]
    weights = values if any(values) else [use[team].calls for team in teams]
    yield from zip(teams, in_turn(cost, weights), strict=True)
