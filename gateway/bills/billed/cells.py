"""
The calls that a billed amount of tokens pays for: those that match on every level that the bill states, or
else on fewer levels. Pure.

If no call matches, the region is ignored first, then the tier, then the kind of token. Seller, key, model and
day must always match, so nobody pays for calls of others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gateway.bills.billed.bill import Bill, with_bill_names
from gateway.bills.billed.spreading import divide_by_weights
from gateway.bills.reconciliation.cells import normalize_tier
from gateway.bills.reconciliation.counting import non_token_meter_of_line_kind
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

# How an amount was divided. POOL: at least one level, such as the key or the region, was ignored. VALUE: in
# proportion to the value of the calls, because the bill states no comparable quantity. SHARED: the amount is
# a layer, divided in proportion to the value of the calls.
POOL, VALUE, SHARED = ("pooled", "value", "shared")
NO_TELEMETRY, NO_MODEL, NO_KEY, NO_CALLS = "no_telemetry", "no_model", "no_key", "no_calls"
UNREPORTED = "unreported"
ELSEWHERE = "(elsewhere)"  # region that stands for all regions that the bill does not distinguish


class BilledCell(NamedTuple):
    """
    The key, model, tier, region and kind of token for which a bill states an amount. A field that the bill
    does not state is "", or None for `tier`.
    """

    key: str
    model: str
    tier: str | None
    region: str
    meter: str


@dataclass(frozen=True, slots=True)
class CellWithPayingCalls:
    """
    A billed cell with the calls that pay for it. `weights` has the share of each group of calls. If no call
    matches, `reason` says why. `quantity` is the billed quantity in the unit of the weights, or None if the
    bill does not state it.
    """

    cell: BilledCell
    weights: Mapping[Dimensions, int]
    basis: str
    reason: str
    quantity: int | None


@dataclass(frozen=True, slots=True)
class CellCalls:
    """
    The calls that match a billed cell. `weights` has the share of each group of calls. In `matched_cell`,
    fields that had to be ignored for a match are empty. If no call matches, `reason` says why.
    """

    weights: Mapping[Dimensions, int]
    matched_cell: BilledCell
    tokens: int
    reason: str = ""


class DayCalls:
    """A provider's calls of one day, searchable by the billed amounts that pay for them."""

    def __init__(self, bill: Bill, uses: Iterable[tuple[Dimensions, CountedUse]]) -> None:
        self._bill = bill
        self._rows = [(dimensions, with_bill_names(bill, use)) for dimensions, use in uses]
        self._by_model: dict[tuple[str, str], list[tuple[Dimensions, CountedUse]]] = defaultdict(list)
        for dimensions, use in self._rows:
            for key_model in {(use.key, use.model), ("", use.model), (use.key, ""), ("", "")}:
                self._by_model[key_model].append((dimensions, use))
        self._known: dict[BilledCell, CellCalls] = {}

    def cell_of(self, row: BilledMoney | BilledTokens) -> BilledCell:
        """
        Return the cell of a billed row, with the common names of bill and ledger. If they share no key, the
        cell has no key.
        """
        bill = self._bill
        model = bill.families.get(row.model, row.model)
        region = row.region
        if region in ANYWHERE:
            known_regions = bill.token_regions if isinstance(row, BilledTokens) else bill.money_regions
            region = ELSEWHERE if model in known_regions else ""
        return BilledCell(
            key=bill.keys.comparable_key_of_billed_row(row) if bill.keys.has_matches else "",
            model=model,
            tier=None if row.tier is None else normalize_tier(row.tier),
            region=region,
            meter=row.meter or "",
        )

    def call_values_of_key(self, key: str) -> Mapping[Dimensions, int]:
        return _weights_by_dimensions(self._by_model.get((key, ""), ()), WHOLE) if key else {}

    def call_weights_and_division_basis(
        self, row: BilledMoney, service: str
    ) -> tuple[Mapping[Dimensions, int], str]:
        """
        Return the weights of calls for an amount that is not for tokens, and the basis of its division.

        The weights are how much each call used of the billed service. If no call is known to have used it,
        they are the values of the calls of its key.
        """
        used: dict[Dimensions, int] = defaultdict(int)
        cell = self.cell_of(row)
        name = non_token_meter_of_line_kind(service)
        for dimensions, use in self._by_model.get((cell.key, cell.model), ()):
            used[dimensions] += use.beside.get(name, 0)
        if any(used.values()):
            return used, VALUE
        keys = self._bill.keys
        return self.call_values_of_key(
            keys.comparable_key_of_billed_row(row) if keys.has_matches else ""
        ), SHARED

    def calls_of_cell(self, cell: BilledCell) -> CellCalls:
        cell_calls = self._known.get(cell)
        if cell_calls is None:
            cell_calls = self._known[cell] = self._find_calls(cell)
        return cell_calls

    def _find_calls(self, cell: BilledCell) -> CellCalls:
        rows = self._by_model.get((cell.key, cell.model), ())
        without_tier = cell._replace(region="", tier=None)
        for candidate in dict.fromkeys(
            (cell, cell._replace(region=""), without_tier, without_tier._replace(meter=WHOLE))
        ):
            matching_rows = [
                (dimensions, use)
                for dimensions, use in rows
                if (candidate.tier is None or normalize_tier(use.tier) == candidate.tier)
                and self._is_region_in_cell(use.region, candidate)
            ]
            weights = _weights_by_dimensions(matching_rows, candidate.meter)
            if weights:
                return CellCalls(weights, candidate, _sum_tokens(matching_rows, candidate.meter))
        return CellCalls({}, cell, 0, self._reason_for_no_calls(cell))

    def _is_region_in_cell(self, region: str, cell: BilledCell) -> bool:
        if cell.region == ELSEWHERE:
            region_sets = (self._bill.token_regions, self._bill.money_regions)
            return not any(region in regions.get(cell.model, ()) for regions in region_sets)
        return cell.region in ("", region)

    def _reason_for_no_calls(self, cell: BilledCell) -> str:
        if not self._rows:
            return NO_TELEMETRY
        if cell.model and ("", cell.model) not in self._by_model:
            return NO_MODEL
        if cell.key and (cell.key, "") not in self._by_model:
            return NO_KEY
        return NO_CALLS


