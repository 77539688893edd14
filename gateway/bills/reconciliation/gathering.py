"""Reading of both sides of a month: bills, and what the ledger counted on the same days."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gateway.bills.contracts.capacity import capacity_terms
from gateway.bills.contracts.declared import DAY, SUMS, Contract, first_day_and_end, price_term
from gateway.bills.contracts.sums import DayCharge
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.comparing import ComparisonInput
from gateway.bills.reconciliation.counting import (
    TokenPrices,
    find_seller,
    group_uses_by_seller,
    seller_filter,
)
from gateway.bills.reconciliation.limits import DAYS_OF_RATES
from gateway.bills.reconciliation.lines import DayTolerance
from gateway.bills.reconciliation.matching import Owner
from gateway.bills.reconciliation.restating import BillConversion
from gateway.bills.reconciliation.set_aside import has_failed
from gateway.bills.reconciliation.sides import DAY_S, Commitment, ContractSum, CountedUse, Prices
from gateway.bills.statements.arrivals import is_report_in_parts
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import RateCard
from spool import money, providers
from spool.currencies import CurrencyConverter, Rates, find_no_rate, round_product_to_units
from spool.ledger.days.cached_results import DataVersions
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.log.protocols import RecordLog
from spool.record import CURRENCY
from spool.statements import (
    USD,
    RowAmounts,
    StatementInfo,
    StatementRow,
    StatementStore,
    day_of_row,
    days_of_bill,
)

_TOKENS = ("input_tokens", "output_tokens", "cached_input_tokens", "cached_output_tokens")


@dataclass(frozen=True, kw_only=True)
class StatementSources:
    """The storages of bills and of counted usage, and the operator's settings for the comparison."""

    ledger: Ledger
    log: RecordLog
    prices: Callable[[], PriceBook]
    statements: StatementStore
    owners: Callable[[], Sequence[Owner]] = tuple
    tolerance: Callable[[], DayTolerance] = DayTolerance
    # returns the closed months, by an id from `closing.closed_month_id`
    closed_months: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    contracts: Callable[[], Sequence[Contract]] = tuple
    # returns the amounts of contracts in a month that depend on sums of calls; None means that they are not compared
    charges: Callable[[CalendarMonth, PriceBook, float], Awaitable[Sequence[DayCharge]]] | None = None


@dataclass(frozen=True, kw_only=True)
class BillsAndCountedUsage:
    """
    The bills and counted usage of each provider with a bill, and the counted costs of providers without one
    (`without`).

    `is_foreign` means that a bill has money in another currency, so the result depends on exchange rates.
    """

    sides: Sequence[ComparisonInput]
    without: Mapping[str, int]
    is_foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class ReconciliationInputs:
    """
    The inputs that decide a month's comparison. Equal inputs have equal results, except for bills in other
    currencies.

    Large inputs are represented by values that change with them, whichever process changes them: `marks` for
    the counted sums, and `infos` for the bills. `until` is the current hour, or 0 if the month and the hours
    compared with it are over. `covered_until`: the end of what each source of the month covers, at most a day after
    the month. It has only sources whose reports have parts.
    """

    month: CalendarMonth
    marks: DataVersions
    infos: Sequence[StatementInfo]
    book_version: str
    card: RateCard
    owners: Sequence[Owner]
    tolerance: DayTolerance
    until: int
    covered_until: Mapping[str, int]
    contracts: Sequence[Contract] = ()
    charges: Sequence[DayCharge] | None = None


async def catch_up_and_read_inputs(
    sources: StatementSources, month: CalendarMonth, *, now: float
) -> tuple[ReconciliationInputs, PriceBook]:
    """Count the closed records, and return the inputs of a month with the price book."""
    await sources.ledger.require_complete_totals(sources.log)
    known = await sources.statements.statements()
    book = await asyncio.to_thread(sources.prices)
    infos = [info for info in known if info.has_use_within(month.start, month.end)]
    # a report that states bills has parts, so a later bill of any other source changes no input
    sources_in_parts = {info.source for info in infos if is_report_in_parts(info.source)}
    edges = (datetime.fromtimestamp(at, UTC) for at in (month.start - DAY_S, month.end + DAY_S))
    inputs = ReconciliationInputs(
        month=month,
        marks=await sources.ledger.data_versions_of_period(*edges),
        infos=infos,
        book_version=book.version,
        card=book.card,
        owners=sources.owners(),
        tolerance=sources.tolerance(),
        until=0 if now >= month.end + DAY_S else int(now) // 3600,
        covered_until={
            info.source: min(info.end, month.end + DAY_S)
            for info in sorted(known, key=lambda info: info.end)
            if info.source in sources_in_parts
        },
        contracts=sources.contracts(),
        charges=None if sources.charges is None else await sources.charges(month, book, now),
    )
    return inputs, book


