"""
Changes of sums: add records, sum up days, delete old hours, and empty periods to count them again.

A finished day also gets daily sums, so that a query for a year does not read each hour. Its hourly sums are
deleted later.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from spool.errors import TotalsIncomplete
from spool.ledger.ledger_rows import LedgerRows, TagList, WorkSum, new_data_version
from spool.ledger.sums import (
    AHEAD_S,
    DAY_S,
    HOUR_S,
    OTHER,
    Dimensions,
    DimensionValues,
    HourlySums,
    Measures,
    MeterSums,
)
from spool.ledger.tag_lists import TAGGED, apply_newest_tag_list_from, store_tag_list
from spool.ledger.work import UNITS, Units, WorkLimits

WIDTHS = (HOUR_S, DAY_S)
# Dimensions dropped in periods with too many sums: first OWNERS and the tags, then WORK.
OWNERS = ("user", "device", "api_key")
WORK = ("source", "provider", "model", "request_model", "team", "region", "sender")
CHANGED_BY = "changed_by"  # state key: mark of the process that made the last change
# state key: change mark (see `new_data_version`) of the rows of billing connections, whose tags are dimensions
ROW_TAGS = "row_tags"
# state keys: marks of changes that may affect any month
EVERY, EVERY_BILLED = "changed", "billed"
RENAMED = (
    "renamed"  # state key: mark of the last renaming of people; records that were read before are outdated
)
RECALCULATED = "recalculated"  # state key: mark of the stored recalculations; 0 without any
MAX_TEXT = 256  # maximum characters of a dimension's value
MOST_NUMBERS = 100_000  # maximum sets of dimensions whose numbers are in memory
# Limits of nearly full periods whose sets of dimensions are in memory: as a set of hashes, and as an array.
# Reading a set from the database takes 70 times as long as converting an array.
MOST_PRESENT, MOST_PACKED = 16, 512
MOST_PERIODS = 10_000  # maximum periods with a known upper bound on their sums

_NO_METERS: Mapping[DimensionValues, MeterSums] = {}
_NO_WORK: Mapping[DimensionValues, Mapping[Units, Measures]] = {}


def read_state(ledger_rows: LedgerRows) -> dict[str, int]:
    """
    Return the ledger's stored state (numbers by name) without the change marks. Missing numbers have their
    defaults.
    """
    values = {
        "reach": 1,
        "rebuilding": 0,
        "rebuilding_from": 0,  # first record number of the last rebuild
        "daily": 0,
        "hourly": 0,
        "missed": 0,
        "damaged": 0,
        "absurd": 0,
        "whole": 0,
        # range of missed numbers that were not searched for in the log yet; 0 without any
        "missed_first": 0,
        "missed_end": 0,
        "settled": 0,  # missed numbers that are not in the log
        "compared": 0,  # when the totals were last compared with the log
        "differing": 0,  # number of periods that differed in that comparison
        "left": 0,
        RENAMED: 0,
        "charged": 0,  # 1 after the first amount in another currency than dollars
        RECALCULATED: 0,
        TAGGED: 0,
    }
    stored = ledger_rows.state_values()
    return {name: stored.get(name, value) for name, value in values.items()}


def require_no_rebuild(state: Mapping[str, int]) -> None:
    """Raise TotalsIncomplete if a rebuild runs in this state."""
    if state["rebuilding"]:
        first = state["rebuilding_from"]
        # a percentage, because people with limited access may not see the number of records
        share = 100 * (state["reach"] - first) // (state["rebuilding"] - first)
        raise TotalsIncomplete(
            f"The totals are counted again, and {share} % is done. Repeat the request when this is finished."
        )


def new_data_versions_by_month(
    changed_starts: Iterable[int] | None = None, *, all_months_name: str = EVERY
) -> dict[str, int]:
    """
    Return new marks, which invalidate cached results, for the months of `changed_starts`, or if it is None for
    every month.
    """
    if changed_starts is None:
        return {all_months_name: new_data_version()}
    names = {
        data_version_name(datetime.fromtimestamp(start, UTC), all_months_name) for start in changed_starts
    }
    return {name: new_data_version() for name in names}


def data_version_name(at: datetime, all_months_name: str = EVERY) -> str:
    """
    Return the name of the data version of a moment's month (UTC), which is replaced when the month's sums
    change.

    The first day of a month has a version of its own, because in time zones behind UTC it partly belongs to
    the month before.
    """
    return f"{all_months_name} {at:%Y-%m-01}" if at.day == 1 else f"{all_months_name} {at:%Y-%m}"


def first_complete_hour(arrival: float) -> int:
    """
    Return the first hour that has no records that arrived before `arrival`. A sender's clock may be less than
    2 hours ahead; later start times are replaced by the arrival.
    """
    return int(arrival) // HOUR_S * HOUR_S + AHEAD_S


class DimensionNumbering:
    """
    The numbers of stored sets of dimensions, and a limit on the sets per period.

    In a period with `max_rows` sets, a new set first loses its owner, then the model and similar dimensions,
    and its calls are added to a set with `(other)`. So every total stays right.

    Numbers are cached in memory. After a failed transaction, call `forget_numbers`.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._max_without_owners = max_rows * 11 // 10
        self._mark = new_data_version()
        self._numbers: dict[DimensionValues, int] = {}
        # Hashes of the dimension sets in nearly full periods. If two sets have one hash, a set may lose its
        # owner too early, or the period may exceed its limit; the sums stay right.
        self._present: OrderedDict[tuple[int, int], set[int]] = OrderedDict()
        # arrays of the periods that are not in `_present`
        self._packed: OrderedDict[tuple[int, int], array[int]] = OrderedDict()
        # for periods in neither `_present` nor `_packed`: upper bound of the number of sums
        self._most: dict[tuple[int, int], int] = {}

    def begin_transaction(self, ledger_rows: LedgerRows) -> None:
        """
        Forget the cached numbers if another process changed the rows, or if the database lost this object's
        last change.
        """
        if ledger_rows.state_values().get(CHANGED_BY) != self._mark:
            self.forget_numbers()
        self._mark = new_data_version()
        ledger_rows.set_state(**{CHANGED_BY: self._mark})

    def forget_numbers(self) -> None:
        self._numbers.clear()
        self._present.clear()
        self._packed.clear()
        self._most.clear()

    def find_or_assign_dimension_set_numbers(
        self, ledger_rows: LedgerRows, period_s: int, start: int, dimensions: Iterable[DimensionValues]
    ) -> Sequence[int]:
        placed = [stored_dimensions(values) for values in dimensions]
        present = self._dimension_set_hashes_if_near_row_limit(ledger_rows, (period_s, start), len(placed))
        if present is not None:
            placed = [self._merge_values_into_other_beyond_limit(values, present) for values in placed]
        return self._assign_numbers(ledger_rows, placed)

    def _merge_values_into_other_beyond_limit(
        self, dimension_values: DimensionValues, dimension_hashes: set[int]
    ) -> DimensionValues:
        for limit, reduced in (
            (self._max_rows, replace_owners_with_other),
            (self._max_without_owners, replace_work_with_other),
        ):
            mark = hash(dimension_values)
            if mark in dimension_hashes:
                return dimension_values
            if len(dimension_hashes) < limit:
                break
            dimension_values = reduced(dimension_values)
        # few combinations remain, so there is no limit
        dimension_hashes.add(hash(dimension_values))
        return dimension_values

    def _assign_numbers(
        self, ledger_rows: LedgerRows, dimensions: Sequence[DimensionValues]
    ) -> Sequence[int]:
        numbers = self._numbers
        if len(numbers) >= MOST_NUMBERS:
            numbers.clear()
        unknown = [*dict.fromkeys(values for values in dimensions if values not in numbers)]
        if unknown:
            numbers.update(
                zip(unknown, ledger_rows.find_or_assign_dimension_set_numbers(unknown), strict=True)
            )
        return [numbers[values] for values in dimensions]

    def _dimension_set_hashes_if_near_row_limit(
        self, ledger_rows: LedgerRows, period: tuple[int, int], added_count: int
    ) -> set[int] | None:
        """
        Return hashes of the combinations of dimension values in a period, or None if `added_count` more
        combinations certainly stay below the limit of rows.
        """
        present = self._present.get(period)
        if present is not None:
            self._present.move_to_end(period)
            return present
        if (packed := self._packed.pop(period, None)) is not None:
            return self._cache_dimension_hashes(period, set(packed))
        if len(self._most) >= MOST_PERIODS:
            self._most.clear()
        if period not in self._most:
            self._most[period] = len(ledger_rows.dimension_set_numbers_in_period(*period))
        self._most[period] += added_count
        if self._most[period] <= self._max_rows:
            return None
        del self._most[period]
        return self._cache_dimension_hashes(
            period,
            set(
                map(
                    hash,
                    ledger_rows.dimensions_by_number(
                        ledger_rows.dimension_set_numbers_in_period(*period)
                    ).values(),
                )
            ),
        )

    def _cache_dimension_hashes(self, period: tuple[int, int], dimension_hashes: set[int]) -> set[int]:
        self._present[period] = dimension_hashes
        if len(self._present) > MOST_PRESENT:
            oldest_span, oldest = self._present.popitem(last=False)
            self._packed[oldest_span] = array("q", oldest)
        if len(self._packed) > MOST_PACKED:
            self._packed.popitem(last=False)
        return dimension_hashes


