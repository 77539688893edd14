"""
The sums that a comparison of the totals with the log reads: the stored ones, and those counted again from
records.

Stored sums are read one day at a time, so that no read takes long. Counting continues between the reads, so
each day has its own reach (the number below which records are counted).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from spool import money
from spool.ledger.checksums import CheckedSum, Checksums, ReproducibleSumParts, detail_level_lost_to_row_limit
from spool.ledger.counting import RECALCULATED, finest_stored_period, read_state
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.recalculations import Recalculations
from spool.ledger.sums import COUNTS, DAY_S, HOUR_S, LATENCY, MONEY, Dimensions, DimensionValues, HourlySums
from spool.ledger.tag_lists import TAGGED
from spool.ledger.work import FORGOTTEN, UNLISTS, Units
from spool.meters import quantity_from_millionths

Read = Callable[[Callable[[LedgerRows], Any]], Awaitable[Any]]
PeriodStart = tuple[int, int]  # width and start of a period
MAX_TOLD = 80
PAGE = 5000  # sums of units of work read at once
_MEMO = 50_000  # maximum sets of dimensions and of units in memory
MEASURES = (*COUNTS, *MONEY, *LATENCY)
MOST_SUMS_TOLD, MOST_MEASURES_TOLD = 3, 4
WHOLE = ReproducibleSumParts()
_LOST = Dimensions._make([*[""] * 13, 0, "", ""])


class SumsMoved(Exception):
    """Raised if the totals changed so that earlier reads are not comparable. Start again."""


def comparison_state(ledger_rows: LedgerRows) -> Mapping[str, int]:
    state = ledger_rows.state_values()
    names = ("rebuilding", "hourly", TAGGED, RECALCULATED, UNLISTS, FORGOTTEN)
    return {name: state.get(name, 0) for name in names}


def _stored_hours_of_day(ledger_rows: LedgerRows, day: int) -> Sequence[PeriodStart]:
    return [(HOUR_S, start) for start in ledger_rows.period_starts(HOUR_S, day, day + DAY_S)]


@dataclass(slots=True, kw_only=True)
class CheckedPeriod:
    """
    A period's stored number of calls, and its checksums. Records with numbers below `reach` are counted in
    it. A second checksum leaves out prices, for periods in which a recalculation priced only some calls of a
    sum.
    """

    reach: int
    views: Sequence[ReproducibleSumParts] = (WHOLE,)
    calls: int = 0
    checksums: list[int] = field(default_factory=lambda: [0])


class StoredSums:
    def __init__(
        self, checksums: Checksums, recalculated: Recalculations, *, moment: Mapping[str, int]
    ) -> None:
        self._checksums = checksums
        self._recalculated = recalculated
        self._moment = moment
        self._dimensions: dict[int, Dimensions] = {}

    def check_state_unchanged(self, ledger_rows: LedgerRows) -> None:
        if comparison_state(ledger_rows) != self._moment:
            raise SumsMoved

    def read_periods_of_day(
        self, ledger_rows: LedgerRows, starts: Sequence[int], day: int
    ) -> tuple[dict[PeriodStart, CheckedPeriod], bool]:
        """
        Return the stored periods of a day that begin at `starts`, and whether the day's sums equal those of
        its hours.
        """
        self.check_state_unchanged(ledger_rows)
        state = read_state(ledger_rows)
        width = HOUR_S if day >= self._moment["hourly"] else DAY_S
        lost_detail_levels = {
            number: detail_level_lost_to_row_limit(values)
            for number, values in ledger_rows.dimension_sets_merged_into_other().items()
        }
        periods = {
            (width, start): self._read_period(ledger_rows, (width, start), lost_detail_levels, state["reach"])
            for start in starts
        }
        if width == DAY_S or day >= state["daily"]:
            return periods, True
        # all hours of the day, because a call may have begun a new hour since `starts` were read
        hours = _stored_hours_of_day(ledger_rows, day)
        view = self._parts_to_compare_of_day(ledger_rows, day, hours, lost_detail_levels)
        of_day, of_hours = [
            sum(
                self._checksums.checksum_of(view, cell)
                for period_key in period_keys
                for cell in self._read_period_sums(ledger_rows, period_key)
            )
            for period_keys in ([(DAY_S, day)], hours)
        ]
        return periods, of_day == of_hours

    def sums_of_hours_and_of_day(
        self, ledger_rows: LedgerRows, day: int
    ) -> tuple[ReproducibleSumParts, list[CheckedSum], list[CheckedSum]]:
        self.check_state_unchanged(ledger_rows)
        lost_detail_levels = {
            number: detail_level_lost_to_row_limit(values)
            for number, values in ledger_rows.dimension_sets_merged_into_other().items()
        }
        hours = _stored_hours_of_day(ledger_rows, day)
        view = self._parts_to_compare_of_day(ledger_rows, day, hours, lost_detail_levels)
        of_hours = [cell for period_key in hours for cell in self._read_period_sums(ledger_rows, period_key)]
        return view, of_hours, [*self._read_period_sums(ledger_rows, (DAY_S, day))]

    def _parts_to_compare_of_day(
        self,
        ledger_rows: LedgerRows,
        day: int,
        hours: Sequence[PeriodStart],
        lost_detail_level_by_dimension_set: Mapping[int, int],
    ) -> ReproducibleSumParts:
        period_keys = [(DAY_S, day), *hours]
        return ReproducibleSumParts(
            level=max(
                self._highest_lost_detail_level(ledger_rows, period_key, lost_detail_level_by_dimension_set)
                for period_key in period_keys
            )
        )

    def _read_period(
        self,
        ledger_rows: LedgerRows,
        period_key: PeriodStart,
        lost_detail_level_by_dimension_set: Mapping[int, int],
        counted_below: int,
    ) -> CheckedPeriod:
        views = self.comparable_parts(ledger_rows, period_key, lost_detail_level_by_dimension_set)
        period = CheckedPeriod(reach=counted_below, views=views, checksums=[0] * len(views))
        for cell in self.sums_and_unit_sums(ledger_rows, period_key):
            if cell.units is None and cell.measures:
                period.calls += cell.measures[0]
            for index, view in enumerate(views):
                period.checksums[index] += self._checksums.checksum_of(view, cell)
        return period

    def comparable_parts(
        self,
        ledger_rows: LedgerRows,
        period_key: PeriodStart,
        lost_detail_level_by_dimension_set: Mapping[int, int],
    ) -> Sequence[ReproducibleSumParts]:
        width, start = period_key
        level = self._highest_lost_detail_level(ledger_rows, period_key, lost_detail_level_by_dimension_set)
        is_recalculated = self._recalculated.covers(width, start)
        view = ReproducibleSumParts(
            level=level,
            has_estimates=not (level and is_recalculated),
            has_sets=start >= self._moment[FORGOTTEN],
        )
        return (view, view._replace(has_estimates=False)) if is_recalculated else (view,)

    def _highest_lost_detail_level(
        self,
        ledger_rows: LedgerRows,
        period_key: PeriodStart,
        lost_detail_level_by_dimension_set: Mapping[int, int],
    ) -> int:
        return (
            max(
                (
                    lost_detail_level_by_dimension_set[number]
                    for number in ledger_rows.dimension_set_numbers_in_period(*period_key)
                    & lost_detail_level_by_dimension_set.keys()
                ),
                default=0,
            )
            if lost_detail_level_by_dimension_set
            else 0
        )

    def sums_and_unit_sums(self, ledger_rows: LedgerRows, period_key: PeriodStart) -> Iterator[CheckedSum]:
        yield from self._read_period_sums(ledger_rows, period_key)
        after = (-1, -1)
        while page := ledger_rows.unit_sums_page(period_key[1], after, PAGE):
            known = self._dimensions_by_number(ledger_rows, [key for _, key, _ in page])
            for units, key, measures in page:
                yield CheckedSum(known[key], measures, units=units)
            after = page[-1][:2]

    def _read_period_sums(self, ledger_rows: LedgerRows, period_key: PeriodStart) -> Iterator[CheckedSum]:
        sums, meters = (
            ledger_rows.measures_by_dimension_set_number(*period_key),
            ledger_rows.read_meters(*period_key),
        )
        known = self._dimensions_by_number(ledger_rows, [*(key for key, _ in sums), *meters])
        for key, measures in sums:
            yield CheckedSum(known[key], measures)
        for key, amounts in meters.items():
            yield CheckedSum(known[key], meters=amounts)

    def _dimensions_by_number(
        self, ledger_rows: LedgerRows, numbers: Collection[int]
    ) -> Mapping[int, Dimensions]:
        if len(self._dimensions) > _MEMO:
            self._dimensions.clear()
        known = self._dimensions
        if unknown := [number for number in {*numbers} if number not in known]:
            known.update(ledger_rows.dimensions_by_number(unknown))
            for number in unknown:  # a sum whose dimensions are lost agrees with no record
                known.setdefault(number, _LOST._replace(source=f"lost {number}"))
        return known


class RecountedSums:
    def __init__(self, sums: HourlySums, read: Read, hourly_since: int) -> None:
        self.sums = sums
        self._read = read
        self._hourly = hourly_since
        self._sets: dict[Units, int] = {}

    async def load_unit_set_numbers(self) -> None:
        if len(self._sets) > _MEMO:
            self._sets.clear()
        rows = chain.from_iterable(by_key.values() for by_key in self.sums.work.values())
        if unknown := {units for by_units in rows for units in by_units} - self._sets.keys():
            self._sets |= await self._read(lambda rows: rows.numbers_of_counted_unit_sets(unknown))

    def sums_by_period(self) -> Iterator[tuple[PeriodStart, CheckedSum]]:
        """Yield the recounted sums with their periods. Call `load_unit_set_numbers` first."""
        sums = self.sums
        for hour, rows in sums.hours.items():
            period_key = finest_stored_period(hour, self._hourly)
            for values, measures in rows.items():
                yield period_key, CheckedSum(values, measures)
        for hour, metered in sums.meters.items():
            period_key = finest_stored_period(hour, self._hourly)
            for values, amounts in metered.items():
                yield period_key, CheckedSum(values, meters=amounts)
        for hour, work in sums.work.items():
            period_key = finest_stored_period(hour, self._hourly)
            for values, by_units in work.items():
                for units, measures in by_units.items():
                    yield period_key, CheckedSum(values, measures, units=self._sets[units])


class PartialPrices:
    """
    Collects in `places` the periods in which a recalculation priced some calls with equal dimensions but
    not others.
    """

    def __init__(self, hourly_since: int) -> None:
        self.places: set[PeriodStart] = set()
        self._hourly = hourly_since
        self._seen: dict[tuple[object, ...], bool] = {}

    def note_whether_priced(self, recalculation: int, start: int, of: Dimensions, is_priced: bool) -> None:
        decides = of.provider, of.model, of.request_model, of.mode, of.size, of.region, of.status
        if self._seen.setdefault((recalculation, start, *decides), is_priced) != is_priced:
            self.places.add(finest_stored_period(start, self._hourly))


@dataclass(frozen=True, kw_only=True)
class SumDifference:
    """A sum that differs. `measures`: name, stored amount and right amount of each measure that differs."""

    of: Mapping[str, str]
    measures: Sequence[tuple[str, str, str]]

    def describe(self) -> str:
        of = ", ".join(f"{name}={value[:MAX_TOLD]}" for name, value in self.of.items())
        measures = [
            f"{measure} {counted} instead of {kept}"
            for measure, counted, kept in self.measures[:MOST_MEASURES_TOLD]
        ]
        return f"{of} has {' and '.join(measures)}"


def sum_differences(
    ledger_rows: LedgerRows,
    compared_parts: ReproducibleSumParts,
    kept: Iterable[CheckedSum],
    counted: Iterable[CheckedSum],
) -> Sequence[SumDifference]:
    """
    Return at most MOST_SUMS_TOLD stored sums (`kept`) that differ from the sums counted from records or from
    hours (`counted`).
    """
    of_kept, of_counted = _add_up_amounts(compared_parts, kept), _add_up_amounts(compared_parts, counted)
    period_keys = sorted(of_kept.keys() | of_counted.keys(), key=repr)
    found = (
        SumDifference(
            of={
                **_named_dimensions(values),
                **({} if units is None else ledger_rows.units_of_set_number(units)),
            },
            measures=measures,
        )
        for units, values in period_keys
        if (measures := _differing_measures(of_kept[units, values], of_counted[units, values]))
    )
    return [*islice(found, MOST_SUMS_TOLD)]


Amounts = dict[tuple[int | None, DimensionValues], Counter[str]]


def _differing_measures(kept: Counter[str], counted: Counter[str]) -> Sequence[tuple[str, str, str]]:
    return [
        (name, _measure_text(name, counted[name]), _measure_text(name, kept[name]))
        for name in (*MEASURES, *sorted((kept.keys() | counted.keys()).difference(MEASURES)))
        if kept[name] != counted[name]
    ]


def _add_up_amounts(compared_parts: ReproducibleSumParts, cells: Iterable[CheckedSum]) -> Amounts:
    amounts = defaultdict[tuple[int | None, DimensionValues], Counter[str]](Counter)
    for cell in cells:
        units = None if cell.units is None else cell.units if compared_parts.has_sets else 0
        of_sum = amounts[units, compared_parts.comparable_dimensions(cell.values)]
        for name, amount in (
            *cell.meters.items(),
            *zip(MEASURES, compared_parts.compared_measures(cell), strict=False),
        ):
            if amount:
                of_sum[name] += amount
    return amounts


def _measure_text(measure: str, amount: int) -> str:
    if measure in MONEY:
        return money.units_to_text(amount)
    return str(amount if measure in COUNTS or measure in LATENCY else quantity_from_millionths(amount))


def _named_dimensions(values: DimensionValues) -> Mapping[str, str]:
    of = Dimensions._make(values)._asdict()
    return {name: str(value) for name, value in of.items() if value and name not in ("kind", "size")}
