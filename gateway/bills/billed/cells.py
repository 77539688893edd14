"""
The calls of a billed cell: those that match at every level that the bill tells, else at fewer levels. Pure.

Region, tier and kind of token are given up in this order. Seller, key, model and day never are: nobody pays for
calls of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.bills.billed.bill import Bill, matched
from gateway.bills.billed.spreading import spread
from gateway.bills.reconciliation.cells import tier_of
from gateway.bills.reconciliation.counting import beside_of
from gateway.bills.reconciliation.sides import (
    ANYWHERE,
    METERS,
    POOLED,
    WHOLE,
    BilledMoney,
    BilledTokens,
    CountedUse,
)
from spool.ledger.billed import EXACT
from spool.ledger.sums import Dimensions

# Bases: a level was given up, the bill tells no quantity that could be compared, a layer by what calls are worth.
POOL, VALUE, SHARED = ("pooled", "value", "shared")
NO_TELEMETRY, NO_MODEL, NO_KEY, NO_CALLS = "no_telemetry", "no_model", "no_key", "no_calls"
UNREPORTED = "unreported"
ELSEWHERE = "(elsewhere)"  # region: none of those that the bill tells apart


class BilledCell(NamedTuple):
    """What a bill tells of tokens; "" where it does not tell a level. `tier` is None there."""

    key: str
    model: str
    tier: str | None
    region: str
    meter: str


@dataclass(frozen=True, slots=True)
class PlacedCell:
    """
    A cell with the weights of its calls; none with the reason why. `quantity` is in their unit, None if the bill
    does not tell it.
    """

    cell: BilledCell
    weights: Mapping[Dimensions, int]
    basis: str
    reason: str
    quantity: int | None


@dataclass(frozen=True, slots=True)
class CellCalls:
    """
    The calls of a cell: their weights, the cell with the levels that were kept, and how many tokens they have. Of no
    calls, the reason why.
    """

    weights: Mapping[Dimensions, int]
    kept: BilledCell
    tokens: int
    reason: str = ""


class DayCalls:
    """A provider's calls of one day, found by what a bill tells of them."""

    def __init__(self, bill: Bill, uses: Iterable[tuple[Dimensions, CountedUse]]) -> None:
        self._bill = bill
        self._rows = [(dimensions, matched(bill, use)) for dimensions, use in uses]
        self._by_model: dict[tuple[str, str], list[tuple[Dimensions, CountedUse]]] = defaultdict(list)
        for dimensions, use in self._rows:
            for place in {(use.key, use.model), ("", use.model), (use.key, ""), ("", "")}:
                self._by_model[place].append((dimensions, use))
        self._known: dict[BilledCell, CellCalls] = {}

    def cell_of(self, row: BilledMoney | BilledTokens) -> BilledCell:
        """Return the cell of a row; a key that neither side is known to share is not told."""
        bill = self._bill
        model = bill.families.get(row.model, row.model)
        region = row.region
        if region in ANYWHERE:
            told = bill.token_regions if isinstance(row, BilledTokens) else bill.money_regions
            region = ELSEWHERE if model in told else ""
        return BilledCell(
            key=bill.keys.of_billed(row) if bill.keys.any else "",
            model=model,
            tier=None if row.tier is None else tier_of(row.tier),
            region=region,
            meter=row.meter or "",
        )

    def of_key(self, key: str) -> Mapping[Dimensions, int]:
        """Return what the calls of a key, as the bill names it, are worth."""
        return _weights(self._by_model.get((key, ""), ()), WHOLE) if key else {}

    def beside(self, row: BilledMoney, kind: str) -> tuple[Mapping[Dimensions, int], str]:
        """
        Return the calls that have an amount beside the tokens, and its basis: those that used what it is for, by how
        much; else those of its key, by what they are worth.
        """
        used: dict[Dimensions, int] = defaultdict(int)
        cell = self.cell_of(row)
        name = beside_of(kind)
        for dimensions, use in self._by_model.get((cell.key, cell.model), ()):
            used[dimensions] += use.beside.get(name, 0)
        if any(used.values()):
            return used, VALUE
        keys = self._bill.keys
        return self.of_key(keys.of_billed(row) if keys.any else ""), SHARED

    def place(self, cell: BilledCell) -> CellCalls:
        """Return the calls of a cell."""
        found = self._known.get(cell)
        if found is None:
            found = self._known[cell] = self._place(cell)
        return found

    def _place(self, cell: BilledCell) -> CellCalls:
        rows = self._by_model.get((cell.key, cell.model), ())
        without_tier = cell._replace(region="", tier=None)
        for kept in dict.fromkeys(
            (cell, cell._replace(region=""), without_tier, without_tier._replace(meter=WHOLE))
        ):
            alike = [
                (dimensions, use)
                for dimensions, use in rows
                if (kept.tier is None or tier_of(use.tier) == kept.tier) and self._is_in(use.region, kept)
            ]
            weights = _weights(alike, kept.meter)
            if weights:
                return CellCalls(weights, kept, _tokens(alike, kept.meter))
        return CellCalls({}, cell, 0, self._why(cell))

    def _is_in(self, region: str, cell: BilledCell) -> bool:
        if cell.region == ELSEWHERE:
            both = (self._bill.token_regions, self._bill.money_regions)
            return not any(region in told.get(cell.model, ()) for told in both)
        return cell.region in ("", region)

    def _why(self, cell: BilledCell) -> str:
        if not self._rows:
            return NO_TELEMETRY
        if cell.model and ("", cell.model) not in self._by_model:
            return NO_MODEL
        if cell.key and (cell.key, "") not in self._by_model:
            return NO_KEY
        return NO_CALLS