async def read_bills_and_counted_usage(
    sources: StatementSources,
    inputs: ReconciliationInputs,
    price_book: PriceBook,
    *,
    now: float,
    includes_hours: bool = True,
) -> BillsAndCountedUsage:
    """Read a month's counted sums and bills. `includes_hours` includes tokens by hour, which totals do not need."""
    month, infos = inputs.month, inputs.infos
    covering = [info for info in infos if info.start < month.end and info.end > month.start]
    providers_billed = sorted({info.provider for info in covering})
    costs = await counted_cost_by_seller(sources.ledger, month, now)
    without = {name: costs[name] for name in sorted(costs) if name not in providers_billed}
    if not providers_billed:
        return BillsAndCountedUsage(sides=[], without=without)
    prices = TokenPrices(price_book)
    by_provider = await counted_uses_by_seller(sources.ledger, month, prices, now)
    sides = []
    has_foreign = False
    for name in providers_billed:
        billed = await sources.statements.statement_rows(provider=name, start=month.start, end=month.end)
        has_foreign = has_foreign or any(map(is_in_foreign_currency, billed))
        uses = by_provider.get(name, ())
        hours = await _tokens_by_hour(sources.ledger, name, month, now) if includes_hours else {}
        failed_hours: Mapping[int, int] = {}
        if hours and any(map(has_failed, uses)):
            failed_hours = await _tokens_by_hour(sources.ledger, name, month, now, {"status": ("error",)})
        sides.append(
            await _build_comparison_input(
                sources, inputs, now, name, billed, uses, prices, hours, failed_hours
            )
        )
    return BillsAndCountedUsage(sides=sides, without=without, is_foreign=has_foreign)


async def counted_uses_by_seller(
    ledger: Ledger, month: CalendarMonth, prices: TokenPrices, now: float
) -> dict[str, list[CountedUse]]:
    uses: dict[str, list[CountedUse]] = defaultdict(list)
    for day in month.days:
        if day > now:
            break
        sums = await ledger.usage_of_day(day)
        for name, rows in (await asyncio.to_thread(group_uses_by_seller, sums, prices)).items():
            uses[name] += rows
    return uses