def _weights_by_dimensions(
    rows: Sequence[tuple[Dimensions, CountedUse]], meter: str
) -> dict[Dimensions, int]:
    """
    Return the weights of rows: tokens of one meter. For several meters, the weights are the value of their
    tokens, or the number of tokens if one of the meters has no price.
    """
    meters = _token_meters_in_billed_meter(meter)
    is_worth = meter not in METERS and all(
        name in use.values for _, use in rows for name in meters if use.tokens.get(name)
    )
    weights: dict[Dimensions, int] = defaultdict(int)
    for dimensions, use in rows:
        weights[dimensions] += sum((use.values if is_worth else use.tokens).get(name, 0) for name in meters)
    return {dimensions: weight for dimensions, weight in weights.items() if weight > 0}


def _sum_tokens(rows: Sequence[tuple[Dimensions, CountedUse]], meter: str) -> int:
    return sum(use.tokens.get(name, 0) for _, use in rows for name in _token_meters_in_billed_meter(meter))


def _token_meters_in_billed_meter(meter: str) -> Sequence[str]:
    return (meter,) if meter in METERS else POOLED.get(meter, METERS)


def billed_tokens_by_cell(calls: DayCalls, rows: Sequence[BilledTokens]) -> Mapping[BilledCell, int]:
    quantities: dict[BilledCell, int] = defaultdict(int)
    for row in rows:
        if row.meter is not None:
            quantities[calls.cell_of(row)] += row.quantity
    return quantities


