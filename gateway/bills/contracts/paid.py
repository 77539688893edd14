"""Amounts of contracts as rows of a cost query, so that they add up with the calls."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from gateway.bills.contracts.capacity import divide_among_teams
from gateway.bills.contracts.declared import all_contracts, first_day_and_end, has_amounts
from gateway.bills.contracts.reading import contract_charge_reader, prepaid_charges
from gateway.bills.contracts.sums import DayCharge
from gateway.bills.plans.charge_rows import (
    DayAmount,
    PeriodPlace,
    PeriodSum,
    begun_days_in_query,
    calendar_months,
    check_query_limits,
    day_ranges_by_period,
    group_if_included,
    sums_to_rows,
    value_or_empty,
)
from gateway.intake.prices import PriceBook
from spool.currencies import CurrencyConverter, find_no_rate, round_product_to_units
from spool.ledger.costs import periods_of_query
from spool.ledger.dimensions import CHARGE, PLAN
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.slices import SlicedLedger
from spool.registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCharges:
    """
    Adds the amounts of contracts to a cost query. The amounts are computed from all calls (`whole`). `ledger`
    decides which teams' parts a person sees.
    """

    ledger: SlicedLedger
    whole: Ledger
    registry: Registry
    prices: Callable[[], PriceBook]
    now: float

    async def charge_rows(self, query: CostQuery) -> Sequence[CostRow]:
        firsts = [first_day_and_end(each)[0] for each in all_contracts(self.registry) if has_amounts(each)]
        days = begun_days_in_query(query, min(firsts), self.now) if firsts else range(0)
        if not days:
            return []
        prices = await asyncio.to_thread(self.prices)
        reader = contract_charge_reader(self.whole, self.registry, prices, self.now)
        months = list(calendar_months(days))
        charges = await reader.usage_dependent_charges(months)
        for month in months:
            terms, uses, _ = await reader.prepaid_terms_and_uses(month)
            charges += prepaid_charges(terms, uses)
        return await asyncio.to_thread(self._charge_rows, query, days, charges)

    def _charge_rows(self, query: CostQuery, days: range, charges: Iterable[DayCharge]) -> list[CostRow]:
        derived = {
            **{dimension.name: dimension for dimension in self.ledger.derived_dimensions()},
            **query.derived,
        }
        converter = CurrencyConverter(self.whole.rates or find_no_rate, query.currency)
        starts = [start for start, _ in periods_of_query(query)]
        runs = day_ranges_by_period(days, query.zone, [start.timestamp() for start in starts])
        period_of = {days[index]: run.period for run in runs for index in range(run.first, run.end)}
        sums: dict[PeriodPlace, PeriodSum] = defaultdict(PeriodSum)
        for each in charges:
            if each.day not in period_of:
                continue
            own = each.contract.currency
            rate = converter.rate(own, each.day)
            amounts = (
                each.amount,
                round_product_to_units(each.amount * (rate or 0)),
                0 if rate else each.amount,
            )
            of_teams = zip(*(divide_among_teams(amount, each.use) for amount in amounts), strict=True)
            for (team, own_part), (_, cost), (_, lacking) in of_teams:
                values = {"provider": each.contract.provider, PLAN: each.contract.name, CHARGE: each.charge}
                values |= {"team": team} if team else {}
                group = group_if_included(query, derived, values)
                if group is None or not self.ledger.has_call(partial(value_or_empty, values)):
                    continue
                sums[period_of[each.day], group].add_amount(
                    DayAmount(own_part, cost, lacking), own, query.currency
                )
                check_query_limits(sums)
        return sums_to_rows(sums, starts)
