"""
Plan costs as provider bills state them: seat fees, overage, and the value of the included usage.

A complete, final bill of a month replaces what Tollhouse calculates for a plan; the two are never added. Each
difference is reported with a cause.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.months import CalendarMonth
from gateway.bills.plans.sums import PlanPeriodDays, SeatMonth
from spool import money
from spool.statements import SEAT, SEATS, StatementInfo, StatementRow, StatementStore, day_of_row

DISCOUNT, TAX = "discount", "tax"
SEAT_COUNT, FEE, INCLUDED, OVERAGE = "seat_count", "fee_differs", "included_differs", "overage_differs"
CENT = money.UNIT // 100
# kinds of bill lines; all lines of other kinds are usage
_KINDS = {SEAT: SEAT, "throughput": SEAT, DISCOUNT: DISCOUNT}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBill:
    """
    The bill of one provider for a whole month, in money units of the requested currency.

    `seats` counts full months of seats. `seats` and `fees` are None if the bill has no seat lines. `lacking`
    has amounts without an exchange rate, by currency. A bill with such amounts is ignored.
    """

    overage: int
    included: int
    fees: int | None = None
    seats: Fraction | None = None
    lacking: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillDifference:
    """
    A difference between a bill and the calculated costs, in money units. The seat fields are set for
    seat fees only.
    """

    provider: str
    cause: str
    billed: int
    counted: int
    billed_seats: Fraction | None = None
    counted_seats: Fraction | None = None


async def read_bills(
    statements: StatementStore, providers: Iterable[str], month: CalendarMonth, period_days: PlanPeriodDays
) -> dict[str, PlanBill]:
    """Return the final bills that cover every day of the month, by provider."""
    rows_by_provider = await final_bill_rows(statements, providers, month)
    return {provider: sum_bill(rows, period_days) for provider, rows in rows_by_provider.items()}


async def final_bill_rows(
    statements: StatementStore, providers: Iterable[str], month: CalendarMonth
) -> dict[str, list[StatementRow]]:
    """Return the rows of the final bills that cover every day of the month, by provider."""
    provider_names = sorted(set(providers) - {""})
    known = await statements.statements() if provider_names else ()
    rows_by_provider: dict[str, list[StatementRow]] = {}
    for provider in provider_names:
        source = _source_of_whole_month(known, provider, month)
        if source is None:
            continue
        billed_rows = await statements.billed_rows(provider=provider, start=month.start, end=month.end)
        source_rows = [each for each in billed_rows if each.row.source == source]
        if all(each.row.settled for each in source_rows):
            rows_by_provider[provider] = [
                each.row for each in source_rows if each.billed_days[0] in month.days
            ]
    return rows_by_provider


def _source_of_whole_month(known: Iterable[StatementInfo], provider: str, month: CalendarMonth) -> str | None:
    """
    Return the source with final bills for every day of the month; of several, the one with the most rows.
    """
    days: dict[str, set[int]] = defaultdict(set)
    rows: Counter[str] = Counter()
    for info in known:
        if info.provider != provider or not info.settled:
            continue
        days[info.source].update(day for day in month.days if info.start <= day < info.end)
        rows[info.source] += info.rows
    whole = [source for source, covered in days.items() if len(covered) == len(month.days)]
    return max(whole, key=lambda source: (rows[source], source), default=None)


def sum_bill(rows: Sequence[StatementRow], period_days: PlanPeriodDays) -> PlanBill:
    """Sum the lines of a bill by what they pay for, without taxes."""
    sums: dict[str, dict[str, Counter[int]]] = defaultdict(lambda: defaultdict(Counter))
    seats = Fraction(0)
    for row in rows:
        if row.unit == SEATS:
            seats += Fraction(row.amount)
        elif row.currency is not None and row.kind != TAX:
            units = money.text_to_units(f"{row.amount:f}")
            kind = _KINDS.get(row.kind, OVERAGE)
            sums[kind][row.currency][day_of_row(row)] += units
    lacking: Counter[str] = Counter()
    totals = {
        kind: sum(
            period_days.sum_converted_and_collect_unconverted(days, currency, lacking)
            for currency, days in by_currency.items()
        )
        for kind, by_currency in sums.items()
    }
    discount = totals.get(DISCOUNT, 0)
    return PlanBill(
        overage=totals.get(OVERAGE, 0) + discount,
        included=-discount,
        fees=totals.get(SEAT),
        seats=seats if seats else None,
        lacking=lacking,
    )


def apply_bills_to_seat_months(
    months: Sequence[SeatMonth], bills: Mapping[str, PlanBill]
) -> tuple[list[SeatMonth], list[BillDifference], set[str]]:
    """
    Return the seats' months as they were billed, the differences, and the ids of the plans that a bill covers.

    A bill covers all plans of its provider. Its amounts are divided among their seats in proportion to
    the calculated amounts.
    """
    by_provider: dict[str, list[int]] = defaultdict(list)
    for index, month in enumerate(months):
        by_provider[month.plan.billed_by].append(index)
    billed_months, differing, billed_plans = list(months), list[BillDifference](), set[str]()
    for provider, bill in bills.items():
        places = by_provider.get(provider)
        if not places or bill.lacking:
            continue
        own_months = [months[index] for index in places]
        differing += find_bill_differences(provider, bill, own_months)
        for index, month in zip(places, _divide_bill(bill, own_months), strict=True):
            billed_months[index] = month
            billed_plans.add(month.plan.id)
    return billed_months, differing, billed_plans


def _divide_bill(bill: PlanBill, seat_months: Sequence[SeatMonth]) -> list[SeatMonth]:
    by_overage = [month.overage for month in seat_months]
    by_use = [month.use.value if month.use.value > 0 else 0 for month in seat_months]
    overages = divide_in_sequence(bill.overage, by_overage if any(by_overage) else by_use)
    fees = [month.fee for month in seat_months]
    if bill.fees is not None:
        fees = divide_in_sequence(bill.fees, fees)
    return [
        replace(month, overage=overage, fee=fee, lacking={})
        for month, overage, fee in zip(seat_months, overages, fees, strict=True)
    ]


def find_bill_differences(
    provider: str, bill: PlanBill, seat_months: Sequence[SeatMonth]
) -> list[BillDifference]:
    """Return the differences of at least one cent between a bill and the calculated plan costs."""
    bill_differences = []
    fees = sum(month.fee for month in seat_months)
    if bill.fees is not None and not _is_near(bill.fees, fees):
        held = sum((Fraction(month.held_days, month.days) for month in seat_months), Fraction(0))
        is_count = bill.seats is not None and bill.seats != held
        difference = BillDifference(
            provider=provider,
            cause=SEAT_COUNT if is_count else FEE,
            billed=bill.fees,
            counted=fees,
            billed_seats=bill.seats,
            counted_seats=held,
        )
        bill_differences.append(difference)
    included = sum(month.value_included_in_fee(month.use.worth) for month in seat_months)
    overage = sum(month.overage for month in seat_months)
    pairs = ((INCLUDED, bill.included, included), (OVERAGE, bill.overage, overage))
    for cause, billed, counted in pairs:
        if not _is_near(billed, counted):
            difference = BillDifference(provider=provider, cause=cause, billed=billed, counted=counted)
            bill_differences.append(difference)
    return bill_differences


def _is_near(one: int, other: int) -> bool:
    return bool(abs(one - other) < CENT)
