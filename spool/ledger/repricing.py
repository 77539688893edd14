"""
Recalculation of sums after a price was wrong or missing. A sum of tokens can be priced like one call, because
calls of different price tiers, modes and models are in different sums.

Reported costs do not change, nor does a sum without a price, or one whose price changes within its hour or
day.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from spool.ledger import money
from spool.ledger.cost_kinds import cost_source_after_pricing
from spool.ledger.counting import WIDTHS, DimensionNumbering, delete_daily_sums_with_hourly_sums
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, MONEY, Dimensions, Measures, input_size_and_is_output_known
from spool.record import NS

_NO_METERS: Mapping[str, int] = {}
_ESTIMATED = len(COUNTS) + MONEY.index("estimated")


class TokenSum(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    Calls of one hour, model, processing mode and price tier, as one sum.

    `beyond`: the largest of SIZES (input tokens) that every call's input exceeds, or -1 if unknown.
    """

    provider: str | None
    response_model: str | None
    request_model: str | None
    mode: str
    time: int  # start of the hour, in nanoseconds since the epoch
    beyond: int
    calls: int
    input_tokens: int
    output_tokens: int | None
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cache_write_1h_tokens: int
    meters: Mapping[str, int] = msgspec.field(default_factory=dict)  # quantity by meter, in millionths
    # end of the calls' times in nanoseconds, if all of them must have one price; else 0
    until: int = 0


class Pricer(Protocol):
    def estimate_sum(self, total: TokenSum) -> str | None:
        """Return the exact cost, or None if unknown or if prices change before `total.until`."""
        ...

    def encode_rate_card_and_overrides(self) -> tuple[bytes, bytes]:
        """
        Return two texts from which the price book can be opened again: a price list, and the prices that
        override it.
        """
        ...


class SumLine(NamedTuple):
    """
    The part of a call's or sum's cost at one price. `quantity`: in millionths. `amount`: in units of
    `spool.ledger.money`.
    """

    meter: str  # a meter of spool.meters, a token count, or REQUESTS
    quantity: int
    amount: int


