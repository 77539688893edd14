"""
Money that is given back for calls, or charged for them anew: divided over the calls of its own time,
whenever it is billed. Pure.

The calls of a cell have it as they have what was billed for them, so that what is given back of a charge
takes the same part from each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gateway.bills.billed.bill import Bill
from gateway.bills.billed.cells import SHARED, BilledCell, DayCalls, parts_of, placed, quantities_of
from gateway.bills.billed.layers import CHARGES, ROUNDING, RefundShare, billed_as
from gateway.bills.billed.restating import BilledLater
from gateway.bills.billed.spreading import Spread, in_turn, spread
from gateway.bills.reconciliation.sides import DAY_S, METERS, POOLED, WHOLE, BilledMoney, CountedUse
from spool.ledger.billed import UNALLOCATED
from spool.ledger.sums import Dimensions
from spool.statements import CORRECTION, REFUND

_UNTOLD = (REFUND, CORRECTION, WHOLE)  # kinds that tell no kind of token
_Part = tuple[BilledMoney, int, int | None]  # with its amount, and the quantity of its cell


def refunds_of(rows: Iterable[BilledMoney]) -> list[BilledMoney]:
    """Return the rows whose calls are known by their time."""
    return [row for row in rows if row.corrects and row.line in (REFUND, CORRECTION)]


def later_of(rows: Iterable[BilledMoney]) -> list[BilledLater]:
    """Return what rows of a bill tell of calls of another time."""
    return [
        BilledLater(row.corrects_until - row.corrects, row.corrects, row.amount) for row in refunds_of(rows)
    ]


def days_of(row: BilledMoney) -> Sequence[int]:
    """Return the days whose calls a row is about."""
    return range(row.corrects // DAY_S * DAY_S, row.corrects_until, DAY_S)


def by_day(rows: Iterable[BilledMoney], worth: Mapping[int, int]) -> Iterator[tuple[int, BilledMoney]]:
    """Yield rows with the one day that they are about; one of several days is divided as their calls are worth."""
    for row in rows:
        days = days_of(row)
        weights = [max(0, worth.get(day, 0)) for day in days]
        for day, part in zip(days, in_turn(row.amount, weights), strict=True):
            if part:
                yield day, replace(row, amount=part)


def shares_of(
    rows: Sequence[BilledMoney], bill: Bill, day: int, uses: Iterable[tuple[Dimensions, CountedUse]]
) -> list[RefundShare]:
    """Divide what is of a day over its calls. `bill` is that of its month."""
    calls, told = DayCalls(bill, uses), bill.quantities.get(day, ())
    charged = [row for row in bill.amounts.get(day, ()) if row.is_for_tokens]
    quantities = quantities_of(calls, told)
    known = _as_charged(charged, calls, quantities)
    found: list[RefundShare] = []
    parts: list[tuple[BilledCell, _Part]] = []
    for row in sorted(rows, key=repr):
        if row.of not in METERS and row.of not in POOLED and row.of not in _UNTOLD:
            found += _beside(row, bill, calls)
            continue
        meter = WHOLE if row.of in _UNTOLD else row.of
        cell = calls.cell_of(replace(row, meter=meter))
        divided, rest = parts_of(cell, row.amount, quantities)
        found.append(RefundShare(billed_as(bill.provider), ROUNDING, UNALLOCATED, rest))
        parts += [(each, (row, amount, quantity)) for each, amount, quantity in divided]
    asked = [(cell, quantity) for cell, (_, _, quantity) in parts]
    places = placed(calls, [*known, *asked])[len(known) :]
    for (_, (row, amount, _)), place in zip(parts, places, strict=True):
        shared = spread(amount, place.weights, quantity=place.quantity)
        found += _shares(row, bill, shared, place.basis)
    return [share for share in found if share.amount]


def _as_charged(
    rows: Sequence[BilledMoney], calls: DayCalls, quantities: Mapping[BilledCell, int]
) -> list[tuple[BilledCell, int | None]]:
    """Return the cells of what was billed of a day, beside which its refunds are placed."""
    cells = {calls.cell_of(row) for row in rows}
    found: list[tuple[BilledCell, int | None]] = []
    for cell in sorted(cells, key=repr):
        divided, _ = parts_of(cell, 0, quantities)
        found += [(each, quantity) for each, _, quantity in divided]
    return found


def _beside(row: BilledMoney, bill: Bill, calls: DayCalls) -> Iterator[RefundShare]:
    """Divide what is of no tokens as it was charged; fees are of nobody."""
    weights, basis = calls.beside(row, row.of)
    if row.of in CHARGES:
        weights, basis = {}, SHARED
    return _shares(row, bill, spread(row.amount, weights), basis)


def _shares(row: BilledMoney, bill: Bill, shared: Spread[Dimensions], basis: str) -> Iterator[RefundShare]:
    for dimensions, share in shared.shares.items():
        yield RefundShare(dimensions, row.line, basis, share)
    yield RefundShare(billed_as(bill.provider, row), row.line, UNALLOCATED, shared.unreported)
    yield RefundShare(billed_as(bill.provider), ROUNDING, UNALLOCATED, shared.rest)
