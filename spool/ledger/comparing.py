"""
Comparison of the totals with the log: stored records are counted again by hour or day.

Only periods with all their counted records still stored are compared. A checksum finds the periods that
differ, and a second pass finds the sums in them. A day that still has hourly sums is compared with these
sums.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from operator import methodcaller
from typing import Protocol

from spool.clock import Clock
from spool.ledger.checked_sums import (
    CheckedPeriod,
    PartialPrices,
    PeriodStart,
    Read,
    RecountedSums,
    StoredSums,
    SumDifference,
    SumsMoved,
    comparison_state,
    sum_differences,
)
from spool.ledger.checksums import CheckedSum, Checksums
from spool.ledger.counting import (
    RECALCULATED,
    DimensionNumbering,
    finest_stored_period,
    lower_missed_record_count,
    note_charges_in_other_currencies,
    read_state,
    work_sums,
)
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.recalculations import Recalculations
from spool.ledger.sums import DAY_S, HOUR_S, DimensionValues, HourlySums, start_hour_or_arrival_hour
from spool.ledger.tag_lists import TAGGED, TagLists
from spool.ledger.work import WorkUnitHasher
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry
from spool.loops import failure_logger, for_each_item, repeat
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import has_other_active_parties, pause_for_others

STEP = 512  # record numbers per read
AT_ONCE = 100  # records added up without a pause
AT_ONCE_BESIDE = 25  # records added up without a pause while other requests are running
# if not urgent, a pause lasts this many times as long as the slice of work before
REST = 4
TRIES = 3  # attempts, if the totals change at the same time
NAMES_AT_ONCE = 5000  # names and sets per read
MOST_TOLD = 10  # maximum periods that a message lists
MEND = "run `tollhouse ledger rebuild` to count the stored records again"


def max_records_at_once() -> int:
    return AT_ONCE_BESIDE if has_other_active_parties() else AT_ONCE


@dataclass(frozen=True, kw_only=True)
class PeriodDifference:
    """
    A period (hour or day) for which log and totals have different sums. `kept`: number of calls in the log.
    `counted`: in the totals; both may be equal. `sums`: the first differing sums, if found. `is_of_hours`: a
    day's sums differ from those of its hours.
    """

    place: PeriodStart
    kept: int
    counted: int
    sums: Sequence[SumDifference] = ()
    is_of_hours: bool = False

    def describe(self) -> str:
        width, start = self.place
        period_name = "hour" if width == HOUR_S else "day"
        at = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")
        source = "its hours" if self.is_of_hours else "the stored records"
        found = "; ".join(each.describe() for each in self.sums)
        if self.missing_calls:
            beside = f" ({found})" if found else ""
            return (
                f"the totals have {self.counted} calls for the {period_name} from {at}, but {self.kept} are stored"
                f"{beside}"
            )
        return f"the totals for the {period_name} from {at} differ from {source}{found and f': {found}'}"

    @property
    def missing_calls(self) -> int:
        return self.kept - self.counted


@dataclass(frozen=True, kw_only=True)
class LedgerComparison:
    """
    The result of a comparison of the totals with the log.

    `missed`: how many record numbers the totals left out; at most `gone` of them can no longer be counted.
    `damaged`: unreadable records, all below the number `damaged_below`. Records below `end` were compared, or
    below the number in `ends` for a period listed there. `numbers`: lowest and highest stored number by
    period. `suspects`: periods that left-out numbers belong to. `unsure`: periods that damaged or deleted
    records may belong to. `damaged_names`: damaged names, and damaged sets of units and dimensions.
    """

    differences: Sequence[PeriodDifference] = ()
    missed: int = 0
    gone: int = 0
    damaged: int = 0
    damaged_below: int = 0
    is_done: bool = True  # False while the totals are counted again
    end: int = 1
    ends: Mapping[PeriodStart, int] = field(default_factory=dict)
    hourly: int = 0
    calls: Mapping[PeriodStart, int] = field(default_factory=dict)
    numbers: Mapping[PeriodStart, tuple[int, int]] = field(default_factory=dict)
    suspects: Sequence[PeriodStart] = ()
    unsure: frozenset[PeriodStart] = frozenset()
    damaged_names: int = 0
    rollups: int = 0  # rollups that differed from their days and will be rebuilt

    @property
    def is_incomplete(self) -> bool:
        return self.missed > self.gone

    def unexplained_differences(self) -> Sequence[PeriodDifference]:
        """Return the differences that damaged or deleted records do not explain."""
        excess = sum(max(0, -difference.missing_calls) for difference in self.differences)
        return [
            difference
            for difference in self.differences
            if difference.is_of_hours
            or difference.kept > difference.counted
            or (
                excess > self.damaged
                if difference.missing_calls
                else self._has_no_damaged_numbers(difference.place)
            )
        ]

    def _has_no_damaged_numbers(self, period_key: PeriodStart) -> bool:
        # a damaged record may be a correction
        lowest, _ = self.numbers.get(period_key, (0, 0))
        return lowest >= self.damaged_below

    def problem_sentences(self) -> Sequence[str]:
        return list(self._yield_problem_sentences())

    def _yield_problem_sentences(self) -> Iterator[str]:
        if not self.is_done:
            yield "the totals were not compared, because they are being counted again: repeat this when that is done"
        differences = self.unexplained_differences()
        for difference in differences[:MOST_TOLD]:
            yield f"{difference.describe()}: {MEND}"
        if len(differences) > MOST_TOLD:
            yield (
                f"the totals differ from the stored records in {len(differences) - MOST_TOLD}"
                " further hours and days"
            )
        if self.is_incomplete:
            yield (
                f"the totals left out {self.missed} record numbers, and at most {self.gone} of them no "
                f"longer have a record: {MEND}"
            )
        if self.damaged_names:
            yield f"{self.damaged_names} names of units of work or dimensions in the totals are damaged: {MEND}"
        if self.rollups:
            yield (
                f"{self.rollups} rollups of the totals differed from their days and are rebuilt automatically"
            )


@dataclass(kw_only=True)
class _StoredCounts:
    """
    Counts of stored records by period. `span`: the range of numbers, end excluded, in which the totals missed
    records. `kept_in_span`: how many of these the log stores. `near_unread`: periods next to gaps or damaged
    records.
    """

    span: tuple[int, int]
    hourly: int
    calls: Counter[PeriodStart] = field(default_factory=Counter)
    lowest: dict[PeriodStart, int] = field(default_factory=dict)
    highest: dict[PeriodStart, int] = field(default_factory=dict)
    in_span: Counter[PeriodStart] = field(default_factory=Counter)
    kept_in_span: int = 0
    damaged: int = 0
    # record numbers at which a gap begins or a record is damaged
    unread: list[int] = field(default_factory=list)
    near_unread: set[PeriodStart] = field(default_factory=set)

    def note_entry(self, entry: LogEntry) -> None:
        damaged = [number for number, record in enumerate(entry.records, entry.first) if record is None]
        if damaged:
            self.damaged += len(damaged)
            self.unread += damaged
            self.near_unread.add(
                finest_stored_period(start_hour_or_arrival_hour(None, entry.committed_at), self.hourly)
            )
        if self.span[0] <= entry.last and entry.first < self.span[1]:
            self._count_records_in_span(entry)

    def _count_records_in_span(self, entry: LogEntry) -> None:
        for number, record in enumerate(entry.records, entry.first):
            if self.span[0] <= number < self.span[1]:
                self.kept_in_span += 1
                if record is not None and not record.shadow:
                    self.in_span[
                        finest_stored_period(
                            start_hour_or_arrival_hour(record.start_time, entry.committed_at), self.hourly
                        )
                    ] += 1

    def uncertain_periods(self, period_keys: Sequence[PeriodStart]) -> frozenset[PeriodStart]:
        return frozenset(
            period_key
            for period_key in period_keys
            if period_key in self.near_unread
            or self._has_unread_record_number(self.lowest.get(period_key, 1), self.highest.get(period_key, 0))
        )

    def _has_unread_record_number(self, lowest: int, highest: int) -> bool:
        index = bisect_left(self.unread, lowest)
        return index < len(self.unread) and self.unread[index] <= highest


async def compare_log_with_totals(
    record_log: ReadableLog,
    read: Read,
    *,
    oldest: Callable[[], Awaitable[int]],
    recalculations: Callable[[Mapping[str, int]], Awaitable[Recalculations]],
    tag_lists: Callable[[Mapping[str, int]], Awaitable[TagLists]],
    unit_hasher: WorkUnitHasher,
    with_pauses: bool = False,
) -> LedgerComparison:
    """
    Compare all stored records with the totals, a few hundred at a time. `with_pauses`: pause between reads for
    other work.
    """
    for _ in range(TRIES):
        state, moment = await read(lambda rows: (read_state(rows), comparison_state(rows)))
        if state["rebuilding"]:
            break
        made = await recalculations(state), await tag_lists(state)
        comparison = _SumComparison(
            record_log, read, state, moment, *made, unit_hasher, with_pauses=with_pauses
        )
        try:
            return await comparison.run(oldest)
        except SumsMoved:
            continue
    return LedgerComparison(is_done=False)


class _SumComparison:
    def __init__(
        self,
        record_log: ReadableLog,
        read: Read,
        state_values: Mapping[str, int],
        moment: Mapping[str, int],
        recalculated: Recalculations,
        tag_lists: TagLists,
        unit_hasher: WorkUnitHasher,
        *,
        with_pauses: bool,
    ) -> None:
        self._log = record_log
        self._read = read
        self._state = state_values
        self._moment = moment
        self._recalculated = recalculated
        self._tag_lists = tag_lists
        self._digests = unit_hasher
        self._at_ease = with_pauses
        self._hourly = state_values["hourly"]
        self._checksums = Checksums()
        self._periods: dict[PeriodStart, CheckedPeriod] = {}
        self._unknown = CheckedPeriod(reach=state_values["reach"])
        self._counted = defaultdict[PeriodStart, list[int]](list)
        self._partly = PartialPrices(self._hourly)
        self._stored: StoredSums

    async def run(self, oldest: Callable[[], Awaitable[int]]) -> LedgerComparison:
        state, first = self._state, await oldest()
        firsts = await self._read(lambda rows: rows.lowest_number_by_period())
        self._stored = StoredSums(self._checksums, self._recalculated, moment=self._moment)
        wrong_days = await self._days_unlike_their_hours()
        reach = max([state["reach"], *(each.reach for each in self._periods.values())])
        end = min(reach, self._log.lowest_open_number(AI_TELEMETRY))
        span = (
            (state["missed_first"] or 1, state["missed_end"] or end)
            if state["missed"] > state["settled"]
            else (1, 1)
        )
        logged = _StoredCounts(span=span, hourly=self._hourly)
        await self._read_log(first, end, logged)
        await self._read(self._stored.check_state_unchanged)
        # retention may have deleted records during the comparison
        removed_below = await oldest()
        period_keys = [
            period_key
            for period_key in sorted(logged.calls.keys() | self._periods.keys())
            if _has_all_records(period_key, firsts, logged.lowest, removed_below)
        ]
        compared = set(period_keys)
        uncompared = sum(
            records for period_key, records in logged.in_span.items() if period_key not in compared
        )
        numbers = {
            period_key: (logged.lowest[period_key], logged.highest[period_key])
            for period_key in period_keys
            if period_key in logged.lowest
        }
        differing = [period_key for period_key in period_keys if self._is_different(period_key, logged)]
        found = await self._differing_sums(
            [each for each in differing if each in numbers][:MOST_TOLD], numbers
        )
        differences = [
            PeriodDifference(
                place=period_key,
                kept=logged.calls[period_key],
                counted=self._stored_period(period_key).calls,
                sums=found.get(period_key, ()),
            )
            for period_key in differing
        ]
        return LedgerComparison(
            differences=[*differences, *[await self._compare_day_with_hours(day) for day in wrong_days]],
            missed=state["missed"],
            gone=state["settled"] + max(0, span[1] - span[0] - logged.kept_in_span) + uncompared,
            damaged=logged.damaged,
            damaged_below=max(logged.unread, default=-1) + 1,
            end=end,
            ends={period_key: period.reach for period_key, period in self._periods.items()},
            hourly=self._hourly,
            calls={period_key: logged.calls[period_key] for period_key in period_keys},
            numbers=numbers,
            suspects=sorted(period_key for period_key in logged.in_span if period_key in compared),
            unsure=logged.uncertain_periods(period_keys),
            damaged_names=await self._count_damaged_units_and_dimensions(),
        )

    async def _days_unlike_their_hours(self) -> Sequence[int]:
        starts: dict[int, list[int]] = {}
        hours, days = await self._read(
            lambda rows: (rows.period_starts(HOUR_S, 0), rows.period_starts(DAY_S, 0))
        )
        for width, stored in ((DAY_S, days), (HOUR_S, hours)):
            for start in stored:
                day = starts.setdefault(start // DAY_S * DAY_S, [])
                if (width == HOUR_S) == (start >= self._hourly):
                    day.append(start)
        wrong = []
        for day_start, its_starts in sorted(starts.items()):
            began = time.monotonic()
            periods, is_right = await self._read(
                partial(self._stored.read_periods_of_day, starts=its_starts, day=day_start)
            )
            self._periods |= periods
            if not is_right:
                wrong.append(day_start)
            await self._pause_between_steps(began)
        return wrong

    async def _read_log(self, first_number: int, end_number: int, logged: _StoredCounts) -> None:
        sums = self._new_recount(
            lambda number, hour: number >= self._stored_period(self._period_key(hour)).reach
        )
        for number in range(first_number, end_number, STEP):
            began = time.monotonic()
            following, last = number, min(number + STEP, end_number) - 1
            for entry in await self._log.read(AI_TELEMETRY, number, last, must_be_closed=True):
                if entry.first > following:
                    logged.unread.append(following)
                    logged.near_unread.add(
                        self._period_key(start_hour_or_arrival_hour(None, entry.committed_at))
                    )
                following = entry.last + 1
                logged.note_entry(entry)
                for part in entry.split(max_records_at_once()):
                    sums.sums.add_entries([part])
                    await pause_for_others()
            if following <= last:
                logged.unread.append(following)
            for hour, lowest in sums.sums.first.items():
                period_key = self._period_key(hour)
                logged.lowest[period_key] = min(lowest, logged.lowest.get(period_key, lowest))
                logged.highest[period_key] = min(last, self._stored_period(period_key).reach - 1)
            await self._add_checksums(sums, logged)
            await self._pause_between_steps(began)

    def _new_recount(self, is_number_at_hour_skipped: Callable[[int, int], bool]) -> RecountedSums:
        restated = partial(
            self._recalculated.recalculated_call, note_recalculation=self._partly.note_whether_priced
        )
        sums = HourlySums(
            tags_of=self._tag_lists.tags_at,
            unit_hasher=self._digests,
            skip=is_number_at_hour_skipped,
            restated=restated if self._recalculated.mark else None,
        )
        return RecountedSums(sums, self._read, self._hourly)

    async def _add_checksums(self, sums: RecountedSums, logged: _StoredCounts) -> None:
        await sums.load_unit_set_numbers()
        most = max_records_at_once()
        for count, (period_key, cell) in enumerate(sums.sums_by_period()):
            if cell.units is None and cell.measures:
                logged.calls[period_key] += cell.measures[0]
            views = self._stored_period(period_key).views
            counted = self._counted[period_key]
            if not counted:
                counted += [0] * len(views)
            for index, view in enumerate(views):
                counted[index] += self._checksums.checksum_of(view, cell)
            if not count % most:
                await pause_for_others()
        sums.sums.clear()

    def _period_key(self, hour: int) -> PeriodStart:
        return finest_stored_period(hour, self._hourly)

    def _stored_period(self, period_key: PeriodStart) -> CheckedPeriod:
        return self._periods.get(period_key, self._unknown)

    def _checksum_index(self, period_key: PeriodStart) -> int:
        return -1 if period_key in self._partly.places else 0

    def _is_different(self, period_key: PeriodStart, logged: _StoredCounts) -> bool:
        stored, view = self._stored_period(period_key), self._checksum_index(period_key)
        counted = self._counted[period_key] or [0]
        return stored.calls != logged.calls[period_key] or stored.checksums[view] != counted[view]

    async def _differing_sums(
        self, period_keys: Sequence[PeriodStart], numbers: Mapping[PeriodStart, tuple[int, int]]
    ) -> Mapping[PeriodStart, Sequence[SumDifference]]:
        """
        Read the records of these periods again and return their differing sums. If they do not fit into
        memory, return only those of the first period, or {} if even these do not fit.
        """
        if not period_keys:
            return {}
        chosen = {*period_keys}
        sums = self._new_recount(
            lambda number, hour: (
                self._period_key(hour) not in chosen
                or number >= self._stored_period(self._period_key(hour)).reach
            )
        )
        lowest, highest = zip(*(numbers[period_key] for period_key in period_keys), strict=True)
        for number in range(min(lowest), max(highest) + 1, STEP):
            last = min(number + STEP, max(highest) + 1) - 1
            for entry in await self._log.read(AI_TELEMETRY, number, last, must_be_closed=True):
                for part in entry.split(max_records_at_once()):
                    sums.sums.add_entries([part])
                    await pause_for_others()
            if sums.sums.count_sums() > MOST_SUMS:
                return await self._differing_sums(period_keys[:1], numbers) if period_keys[1:] else {}
        await sums.load_unit_set_numbers()
        counted = defaultdict[PeriodStart, list[CheckedSum]](list)
        for period_key, cell in sums.sums_by_period():
            counted[period_key].append(cell)
        return {
            period_key: await self._differences_in_period(period_key, counted[period_key])
            for period_key in period_keys
        }

    async def _differences_in_period(
        self, place: PeriodStart, counted: Sequence[CheckedSum]
    ) -> Sequence[SumDifference]:
        period_key = self._stored_period(place)
        view = period_key.views[self._checksum_index(place)]

        def differences_if_unchanged(ledger_rows: LedgerRows) -> Sequence[SumDifference]:
            # if the sums changed since they were counted, a difference proves nothing
            if read_state(ledger_rows)["reach"] != period_key.reach and not self._is_unchanged(
                ledger_rows, place
            ):
                return ()
            return sum_differences(
                ledger_rows, view, counted, self._stored.sums_and_unit_sums(ledger_rows, place)
            )

        found: Sequence[SumDifference] = await self._read(differences_if_unchanged)
        return found

    def _is_unchanged(self, ledger_rows: LedgerRows, period_key: PeriodStart) -> bool:
        stored = self._stored_period(period_key)
        of_view = partial(self._checksums.checksum_of, stored.views[0])
        return (
            sum(map(of_view, self._stored.sums_and_unit_sums(ledger_rows, period_key))) == stored.checksums[0]
        )

    async def _compare_day_with_hours(self, day: int) -> PeriodDifference:
        def compare_day_sums(ledger_rows: LedgerRows) -> PeriodDifference:
            view, of_hours, of_day = self._stored.sums_of_hours_and_of_day(ledger_rows, day)
            kept, counted = (
                sum(cell.measures[0] for cell in cells if cell.measures) for cells in (of_hours, of_day)
            )
            sums = sum_differences(ledger_rows, view, of_hours, of_day)
            return PeriodDifference(
                place=(DAY_S, day), kept=kept, counted=counted, sums=sums, is_of_hours=True
            )

        difference: PeriodDifference = await self._read(compare_day_sums)
        return difference

    async def _count_damaged_units_and_dimensions(self) -> int:
        wrong = 0
        for find in ("unit_sets_with_wrong_hash", "unit_names_with_wrong_hash", "damaged_dimension_sets"):
            after: int | None = -1
            while after is not None:
                began = time.monotonic()
                found, after = await self._read(methodcaller(find, after, NAMES_AT_ONCE))
                wrong += len(found)
                await self._pause_between_steps(began)
        return wrong

    async def _pause_between_steps(self, began: float) -> None:
        await asyncio.sleep((time.monotonic() - began) * REST if self._at_ease else 0)


def _has_all_records(
    period_key: PeriodStart,
    counted_lowest_numbers: Mapping[PeriodStart, int],
    logged_lowest_numbers: Mapping[PeriodStart, int],
    deleted_below_number: int,
) -> bool:
    """
    Return whether all counted records of the period are stored: its lowest number, as the
    totals or the log have it, is not below `deleted_below_number`.
    """
    known = [
        numbers[period_key]
        for numbers in (counted_lowest_numbers, logged_lowest_numbers)
        if period_key in numbers
    ]
    return bool(known) and min(known) >= deleted_below_number


# -- repair: periods that lack records are counted again from the log ----------------------------------------


LOOK_S = 60.0  # seconds between checks whether a comparison is due
EVERY_S = DAY_S
# maximum sums of a period that is counted again, because all are in memory
MOST_SUMS = 100_000

_log = logging.getLogger(__name__)


class PeriodRecount:
    """
    A recount of periods from the log: of the records in a range, and then of those that the totals counted since
    the number `later`. `hourly`: start of the stored hours in epoch seconds.
    """

    def __init__(
        self,
        period_keys: Collection[PeriodStart],
        *,
        record_numbers: tuple[int, int],
        later: int,
        hourly: int,
        tag_lists: TagLists,
        unit_hasher: WorkUnitHasher,
        recalculated: Recalculations,
    ) -> None:
        self.hourly = hourly
        self._ranges = [record_numbers, (later, later)]
        self._is_whole = True
        self.marks = tag_lists.mark, recalculated.mark
        self.sums = HourlySums(
            tags_of=tag_lists.tags_at,
            unit_hasher=unit_hasher,
            skip=lambda _, hour: finest_stored_period(hour, hourly) not in period_keys,
            restated=recalculated.recalculated_call,
        )

    def hours_of_period(self, period_key: PeriodStart) -> Sequence[int]:
        return [hour for hour in self.sums.hours if finest_stored_period(hour, self.hourly) == period_key]

    def count_calls(self, period_key: PeriodStart) -> int:
        hours = self.hours_of_period(period_key)
        return sum(row[0] for hour in hours for row in self.sums.hours[hour].values())

    @property
    def end_record_number(self) -> int:
        return self._ranges[-1][1]

    async def recount_range_and_check_complete(self, record_log: ReadableLog) -> bool:
        """
        Count the records of the range. Return False if some of them are deleted, or if they make too many sums.
        """
        first, end = self._ranges[0]
        await self._add_records(record_log, first, end)
        return self._is_whole

    async def recount_records_until_and_check_complete(
        self, record_log: ReadableLog, end_record_number: int
    ) -> bool:
        """
        Count the records that the totals have counted since the comparison. Return False if records are
        missing.
        """
        await self._add_records(record_log, self.end_record_number, end_record_number)
        self._ranges[-1] = (self._ranges[-1][0], max(self.end_record_number, end_record_number))
        return self._is_whole

    async def _add_records(self, record_log: ReadableLog, first_number: int, end_number: int) -> None:
        for number in range(first_number, end_number, STEP):
            last = min(number + STEP, end_number) - 1
            record_count = 0
            for entry in await record_log.read(AI_TELEMETRY, number, last, must_be_closed=True):
                record_count += len(entry.records)
                for part in entry.split(max_records_at_once()):
                    self.sums.add_entries([part])
                    await pause_for_others()
            are_few = sum(map(len, self.sums.hours.values())) <= MOST_SUMS
            self._is_whole &= record_count == last + 1 - number and not self.sums.damaged and are_few
            if not self._is_whole:
                return


def groups_of_periods(
    ledger_rows: LedgerRows, period_keys: Sequence[PeriodStart]
) -> Sequence[tuple[int, Sequence[PeriodStart]]]:
    """
    Return groups of periods that can be counted again together, because all their sums fit in memory. Each has
    the number of its first record.
    """
    lowest_numbers = ledger_rows.lowest_number_by_period()
    groups: list[tuple[int, list[PeriodStart]]] = []
    left = 0
    for period_key in sorted(period_keys, key=lambda key: lowest_numbers[key]):
        count = len(ledger_rows.dimension_set_numbers_in_period(*period_key))
        if not groups or count > left:
            groups.append((lowest_numbers[period_key], []))
            left = MOST_SUMS
        groups[-1][1].append(period_key)
        left -= count
    return groups


def replace_period(
    ledger_rows: LedgerRows,
    placement: DimensionNumbering,
    recount: PeriodRecount,
    period_key: PeriodStart,
    *,
    keeps_calls: bool = False,
) -> bool:
    """
    Replace a period's sums by the recount. Change nothing and return False if the totals counted more records
    meanwhile, or with `keeps_calls` if the recount has another number of calls.
    """
    if keeps_calls:
        stored_calls = sum(measures[0] for _, measures in ledger_rows.read_sums(*period_key))
        if stored_calls != recount.count_calls(period_key):
            return False
    state = read_state(ledger_rows)
    seen = recount.end_record_number, 0, recount.hourly, *recount.marks
    if tuple(map(state.get, ("reach", "rebuilding", "hourly", TAGGED, RECALCULATED))) != seen:
        return False
    width, start = period_key
    hours = {*recount.hours_of_period(period_key)}
    day = start // DAY_S * DAY_S
    # whether the sum of the day was made from its hours
    has_day = width == HOUR_S and day < state["daily"]
    for table_width, begin in [(width, start), *([(DAY_S, day)] if has_day else [])]:
        ledger_rows.delete_sums(
            table_width,
            [(begin, number) for number in ledger_rows.dimension_set_numbers_in_period(table_width, begin)],
        )
        ledger_rows.drop_meters(table_width, begin)
    placement.forget_numbers()
    sums = [row for row in recount.sums.hourly_rows() if row[0] in hours]
    numbers = placement.find_or_assign_dimension_set_numbers(
        ledger_rows, width, start, [dimensions for _, dimensions, _ in sums]
    )
    ledger_rows.add_sums(
        width, [(start, number, measures) for number, (_, _, measures) in zip(numbers, sums, strict=True)]
    )
    number_of: dict[DimensionValues, int] = {
        dimensions: number for number, (_, dimensions, _) in zip(numbers, sums, strict=True)
    }
    meters = [
        (start, number_of[dimensions], amounts)
        for hour, dimensions, amounts in recount.sums.meter_rows()
        if hour in hours
    ]
    note_charges_in_other_currencies(ledger_rows, (amounts for _, _, amounts in meters))
    ledger_rows.add_meters(width, meters)
    ledger_rows.delete_unit_sums(start)
    work = [each for hour in sorted(hours) for each in work_sums(recount.sums, hour, start, number_of)]
    ledger_rows.add_unit_sums(work, recount.sums.work_names, recount.sums.work_edges)
    if has_day:
        ledger_rows.make_daily_sums_from_hours(day)
    lowest = min((recount.sums.first[hour] for hour in hours if hour in recount.sums.first), default=0)
    if lowest:
        ledger_rows.store_lowest_record_numbers([(width, start, lowest)])
    return True


def sum_day_again_if_possible(ledger_rows: LedgerRows, day: int) -> bool:
    """
    Make a day's sums from its hours again. Return False if the hours are deleted, or if the day has no sum.
    """
    state = read_state(ledger_rows)
    if state["rebuilding"] or not state["hourly"] <= day < state["daily"]:
        return False
    ledger_rows.delete_sums(
        DAY_S, [(day, number) for number in ledger_rows.dimension_set_numbers_in_period(DAY_S, day)]
    )
    ledger_rows.drop_meters(DAY_S, day)
    ledger_rows.make_daily_sums_from_hours(day)
    return True


def store_comparison_and_return_missed_count(
    ledger_rows: LedgerRows,
    compared: LedgerComparison,
    *,
    calls_added_by_repair: int,
    is_ledger_repaired: bool,
    remaining_differences: int,
    now: int,
) -> int:
    """
    Store a comparison's result. Return the new number of missed records.

    Numbers missed since the comparison are searched for in the next one.
    """
    state = read_state(ledger_rows)
    since = state["missed"] - compared.missed
    missed = compared.missed
    if is_ledger_repaired:
        # it is unknown which of the missed record numbers the repair has counted
        missed = min(
            missed,
            compared.gone
            if state["missed_first"]
            else min(compared.gone, max(0, missed - calls_added_by_repair)),
        )
    ledger_rows.set_state(
        settled=missed, compared=now, differing=remaining_differences, left=remaining_differences
    )
    if not since:
        ledger_rows.set_state(missed_first=0, missed_end=0)
    lower_missed_record_count(ledger_rows, new_count=missed + since)
    return missed + since


class MendableLedger(Protocol):
    async def is_comparison_due(self, now: float) -> bool: ...

    async def compare_and_note_differences(
        self, record_log: ReadableLog, *, with_pauses: bool = False
    ) -> LedgerComparison: ...

    async def replace_period(
        self, record_log: ReadableLog, compared: LedgerComparison, period_key: PeriodStart
    ) -> bool: ...

    async def sum_day_again_if_possible(self, day: int) -> bool: ...

    async def store_comparison_and_return_missed_count(
        self,
        compared: LedgerComparison,
        *,
        calls_added_by_repair: int,
        is_ledger_repaired: bool,
        remaining_differences: int,
        now: int,
    ) -> int: ...


@dataclass(kw_only=True)
class LedgerMender:
    """
    A task that compares and repairs the totals, in the process that counts. It calls `changed` after
    replacing sums.
    """

    ledger: MendableLedger
    log: ReadableLog
    clock: Clock
    changed: Callable[[], None] = lambda: None
    _logged_places: frozenset[PeriodStart] = field(default_factory=frozenset)

    async def run(self) -> None:
        """Compare and repair whenever a comparison is due, until cancelled."""

        async def compare_if_due() -> None:
            if await self.ledger.is_comparison_due(self.clock.now()):
                await self.compare_and_repair()

        await repeat(
            compare_if_due,
            every_s=LOOK_S,
            failed="the totals could not be compared with the log and will be compared later",
            action="comparison_put_off",
        )

    async def compare_and_repair(self) -> None:
        """
        Compare the totals with the log. Count periods again that lack calls, differ as days from their hours,
        or may lack record numbers that were left out.
        """
        compared = await self.ledger.compare_and_note_differences(self.log, with_pauses=True)
        if not compared.is_done:
            return
        differing = {difference.place: difference for difference in compared.unexplained_differences()}
        short = [
            period_key
            for period_key, difference in differing.items()
            if difference.missing_calls >= 0 or difference.is_of_hours
        ]
        to_recount = sorted({*short, *(compared.suspects if compared.is_incomplete else ())})
        recounted: set[PeriodStart] = set()

        async def repair(period_key: PeriodStart) -> None:
            if await self._try_repair_period(compared, period_key):
                recounted.add(period_key)

        log = failure_logger("an hour or day of the totals could not be repaired", action="ledger_not_mended")
        await for_each_item(to_recount, repair, log)
        gained = sum(
            difference.missing_calls
            for period_key, difference in differing.items()
            if period_key in recounted
        )
        unrepaired = [
            difference for period_key, difference in differing.items() if period_key not in recounted
        ]
        missed = await self.ledger.store_comparison_and_return_missed_count(
            compared,
            calls_added_by_repair=gained,
            is_ledger_repaired=len(recounted) == len(to_recount),
            remaining_differences=len(unrepaired),
            now=int(self.clock.now()),
        )
        if recounted:
            _log.warning(
                "%d hours and days of the totals were counted again, which added %d missing calls. "
                "%d record numbers had been left out, and %d still are",
                len(recounted),
                gained,
                compared.missed,
                missed,
                extra={"action": "ledger_mended", "calls": gained},
            )
            self.changed()
        self._log_new_unrepaired_differences(unrepaired)

    async def _try_repair_period(self, compared: LedgerComparison, period_key: PeriodStart) -> bool:
        width, start = period_key
        if width == DAY_S and start >= compared.hourly:
            return await self.ledger.sum_day_again_if_possible(start)
        is_known = period_key in compared.numbers and period_key not in compared.unsure
        return is_known and await self.ledger.replace_period(self.log, compared, period_key)

    def _log_new_unrepaired_differences(self, unrepaired: Sequence[PeriodDifference]) -> None:
        period_keys = frozenset(difference.place for difference in unrepaired)
        if period_keys - self._logged_places:
            message = "; ".join(difference.describe() for difference in unrepaired[:MOST_TOLD])
            _log.error(
                "%d hours and days of the totals differ from the stored records and were not changed: %s",
                len(unrepaired),
                message,
                extra={"action": "ledger_differs"},
            )
        self._logged_places = period_keys