def divide_into_parts_and_rounding_rest(
    charged_cell: BilledCell, amount: int, quantity_by_cell: Mapping[BilledCell, int]
) -> tuple[list[tuple[BilledCell, int, int | None]], int]:
    """
    Divide an amount among the cells of the billed quantities. Return the parts with amount and quantity, and
    the rounding rest.

    If the bill states no quantity of this kind of token, the whole amount is one part with the quantity None.
    """
    fitting = {
        part_cell: quantity
        for part_cell, quantity in quantity_by_cell.items()
        if quantity and _includes_cell(charged_cell, part_cell)
    }
    if charged_cell.meter not in METERS or not fitting:
        return [(charged_cell, amount, None)], 0
    if len(fitting) == 1:
        [(part_cell, quantity)] = fitting.items()
        return [(part_cell, amount, quantity)], 0
    spread_result = divide_by_weights(amount, fitting)
    return [
        (part_cell, spread_result.shares.get(part_cell, 0), quantity)
        for part_cell, quantity in fitting.items()
    ], spread_result.rest


def _includes_cell(cell: BilledCell, finer: BilledCell) -> bool:
    return (
        cell.meter in (WHOLE, finer.meter)
        and cell.model in ("", finer.model)
        and cell.key in ("", finer.key)
        and cell.tier in (None, finer.tier)
        and cell.region in ("", finer.region)
    )


def match_calls_to_cells(
    calls: DayCalls, cells_and_quantities: Sequence[tuple[BilledCell, int | None]]
) -> list[CellWithPayingCalls]:
    """
    Return the calls of each part of a bill's amount, in order.

    If a part matches calls only without its region, tier or kind of token, other parts may match the same
    calls. Their quantities are then added before they are compared with the calls. Tokens that more detailed
    cells already bill are subtracted first.
    """
    exact_quantities: dict[BilledCell, int] = defaultdict(int)
    # billed quantities by cell, only where a level such as the key or the region was ignored
    pooled_quantities: dict[BilledCell, int] = defaultdict(int)
    places = [calls.calls_of_cell(cell) for cell, _ in cells_and_quantities]
    for cell, quantity in dict.fromkeys(cells_and_quantities):
        if quantity is not None:
            matched_cell = calls.calls_of_cell(cell).matched_cell
            side = exact_quantities if matched_cell == cell else pooled_quantities
            side[matched_cell] += quantity
    placed_cells = []
    for (cell, own_quantity), pool in zip(cells_and_quantities, places, strict=True):
        matched_cell, weights = pool.matched_cell, pool.weights
        side = exact_quantities if matched_cell == cell else pooled_quantities
        quantity = None if own_quantity is None else side[matched_cell]
        basis = POOL if matched_cell != cell else VALUE if quantity is None else EXACT
        if quantity is not None and matched_cell != cell:
            other_quantities = {
                pooled_cell: units
                for pooled_cell, units in pooled_quantities.items()
                if pooled_cell != matched_cell
            }
            weights, quantity = _subtract_billed_tokens(
                pool, quantity, [*exact_quantities.items(), *other_quantities.items()]
            )
        placed_cells.append(CellWithPayingCalls(cell, weights, basis, pool.reason, quantity))
    return placed_cells


def _subtract_billed_tokens(
    pool: CellCalls, quantity: int, quantities: Iterable[tuple[BilledCell, int]]
) -> tuple[Mapping[Dimensions, int], int]:
    """
    Subtract the tokens that the bill has in more detailed cells from the calls of a pool. Return the weights
    and the quantity that remain, both scaled up to stay integers. If the match ignored the kind of token, the
    remaining tokens may be of any kind.
    """
    matched_cell = pool.matched_cell
    billed_tokens = sum(units for cell, units in quantities if _includes_cell(matched_cell, cell))
    unbilled_tokens = max(0, pool.tokens - billed_tokens)
    weights = {dimensions: weight * unbilled_tokens for dimensions, weight in pool.weights.items()}
    return weights, max(quantity, unbilled_tokens) * sum(pool.weights.values())
