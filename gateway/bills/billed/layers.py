"""
A day of a bill, divided: usage over its calls, and the other lines of the bill as layers upon it. Pure.

A layer is divided by the usage money before all layers, so that no discount counts twice. It stands alone in some
arrangements of the bill, and is part of what it reduces in the others. What a bill accrues is in some of them, too:
there a fee is not on the day of its purchase but on what it covers, and what was not used of it is of nobody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from gateway.bills.billed.bill import Bill
from gateway.bills.billed.cells import SHARED, UNREPORTED, DayCalls, parts_of, placed, quantities_of
from gateway.bills.billed.spreading import spread
from gateway.bills.reconciliation.counting import KIND_OF_FEE
from gateway.bills.reconciliation.sides import BilledMoney, CountedUse
from spool.ledger.billed import AMORTIZED, CLOSED, EVERY, INVOICED, UNALLOCATED, USAGE, BilledSum
from spool.ledger.queries import BILLED, BILLED_TYPES
from spool.ledger.sums import Dimensions
from spool.meters import FEES
from spool.statements import CORRECTION, REFUND, SEAT

OTHER, DISCOUNT, TAX, ROUNDING, COMMITMENT = "other", "discount", "tax", "rounding", "commitment"
CREDIT = "credit"
_ALONE = BILLED_TYPES["billed_cost"] | BILLED_TYPES["amortized_cost"]
_WITHIN = EVERY & ~_ALONE
# Kinds of lines that are no usage, by what statements call them; all else is `other`.
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
# What is given back of these is as they are; of other lines it is a credit: a grant, a promotion.
_FEES = [KIND_OF_FEE.get(name, name) for name in FEES]
_UNITS = ["images", "seconds", "pages", "characters"]
SERVICES = frozenset([*_FEES, *_UNITS, "storage", "session", "token_fee", "per_request", SEAT, OTHER])
_Place = tuple[Dimensions, str, str, int]  # dimensions, charge, basis, arranged
Base = Mapping[tuple[Dimensions, str], int]  # usage money by dimensions and the family of the model


class RefundShare(NamedTuple):
    """A part of what is given back, or charged anew, of calls of any day."""

    dimensions: Dimensions
    charge: str
    basis: str
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRules:
    """Which layers of a bill are divided over the usage of the billing period. Others are of nobody."""

    credits: bool = False
    tax: bool = True

    def divide(self, charge: str) -> bool:
        """True for the charge of such a layer."""
        return (charge == TAX and self.tax) or (charge == CREDIT and self.credits)

    def of_month(self, bill: Bill) -> bool:
        """True if a bill has such a layer."""
        return any(self.divide(charge_of(row)) for rows in bill.amounts.values() for row in rows)


def charge_of(row: BilledMoney) -> str:
    """Return what an amount that is no usage is for."""
    known = CHARGES.get(row.line) or CHARGES.get(row.meter)
    if known is not None:
        return known
    is_given = row.amount < 0 and row.meter not in SERVICES
    return CREDIT if is_given else OTHER


@dataclass(frozen=True, slots=True)
class DividedDay:
    """
    `sums` are all of a day's bill, in a fixed order; `reasons` what nobody's calls are known for, and `accrued` what
    comes to these where fees are on what they cover.
    """

    sums: list[BilledSum]
    reasons: Mapping[str, int]
    accrued: Mapping[str, int]
    base: Base
    wants_month: bool  # a discount, of a day without usage for it


_RULES = LayerRules()


def divide_day(
    bill: Bill,
    day: int,
    uses: Iterable[tuple[Dimensions, CountedUse]],
    *,
    month: Base | None = None,
    refunds: Iterable[RefundShare] = (),
    rules: LayerRules = _RULES,
) -> DividedDay:
    """
    Divide a day. `month` is the usage money of the billing period, by which taxes are divided, and
    `refunds` are the shares of what is billed on this day for calls of other times.
    """
    found = _Day(bill, day, DayCalls(bill, uses), rules)
    found.add(refunds)
    return found.divided(month or {})


def billed_as(provider: str, row: BilledMoney | None = None) -> Dimensions:
    """Return what the bill says of a row that no calls have; of none, the provider alone."""
    told = {} if row is None else {"model": row.model, "api_key": row.key, "region": row.region}
    known = dict.fromkeys(Dimensions._fields, "") | told
    return Dimensions(**{**known, "kind": BILLED, "provider": provider, "size": 0})  # type: ignore[arg-type]


class _Day:
    def __init__(
        self,
        bill: Bill,
        day: int,
        calls: DayCalls,
        rules: LayerRules,
    ) -> None:
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

    def add(self, refunds: Iterable[RefundShare]) -> None:
        for dimensions, charge, basis, amount in refunds:
            self._add(dimensions, charge, basis, _WITHIN, amount)

    def divided(self, month: Base) -> DividedDay:
        for told, charge, arranged in (
            (self._bill.amounts, USAGE, EVERY),
            (self._bill.accrued, COMMITMENT, AMORTIZED),
        ):
            rows = sorted(told.get(self._day, ()), key=repr)
            self._usage([row for row in rows if row.is_for_tokens], charge, arranged)
            for row in rows:
                if not row.is_for_tokens:
                    self._line(row, arranged, month)
        sums = [BilledSum(*place, amount) for place, amount in self._found.items() if amount]
        return DividedDay(
            sums=sorted(sums),
            reasons=self._amounts(EVERY),
            accrued=self._amounts(AMORTIZED),
            base=self._base,
            wants_month=self._wants_month,
        )

    def _amounts(self, arranged: int) -> Mapping[str, int]:
        reasons = self._reasons[arranged].items()
        return {reason: amount for reason, amount in reasons if amount}

    def _line(self, row: BilledMoney, arranged: int, month: Base) -> None:
        charge = charge_of(row)
        if row.corrects and charge in (REFUND, CORRECTION):  # its calls have it as `refunds`
            self._add(
                self._dimensions(row),
                charge,
                UNALLOCATED,
                _ALONE,
                row.amount,
            )
        elif charge == OTHER:
            self._other(row, arranged)
        elif self._rules.divide(charge) and arranged == EVERY:
            self._layer(row, charge, month)
        elif charge == DISCOUNT and arranged == EVERY:
            is_of_day = bool(self._of_model(self._base, row))
            self._wants_month |= not is_of_day
            self._layer(row, charge, self._base if is_of_day else month)
        else:
            self._nobody(row, charge, row.amount, arranged)

    def _usage(self, rows: list[BilledMoney], charge: str, arranged: int) -> None:
        """Divide what is of tokens over their calls. Layers are divided by what the bill itself has of them."""
        told = self._bill.quantities.get(self._day, ())
        quantities = quantities_of(self._calls, told)
        as_billed: dict[object, dict[Dimensions, int]] = defaultdict(lambda: defaultdict(int))
        for row in rows:
            as_billed[self._calls.cell_of(row)][self._dimensions(row)] += row.amount
        parts = []
        for cell in sorted({self._calls.cell_of(row) for row in rows}, key=repr):
            names = as_billed[cell]
            divided, rest = parts_of(cell, sum(names.values()), quantities)
            label = min(names, key=lambda each: (-abs(names[each]), each))
            parts += [(each, amount, quantity, label) for each, amount, quantity in divided]
            self._add(self._dimensions(), ROUNDING, UNALLOCATED, arranged, rest)
        places = placed(self._calls, [(cell, quantity) for cell, _, quantity, _ in parts])
        for (_, amount, _, label), place in zip(parts, places, strict=True):
            found = spread(amount, place.weights, quantity=place.quantity)
            for dimensions, share in found.shares.items():
                self._add(dimensions, charge, place.basis, arranged, share)
            self._add(label, charge, UNALLOCATED, arranged, found.unreported)
            self._reasons[arranged][place.reason or UNREPORTED] += found.unreported
            self._add(self._dimensions(), ROUNDING, UNALLOCATED, arranged, found.rest)
            if arranged == EVERY:
                for dimensions, share in (*found.shares.items(), (label, found.unreported)):
                    self._base[dimensions, place.cell.model] += share

    def _other(self, row: BilledMoney, arranged: int) -> None:
        """Divide what is not of tokens over the calls that used it, or those of its key; else nobody has it."""
        weights, basis = self._calls.beside(row, row.meter)
        found = spread(row.amount, weights)
        for dimensions, share in found.shares.items():
            self._add(dimensions, OTHER, basis, arranged, share)
        self._nobody(row, OTHER, found.unreported, arranged)
        self._add(self._dimensions(), ROUNDING, UNALLOCATED, arranged, found.rest)

    def _of_model(self, base: Base, row: BilledMoney) -> dict[Dimensions, int]:
        """Return the usage money that a line is about: of its model, or of all; none where it comes to nothing."""
        model = self._bill.families.get(row.model, row.model)
        weights: dict[Dimensions, int] = defaultdict(int)
        for (dimensions, used), amount in base.items():
            if model in ("", used):
                weights[dimensions] += amount
        return {dimensions: weight for dimensions, weight in weights.items() if weight > 0}

    def _layer(self, row: BilledMoney, charge: str, base: Base) -> None:
        self._add(self._dimensions(row), charge, UNALLOCATED, _ALONE, row.amount)
        found = spread(row.amount, self._of_model(base, row))
        for dimensions, share in found.shares.items():
            basis = UNALLOCATED if dimensions.kind == BILLED else SHARED
            self._add(dimensions, charge, basis, _WITHIN, share)
        self._add(self._dimensions(row), charge, UNALLOCATED, _WITHIN, found.unreported)
        self._add(self._dimensions(), ROUNDING, UNALLOCATED, _WITHIN, found.rest)

    def _nobody(self, row: BilledMoney, charge: str, amount: int, arranged: int) -> None:
        self._add(self._dimensions(row), charge, UNALLOCATED, arranged, amount)
        self._reasons[arranged][charge] += amount

    def _add(self, dimensions: Dimensions, charge: str, basis: str, arranged: int, amount: int) -> None:
        self._found[dimensions, charge, basis, arranged & self._kept] += amount

    def _dimensions(self, row: BilledMoney | None = None) -> Dimensions:
        return billed_as(self._bill.provider, row)