def stored_dimensions(dimensions: DimensionValues) -> DimensionValues:
    """Return the dimensions with texts cut to the maximum length, and lone surrogates replaced."""
    *texts, _, region, sender = dimensions
    text = "".join(texts) + region + sender
    if len(text) <= MAX_TEXT and text.isascii():
        return dimensions
    whole = Dimensions(*map(cut_and_cleaned_text, dimensions))
    # the tags are cut already, and must stay valid JSON
    return whole._replace(tags=_replace_surrogates(Dimensions._make(dimensions).tags))


def cut_and_cleaned_text(value: Any) -> Any:
    return _replace_surrogates(value[:MAX_TEXT]) if isinstance(value, str) else value


def _replace_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def replace_owners_with_other(values: DimensionValues) -> DimensionValues:
    kind, source, provider, model, asked, team, _, _, _, _, status, cost, mode, size, region, sender = values
    owners = (OTHER, OTHER, OTHER, "")
    return (kind, source, provider, model, asked, team, *owners, status, cost, mode, size, region, sender)


def replace_work_with_other(values: DimensionValues) -> DimensionValues:
    kind, _, _, _, _, _, user, device, api_key, tags, status, cost, mode, size, _, _ = (
        replace_owners_with_other(values)
    )
    work = (OTHER, OTHER, OTHER, OTHER, OTHER)
    return (kind, *work, user, device, api_key, tags, status, cost, mode, size, OTHER, OTHER)


