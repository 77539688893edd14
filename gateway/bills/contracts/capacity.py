"""
The cost by day of paid capacity and of tiers that a fee pays, and the calls that they cover. Pure.

A price by the hour is charged for 24 hours a day. An amount by the month is divided among all days of the calendar
month, and only the days of the contract are charged. An amount by the term is divided among all days of the contract.
The amounts of all days of the period add up without remainder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.contracts.declared import HOUR, TERM, Contract, ContractTerm, first_day_and_end, price_term
from gateway.intake.price_terms import CAPACITY, PREPAID, PriceTerm, covering_terms
from gateway.intake.prices import PriceBook
from spool import money
from spool.ledger.token_sums import TokenSum
from spool.processing import PROVISIONED, STANDARD
from spool.record import NS
from spool.statements import DAY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepaidCapacity:
    """A prepaid term of a contract in a month. `by_day` is its cost in units of the contract's currency."""

    contract: Contract
    term: ContractTerm
    price: PriceTerm
    by_day: Mapping[int, int]


def capacity_terms(contracts: Iterable[Contract], days: Sequence[int], now: float) -> list[PrepaidCapacity]:
    """
    Return the prepaid terms that apply on a begun day of `days`, a calendar month. Terms about workloads are
    left out, because they have no price.
    """
    found = []
    for contract in contracts:
        for term in contract.terms:
            if term.kind not in PREPAID or term.is_container_workload:
                continue
            by_day = {
                day: part
                for day, part in divide_by_days(contract, term, _period_cost(term), days).items()
                if day <= now
            }
            if by_day:
                price = price_term(contract, term)
                found.append(PrepaidCapacity(contract=contract, term=term, price=price, by_day=by_day))
    return found


def _period_cost(term: ContractTerm) -> Fraction:
    stated = (term.number, term.price) if term.kind == CAPACITY else (term.amount,)
    return prod(map(Fraction, stated), start=Fraction(money.UNIT))


def divide_by_days(
    contract: Contract, term: ContractTerm, amount: Fraction, days: Sequence[int]
) -> dict[int, int]:
    """
    Divide a term's amount per period among days. Return the amounts for the days of a calendar month that the
    contract covers.
    """
    first, end = first_day_and_end(contract)
    if term.per == HOUR:
        parts = dict.fromkeys(days, int(amount * 24))
    else:
        period = range(first, end, DAY_S) if term.per == TERM else days
        parts = dict(zip(period, divide_in_sequence(int(amount), [1] * len(period)), strict=True))
    return {day: parts[day] for day in days if first <= day < end}


@dataclass(slots=True)
class TeamUse:
    """
    The calls of a team on a day. `value` is at list prices if the calls are prepaid. `unpriced` counts calls
    without a known price.
    """

    value: int = 0
    calls: int = 0
    unpriced: int = 0


@dataclass(slots=True)
class CapacityUse:
    """
    The calls that a term covers, by day and team. `hours` are the hours with such a call, or None if they are
    unknown.
    """

    by_day: dict[int, dict[str, TeamUse]] = field(default_factory=lambda: defaultdict(dict))
    hours: set[int] | None = None


class CalledModel(NamedTuple):
    """The properties of a call that decide which contract term covers it."""

    provider: str
    model: str
    request_model: str
    mode: str


class CalledSum(NamedTuple):
    """The tokens of a team's calls of one model on a day."""

    day: int
    team: str
    called: CalledModel
    tokens: TokenSum


class PrepaidCoverage:
    """Decides which prepaid term covers a call, by the same rule that decides which term sets its price."""

    def __init__(self, terms: Sequence[PrepaidCapacity]) -> None:
        self._prices = [term.price for term in terms]
        self._spans = [(price.start_ns, price.end_ns) for price in self._prices]
        self._known: dict[CalledModel, Sequence[int]] = {}

    def covering_term_index(self, called: CalledModel, called_at: int) -> int | None:
        """Return the position of the term that covers a call at a time (epoch seconds), or None."""
        places = self._known.get(called)
        if places is None:
            models = [name for name in dict.fromkeys((called.model, called.request_model)) if name]
            found = covering_terms(self._prices, called.provider or None, models, called.mode)
            places = self._known[called] = [self._prices.index(term) for term in found]
        return next(
            (place for place in places if self._spans[place][0] <= called_at * NS < self._spans[place][1]),
            None,
        )


def add_calls_to_capacity_uses(
    uses: Sequence[CapacityUse],
    called_sums: Iterable[CalledSum],
    coverage: PrepaidCoverage,
    list_prices: PriceBook,
) -> None:
    """Add calls to the contract terms that cover them. `uses` has the calls by term, and is changed."""
    for day, team, called, tokens in called_sums:
        index = coverage.covering_term_index(called, day)
        if index is None:
            continue
        use = uses[index].by_day[day].setdefault(team, TeamUse())
        use.calls += tokens.calls
        is_prepaid = tokens.mode == PROVISIONED
        text = list_prices.estimate_sum(replace(tokens, mode=STANDARD) if is_prepaid else tokens)
        if text is None:
            use.unpriced += tokens.calls
        else:
            use.value += money.text_to_units(text)


def divide_among_teams(cost: int, use: Mapping[str, TeamUse]) -> Iterator[tuple[str | None, int]]:
    """
    Divide a day's amount among teams by their calls' value, or by their number if no call has a value. The
    parts add up exactly. A day without a call has one part without a team (None).
    """
    teams = sorted(use)
    if not teams:
        yield None, cost
        return
    values = [max(0, use[team].value) for team in teams]
    weights = values if any(values) else [use[team].calls for team in teams]
    yield from zip(teams, divide_in_sequence(cost, weights), strict=True)
