"""
Amounts of contracts that depend on the sum of calls: allowances, fees, minimums and credits. Pure.

All amounts are in units of the contract's currency. They apply in this order: allowances reduce the cost of calls,
fees and minimums are added to the rest, and a credit pays the sum. So only the sums of days matter, not the order
of calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.contracts.capacity import CalledModel, TeamUse, divide_by_days
from gateway.bills.contracts.declared import (
    ALLOWANCE,
    CREDIT,
    FEE,
    MINIMUM,
    MONTH,
    TERM,
    Contract,
    ContractTerm,
    first_day_and_end,
    price_term,
)
from gateway.bills.months import CalendarMonth
from gateway.intake.price_terms import PriceTerm
from spool import money, providers
from spool.statements import DAY_S

UsesByDay = Mapping[int, Mapping[str, TeamUse]]


class DayCharge(NamedTuple):
    """
    An amount of a contract on a day. `use` has the calls of each team among which the amount is divided.
    """

    contract: Contract
    charge: str
    day: int
    amount: int
    use: Mapping[str, TeamUse]


class ModelUse(NamedTuple):
    """
    Calls of a team and model on a day. `tokens` and `values` are by kind of token, without kinds that cost
    nothing.
    """

    day: int
    team: str
    called: CalledModel
    cost: int
    calls: int
    tokens: Mapping[str, int]
    values: Mapping[str, int]

    def tokens_of(self, kinds: Sequence[str]) -> int:
        return sum(count for kind, count in self.tokens.items() if not kinds or kind in kinds)

    def cost_of(self, kinds: Sequence[str]) -> int:
        """
        Return the part of the cost that some kinds of tokens have, in proportion to their values, or else to
        their number.
        """
        if not kinds:
            return self.cost
        weights = self.values if any(self.values.values()) else self.tokens
        part, whole = (sum(weights.get(kind, 0) for kind in names) for names in (kinds, weights))
        return self.cost * part // whole if whole else 0


@dataclass(slots=True)
class ContractSums:
    """
    Computes the amounts of one contract in adjacent months. `uses` are the calls of its provider that no plan
    covers.
    """

    contract: Contract
    months: Sequence[CalendarMonth]
    now: float
    uses: Sequence[ModelUse]
    prepaid: Mapping[int, int]  # cost of prepaid terms by day
    _paid: Counter[int] = field(default_factory=Counter)

    def day_charges(self) -> list[DayCharge]:
        return list(self._all_charges())

    def _all_charges(self) -> Iterator[DayCharge]:
        for day, amount in self.prepaid.items():
            self._paid[day] += amount
        for use in self.uses:
            self._paid[use.day] += use.cost
        by_day = _uses_by_day(self.uses)
        for term in self._terms_of_kind(ALLOWANCE):
            yield from self._count_charges_as_paid(self._allowance_charges(term))
        # a minimum counts the cost of calls and capacity, not fees
        lines = Counter(self._paid)
        for term in self._terms_of_kind(FEE):
            amounts = self._fee_amount_by_day(term, lines)
            yield from self._count_charges_as_paid(
                self._day_charge(FEE, day, amounts[day], by_day) for day in sorted(amounts)
            )
        for term in self._terms_of_kind(MINIMUM):
            yield from self._count_charges_as_paid(self._minimum_charges(term, lines))
        for term in self._terms_of_kind(CREDIT):
            for days, granted in self._begun_periods_with_quantity(term):
                yield from self._credit_deductions(days, granted, by_day)

    def _terms_of_kind(self, kind: str) -> list[ContractTerm]:
        return [term for term in self.contract.terms if term.kind == kind]

    def _count_charges_as_paid(self, charges: Iterable[DayCharge]) -> Iterator[DayCharge]:
        for charge in charges:
            if charge.amount:
                self._paid[charge.day] += charge.amount
                yield charge

    def _day_charge(self, charge: str, day: int, amount: int, uses_by_day: UsesByDay) -> DayCharge:
        return DayCharge(self.contract, charge, day, amount, uses_by_day.get(day, {}))

    def _contract_days_begun_by_now(self) -> list[int]:
        first, end = first_day_and_end(self.contract)
        days = (day for month in self.months for day in month.days)
        return [day for day in days if first <= day < end and day <= self.now]

    def _begun_periods_with_quantity(self, term: ContractTerm) -> Iterator[tuple[list[int], int]]:
        """
        Yield the days that have begun in each period of a contract term, with the allowed or minimum quantity
        of the period. If the contract covers only some days of a month, the quantity is reduced in
        proportion.
        """
        first, end = first_day_and_end(self.contract)
        quantity = Fraction(term.tokens) if term.tokens else Fraction(term.amount) * money.UNIT
        begun = self._contract_days_begun_by_now()
        spans: Sequence[Sequence[int]] = [month.days for month in self.months]
        if term.per != MONTH:
            spans = [range(first, end, DAY_S)] if term.per == TERM else [[day] for day in begun]
        for span in spans:
            days = [day for day in begun if span[0] <= day <= span[-1]]
            if days:
                own = sum(first <= day < end for day in span)
                yield days, int(quantity * own / len(span))

    def _allowance_charges(self, term: ContractTerm) -> Iterator[DayCharge]:
        """
        Yield the reductions by an allowance. It is an amount, or a number of free tokens. Free tokens reduce
        the cost of calls by their share of all tokens. Each call has the same share, so the order of calls
        does not matter.
        """
        price = price_term(self.contract, term)
        covered = [use for use in self.uses if _price_covers(price, use.called)]
        for days, granted in self._begun_periods_with_quantity(term):
            chosen = set(days)
            uses = [use._replace(cost=use.cost_of(term.kinds)) for use in covered if use.day in chosen]
            by_day, tokens = _uses_by_day(uses), sum(use.tokens_of(term.kinds) for use in uses)
            weights = [max(0, sum(team.value for team in by_day.get(day, {}).values())) for day in days]
            free = sum(weights)
            if term.tokens:
                free = free * min(granted, tokens) // tokens if tokens else 0
            else:
                free = min(granted, free)
            for day, part in zip(days, divide_in_sequence(free, weights), strict=True):
                yield self._day_charge(ALLOWANCE, day, -part, by_day)

    def _fee_amount_by_day(self, term: ContractTerm, cost_by_day: Mapping[int, int]) -> Mapping[int, int]:
        amounts = Counter[int]()
        share = Fraction(term.percent or 0) / 100
        for month in self.months if term.amount else ():
            amounts.update(
                divide_by_days(self.contract, term, Fraction(term.amount) * money.UNIT, month.days)
            )
        return {
            day: amounts[day] + int(max(0, cost_by_day.get(day, 0)) * share)
            for day in self._contract_days_begun_by_now()
        }

    def _minimum_charges(self, term: ContractTerm, cost_by_day: Mapping[int, int]) -> Iterator[DayCharge]:
        """Yield the amount by which a period's costs are below the minimum, on the period's last day."""
        _, end = first_day_and_end(self.contract)
        for days, least in self._begun_periods_with_quantity(term):
            last = days[-1]
            if last + DAY_S == end or (term.per == MONTH and last == CalendarMonth.at(last).days[-1]):
                lacking = max(0, least - sum(cost_by_day.get(day, 0) for day in days))
                yield DayCharge(self.contract, MINIMUM, last, lacking, _uses_by_team(self.uses, set(days)))

    def _credit_deductions(
        self, days: Sequence[int], granted_credit: int, uses_by_day: UsesByDay
    ) -> Iterator[DayCharge]:
        owed = used = 0
        for day in days:
            owed += self._paid[day]
            before, used = used, min(granted_credit, max(0, owed))
            if used != before:
                yield self._day_charge(CREDIT, day, before - used, uses_by_day)


def _uses_by_day(uses: Iterable[ModelUse]) -> UsesByDay:
    by_day: dict[int, dict[str, TeamUse]] = defaultdict(dict)
    for use in uses:
        of_team = by_day[use.day].setdefault(use.team, TeamUse())
        of_team.value += use.cost
        of_team.calls += use.calls
    return by_day


def _uses_by_team(uses: Iterable[ModelUse], days: Collection[int]) -> Mapping[str, TeamUse]:
    return _uses_by_day(use._replace(day=0) for use in uses if use.day in days).get(0, {})


def _price_covers(price: PriceTerm, called: CalledModel) -> bool:
    names = (called.model, called.request_model)
    return providers.canonical_provider_name(called.provider) == price.provider and any(
        price.covers(name, called.mode) for name in names if name
    )