@dataclass(frozen=True, slots=True)
class MissedNumbers:
    """Record numbers that had no record when they were counted. Hours before `whole` may lack their calls."""

    count: int = 0
    first: int = 0
    end: int = 0
    whole: int = 0


def note_charges_in_other_currencies(ledger_rows: LedgerRows, meters: Iterable[MeterSums]) -> None:
    """Store that amounts in other currencies exist. Until then, queries do not read such amounts."""
    if any(name.startswith("charge.") for amounts in meters for name in amounts):
        ledger_rows.set_state(charged=1)


def add_counted_sums(
    ledger_rows: LedgerRows,
    sums: HourlySums,
    placement: DimensionNumbering,
    *,
    first_number: int,
    next_number: int,
    missed_numbers: MissedNumbers,
    tags: TagList | None,
) -> int:
    """
    Add the sums of the records from `first_number` until before `next_number` in one transaction. Return the
    stored reach (the next number to count). `tags`: the list of tags by which the records were counted, if it
    is new.

    Do nothing unless the stored reach is `first_number`. The totals may have been lost since the caller read
    the reach. Counting then starts again at 1, and the numbers below `first_number` would never be counted.
    """
    state = read_state(ledger_rows)
    if state["reach"] != first_number:
        return state["reach"]
    metered: list[MeterSums] = []
    work: list[WorkSum] = []
    for width in WIDTHS:
        added: list[tuple[int, int, Measures]] = []
        meters: list[tuple[int, int, MeterSums]] = []
        for start, hours in _hours_with_sums_by_period_start(sums, state, width).items():
            dimensions = [values for hour in hours for values in sums.hours[hour]]
            numbers = placement.find_or_assign_dimension_set_numbers(ledger_rows, width, start, dimensions)
            parts = defaultdict[int, list[Measures]](list)
            measures_of_hours = chain.from_iterable(sums.hours[hour].values() for hour in hours)
            for number, measures in zip(numbers, measures_of_hours, strict=True):
                parts[number].append(measures)
            added += [(start, number, add_measures(part)) for number, part in parts.items()]
            if any(hour in sums.meters or hour in sums.work for hour in hours):
                number_of = dict(zip(dimensions, numbers, strict=True))
                meters += [
                    (start, number_of[values], amounts)
                    for hour in hours
                    for values, amounts in sums.meters.get(hour, _NO_METERS).items()
                    if amounts
                ]
                work += [
                    each
                    for hour in hours
                    if finest_stored_period(hour, state["hourly"]) == (width, start)
                    for each in work_sums(sums, hour, start, number_of)
                ]
        ledger_rows.add_sums(width, added)
        if meters:
            ledger_rows.add_meters(width, meters)
            metered += [amounts for _, _, amounts in meters]
    note_charges_in_other_currencies(ledger_rows, metered)
    if work:
        ledger_rows.add_unit_sums(work, sums.work_names, sums.work_edges)
    if tags is not None:
        store_tag_list(ledger_rows, tags)
    ledger_rows.store_lowest_record_numbers(
        [(*finest_stored_period(hour, state["hourly"]), first) for hour, first in sums.first.items()]
    )
    ledger_rows.set_state(reach=next_number)
    # a rebuild reads again what was counted as missed, damaged or implausible
    if state["rebuilding"]:
        if next_number >= state["rebuilding"]:
            ledger_rows.freeze_periods_for_rebuild(below_record_number=0)
            ledger_rows.set_state(rebuilding=0, compared=0)
            apply_newest_tag_list_from(ledger_rows, next_number)
        return next_number
    ledger_rows.set_state(damaged=state["damaged"] + sums.damaged, absurd=state["absurd"] + sums.absurd)
    if missed_numbers.count:
        ledger_rows.set_state(
            missed=state["missed"] + missed_numbers.count,
            missed_first=min(missed_numbers.first, state["missed_first"] or missed_numbers.first),
            missed_end=max(missed_numbers.end, state["missed_end"]),
            whole=max(state["whole"], missed_numbers.whole),
        )
    return next_number


