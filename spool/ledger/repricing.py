"""
Recalculation of sums after a price was wrong or missing. A sum of tokens can be priced like one call, because
calls of different price tiers, modes and models are in different sums.

Reported costs do not change, nor does a sum without a price, or one whose price changes within its hour or
day. If a sum does not suffice, its period is counted again from the stored records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from spool import money
from spool.cost_kinds import cost_source_after_pricing
from spool.ledger.counting import WIDTHS, DimensionNumbering, delete_daily_sums_with_hourly_sums
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import COUNTS, MONEY, Dimensions, Measures, input_size_and_is_output_known
from spool.ledger.token_sums import TokenSum
from spool.record import NS

_NO_METERS: Mapping[str, int] = {}
_ESTIMATED = len(COUNTS) + MONEY.index("estimated")


class Pricer(Protocol):
    def estimate_sum(self, total: TokenSum) -> str | None:
        """Return the exact cost, or None if unknown or if prices change before `total.until`."""
        ...

    def may_have_two_prices(self, total: TokenSum) -> bool:
        """Return whether a price tier begins within the size class of the sum's calls."""
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
    `spool.money`.
    """

    meter: str  # a meter of spool.meters, a token count, or REQUESTS
    quantity: int
    amount: int


REQUESTS = "requests"
# function that returns the lines of an estimate, none if it is unknown
LinesOf = Callable[[TokenSum], Sequence[SumLine]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    """
    How many sums got a new estimate, how many have no price, and the total estimates before and after.

    `kept_units` and `kept_sizes`: sums that keep their estimate, because some of their calls are deleted, and
    their units of work have meters, or their size class has two prices.
    """

    rows: int
    unpriced: int
    kept_units: int
    kept_sizes: int
    before: str
    after: str


class RepricedSums:
    """
    The changes of one recalculation so far. `places`: periods whose sums need the prices of single calls, so
    that they must be counted again from their records.
    """

    def __init__(self) -> None:
        self.rows = self.unpriced = self.kept_units = self.kept_sizes = self.before = self.after = 0
        self.places: list[tuple[int, int]] = []

    def note_change(self, before: int, after: int) -> None:
        self.rows += 1
        self.before += before
        self.after += after

    def note_recount(self, before: Mapping[Dimensions, int], after: Mapping[Dimensions, int]) -> None:
        for dimensions in before.keys() | after.keys():
            old, new = before.get(dimensions, 0), after.get(dimensions, 0)
            if old != new:
                self.note_change(old, new)

    def result(self) -> Repriced:
        return Repriced(
            rows=self.rows,
            unpriced=self.unpriced,
            kept_units=self.kept_units,
            kept_sizes=self.kept_sizes,
            before=money.units_to_text(self.before),
            after=money.units_to_text(self.after),
        )


def reprice_sums(
    ledger_rows: LedgerRows,
    placement: DimensionNumbering,
    pricer: Pricer,
    since_s: int,
    lowest_stored_number: int,
) -> RepricedSums:
    """
    Compute the estimate of every sum from `since_s` on (epoch seconds) again. Daily sums are then made again
    from their hours. `spool.ledger.recalculations` does the same for each call.

    Periods that need the prices of single calls are only listed if their records are stored, which have numbers
    from `lowest_stored_number` on.
    """
    delete_daily_sums_with_hourly_sums(ledger_rows)
    done = RepricedSums()
    lowest_numbers = ledger_rows.lowest_number_by_period()
    for width in WIDTHS:
        for start in ledger_rows.period_starts(width, since_s):
            period = _PeriodSums(ledger_rows, pricer, width, start)
            is_stored = lowest_numbers.get((width, start), 0) >= max(1, lowest_stored_number)
            if is_stored and period.needs_single_calls():
                done.places.append((width, start))
            else:
                period.reprice(placement, done)
    return done


def reprice_period(
    ledger_rows: LedgerRows,
    placement: DimensionNumbering,
    pricer: Pricer,
    period_key: tuple[int, int],
    repriced: RepricedSums,
) -> None:
    """Compute the estimates of a period's sums again without its records."""
    delete_daily_sums_with_hourly_sums(ledger_rows)
    _PeriodSums(ledger_rows, pricer, *period_key).reprice(placement, repriced)


