"""
Division of one day of a bill. Usage amounts are divided among the calls that they are for. Other lines (discounts,
taxes, fees) are layers on top of usage. Refunds and corrections are divided among the calls that they are about.
Pure.

A layer is divided in proportion to the usage money without layers, so no discount counts twice. Some cost types
show a layer as its own row; others add it to the usage that it changes. In amortized cost types, a fee counts on
the usage that it covers, not on its purchase day. The unused part of a fee belongs to nobody.

A refund takes the same share from each call as the charge that it refunds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gateway.bills.billed.bill import Bill
from gateway.bills.billed.cells import (
    SHARED,
    UNREPORTED,
    BilledCell,
    DayCalls,
    billed_tokens_by_cell,
    divide_into_parts_and_rounding_rest,
    match_calls_to_cells,
)
from gateway.bills.billed.spreading import DividedAmount, divide_by_weights, divide_in_sequence
from gateway.bills.reconciliation.counting import KIND_OF_FEE
from gateway.bills.reconciliation.sides import METERS, POOLED, WHOLE, BilledMoney, CountedUse
from spool.ledger.billed import AMORTIZED, CLOSED, EVERY, INVOICED, UNALLOCATED, USAGE, BilledSum
from spool.ledger.dimensions import BILLED, BILLED_TYPES
from spool.ledger.sums import Dimensions
from spool.meters import FEES
from spool.statements import CORRECTION, REFUND, SEAT

OTHER, DISCOUNT, TAX, ROUNDING, COMMITMENT = "other", "discount", "tax", "rounding", "commitment"
CREDIT = "credit"
_ALONE = BILLED_TYPES["billed_cost"] | BILLED_TYPES["amortized_cost"]
_WITHIN = EVERY & ~_ALONE
# Kind of a bill's line -> its charge. Lines of all other kinds that are not usage have the charge `other`.
CHARGES: Mapping[str, str] = {
    "discount": DISCOUNT,
    "tax": TAX,
    CREDIT: CREDIT,
    "rounding": ROUNDING,
    "throughput": COMMITMENT,
    REFUND: REFUND,
    CORRECTION: CORRECTION,
    "support": "support",
    "unused": "unused",
}
# Negative amounts of the lines in SERVICES keep their charge. Negative amounts of other lines are credits,
# such as grants and promotions.
_FEES = [KIND_OF_FEE.get(name, name) for name in FEES]
_UNITS = ["images", "seconds", "pages", "characters"]
SERVICES = frozenset([*_FEES, *_UNITS, "storage", "session", "token_fee", "per_request", SEAT, OTHER])
# place of an amount: dimensions, charge, basis, and bit mask of cost types
_Place = tuple[Dimensions, str, str, int]
# billed usage by dimensions and model family, in units of money
BilledUsageByModel = Mapping[tuple[Dimensions, str], int]
_WITHOUT_METER = (REFUND, CORRECTION, WHOLE)  # kinds of lines that do not name a kind of token
# part of an amount: billed row, amount, and quantity of its cell
_AmountPart = tuple[BilledMoney, int, int | None]


class RefundShare(NamedTuple):
    """The part of a refund or correction that calls with these dimensions get."""

    dimensions: Dimensions
    charge: str
    basis: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BillDivisionRules:
    """
    Whether credits and taxes may be divided by the usage of the whole month. If a field is false, such
    amounts belong to nobody.
    """

    credits: bool = False
    tax: bool = True

    def is_divided_by_month(self, charge: str) -> bool:
        """Return whether a charge is divided by the usage of the whole month."""
        return (charge == TAX and self.tax) or (charge == CREDIT and self.credits)

    def needs_month_usage(self, bill: Bill) -> bool:
        return any(
            self.is_divided_by_month(classify_charge(row)) for rows in bill.amounts.values() for row in rows
        )


def classify_charge(row: BilledMoney) -> str:
    known = CHARGES.get(row.line) or CHARGES.get(row.meter)
    if known is not None:
        return known
    is_given = row.amount < 0 and row.meter not in SERVICES
    return CREDIT if is_given else OTHER


@dataclass(frozen=True, slots=True)
class DividedDay:
    """
    A day of a bill after its division. `sums` are all amounts, sorted. `reasons` are amounts without known
    calls, by reason. `accrued` are the amounts that the amortized cost types add, by reason.
    """

    sums: list[BilledSum]
    reasons: Mapping[str, int]
    accrued: Mapping[str, int]
    base: BilledUsageByModel
    # whether a discount has no usage on its own day, so that it must be spread over the month's usage
    wants_month: bool


_RULES = BillDivisionRules()


def divide_day(
    bill: Bill,
    day: int,
    uses: Iterable[tuple[Dimensions, CountedUse]],
    *,
    month_usage: BilledUsageByModel | None = None,
    refunds: Iterable[RefundShare] = (),
    rules: BillDivisionRules = _RULES,
) -> DividedDay:
    """
    Divide a day of a bill among its calls. Taxes are divided in proportion to `month_usage`, the usage amounts of
    the month. `refunds` are the parts of this day's refunds and corrections.
    """
    day_sums = _DayDivision(bill, day, DayCalls(bill, uses), rules)
    day_sums.add_refunds(refunds)
    return day_sums.divide_amounts(month_usage or {})


def bill_dimensions(provider: str, row: BilledMoney | None = None) -> Dimensions:
    """
    Return the dimensions of a billed amount without calls, as the bill names them. Without a row, only the
    provider is set.
    """
    row_values = {} if row is None else {"model": row.model, "api_key": row.key, "region": row.region}
    known = dict.fromkeys(Dimensions._fields, "") | row_values
    return Dimensions(**{**known, "kind": BILLED, "provider": provider, "size": 0})  # type: ignore[arg-type]


class _DayDivision:
    def __init__(self, bill: Bill, day: int, calls: DayCalls, rules: BillDivisionRules) -> None:
        self._bill = bill
        self._rules = rules
        self._day = day
        self._calls = calls
        self._kept = EVERY
        if bill.states.get(day) != CLOSED:
            self._kept -= INVOICED
        self._found: dict[_Place, int] = defaultdict(int)
        self._reasons: dict[int, Counter[str]] = defaultdict(Counter)
        self._base: dict[tuple[Dimensions, str], int] = defaultdict(int)
        self._wants_month = False

    def add_refunds(self, refunds: Iterable[RefundShare]) -> None:
        for dimensions, charge, basis, amount in refunds:
            self._add_amount(dimensions, charge, basis, _WITHIN, amount)

    def divide_amounts(self, month_usage: BilledUsageByModel) -> DividedDay:
        for rows_by_day, charge, arranged in (
            (self._bill.amounts, USAGE, EVERY),
            (self._bill.accrued, COMMITMENT, AMORTIZED),
        ):
            rows = sorted(rows_by_day.get(self._day, ()), key=repr)
            self._divide_usage([row for row in rows if row.is_for_tokens], charge, arranged)
            for row in rows:
                if not row.is_for_tokens:
                    self._divide_line(row, arranged, month_usage)
        sums = [BilledSum(*key, amount) for key, amount in self._found.items() if amount]
        return DividedDay(
            sums=sorted(sums),
            reasons=self._nonzero_amounts_by_reason(EVERY),
            accrued=self._nonzero_amounts_by_reason(AMORTIZED),
            base=self._base,
            wants_month=self._wants_month,
        )

    def _nonzero_amounts_by_reason(self, cost_type_mask: int) -> Mapping[str, int]:
        reasons = self._reasons[cost_type_mask].items()
        return {reason: amount for reason, amount in reasons if amount}

    def _divide_line(self, row: BilledMoney, cost_type_mask: int, month_usage: BilledUsageByModel) -> None:
        charge = classify_charge(row)
        # `refunds` has the calls' shares of this amount, so the line itself stays unallocated
        if row.used:
            self._add_amount(self._line_dimensions(row), charge, UNALLOCATED, _ALONE, row.amount)
        elif charge == OTHER:
            self._divide_non_token_amount(row, cost_type_mask)
        elif self._rules.is_divided_by_month(charge) and cost_type_mask == EVERY:
            self._divide_in_proportion_to_usage(row, charge, month_usage)
        elif charge == DISCOUNT and cost_type_mask == EVERY:
            is_of_day = bool(self._usage_amounts_covered_by_line(self._base, row))
            self._wants_month |= not is_of_day
            self._divide_in_proportion_to_usage(row, charge, self._base if is_of_day else month_usage)
        else:
            self._add_unassigned(row, charge, row.amount, cost_type_mask)

    def _divide_usage(self, rows: list[BilledMoney], charge: str, cost_type_mask: int) -> None:
        billed_tokens = self._bill.quantities.get(self._day, ())
        quantities = billed_tokens_by_cell(self._calls, billed_tokens)
        as_billed: dict[object, dict[Dimensions, int]] = defaultdict(lambda: defaultdict(int))
        for row in rows:
            as_billed[self._calls.cell_of(row)][self._line_dimensions(row)] += row.amount
        parts = []
        for cell in sorted({self._calls.cell_of(row) for row in rows}, key=repr):
            names = as_billed[cell]
            divided, rest = divide_into_parts_and_rounding_rest(cell, sum(names.values()), quantities)
            label = min(names, key=lambda name: (-abs(names[name]), name))
            parts += [(cell, amount, quantity, label) for cell, amount, quantity in divided]
            self._add_amount(self._line_dimensions(), ROUNDING, UNALLOCATED, cost_type_mask, rest)
        places = match_calls_to_cells(self._calls, [(cell, quantity) for cell, _, quantity, _ in parts])
        for (_, amount, _, label), placed_cell in zip(parts, places, strict=True):
            spread_result = divide_by_weights(amount, placed_cell.weights, quantity=placed_cell.quantity)
            for dimensions, share in spread_result.shares.items():
                self._add_amount(dimensions, charge, placed_cell.basis, cost_type_mask, share)
            self._add_amount(label, charge, UNALLOCATED, cost_type_mask, spread_result.unreported)
            self._reasons[cost_type_mask][placed_cell.reason or UNREPORTED] += spread_result.unreported
            self._add_amount(
                self._line_dimensions(), ROUNDING, UNALLOCATED, cost_type_mask, spread_result.rest
            )
            if cost_type_mask == EVERY:
                for dimensions, share in (*spread_result.shares.items(), (label, spread_result.unreported)):
                    self._base[dimensions, placed_cell.cell.model] += share

    def _divide_non_token_amount(self, row: BilledMoney, cost_type_mask: int) -> None:
        """
        Divide an amount that is not for tokens among the calls that used the service, or among the calls of
        its key. If there are no such calls, the amount belongs to nobody.
        """
        weights, basis = self._calls.call_weights_and_division_basis(row, row.meter)
        spread_result = divide_by_weights(row.amount, weights)
        for dimensions, share in spread_result.shares.items():
            self._add_amount(dimensions, OTHER, basis, cost_type_mask, share)
        self._add_unassigned(row, OTHER, spread_result.unreported, cost_type_mask)
        self._add_amount(self._line_dimensions(), ROUNDING, UNALLOCATED, cost_type_mask, spread_result.rest)

    def _usage_amounts_covered_by_line(
        self, usage_by_model: BilledUsageByModel, row: BilledMoney
    ) -> dict[Dimensions, int]:
        """
        Return the positive usage amounts of the calls to which a bill line applies: calls of its model, or
        all if it has none.
        """
        model = self._bill.families.get(row.model, row.model)
        weights: dict[Dimensions, int] = defaultdict(int)
        for (dimensions, used), amount in usage_by_model.items():
            if model in ("", used):
                weights[dimensions] += amount
        return {dimensions: weight for dimensions, weight in weights.items() if weight > 0}

    def _divide_in_proportion_to_usage(
        self, row: BilledMoney, charge: str, usage_by_model: BilledUsageByModel
    ) -> None:
        self._add_amount(self._line_dimensions(row), charge, UNALLOCATED, _ALONE, row.amount)
        spread_result = divide_by_weights(
            row.amount, self._usage_amounts_covered_by_line(usage_by_model, row)
        )
        for dimensions, share in spread_result.shares.items():
            basis = UNALLOCATED if dimensions.kind == BILLED else SHARED
            self._add_amount(dimensions, charge, basis, _WITHIN, share)
        self._add_amount(self._line_dimensions(row), charge, UNALLOCATED, _WITHIN, spread_result.unreported)
        self._add_amount(self._line_dimensions(), ROUNDING, UNALLOCATED, _WITHIN, spread_result.rest)

    def _add_unassigned(self, row: BilledMoney, charge: str, amount: int, cost_type_mask: int) -> None:
        self._add_amount(self._line_dimensions(row), charge, UNALLOCATED, cost_type_mask, amount)
        self._reasons[cost_type_mask][charge] += amount

    def _add_amount(
        self, dimensions: Dimensions, charge: str, basis: str, cost_type_mask: int, amount: int
    ) -> None:
        self._found[dimensions, charge, basis, cost_type_mask & self._kept] += amount

    def _line_dimensions(self, row: BilledMoney | None = None) -> Dimensions:
        return bill_dimensions(self._bill.provider, row)


def split_by_day_of_use(
    rows: Iterable[BilledMoney], call_value_by_day: Mapping[int, int]
) -> Iterator[tuple[int, BilledMoney]]:
    """
    Yield refunds and corrections with the day of their calls. A row about several days is divided by their
    calls' value.
    """
    for row in rows:
        weights = [max(0, call_value_by_day.get(day, 0)) for day in row.used]
        for day, part in zip(row.used, divide_in_sequence(row.amount, weights), strict=True):
            if part:
                yield day, replace(row, amount=part)


def divide_refunds(
    rows: Sequence[BilledMoney], bill: Bill, day: int, uses: Iterable[tuple[Dimensions, CountedUse]]
) -> list[RefundShare]:
    """Divide refunds and corrections of a day among its calls. `bill` is the bill of that day's month."""
    calls, billed_tokens = DayCalls(bill, uses), bill.quantities.get(day, ())
    charged = [row for row in bill.amounts.get(day, ()) if row.is_for_tokens]
    quantities = billed_tokens_by_cell(calls, billed_tokens)
    known = _charged_cells_with_quantities(charged, calls, quantities)
    refund_shares: list[RefundShare] = []
    parts: list[tuple[BilledCell, _AmountPart]] = []
    for row in sorted(rows, key=repr):
        if row.of not in METERS and row.of not in POOLED and row.of not in _WITHOUT_METER:
            refund_shares += _divide_non_token_refund(row, bill, calls)
            continue
        meter = WHOLE if row.of in _WITHOUT_METER else row.of
        cell = calls.cell_of(replace(row, meter=meter))
        divided, rest = divide_into_parts_and_rounding_rest(cell, row.amount, quantities)
        refund_shares.append(RefundShare(bill_dimensions(bill.provider), ROUNDING, UNALLOCATED, rest))
        parts += [(cell, (row, amount, quantity)) for cell, amount, quantity in divided]
    refund_cells = [(cell, quantity) for cell, (_, _, quantity) in parts]
    places = match_calls_to_cells(calls, [*known, *refund_cells])[len(known) :]
    for (_, (row, amount, _)), placed_cell in zip(parts, places, strict=True):
        shared = divide_by_weights(amount, placed_cell.weights, quantity=placed_cell.quantity)
        refund_shares += _refund_shares(row, bill, shared, placed_cell.basis)
    return [share for share in refund_shares if share.amount]