def work_sums(
    sums: HourlySums, hour: int, start: int, numbers_by_dimensions: Mapping[DimensionValues, int]
) -> Iterator[WorkSum]:
    for values, rows in sums.work.get(hour, _NO_WORK).items():
        for units, measures in rows.items():
            yield start, units, numbers_by_dimensions[values], measures


def _hours_with_sums_by_period_start(
    sums: HourlySums, state_values: Mapping[str, int], period_s: int
) -> Mapping[int, Sequence[int]]:
    hours_by_start: dict[int, list[int]] = {}
    for hour in sorted(sums.hours):
        if hour >= state_values["hourly"] if period_s == HOUR_S else hour < state_values["daily"]:
            hours_by_start.setdefault(hour // period_s * period_s, []).append(hour)
    return hours_by_start


def add_measures(parts: Sequence[Measures]) -> Measures:
    return parts[0] if len(parts) == 1 else list(map(sum, zip(*parts, strict=True)))


def finest_stored_period(hour: int, hourly_since: int) -> tuple[int, int]:
    width = HOUR_S if hour >= hourly_since else DAY_S
    return width, hour // width * width


def restart_counting_at_replaced_log(
    ledger_rows: LedgerRows, *, seen_next_number: int, next_number: int
) -> int:
    """
    Lower the reach (the next number to count) after the log was replaced, because the new log reuses the
    numbers. Return the reach.

    The sums stay, because their records cannot be counted again. Nothing changes unless the reach is
    `seen_next_number`, as in `add_counted_sums`.
    """
    state = read_state(ledger_rows)
    if state["reach"] != seen_next_number:
        return state["reach"]
    if state[RECALCULATED]:
        ledger_rows.lower_recalculation_ends(next_number)
        ledger_rows.set_state(**{RECALCULATED: new_data_version()})
    ledger_rows.reset_lowest_record_numbers_and_unfreeze_periods()
    apply_newest_tag_list_from(ledger_rows, next_number)
    ledger_rows.set_state(
        reach=next_number, rebuilding=0, settled=state["missed"], missed_first=0, missed_end=0, compared=0
    )
    return next_number


def lower_missed_record_count(ledger_rows: LedgerRows, *, new_count: int) -> None:
    """Lower the number of missed records to `new_count`, because some have been counted after all."""
    state = read_state(ledger_rows)
    missed = max(0, min(state["missed"], new_count))
    ledger_rows.set_state(missed=missed, settled=min(state["settled"], missed))
    if not missed:
        ledger_rows.set_state(whole=0, missed_first=0, missed_end=0)


def begin_rebuild_and_count_periods(
    ledger_rows: LedgerRows, lowest_stored_number: int, tags: tuple[str, ...]
) -> tuple[int, int, int]:
    """
    Empty the periods whose records are all stored, and freeze all others. Hours
    after the last frozen period are counted with the dimensions `tags`.

    Return the numbers of emptied and of frozen periods, and the end of the last frozen period or 0.
    """
    state = read_state(ledger_rows)
    delete_daily_sums_with_hourly_sums(ledger_rows)
    ledger_rows.freeze_periods_for_rebuild(below_record_number=lowest_stored_number)
    emptied = ledger_rows.delete_sums_of_unfrozen_periods()
    ledger_rows.delete_damaged_rows()
    frozen = ledger_rows.periods_frozen_for_rebuild()
    border = max((start + width for width, start in frozen), default=0)
    if lowest_stored_number < state["reach"]:
        # Records that will be read again no longer count as missed. Deleted records stay missed.
        ledger_rows.set_state(
            reach=lowest_stored_number, rebuilding=state["reach"], rebuilding_from=lowest_stored_number
        )
        store_tag_list(ledger_rows, TagList(lowest_stored_number, border, tags))
        lower_missed_record_count(ledger_rows, new_count=lowest_stored_number - 1)
    else:  # all counted records are deleted from the log
        ledger_rows.freeze_periods_for_rebuild(below_record_number=0)
    return emptied, len(frozen), border


def delete_daily_sums_with_hourly_sums(ledger_rows: LedgerRows) -> None:
    """Delete daily sums of days that still have hourly sums, because these are about to change."""
    hourly = read_state(ledger_rows)["hourly"]
    ledger_rows.drop_days(hourly)
    ledger_rows.set_state(daily=hourly)


def sum_up_next_unsummed_day(ledger_rows: LedgerRows, before_s: int) -> bool:
    """Make the sums of the next day that ended at or before `before_s`. Return False if there is none."""
    oldest = ledger_rows.first_start_since(HOUR_S, read_state(ledger_rows)["daily"])
    if oldest is None:
        return False
    day = oldest // DAY_S * DAY_S
    if day + DAY_S > before_s:
        return False
    ledger_rows.make_daily_sums_from_hours(day)
    ledger_rows.set_state(daily=day + DAY_S)
    return True


def delete_hourly_sums_of_oldest_day(ledger_rows: LedgerRows, before_s: int) -> int | None:
    """
    Delete the hourly sums of the next day before `before_s` (a midnight). Return the number of deleted sums, or
    None if there is no such day.

    Each call deletes one day, so that a ledger that was idle for weeks needs no long transaction.
    """
    state = read_state(ledger_rows)
    before_s = min(before_s, state["daily"])
    if before_s <= state["hourly"]:
        return None
    oldest = ledger_rows.first_start_since(HOUR_S, state["hourly"])
    if oldest is not None:
        before_s = min(before_s, oldest // DAY_S * DAY_S + DAY_S)
    gone = ledger_rows.drop_hours(before_s)
    ledger_rows.set_state(hourly=before_s)
    return gone


# -- units of work that are no longer listed -------------------------------------------------------------


# An unlisted unit is forgotten after its retention and this time without calls. Queries by unit cover at most
# 92 days, so none shows its new calls next to unlisted ones.
FORGET_S = 93 * DAY_S
IDLE_S = 48 * HOUR_S  # units without calls for this time are unlisted first


def last_and_this_month(now: int) -> Sequence[tuple[int, int]]:
    """Return start and end, in epoch seconds, of last month and of this month."""
    this_month = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    last_month = (this_month - timedelta(days=1)).replace(day=1)
    next_month = (this_month + timedelta(days=40)).replace(day=1)
    begin, middle, end = (int(month.timestamp()) for month in (last_month, this_month, next_month))
    return [(begin, middle), (middle, end)]


def unit_ids_to_merge_into_other(
    ledger_rows: LedgerRows, max_units_per_kind: int, now: int, month: tuple[int, int]
) -> Sequence[tuple[str, Sequence[int]]]:
    """
    Return the units of work to unlist, by kind, if `month` has more than `max_units_per_kind` of a kind.
    Afterwards, nine tenths of the limit stay listed.

    Idle units are unlisted first, and cheap ones before expensive ones, by the costs of last and this month.
    The most expensive units, half of the limit, always stay, so a sender of many names cannot hide the
    highest costs.
    """
    [(begin, _), (_, end)] = last_and_this_month(now)
    chosen = []
    for unit, count in ledger_rows.individual_unit_count_by_kind(*month).items():
        if count > max_units_per_kind:
            cheapest = ledger_rows.cheapest_unit_ids_and_last_use(
                unit, month, (begin, end), count - max_units_per_kind // 2
            )
            idle_first = sorted(cheapest, key=lambda each: each[1] >= now - IDLE_S)
            chosen.append((unit, [id for id, _ in idle_first[: count - max_units_per_kind * 9 // 10]]))
    return chosen


def expire_units(ledger_rows: LedgerRows, limits: WorkLimits, now: int) -> None:
    """Stop listing units of work after their retention, and delete units that were unlisted long ago."""
    for name, unit in UNITS.items():
        before = int(now - limits.unit_retention_s(unit))
        ledger_rows.merge_idle_units_into_other(name, before)
        ledger_rows.forget_merges_of_idle_units(name, before - FORGET_S)
    ledger_rows.drop_unused_units()
