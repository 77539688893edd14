"""The bill of one provider for one month, by day, with the names that the ledger uses. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from gateway.bills.billed.spreading import divide_in_sequence
from gateway.bills.reconciliation.matching import (
    Owner,
    ProviderKeyMatching,
    choose_source_by_day,
    classify_bill_rows,
    match_model_families,
)
from gateway.bills.reconciliation.sides import ANYWHERE, DAY_S, BilledMoney, BilledTokens, CountedUse
from spool import money
from spool.ledger.billed import CLOSED, PROVISIONAL
from spool.statements import BilledRow, StatementRow, days_of_use

Regions = Mapping[str, frozenset[str]]  # regions of the calls by model family
_BilledRow = TypeVar("_BilledRow", BilledMoney, BilledTokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """
    A provider's bill of one month.

    `amounts`, `accrued` and `quantities` are by day, with model and key names as billed. For cost types that
    move fees to the usage that they cover, `accrued` is added to the amounts. `families` and `keys` map
    billed and counted names of models and keys to common names. `states` has the days with billed money.
    """

    provider: str
    amounts: Mapping[int, Sequence[BilledMoney]]
    accrued: Mapping[int, Sequence[BilledMoney]]
    quantities: Mapping[int, Sequence[BilledTokens]]
    families: Mapping[str, str]
    keys: ProviderKeyMatching
    states: Mapping[int, str]
    sources: Mapping[int, str]
    foreign: Mapping[int, Mapping[str, int]]
    money_regions: Regions  # regions that the amounts of the bill distinguish
    token_regions: Regions


@dataclass(frozen=True, slots=True, kw_only=True)
class BillInputs:
    """
    The inputs of a bill. `counted` are the month's calls. `covered` and `unsettled` are the days that each
    source's reports cover, and those that may still change. Days from `open_from` on are not over. `rows` are those
    that bills have on these days, whenever they were used.

    `refunds` are rows of later bills about calls of these days. They only contribute names, not amounts.
    """

    provider: str
    days: Sequence[int]
    open_from: int
    rows: Sequence[BilledRow]
    counted: Sequence[CountedUse]
    covered: Mapping[str, frozenset[int]]
    unsettled: Mapping[str, frozenset[int]]
    owners: Sequence[Owner] = ()
    refunds: Sequence[BilledMoney] = ()


def build_bill(bill_inputs: BillInputs) -> Bill:
    """Build the bill. Each day takes all amounts from one source, and all quantities from one source."""
    in_month = set(bill_inputs.days)
    dated_rows = list(_split_rows_by_day(bill_inputs))
    report = classify_bill_rows(dated_rows)
    of_money = choose_source_by_day([*report.money, *report.accrued], bill_inputs.covered)
    of_tokens = choose_source_by_day(report.tokens, bill_inputs.covered)
    amounts = [row for row in report.money if row.day in in_month and of_money[row.day] == row.source]
    tokens = [row for row in report.tokens if row.day in in_month and of_tokens[row.day] == row.source]
    owners = [owner for owner in bill_inputs.owners if owner.provider == bill_inputs.provider]
    named = [*amounts, *bill_inputs.refunds]
    theirs = {*(row.key for row in tokens), *(row.key for row in named)}
    states = {
        day: PROVISIONAL
        if (day in report.unsettled.get(source, ()) or day in bill_inputs.unsettled.get(source, ()))
        else CLOSED
        for day, source in of_money.items()
        if day in in_month and day < bill_inputs.open_from
    }
    foreign: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row, day in dated_rows:
        if row.currency not in (None, "USD"):
            foreign[day][str(row.currency)] += 1
    families = match_model_families(tokens, named, bill_inputs.counted)
    return Bill(
        provider=bill_inputs.provider,
        amounts=_rows_by_day(amounts),
        accrued=_rows_by_day(row for row in report.accrued if of_money.get(row.day) == row.source),
        quantities=_rows_by_day(tokens),
        families=families,
        keys=ProviderKeyMatching(owners, theirs, {row.key for row in bill_inputs.counted}),
        states=states,
        sources={day: of_money[day] for day in states},
        foreign=foreign,
        money_regions=_regions_by_model([*named, *report.accrued], families),
        token_regions=_regions_by_model(tokens, families),
    )


def _regions_by_model(rows: Iterable[BilledMoney | BilledTokens], families: Mapping[str, str]) -> Regions:
    regions_by_model: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.region not in ANYWHERE:
            regions_by_model[families.get(row.model, row.model)].add(row.region)
    return {model: frozenset(regions) for model, regions in regions_by_model.items()}


def _rows_by_day(rows: Iterable[_BilledRow]) -> Mapping[int, Sequence[_BilledRow]]:
    rows_by_day: dict[int, list[_BilledRow]] = defaultdict(list)
    for row in rows:
        rows_by_day[row.day].append(row)
    return rows_by_day


def _split_rows_by_day(bill_inputs: BillInputs) -> Iterator[tuple[StatementRow, int]]:
    """
    Yield rows with the one day on which the bill has them. A bucket of several days within the month is divided among
    its days in proportion to their calls' value. A bucket that spans two months is divided evenly, so that both
    months calculate the same parts.
    """
    worth: dict[int, int] = defaultdict(int)
    for use in bill_inputs.counted:
        worth[use.day] += sum(use.values.values())
    for billed_row in bill_inputs.rows:
        row = billed_row.row
        days, billed_days = days_of_use(row), billed_row.billed_days
        if billed_days[0] == billed_days[-1]:
            yield row, billed_days[0]
            continue
        is_within = bill_inputs.days[0] <= days[0] and days[-1] <= bill_inputs.days[-1]
        weights = [max(0, worth[day]) if is_within else 0 for day in days]
        amount, effective = row.amount, row.amount_effective
        parts = divide_in_sequence(money.text_to_units(f"{amount:f}"), weights)
        effective_parts = (
            parts if effective is None else divide_in_sequence(money.text_to_units(f"{effective:f}"), weights)
        )
        for day, billed_day, part, effective_part in zip(
            days, billed_days, parts, effective_parts, strict=True
        ):
            if part or effective_part:
                changes: dict[str, Any] = {
                    "amount": _money_units_to_decimal(part),
                    "amount_effective": _money_units_to_decimal(effective_part),
                }
                changes |= {"amount_list": None, "amount_contracted": None}
                part_row = msgspec.structs.replace(row, start=day, end=day + DAY_S, **changes)
                yield part_row, billed_day


def _money_units_to_decimal(money_units: int) -> Decimal:
    return Decimal(money.units_to_text(money_units))


def with_bill_names(bill: Bill, use: CountedUse) -> CountedUse:
    """Return a copy of the usage with the bill's names for its model and key."""
    return replace(
        use, model=bill.families.get(use.model, use.model), key=bill.keys.comparable_key_of_use(use)
    )