def _charged_cells_with_quantities(
    rows: Sequence[BilledMoney], calls: DayCalls, quantities: Mapping[BilledCell, int]
) -> list[tuple[BilledCell, int | None]]:
    """
    Return the cells of a day's charges with their quantities. Refunds are matched with these cells, so a
    refund goes to the calls of its charge.
    """
    cells = {calls.cell_of(row) for row in rows}
    charged_cells: list[tuple[BilledCell, int | None]] = []
    for cell in sorted(cells, key=repr):
        divided, _ = divide_into_parts_and_rounding_rest(cell, 0, quantities)
        charged_cells += [(cell, quantity) for cell, _, quantity in divided]
    return charged_cells


def _divide_non_token_refund(row: BilledMoney, bill: Bill, calls: DayCalls) -> Iterator[RefundShare]:
    """
    Divide a refund that is not for tokens like the charges it refunds. A refunded fee is assigned to no call.
    """
    weights, basis = calls.call_weights_and_division_basis(row, row.of)
    if row.of in CHARGES:
        weights, basis = {}, SHARED
    return _refund_shares(row, bill, divide_by_weights(row.amount, weights), basis)


def _refund_shares(
    row: BilledMoney, bill: Bill, shared: DividedAmount[Dimensions], basis: str
) -> Iterator[RefundShare]:
    for dimensions, share in shared.shares.items():
        yield RefundShare(dimensions, row.line, basis, share)
    yield RefundShare(bill_dimensions(bill.provider, row), row.line, UNALLOCATED, shared.unreported)
    yield RefundShare(bill_dimensions(bill.provider), ROUNDING, UNALLOCATED, shared.rest)
