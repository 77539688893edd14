"""The amounts of contracts by day, read from the totals."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.bills.contracts.capacity import (
    CalledModel,
    CalledSum,
    CapacityUse,
    PrepaidCapacity,
    PrepaidCoverage,
    add_calls_to_capacity_uses,
    capacity_terms,
)
from gateway.bills.contracts.declared import (
    ALLOWANCE,
    COMMITMENT,
    SUMS,
    TERM,
    UNUSED,
    Contract,
    Workload,
    all_contracts,
    first_day_and_end,
    has_amounts,
)
from gateway.bills.contracts.sums import ContractSums, DayCharge, ModelUse
from gateway.bills.contracts.workloads import WorkloadMonth, WorkloadUse, add_reported_calls, workload_terms
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.coverage import LedgerLimitedByCoverage, SeatCoverageRule, usable_plans
from gateway.bills.reconciliation.counting import TokenPrices, token_values_and_fees, tokens_by_kind
from gateway.bills.reconciliation.sides import WRITE_1H, WRITE_5M
from gateway.intake.prices import PriceBook
from spool import money, providers
from spool.ledger.dimensions import BILLED_TYPES, METERED_COST, PRICED_BY
from spool.ledger.ledger import Ledger
from spool.ledger.queries import EVERY_METER, CostQuery, CostRow, CostsLedger, next_full_hour
from spool.ledger.sums import COUNTS, DAY_S, input_size_and_is_output_known
from spool.ledger.token_sums import TokenSum
from spool.record import NS
from spool.registry.registry import Registry

_OF_TEAMS = ("provider", "team")
_OF_WORKLOADS = ("cluster", "namespace", "workload")
_OF_MODELS = (*_OF_TEAMS, "model", "request_model", *PRICED_BY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractChargeReader:
    """
    Reads the amounts of contracts. `ledger` has all calls. `metered` has the calls that no assistant plan
    covers, whose cost allowances, fees, minimums and credits are about.
    """

    ledger: Ledger
    metered: CostsLedger
    contracts: Sequence[Contract]
    prices: PriceBook
    now: float

    async def prepaid_terms_and_uses(
        self, month: CalendarMonth
    ) -> tuple[list[PrepaidCapacity], list[CapacityUse], PrepaidCoverage]:
        """Return the prepaid terms in a month, their uses, and the rule that assigns calls to them."""
        terms = capacity_terms(self.contracts, month.days, self.now)
        covered, listed = PrepaidCoverage(terms), self.prices.without_contracts()
        uses = [CapacityUse() for _ in terms]
        sums = await self._calls_on_term_days(terms)
        await asyncio.to_thread(add_calls_to_capacity_uses, uses, sums, covered, listed)
        return terms, uses, covered

    async def workloads(self, month: CalendarMonth) -> list[WorkloadMonth]:
        """
        Return the workloads of contracts in a month, with their container costs, and the reported calls that they
        served.
        """
        costs = await self._container_costs(month)
        terms = workload_terms(self.contracts, costs, [day for day in month.days if day <= self.now])
        covered, listed = PrepaidCoverage(terms), self.prices.without_contracts()
        uses, tokens = [CapacityUse() for _ in terms], [WorkloadUse() for _ in terms]
        sums = await self._calls_on_term_days(terms)
        await asyncio.to_thread(add_calls_to_capacity_uses, uses, sums, covered, listed)
        await asyncio.to_thread(add_reported_calls, tokens, sums, covered)
        return [WorkloadMonth(*of_term) for of_term in zip(terms, uses, tokens, strict=True)]

    async def _container_costs(self, month: CalendarMonth) -> Mapping[tuple[int, Workload], int]:
        places = [
            term.workload_key
            for contract in self.contracts
            for term in contract.terms
            if term.is_container_workload
        ]
        if not places:
            return {}
        query = CostQuery(
            since=datetime.fromtimestamp(month.start, UTC),
            until=datetime.fromtimestamp(month.end, UTC),
            group_by=_OF_WORKLOADS,
            include={name: tuple(set(names)) for name, *names in zip(_OF_WORKLOADS, *places, strict=True)},
            arranged=BILLED_TYPES["discounted_amortized_cost"],
        )
        rows = await self.ledger.costs(query)
        return {
            (int(row.start.timestamp()), _row_workload(row)): money.text_to_units(row.cost) for row in rows
        }

    async def _calls_on_term_days(self, terms: Sequence[PrepaidCapacity]) -> list[CalledSum]:
        days = sorted({day for term in terms for day in term.by_day})
        if not days:
            return []
        query = CostQuery(
            since=datetime.fromtimestamp(days[0], UTC),
            until=min(datetime.fromtimestamp(days[-1] + DAY_S, UTC), next_full_hour(self.now)),
            group_by=_OF_MODELS,
            exclude={"status": ("cached",)},
            measures=COUNTS,
            meter=EVERY_METER,
        )
        rows = await self.ledger.costs(query)
        return await asyncio.to_thread(lambda: [*map(_row_to_called_sum, rows)])

    async def usage_dependent_charges(self, asked: Sequence[CalendarMonth]) -> list[DayCharge]:
        """Return the amounts of adjacent months that depend on sums of calls."""
        charges: list[DayCharge] = []
        for contract in self.contracts:
            first, end = first_day_and_end(contract)
            is_asked = first < asked[-1].end and asked[0].start < end
            if is_asked and any(term.kind in SUMS for term in contract.terms):
                months = _needed_months(contract, asked)
                sums = ContractSums(
                    contract=contract,
                    months=months,
                    now=self.now,
                    uses=await self._metered_uses(
                        contract, max(first, months[0].start), min(end, asked[-1].end)
                    ),
                    prepaid=_capacity_cost_by_day(contract, months, self.now),
                )
                found = await asyncio.to_thread(sums.day_charges)
                charges += [charge for charge in found if charge.day >= asked[0].start]
        return charges

    async def _metered_uses(self, contract: Contract, start: int, end: int) -> list[ModelUse]:
        until = min(datetime.fromtimestamp(end, UTC), next_full_hour(self.now))
        since = datetime.fromtimestamp(start, UTC)
        if until <= since:
            return []
        by_model = any(term.kind == ALLOWANCE for term in contract.terms)
        query = CostQuery(
            since=since,
            until=until,
            granularity="daily",
            group_by=_OF_MODELS if by_model else _OF_TEAMS,
            exclude={"status": ("cached",)},
            measures=("cost", *(COUNTS if by_model else COUNTS[:1])),
            currency=contract.currency,
        )
        rows = await self.metered.costs(query)
        own = [
            row
            for row in rows
            if row.group[0] and providers.canonical_provider_name(row.group[0]) == contract.provider
        ]
        return await asyncio.to_thread(_model_uses, own, self.prices)


def contract_charge_reader(
    whole_ledger: Ledger, registry: Registry, prices: PriceBook, now: float
) -> ContractChargeReader:
    coverage = SeatCoverageRule(
        usable_plans(registry, whole_ledger.dimensions()), whole_ledger, registry.people
    )
    return ContractChargeReader(
        ledger=whole_ledger,
        metered=LedgerLimitedByCoverage(whole_ledger, coverage, METERED_COST),
        contracts=all_contracts(registry),
        prices=prices,
        now=now,
    )


async def read_month_charges(
    ledger: Ledger, registry: Registry | None, month: CalendarMonth, prices: PriceBook, now: float
) -> Sequence[DayCharge]:
    """Return the amounts of contracts in a month that depend on sums of calls."""
    if registry is None or not any(map(has_amounts, all_contracts(registry))):
        return []
    return await contract_charge_reader(ledger, registry, prices, now).usage_dependent_charges([month])


def prepaid_charges(terms: Iterable[PrepaidCapacity], uses: Iterable[CapacityUse]) -> Iterator[DayCharge]:
    """Yield the cost of prepaid contract terms by day. A day without a covered call has the charge UNUSED."""
    for term, use in zip(terms, uses, strict=True):
        for day, amount in term.by_day.items():
            of_teams = use.by_day.get(day, {})
            yield DayCharge(term.contract, COMMITMENT if of_teams else UNUSED, day, amount, of_teams)


def _needed_months(contract: Contract, asked: Iterable[CalendarMonth]) -> list[CalendarMonth]:
    months = [*asked]
    first, _ = first_day_and_end(contract)
    if any(term.kind in SUMS and term.per == TERM for term in contract.terms):
        while months[0].start > first:
            months.insert(0, months[0].previous)
    return months


def _capacity_cost_by_day(
    contract: Contract, months: Iterable[CalendarMonth], now: float
) -> Mapping[int, int]:
    by_day = Counter[int]()
    for month in months:
        for term in capacity_terms([contract], month.days, now):
            by_day.update(term.by_day)
    return by_day


def _model_uses(rows: Iterable[CostRow], price_book: PriceBook) -> list[ModelUse]:
    prices = TokenPrices(price_book)
    return [_model_use(row, prices) for row in rows]


def _model_use(row: CostRow, prices: TokenPrices) -> ModelUse:
    day, team, called, total = _row_to_called_sum(row)
    tokens = tokens_by_kind(total)
    values, _ = token_values_and_fees(total, tokens, prices) if any(tokens.values()) else ({}, {})
    return ModelUse(
        day,
        team,
        called,
        money.text_to_units(row.cost),
        row.calls,
        _amounts_by_kind(tokens),
        _amounts_by_kind(values),
    )


def _row_workload(row: CostRow) -> Workload:
    cluster, namespace, workload = (name or "" for name in row.group)
    return cluster, namespace, workload


def _row_to_called_sum(row: CostRow) -> CalledSum:
    provider, team, model, request_model, mode, size = (*row.group, *[None] * len(_OF_MODELS))[
        : len(_OF_MODELS)
    ]
    day = int(row.start.timestamp())
    total = TokenSum(
        provider=provider,
        response_model=model,
        request_model=request_model,
        mode=mode or "",
        time=day * NS,
        beyond=input_size_and_is_output_known(int(size or 0))[0],
        until=(day + DAY_S) * NS,
        meters=row.meters,
        **{name: getattr(row, name) for name in COUNTS},
    )
    return CalledSum(
        day, team or "", CalledModel(provider or "", model or "", request_model or "", mode or ""), total
    )


def _amounts_by_kind(amounts: Mapping[str, int]) -> Mapping[str, int]:
    by_kind = Counter[str]()
    for meter, amount in amounts.items():
        by_kind["cache_write" if meter in (WRITE_5M, WRITE_1H) else meter] += amount
    return by_kind