def estimates_by_dimensions(ledger_rows: LedgerRows, period_key: tuple[int, int]) -> Mapping[Dimensions, int]:
    """Return a period's estimates by dimensions, without the cost source, which a recalculation may change."""
    estimates = defaultdict[Dimensions, int](int)
    for _, dimensions, measures in ledger_rows.call_sums(*period_key):
        estimates[dimensions._replace(cost_source="")] += measures[_ESTIMATED]
    return estimates


class _PeriodSums:
    """The sums of a period, before and while they get new estimates."""

    def __init__(self, ledger_rows: LedgerRows, pricer: Pricer, width: int, start: int) -> None:
        self._rows = ledger_rows
        self._pricer = pricer
        self._place = width, start
        self._meters = ledger_rows.read_meters(width, start)
        self._sums = ledger_rows.call_sums(width, start)

    def needs_single_calls(self) -> bool:
        """
        Return whether the sums do not suffice: units of work have no meters, and calls of one size class may
        have two prices, or only some of them a price.
        """
        return any(
            measures[0] > 1
            and (number in self._meters or self._may_have_two_prices(number, dimensions, measures))
            for number, dimensions, measures in self._sums
        )

    def _may_have_two_prices(self, number: int, dimensions: Dimensions, measures: Measures) -> bool:
        total = token_sum(self._place[1], dimensions, measures, self._meters.get(number, _NO_METERS))
        return _is_priceable(total) and self._pricer.may_have_two_prices(total)

    def reprice(self, placement: DimensionNumbering, done: RepricedSums) -> None:
        width, start = self._place
        units_by_number = defaultdict[int, list[Measures]](list)
        for _, number, _, of_units in self._rows.unit_sums_of_calls(start) if self._meters else ():
            units_by_number[number].append(of_units)
        removed, repriced, estimates = [], [], []
        for number, dimensions, measures in self._sums:
            meters = self._meters.get(number, _NO_METERS)
            row = dimensions, measures, meters
            if self._may_have_two_prices(number, dimensions, measures):
                done.kept_sizes += 1
                continue
            if meters and any(each[0] not in (0, measures[0]) for each in units_by_number[number]):
                done.kept_units += 1
                continue
            if (estimate := new_cost_estimate(self._pricer, width, start, *row)) is None:
                done.unpriced += _is_priceable(token_sum(start, *row))
                continue
            old, measures[_ESTIMATED] = measures[_ESTIMATED], money.text_to_units(estimate)
            source = cost_source_after_pricing(
                dimensions.status, dimensions.cost_source, measures[_ESTIMATED]
            )
            if measures[_ESTIMATED] == old and source == dimensions.cost_source:
                continue
            done.note_change(old, measures[_ESTIMATED])
            removed.append((start, number))
            estimates.append(measures[_ESTIMATED])
            repriced.append((dimensions._replace(cost_source=source), measures))
        numbers = placement.find_or_assign_dimension_set_numbers(
            self._rows, width, start, [dimensions for dimensions, _ in repriced]
        )
        new = [(start, number, measures) for number, (_, measures) in zip(numbers, repriced, strict=True)]
        moved_meters = [
            (start, number, self._meters[old])
            for number, (_, old) in zip(numbers, removed, strict=True)
            if old in self._meters
        ]
        # delete all before adding: a sum's new cost source may give it the row of another removed sum
        self._rows.delete_sums(width, removed)
        self._rows.add_sums(width, new)
        if new:
            moves = {
                old: MovedSum(number, estimate, has_meters=old in self._meters)
                for (_, old), number, estimate in zip(removed, numbers, estimates, strict=True)
            }
            _reprice_units(self._rows, self._pricer, width, start, moves)
        if moved_meters:
            self._rows.add_meters(width, moved_meters)


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
    A sum with a new estimate. `number`: of its new set of dimensions. `estimate`: in units of money. With
    meters, all its calls belong to one set of units of work.
    """

    number: int
    estimate: int
    has_meters: bool


def _reprice_units(
    ledger_rows: LedgerRows, pricer: Pricer, period_s: int, start: int, moves: Mapping[int, MovedSum]
) -> None:
    """Compute the estimates of units of work in the repriced sums."""
    parts = [part for part in ledger_rows.unit_sums_of_calls(start) if part[1] in moves]
    repriced = []
    for units, number, dimensions, measures in parts:
        move = moves[number]
        if move.has_meters:
            measures[_ESTIMATED] = move.estimate if measures[0] else 0
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