REQUESTS = "requests"
# function that returns the lines of an estimate, none if it is unknown
LinesOf = Callable[[TokenSum], Sequence[SumLine]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    """How many sums got a new estimate, how many have no price, and the total estimates before and after."""

    rows: int
    unpriced: int
    before: str
    after: str


def reprice_sums(
    ledger_rows: LedgerRows, placement: DimensionNumbering, pricer: Pricer, since_s: int
) -> Repriced:
    """
    Compute the estimate of every sum from `since_s` on (epoch seconds) again. Daily sums are then made again
    from their hours. `spool.ledger.recalculations` does the same for each call.
    """
    delete_daily_sums_with_hourly_sums(ledger_rows)
    changed = unpriced = before = after = 0
    for width in WIDTHS:
        for start in ledger_rows.period_starts(width, since_s):
            removed, repriced, old_estimates = [], [], []
            meters = ledger_rows.read_meters(width, start)
            for number, dimensions, measures in ledger_rows.call_sums(width, start):
                row = dimensions, measures, meters.get(number, _NO_METERS)
                if (estimate := new_cost_estimate(pricer, width, start, *row)) is None:
                    unpriced += _is_priceable(token_sum(start, *row))
                    continue
                old, measures[_ESTIMATED] = measures[_ESTIMATED], money.text_to_units(estimate)
                source = cost_source_after_pricing(
                    dimensions.status, dimensions.cost_source, measures[_ESTIMATED]
                )
                if measures[_ESTIMATED] == old and source == dimensions.cost_source:
                    continue
                before, after = before + old, after + measures[_ESTIMATED]
                dimensions = dimensions._replace(cost_source=source)
                removed.append((start, number))
                old_estimates.append(old)
                repriced.append((dimensions, measures))
            numbers = placement.find_or_assign_dimension_set_numbers(
                ledger_rows, width, start, [dimensions for dimensions, _ in repriced]
            )
            new = [(start, number, measures) for number, (_, measures) in zip(numbers, repriced, strict=True)]
            moved_meters = [
                (start, number, meters[old])
                for number, (_, old) in zip(numbers, removed, strict=True)
                if old in meters
            ]
            # delete all before adding: a sum's new cost source may give it the row of another removed sum
            ledger_rows.delete_sums(width, removed)
            ledger_rows.add_sums(width, new)
            if new:
                moves = {
                    old: MovedSum(number, old_units, measures[_ESTIMATED], has_meters=old in meters)
                    for (_, old), (_, number, measures), old_units in zip(
                        removed, new, old_estimates, strict=True
                    )
                }
                _reprice_units(ledger_rows, pricer, width, start, moves)
            if moved_meters:
                ledger_rows.add_meters(width, moved_meters)
            changed += len(new)
    return Repriced(
        rows=changed, unpriced=unpriced, before=money.units_to_text(before), after=money.units_to_text(after)
    )


def new_cost_estimate(
    pricer: Pricer,
    period_s: int,
    start: int,
    dimensions: Dimensions,
    measures: Measures,
    meters: Mapping[str, int],
) -> str | None:
    total = token_sum(start, dimensions, measures, meters, period_s)
    return pricer.estimate_sum(total) if _is_priceable(total) else None


def _is_priceable(total: TokenSum) -> bool:
    return total.beyond >= 0 or bool(total.meters)


class MovedSum(NamedTuple):
    """
    A sum with a new estimate. `number`: of its new set of dimensions. `before` and `after`: the estimates in
    units of money.
    """

    number: int
    before: int
    after: int
    has_meters: bool


def _reprice_units(
    ledger_rows: LedgerRows, pricer: Pricer, period_s: int, start: int, moves: Mapping[int, MovedSum]
) -> None:
    """
    Compute the estimates of units of work in the repriced sums.

    Units have no meters. So if a sum has meters, each unit keeps its proportion of the sum's estimate.
    """
    parts = [part for part in ledger_rows.unit_sums_of_calls(start) if part[1] in moves]
    repriced = []
    for units, number, dimensions, measures in parts:
        move = moves[number]
        if move.has_meters and move.before:
            measures[_ESTIMATED] = measures[_ESTIMATED] * move.after // move.before
        elif (
            estimate := new_cost_estimate(pricer, period_s, start, dimensions, measures, _NO_METERS)
        ) is not None:
            measures[_ESTIMATED] = money.text_to_units(estimate)
        repriced.append((units, move.number, measures))
    ledger_rows.replace_unit_sums(start, [(units, number) for units, number, _, _ in parts], repriced)


def token_sum(
    start: int,
    dimensions: Dimensions,
    measures: Measures,
    meters: Mapping[str, int] = _NO_METERS,
    period_s: int = 0,
) -> TokenSum:
    """
    Convert a sum for a pricer. `period_s`: if given, the pricer estimates only if one price holds for these
    seconds from `start`.
    """
    beyond, output_known = input_size_and_is_output_known(dimensions.size)
    calls, input_tokens, output, read, written, thought, written_1h = measures[: len(COUNTS)]
    return TokenSum(
        provider=dimensions.provider or None,
        response_model=dimensions.model or None,
        request_model=dimensions.request_model or None,
        mode=dimensions.mode,
        time=start * NS,
        beyond=beyond,
        calls=calls,
        input_tokens=input_tokens,
        output_tokens=output if output_known else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought,
        cache_write_1h_tokens=written_1h,
        meters=_meters_without_charges(meters) if meters else meters,
        until=(start + period_s) * NS if period_s else 0,
    )


def row_price_lines(
    price_lines: LinesOf, start: int, key: Dimensions, row: Measures, meters: Mapping[str, int]
) -> tuple[SumLine, ...]:
    """Return the price lines of a sum, or none if they do not add up to its stored estimate."""
    if key.cost_source != "estimated" or key.status == "cached":
        return ()
    lines = price_lines(token_sum(start, key, row, meters))
    total = sum(line.amount for line in lines)
    return tuple(lines) if total == row[_ESTIMATED] else ()


def join_price_lines(one: Sequence[SumLine], other: Sequence[SumLine]) -> tuple[SumLine, ...]:
    sums: dict[str, SumLine] = {}
    for line in (*one, *other):
        before = sums.get(line.meter, SumLine(line.meter, 0, 0))
        quantity = before.quantity + line.quantity
        amount = before.amount + line.amount
        sums[line.meter] = SumLine(line.meter, quantity, amount)
    return tuple(sums.values())


def _meters_without_charges(meters: Mapping[str, int]) -> Mapping[str, int]:
    from spool.currencies import meters_without_charges

    return meters_without_charges(meters)
