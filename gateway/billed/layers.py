"""
A day of a bill, divided: usage over its calls, and the other lines of the bill as layers upon it. Pure.

A layer is divided by the usage money before all layers, so that no discount counts twice. It stands alone in one
arrangement of the bill, and is part of what it reduces in the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gateway.billed.bill import Bill
from gateway.billed.cells import UNREPORTED, DayCalls, parts_of, placed, quantities_of
from gateway.billed.spreading import spread
from gateway.reconciliation.sides import BilledMoney, CountedUse
from spool.ledger.billed import EVERY, UNALLOCATED, USAGE, BilledSum
from spool.ledger.queries import BILLED, BILLED_TYPES
from spool.ledger.sums import Dimensions

SHARED = "shared"
OTHER, DISCOUNT, TAX, ROUNDING = "other", "discount", "tax", "rounding"
_ALONE, _WITHIN = BILLED_TYPES["billed_cost"], BILLED_TYPES["discounted_cost"]
# Kinds of lines that are no usage, by what statements call them; all else is `other`.
CHARGES: Mapping[str, str] = {
    "discount": DISCOUNT, "tax": TAX, "credit": "credit", "rounding": ROUNDING, "throughput": "commitment",
    "refund": "refund", "support": "support",
}  # fmt: skip
_Place = tuple[Dimensions, str, str, int]  # dimensions, charge, basis, arranged
Base = Mapping[tuple[Dimensions, str], int]  # usage money by dimensions and the model as billed


@dataclass(frozen=True, slots=True)
class DividedDay:
    """`sums` are all of a day's bill, in a fixed order; `reasons` what nobody's calls are known for."""

    sums: list[BilledSum]
    reasons: Mapping[str, int]
    base: Base


def divide_day(
    bill: Bill, day: int, uses: Iterable[tuple[Dimensions, CountedUse]], *, month: Base | None = None
) -> DividedDay:
    """Divide a day. `month` is the usage money of the billing period, by which taxes are divided."""
    return _Day(bill, day, DayCalls(bill, uses)).divided(month or {})


class _Day:
    def __init__(self, bill: Bill, day: int, calls: DayCalls) -> None:
        self._bill = bill
        self._day = day
        self._calls = calls
        self._found: dict[_Place, int] = defaultdict(int)
        self._reasons: dict[str, int] = defaultdict(int)
        self._base: dict[tuple[Dimensions, str], int] = defaultdict(int)

    def divided(self, month: Base) -> DividedDay:
        rows = self._bill.amounts.get(self._day, ())
        self._usage([row for row in rows if row.is_for_tokens])
        for row in sorted((row for row in rows if not row.is_for_tokens), key=repr):
            charge = CHARGES.get(row.meter, OTHER)
            if charge == OTHER:
                self._other(row)
            elif charge in (DISCOUNT, TAX):
                self._layer(row, charge, month if charge == TAX else self._base or month)
            else:
                self._nobody(row, charge, row.amount, charge)
        sums = [BilledSum(*place, amount) for place, amount in self._found.items() if amount]
        reasons = {reason: amount for reason, amount in self._reasons.items() if amount}
        return DividedDay(sums=sorted(sums), reasons=reasons, base=self._base)

    def _usage(self, rows: list[BilledMoney]) -> None:
        quantities = quantities_of(self._calls, self._bill.quantities.get(self._day, ()))
        as_billed: dict[object, dict[Dimensions, int]] = defaultdict(lambda: defaultdict(int))
        for row in rows:
            as_billed[self._calls.cell_of(row)][self._dimensions(row)] += row.amount
        parts = []
        for cell in sorted({self._calls.cell_of(row) for row in rows}, key=repr):
            names = as_billed[cell]
            divided, rest = parts_of(cell, sum(names.values()), quantities)
            label = min(names, key=lambda each: (-abs(names[each]), each))
            parts += [(each, amount, quantity, label) for each, amount, quantity in divided]
            self._add(self._dimensions(), ROUNDING, UNALLOCATED, EVERY, rest)
        places = placed(self._calls, [(cell, quantity) for cell, _, quantity, _ in parts])
        for (_, amount, _, label), place in zip(parts, places, strict=True):
            found = spread(amount, place.weights, quantity=place.quantity)
            for dimensions, share in found.shares.items():
                self._add(dimensions, USAGE, place.basis, EVERY, share)
                self._base[dimensions, label.model or ""] += share
            self._add(label, USAGE, UNALLOCATED, EVERY, found.unreported)
            self._base[label, label.model or ""] += found.unreported
            self._reasons[place.reason or UNREPORTED] += found.unreported
            self._add(self._dimensions(), ROUNDING, UNALLOCATED, EVERY, found.rest)

    def _other(self, row: BilledMoney) -> None:
        """Divide what is not of tokens over the calls of its key; without one nobody has it."""
        keys = self._bill.keys
        found = spread(row.amount, self._calls.of_key(keys.of_billed(row)) if keys.any else {})
        for dimensions, share in found.shares.items():
            self._add(dimensions, OTHER, SHARED, EVERY, share)
        self._nobody(row, OTHER, found.unreported, OTHER)
        self._add(self._dimensions(), ROUNDING, UNALLOCATED, EVERY, found.rest)

    def _layer(self, row: BilledMoney, charge: str, base: Base) -> None:
        self._add(self._dimensions(row), charge, UNALLOCATED, _ALONE, row.amount)
        weights: dict[Dimensions, int] = defaultdict(int)
        for (dimensions, model), amount in base.items():
            if row.model in ("", model):
                weights[dimensions] += amount
        found = spread(row.amount, weights)
        for dimensions, share in found.shares.items():
            basis = UNALLOCATED if dimensions.kind == BILLED else SHARED
            self._add(dimensions, charge, basis, _WITHIN, share)
        self._add(self._dimensions(row), charge, UNALLOCATED, _WITHIN, found.unreported)
        self._add(self._dimensions(), ROUNDING, UNALLOCATED, _WITHIN, found.rest)

    def _nobody(self, row: BilledMoney, charge: str, amount: int, reason: str) -> None:
        self._add(self._dimensions(row), charge, UNALLOCATED, EVERY, amount)
        self._reasons[reason] += amount

    def _add(self, dimensions: Dimensions, charge: str, basis: str, arranged: int, amount: int) -> None:
        self._found[dimensions, charge, basis, arranged] += amount

    def _dimensions(self, row: BilledMoney | None = None) -> Dimensions:
        """Return what the bill says of a row that no calls have; of none, the provider alone."""
        told = {} if row is None else {"model": row.model, "api_key": row.key, "region": row.region}
        known = dict.fromkeys(Dimensions._fields, "") | told
        return Dimensions(**{**known, "kind": BILLED, "provider": self._bill.provider, "size": 0})  # type: ignore[arg-type]