async def counted_cost_by_seller(ledger: Ledger, month: CalendarMonth, now: float) -> Mapping[str, int]:
    """
    Return counted costs in dollars by seller for the days that have begun. Amounts in other currencies
    are not included.
    """
    until = min(month.end, int(now) // DAY_S * DAY_S + DAY_S)
    if until <= month.start:
        return {}
    query = CostQuery(
        since=datetime.fromtimestamp(month.start, UTC),
        until=datetime.fromtimestamp(until, UTC),
        granularity=TOTAL,
        group_by=("source", "provider", "model"),
        exclude={"status": ("cached",)},
        measures=("cost",),
    )
    amounts: dict[str, int] = defaultdict(int)
    for row in await ledger.costs(query):
        amounts[find_seller(*row.group)] += money.text_to_units(row.cost) - money.text_to_units(row.converted)
    return amounts


def find_conversion(
    rows: Sequence[StatementRow], rates: Rates | None, month: CalendarMonth
) -> BillConversion | None:
    """Return the conversion of the rows to dollars, or None unless they have exactly one foreign currency."""
    codes = foreign_currencies(rows)
    if rates is None or len(codes) != 1:
        return None
    [code] = codes
    foreign = {row.source for row in rows if is_in_foreign_currency(row)}
    in_dollars = {row.source for row in rows if row.currency == CURRENCY}
    days = range(month.start - DAYS_OF_RATES * DAY_S, month.end, DAY_S)
    known = {day: rate for day in days if (rate := rates(code, CURRENCY, day)) is not None}
    sources = frozenset(foreign - in_dollars)
    return BillConversion(currency=code, sources=sources, rates=known) if known and sources else None


async def convert_rows_at_ledger_rates(
    ledger: Ledger, rows: Sequence[StatementRow]
) -> Sequence[StatementRow]:
    """Convert the rows' money to dollars where a rate is known."""
    rates = ledger.rates
    return rows if rates is None else await asyncio.to_thread(convert_to_dollars, rows, rates)


async def _build_comparison_input(
    sources: StatementSources,
    inputs: ReconciliationInputs,
    now: float,
    provider: str,
    statement_rows: Sequence[StatementRow],
    uses: Sequence[CountedUse],
    prices: TokenPrices,
    hours: Mapping[int, int],
    failed_hours: Mapping[int, int],
) -> ComparisonInput:
    month = inputs.month
    rows = await convert_rows_at_ledger_rates(sources.ledger, statement_rows)
    own_infos = [info for info in inputs.infos if info.provider == provider]
    covered = days_by_source(own_infos, month)
    return ComparisonInput(
        provider=provider,
        days=month.days,
        open_from=int(now) // DAY_S * DAY_S,
        # a row of a later bill tells nothing about a day without a bill
        rows=[
            row
            for row in rows
            if (day := day_of_row(row)) < month.start or day in covered.get(row.source, ())
        ],
        counted=uses,
        prices=lambda model, tier, day, context: prices.list_prices_on_day(
            provider, model, tier, day, context
        ),
        listed=_prices_without_contracts(inputs, provider, prices),
        covered=covered,
        unsettled=days_by_source((info for info in own_infos if not info.settled), month),
        hours=hours,
        failed_hours=failed_hours,
        owners=inputs.owners,
        tolerance=inputs.tolerance,
        conversion=await asyncio.to_thread(find_conversion, statement_rows, sources.ledger.rates, month),
        commitments=_contract_commitments(inputs, provider, now, sources.ledger.rates or find_no_rate),
        sums=_contract_sums(inputs, provider, sources.ledger.rates or find_no_rate),
        awaiting=_days_awaiting_next_bill(statement_rows, inputs.covered_until),
    )


def days_by_source(infos: Iterable[StatementInfo], month: CalendarMonth) -> dict[str, frozenset[int]]:
    """Return the days of a month that statements cover, by their source."""
    days: dict[str, frozenset[int]] = defaultdict(frozenset)
    for info in infos:
        days[info.source] |= {day for day in month.days if info.start <= day < info.end}
    return days


def _days_awaiting_next_bill(
    rows: Iterable[StatementRow], covered_until: Mapping[str, int]
) -> frozenset[int]:
    """Return the last two days of each bill after which its source has no further bill."""
    ends = {(row.source, days_of_bill(row.bill)[1]) for row in rows if row.bill}
    open_ends = [last for source, last in ends if covered_until.get(source, 0) <= last + DAY_S]
    return frozenset(day for last in open_ends for day in (last - DAY_S, last))


def _prices_without_contracts(
    inputs: ReconciliationInputs, provider: str, prices: TokenPrices
) -> Prices | None:
    if all(contract.provider != provider for contract in inputs.contracts):
        return None
    listed = prices.without_contracts().list_prices_on_day
    return lambda model, tier, day, context: listed(provider, model, tier, day, context)


def _contract_commitments(
    inputs: ReconciliationInputs, provider: str, now: float, rates: Rates
) -> list[Commitment]:
    """Return the capacity of contracts with a provider, in dollars. Days without an exchange rate are left out."""
    contracts = [contract for contract in inputs.contracts if contract.provider == provider]
    converter, found = CurrencyConverter(rates, CURRENCY), []
    for capacity in capacity_terms(contracts, inputs.month.days, now):
        by_day = {
            day: round_product_to_units(amount * rate)
            for day, amount in capacity.by_day.items()
            if (rate := converter.rate(capacity.contract.currency, day)) is not None
        }
        found.append(Commitment(term=capacity.price, by_day=by_day))
    return found


def _contract_sums(inputs: ReconciliationInputs, provider: str, rates: Rates) -> list[ContractSum]:
    """
    Return the amounts of contracts with a provider that depend on sums of calls, in dollars. Those with a day without
    an exchange rate are left out.
    """
    converter, found = CurrencyConverter(rates, CURRENCY), []
    for contract in inputs.contracts:
        own = [each for each in inputs.charges or () if each.contract.id == contract.id]
        kinds = {term.kind for term in contract.terms if term.kind in SUMS}
        begins, ends = first_day_and_end(contract)
        is_in = inputs.charges is not None and begins < inputs.month.end and inputs.month.start < ends
        for kind in sorted(kinds) if is_in and contract.provider == provider else ():
            amounts = [
                None if rate is None else round_product_to_units(each.amount * rate)
                for each in own
                if each.charge == kind
                for rate in (converter.rate(contract.currency, each.day),)
            ]
            if None not in amounts:
                free = [
                    (price_term(contract, term), int(Decimal(term.tokens)))
                    for term in contract.terms
                    if (term.kind, term.per) == (kind, DAY) and term.tokens
                ]
                total = sum(amount for amount in amounts if amount is not None)
                found.append(ContractSum(contract=contract.name, charge=kind, amount=total, free_tokens=free))
    return found


async def _tokens_by_hour(
    ledger: Ledger,
    provider: str,
    month: CalendarMonth,
    now: float,
    filters: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> dict[int, int]:
    """
    Return counted tokens by hour of the calls that match `filters`, including one day before and after. Return
    nothing if the ledger no longer has these hours.
    """
    since = datetime.fromtimestamp(month.start - DAY_S, UTC)
    if await ledger.earliest_moment_with_hourly_sums(since) > since:
        return {}
    until = datetime.fromtimestamp(min(month.end + DAY_S, int(now) // 3600 * 3600 + 3600), UTC)
    if until <= since:
        return {}
    include = seller_filter(provider)
    exclude = {} if "source" in include else {"source": (*providers.BILLED_BY_SOURCE,)}
    query = CostQuery(
        since=since,
        until=until,
        granularity="hourly",
        include={**include, **filters},
        exclude=exclude,
        measures=_TOKENS,
    )
    tokens_by_hour = {}
    for row in await ledger.costs(query):
        cached = row.cached_input_tokens + row.cached_output_tokens
        tokens_by_hour[int(row.start.timestamp())] = row.input_tokens + row.output_tokens - cached
    return tokens_by_hour


def convert_to_dollars(rows: Sequence[StatementRow], rates: Rates) -> list[StatementRow]:
    """
    Convert the rows' money to dollars at the rate of the day, rounded once to 27 decimals.

    A row of several days uses the rate of its first day. Rows without a known rate stay in their currency.
    """
    return [_convert_row(row, rates) if is_in_foreign_currency(row) else row for row in rows]


def average_rate(rows: Sequence[StatementRow], currency: str, rates: Rates) -> Fraction | None:
    """
    Return the dollars per unit of a currency with which rows in this currency were converted on average. None if
    no such row has an amount and a rate.
    """
    amount = dollars = Fraction()
    for row in rows:
        converted = _convert_row(row, rates) if row.currency == currency else row
        if converted is not row:
            amount += Fraction(row.amount)
            dollars += Fraction(converted.amount)
    return dollars / amount if amount and dollars else None


def is_in_foreign_currency(row: StatementRow) -> bool:
    return row.currency not in (None, CURRENCY)


def foreign_currencies(rows: Sequence[StatementRow]) -> set[str]:
    return {str(row.currency) for row in rows if is_in_foreign_currency(row)}


def _convert_row(row: StatementRow, rates: Rates) -> StatementRow:
    rate = rates(str(row.currency), CURRENCY, day_of_row(row))
    if rate is None:
        return row

    def in_dollars_at(amount: Decimal | None) -> Decimal | None:
        if amount is None:
            return None
        return Decimal(money.units_to_text(round_product_to_units(money.text_to_units(f"{amount:f}") * rate)))

    amounts = RowAmounts.from_row(row).map_amounts(in_dollars_at)
    return replace(row, unit=USD, currency=CURRENCY, **amounts._asdict())
