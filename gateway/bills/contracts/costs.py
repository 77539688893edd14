"""Costs of contracts in a month: what their terms cost, who used capacity, and how much of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated

import msgspec
from msgspec.structs import replace

from gateway.bills.contracts.bills import (
    ContractChargeKey,
    ContractPlace,
    replace_estimates_by_billed_amounts,
)
from gateway.bills.contracts.capacity import (
    CalledModel,
    CapacityUse,
    PrepaidCapacity,
    PrepaidCoverage,
    divide_among_teams,
)
from gateway.bills.contracts.declared import UNUSED, Contract, first_day_and_end, has_amounts
from gateway.bills.contracts.reading import ContractChargeReader, prepaid_charges
from gateway.bills.contracts.sums import DayCharge
from gateway.bills.contracts.workloads import (
    UNREPORTED,
    ServedSpan,
    WorkloadDay,
    WorkloadMonth,
    add_served_tokens,
    divide_daily_costs,
    most_used_model_and_its_price_weights,
)
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.bills import final_bill_rows
from gateway.bills.reconciliation.counting import TokenPrices
from spool import money
from spool.currencies import CurrencyConverter, find_no_rate, round_product_to_units
from spool.ledger.queries import CostQuery, next_full_hour
from spool.ledger.sums import DAY_S, HOUR_S
from spool.record import CURRENCY, utc_iso
from spool.registry.field_notes import example, words
from spool.statements import StatementStore

ServedInSpan = Callable[[int, int], Awaitable[ServedSpan]]
SourcedPlace = tuple[str, str, str, str]  # place of an amount: contract, charge, team and source
_CALLED = ("provider", "model", "request_model", "mode")


class ContractMonth(msgspec.Struct, kw_only=True):
    month: Annotated[str, words("The month, such as `2026-11`."), example("2026-11")]
    start: Annotated[str, words("The start of the month, in UTC."), example("2026-11-01T00:00:00.000Z")]
    end: Annotated[str, words("The end of the month, in UTC."), example("2026-12-01T00:00:00.000Z")]
    currency: Annotated[str, words("The currency of the amounts."), example("USD")]


class ContractTotal(msgspec.Struct, kw_only=True):
    cost: Annotated[str, words("Cost of all terms, less credits and allowances."), example("72000")]
    unused: Annotated[str, words("Cost of times without a covered call."), example("4800")]
    unconverted: Annotated[
        dict[str, str], words("Costs without an exchange rate, by currency. They are in no sum."), example({})
    ]


class WorkloadOfMonth(msgspec.Struct, kw_only=True):
    """
    A workload on own hardware in a month. The list prices of a model, as multiples of its input price, weight
    the tokens.
    """

    name: Annotated[str, words("Cluster, namespace and workload.")]
    state: Annotated[str, words("`ok`, or `no_cost` (no container cost in the month).")]
    tokens: Annotated[
        str,
        words(
            "Which token counts are used: `servers` (counters of model servers), `calls` (reported calls), or those of "
            "calls because not all counters are read (`unknown`) or fit into memory (`too_many`)."
        ),
    ]
    weights_model: Annotated[
        str | None,
        words("The model with the list prices in `weights`. Null if the weights are 1, 0.1 and 4."),
    ]
    weights: Annotated[list[str], words("Weights of input, cached and output tokens.")]
    prices: Annotated[dict[str, str], words("Dollars per million weighted tokens, by day.")]


class CapacityOfMonth(msgspec.Struct, kw_only=True):
    """A term of capacity or priority in a month, up to today."""

    contract: Annotated[str, words("The name of the contract.")]
    provider: Annotated[str, words("The provider of the contract.")]
    models: Annotated[list[str], words("Empty means every model.")]
    tier: Annotated[str, words("Empty means every tier.")]
    unit: Annotated[str, words("The unit of the capacity, or empty.")]
    number: Annotated[str, words("Number of units, or empty.")]
    cost: Annotated[str, words("Cost of the capacity, with the unused part.")]
    unused: Annotated[str, words("Cost of times without a covered call.")]
    list_value: Annotated[str, words("Value of the covered calls at list prices.")]
    utilisation: Annotated[
        str | None,
        words(
            "`list_value` as a percentage of `cost`. Above 100, capacity is cheaper. Null if the cost is 0."
        ),
    ]
    calls: Annotated[int, words("Covered calls.")]
    unpriced_calls: Annotated[int, words("Covered calls without a list price.")]
    idle_hours: Annotated[
        int | None, words("Hours without a covered call. Null if the totals no longer have hours.")
    ]
    unreported: Annotated[str, words("Cost of served tokens that nobody reported.")] = "0"
    workload: Annotated[
        WorkloadOfMonth | None, words("The workload on own hardware whose cost the term divides, or null.")
    ] = None


class ContractRow(msgspec.Struct, kw_only=True):
    """A team's part of a contract's amount in a month. Allowances and credits are negative."""

    contract: Annotated[str, words("The name of the contract.")]
    charge: Annotated[
        str, words("`commitment`, `unused`, `unreported`, `allowance`, `minimum`, `credit` or `fee`.")
    ]
    team: Annotated[str | None, words("Null for calls without a team, and for days without calls.")]
    cost: Annotated[str, words("The team's part of the cost.")]
    source: Annotated[
        str, words("`contract` (computed), `statement` (the final bill of the month) or `containers`.")
    ]


_CAPACITY = {
    "contract": "Azure PTU", "provider": "azure.ai.openai", "models": ["gpt-4o*"], "tier": "", "unit": "ptu",
    "number": "100", "cost": "72000", "unused": "4800", "list_value": "86400", "utilisation": "120.00",
    "calls": 41250, "unpriced_calls": 0, "idle_hours": 61, "unreported": "0", "workload": None,
}  # fmt: skip
_ROWS = [
    {
        "contract": "Azure PTU",
        "charge": "commitment",
        "team": "search",
        "cost": "67200",
        "source": "contract",
    },
    {"contract": "Azure PTU", "charge": "unused", "team": None, "cost": "4800", "source": "contract"},
]


class ContractCosts(msgspec.Struct, kw_only=True):
    contract_costs: Annotated[ContractMonth, words("The month of the costs.")]
    total: Annotated[ContractTotal, words("Sums in the requested currency.")]
    capacity: Annotated[
        list[CapacityOfMonth], words("The terms of capacity in the month."), example([_CAPACITY])
    ]
    rows: Annotated[list[ContractRow], words("The parts of teams. They add up to the total."), example(_ROWS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractQuestion:
    """
    A query for the costs of contracts in a month. `served` returns the tokens that model servers counted in a time
    span.
    """

    reader: ContractChargeReader
    statements: StatementStore
    month: CalendarMonth
    currency: str
    served: ServedInSpan

    @property
    def converter(self) -> CurrencyConverter:
        return CurrencyConverter(self.reader.ledger.rates or find_no_rate, self.currency)


async def contract_costs(question: ContractQuestion) -> ContractCosts:
    """Return the costs of contracts in a month, up to today."""
    terms, uses, covered = await question.reader.prepaid_terms_and_uses(question.month)
    if terms:
        await _set_called_hours_of_uses(question, covered, uses)
    charges = [
        *prepaid_charges(terms, uses),
        *await question.reader.usage_dependent_charges([question.month]),
    ]
    lacking = Counter[tuple[ContractChargeKey, str]]()
    parts = _divide_charges_among_teams(question, charges, lacking)
    contracts = [
        each
        for each in question.reader.contracts
        if has_amounts(each) and _overlaps_month(each, question.month)
    ]
    bills = await final_bill_rows(question.statements, (each.provider for each in contracts), question.month)
    billed = replace_estimates_by_billed_amounts(parts, contracts, bills, question.converter)
    capacity = [_capacity_row(*of_term, question) for of_term in zip(terms, uses, strict=True)]
    sums = Counter[SourcedPlace]()
    for (contract, charge, team), part in parts.items():
        source = "statement" if (contract, charge) in billed else "contract"
        sums[contract, charge, team, source] = part
    unconverted = Counter[str]()
    for (charged, currency), amount in lacking.items():
        unconverted[currency] += 0 if charged in billed else amount
    for each, of_month, days in await _workload_terms_with_use_and_days(question):
        own = Counter[SourcedPlace]()
        unconverted[CURRENCY] += _add_workload_cost_and_sum_unconverted(
            own, each.term.contract.name, days, question.converter
        )
        capacity.append(_workload_row(each, of_month, own, question))
        sums.update(own)
    return _build_contract_costs(question, sums, unconverted, capacity)


async def _workload_terms_with_use_and_days(
    question: ContractQuestion,
) -> list[tuple[WorkloadMonth, WorkloadOfMonth, list[WorkloadDay]]]:
    """
    Return the workloads of the month with their costs by day. If the counters of model servers are incomplete
    for the month, only reported tokens count.
    """
    reader, month = question.reader, question.month
    workloads = await reader.workloads(month)
    if not workloads:
        return []
    terms = [each.term for each in workloads]
    await _set_called_hours_of_uses(question, PrepaidCoverage(terms), [each.calls for each in workloads])
    served = await question.served(month.start, month.end)
    add_served_tokens(workloads, served.tokens)
    prices = TokenPrices(reader.prices.without_contracts())
    day = min(month.days[-1], int(reader.now) // DAY_S * DAY_S)
    found = []
    for each in workloads:
        weights_model, weights = most_used_model_and_its_price_weights(each, prices, day)
        days = [*divide_daily_costs(each, weights, reader.now)]
        of_month = WorkloadOfMonth(
            name="/".join(each.term.term.workload_key),
            state="ok" if days else "no_cost",
            tokens=served.missing or ("servers" if each.tokens.served else "calls"),
            weights_model=weights_model,
            weights=[money.units_to_text(weight * money.UNIT // weights.input) for weight in weights],
            prices={
                f"{datetime.fromtimestamp(day.day, UTC):%Y-%m-%d}": money.units_to_text(day.price)
                for day in days
                if day.price is not None
            },
        )
        found.append((each, of_month, days))
    return found


def _add_workload_cost_and_sum_unconverted(
    parts: Counter[SourcedPlace], contract: str, days: Iterable[WorkloadDay], converter: CurrencyConverter
) -> int:
    """
    Add the costs of a workload to `parts`. Return the amount without an exchange rate, which is not added.
    """
    unconverted = 0
    for day in days:
        rate = converter.rate(CURRENCY, day.day)
        for (charge, team), part in day.parts.items():
            if rate is None:
                unconverted += part
            else:
                parts[contract, charge, team, "containers"] += round_product_to_units(part * rate)
    return unconverted


def _overlaps_month(contract: Contract, month: CalendarMonth) -> bool:
    first, end = first_day_and_end(contract)
    return first < month.end and month.start < end


async def _set_called_hours_of_uses(
    question: ContractQuestion, coverage: PrepaidCoverage, uses: Sequence[CapacityUse]
) -> None:
    since = datetime.fromtimestamp(question.month.start, UTC)
    until = min(datetime.fromtimestamp(question.month.end, UTC), next_full_hour(question.reader.now))
    if await question.reader.ledger.earliest_moment_with_hourly_sums(since) > since:
        return
    for use in uses:
        use.hours = set()
    query = CostQuery(
        since=since,
        until=until,
        granularity="hourly",
        group_by=_CALLED,
        exclude={"status": ("cached",)},
        measures=("calls",),
    )
    for row in await question.reader.ledger.costs(query):
        hour = int(row.start.timestamp())
        index = coverage.covering_term_index(CalledModel(*(name or "" for name in row.group)), hour)
        hours = None if index is None else uses[index].hours
        if hours is not None:
            hours.add(hour)


def _divide_charges_among_teams(
    question: ContractQuestion,
    charges: Iterable[DayCharge],
    unconverted: Counter[tuple[ContractChargeKey, str]],
) -> dict[ContractPlace, int]:
    """
    Divide the amounts of contracts among teams, in the requested currency. Amounts without an exchange rate
    go to `unconverted`.
    """
    converter = question.converter
    parts: dict[ContractPlace, int] = defaultdict(int)
    for each in charges:
        rate = converter.rate(each.contract.currency, each.day)
        if rate is None:
            unconverted[(each.contract.name, each.charge), each.contract.currency] += each.amount
            continue
        for team, part in divide_among_teams(round_product_to_units(each.amount * rate), each.use):
            parts[each.contract.name, each.charge, team or ""] += part
    return parts


def _build_contract_costs(
    question: ContractQuestion,
    parts: Mapping[SourcedPlace, int],
    unconverted: Mapping[str, int],
    capacity: list[CapacityOfMonth],
) -> ContractCosts:
    month = question.month
    return ContractCosts(
        contract_costs=ContractMonth(
            month=month.name,
            start=utc_iso(month.start) or "",
            end=utc_iso(month.end) or "",
            currency=question.currency,
        ),
        total=ContractTotal(
            cost=money.units_to_text(sum(parts.values())),
            unused=money.units_to_text(
                sum(part for (_, charge, *_), part in parts.items() if charge == UNUSED)
            ),
            unconverted={
                code: money.units_to_text(amount) for code, amount in sorted(unconverted.items()) if amount
            },
        ),
        capacity=capacity,
        rows=[
            ContractRow(
                contract=contract,
                charge=charge,
                team=team or None,
                cost=money.units_to_text(part),
                source=source,
            )
            for (contract, charge, team, source), part in sorted(parts.items())
        ],
    )


def _capacity_row(term: PrepaidCapacity, use: CapacityUse, question: ContractQuestion) -> CapacityOfMonth:
    contract, converter = term.contract, question.converter
    cost = unused = value = 0
    for day, own in term.by_day.items():
        rate, of_dollars = converter.rate(contract.currency, day), converter.rate(CURRENCY, day)
        teams = use.by_day.get(day, {})
        value += round_product_to_units(sum(team.value for team in teams.values()) * (of_dollars or 0))
        amount = round_product_to_units(own * (rate or 0))
        cost += amount
        unused += 0 if teams else amount
    of_teams = [team for teams in use.by_day.values() for team in teams.values()]
    return CapacityOfMonth(
        contract=contract.name,
        provider=contract.provider,
        models=list(term.term.models),
        tier=term.term.tier,
        unit=term.term.unit,
        number=term.term.number,
        cost=money.units_to_text(cost),
        unused=money.units_to_text(unused),
        list_value=money.units_to_text(value),
        utilisation=_format_percentage(value, cost),
        calls=sum(team.calls for team in of_teams),
        unpriced_calls=sum(team.unpriced for team in of_teams),
        idle_hours=None
        if use.hours is None
        else len(_begun_hours_of_term(term, question.reader.now) - use.hours),
    )


def _workload_row(
    workload_month: WorkloadMonth,
    of_month: WorkloadOfMonth,
    parts: Mapping[SourcedPlace, int],
    question: ContractQuestion,
) -> CapacityOfMonth:
    if workload_month.calls.hours is not None:
        workload_month.calls.hours |= workload_month.tokens.hours
    by_charge = Counter[str]()
    for (_, charge, *_), part in parts.items():
        by_charge[charge] += part
    shown = _capacity_row(workload_month.term, workload_month.calls, question)
    cost, value = sum(by_charge.values()), money.text_to_units(shown.list_value)
    return replace(
        shown,
        cost=money.units_to_text(cost),
        unused=money.units_to_text(by_charge[UNUSED]),
        unreported=money.units_to_text(by_charge[UNREPORTED]),
        utilisation=_format_percentage(value, cost),
        workload=of_month,
    )


def _format_percentage(value: int, cost: int) -> str | None:
    return f"{(Decimal(value) / cost * 100).quantize(Decimal('0.01')):f}" if cost else None


def _begun_hours_of_term(term: PrepaidCapacity, now: float) -> set[int]:
    hours = (hour for day in term.by_day for hour in range(day, day + DAY_S, HOUR_S))
    return {hour for hour in hours if hour <= now}