def _weights(rows: Sequence[tuple[Dimensions, CountedUse]], meter: str) -> dict[Dimensions, int]:
    """Return tokens of a meter; for several meters their value, or their tokens where one has no price."""
    meters = _meters(meter)
    is_worth = meter not in METERS and all(
        name in use.values for _, use in rows for name in meters if use.tokens.get(name)
    )
    found: dict[Dimensions, int] = defaultdict(int)
    for dimensions, use in rows:
        found[dimensions] += sum((use.values if is_worth else use.tokens).get(name, 0) for name in meters)
    return {dimensions: weight for dimensions, weight in found.items() if weight > 0}


def _tokens(rows: Sequence[tuple[Dimensions, CountedUse]], meter: str) -> int:
    return sum(use.tokens.get(name, 0) for _, use in rows for name in _meters(meter))


def _meters(meter: str) -> Sequence[str]:
    return (meter,) if meter in METERS else POOLED.get(meter, METERS)


def quantities_of(calls: DayCalls, rows: Sequence[BilledTokens]) -> Mapping[BilledCell, int]:
    """Return the billed tokens of a day by cell."""
    found: dict[BilledCell, int] = defaultdict(int)
    for row in rows:
        if row.meter is not None:
            found[calls.cell_of(row)] += row.quantity
    return found


def parts_of(
    cell: BilledCell, amount: int, quantities: Mapping[BilledCell, int]
) -> tuple[list[tuple[BilledCell, int, int | None]], int]:
    """
    Divide the amount of a cell over the cells of its quantities: each with its amount and quantity, and the rest.

    Without a quantity of the same kind of token it is one part, of an unknown quantity.
    """
    fitting = {each: quantity for each, quantity in quantities.items() if quantity and _tells(cell, each)}
    if cell.meter not in METERS or not fitting:
        return [(cell, amount, None)], 0
    if len(fitting) == 1:
        [(each, quantity)] = fitting.items()
        return [(each, amount, quantity)], 0
    found = spread(amount, fitting)
    return [(each, found.shares.get(each, 0), quantity) for each, quantity in fitting.items()], found.rest


def _tells(cell: BilledCell, finer: BilledCell) -> bool:
    """True if a cell of tokens is one of those that a cell of money is about."""
    return (
        cell.meter in (WHOLE, finer.meter)
        and cell.model in ("", finer.model)
        and cell.key in ("", finer.key)
        and cell.tier in (None, finer.tier)
        and cell.region in ("", finer.region)
    )


def placed(calls: DayCalls, parts: Sequence[tuple[BilledCell, int | None]]) -> list[PlacedCell]:
    """
    Return the calls of each part, in order. Where several give levels up and so have the same calls, these are
    compared with all their quantities together, and only with what cells that gave up less leave of them.
    """
    told: dict[BilledCell, int] = defaultdict(int)
    given: dict[BilledCell, int] = defaultdict(int)  # of cells that gave levels up
    places = [calls.place(cell) for cell, _ in parts]
    for cell, quantity in dict.fromkeys(parts):
        if quantity is not None:
            kept = calls.place(cell).kept
            side = told if kept == cell else given
            side[kept] += quantity
    found = []
    for (cell, own), pool in zip(parts, places, strict=True):
        kept, weights = pool.kept, pool.weights
        side = told if kept == cell else given
        quantity = None if own is None else side[kept]
        basis = POOL if kept != cell else VALUE if quantity is None else EXACT
        if quantity is not None and kept != cell:
            others = {each: units for each, units in given.items() if each != kept}
            weights, quantity = _left(pool, quantity, [*told.items(), *others.items()])
        found.append(PlacedCell(cell, weights, basis, pool.reason, quantity))
    return found


def _left(
    pool: CellCalls, quantity: int, told: Iterable[tuple[BilledCell, int]]
) -> tuple[Mapping[Dimensions, int], int]:
    """
    Return weights and quantity of a pool in smaller units: of all its calls, as many tokens as the cells that are
    told apart within it have not billed. Where kinds of tokens are given up, these may be of any kind.
    """
    kept = pool.kept
    taken = sum(each for cell, each in told if _tells(kept, cell))
    left = max(0, pool.tokens - taken)
    weights = {dimensions: weight * left for dimensions, weight in pool.weights.items()}
    return weights, max(quantity, left) * sum(pool.weights.values())
