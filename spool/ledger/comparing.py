"""
Comparison of the totals with the log: stored records are counted again by hour or day and compared with the sums.

A period is compared only if all its counted records are still stored. Calls and meters are compared, and money and
dimensions are not.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

from spool.clock import Clock
from spool.errors import SpoolError
from spool.ledger.counting import (
    RECALCULATED,
    WIDTHS,
    Placement,
    lower_missed,
    note_charges,
    period,
    state_of,
    work_sums,
)
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.recalculations import Recalculations
from spool.ledger.sums import DAY_S, HOUR_S, DimensionValues, HourlySums, MeterSums, hour_of
from spool.ledger.work import Digests
from spool.log.protocols import ReadableLog
from spool.log.values import Entry
from spool.meters import quantity_of
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import others_are_there, pause

STEP = 512  # record numbers per read
AT_ONCE = 100  # number of records that are added up without a pause
AT_ONCE_BESIDE = 25  # number of records that are added up without a pause while other requests are running
# if the comparison is not urgent, the pause after a slice of work lasts this many times as long as the slice
REST = 4
_NO_METERS: Mapping[Any, MeterSums] = {}
MOST_TOLD = 10  # maximum number of periods that a message lists
MEND = "run `tollhouse ledger rebuild` to count the stored records again"


def at_once() -> int:
    """Return the number of records to add up in one step of the event loop."""
    return AT_ONCE_BESIDE if others_are_there() else AT_ONCE


Place = tuple[int, int]  # width and start of a period
Read = Callable[[Callable[[LedgerRows], Any]], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class PeriodDifference:
    """
    A period with a different number of calls in the log and in the totals.

    If the calls are equal, `meter` names a meter with different quantities, in millionths.
    """

    place: Place
    kept: int
    counted: int
    meter: str = ""

    def words(self) -> str:
        width, start = self.place
        period_name = "hour" if width == HOUR_S else "day"
        at = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if self.meter.startswith("charge."):
            return (
                f"the totals have other charges in {self.meter.split('.')[1]} for the {period_name} from {at} "
                "than the stored records"
            )
        if self.meter:
            counted, stored = quantity_of(self.counted), quantity_of(self.kept)
            return f"the totals have {counted} of {self.meter} for the {period_name} from {at}, but {stored} are stored"
        return f"the totals have {self.counted} calls for the {period_name} from {at}, but {self.kept} are stored"

    @property
    def missing_calls(self) -> int:
        return 0 if self.meter else self.kept - self.counted


@dataclass(frozen=True, kw_only=True)
class LedgerComparison:
    """
    Result of a comparison of the totals with the log.

    `missed` counts the record numbers that the totals left out. At most `gone` of them cannot be counted any
    more. `damaged` counts unreadable records. All numbers below `end` were compared. `numbers` has the lowest
    and highest stored number of each compared period. `suspects` are periods to which left-out numbers
    belong. `unsure` are periods to which damaged or deleted records may belong.
    """

    differences: Sequence[PeriodDifference] = ()
    missed: int = 0
    gone: int = 0
    damaged: int = 0
    is_done: bool = True  # False if no comparison was made, because a rebuild runs
    end: int = 1
    hourly: int = 0
    calls: Mapping[Place, int] = field(default_factory=dict)
    numbers: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    suspects: Sequence[Place] = ()
    unsure: frozenset[Place] = frozenset()
    rollups: int = 0  # number of rollups that differed from their days and will be rebuilt

    @property
    def lacks(self) -> bool:
        """Return True if stored records were left out."""
        return self.missed > self.gone

    def told(self) -> Sequence[PeriodDifference]:
        """Return the differences that damaged or deleted records do not explain."""
        excess = sum(max(0, -difference.missing_calls) for difference in self.differences)
        return [
            difference
            for difference in self.differences
            if difference.kept > difference.counted
            or (not self.damaged if difference.meter else excess > self.damaged)
        ]

    def words(self) -> Sequence[str]:
        """Return one sentence for each problem, with its remedy."""
        return list(self._words())

    def _words(self) -> Iterator[str]:
        differences = self.told()
        for difference in differences[:MOST_TOLD]:
            yield f"{difference.words()}: {MEND}"
        if len(differences) > MOST_TOLD:
            yield (
                f"the totals differ from the stored records in {len(differences) - MOST_TOLD}"
                " further hours and days"
            )
        if self.lacks:
            yield (
                f"the totals left out {self.missed} record numbers, and at most {self.gone} of them no "
                f"longer have a record: {MEND}"
            )
        if self.rollups:
            yield (
                f"{self.rollups} rollups of the totals differed from their days and are rebuilt automatically"
            )


@dataclass(kw_only=True)
class _Kept:
    """
    Counts of the stored records. `span` is the range of numbers in which the left-out numbers are; its
    end is excluded.
    """

    span: tuple[int, int]
    hourly: int
    calls: Counter[Place] = field(default_factory=Counter)
    meters: dict[Place, Counter[str]] = field(default_factory=dict)
    lowest: dict[Place, int] = field(default_factory=dict)
    highest: dict[Place, int] = field(default_factory=dict)
    in_span: Counter[Place] = field(default_factory=Counter)
    kept_in_span: int = 0
    damaged: int = 0
    # numbers at which a gap begins, or that belong to a damaged record
    unread: list[int] = field(default_factory=list)
    near_unread: set[Place] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        sums = HourlySums()
        sums.add([entry])
        for hour, lowest in sums.first.items():
            period_key = period(hour, self.hourly)
            self.lowest[period_key] = min(lowest, self.lowest.get(period_key, lowest))
            self.highest[period_key] = entry.last
            self.calls[period_key] += sum(measures[0] for measures in sums.hours[hour].values())
            for meter_sums in sums.meters.get(hour, _NO_METERS).values():
                self.meters.setdefault(period_key, Counter()).update(meter_sums)
        if sums.damaged:
            self.damaged += sums.damaged
            self.unread += [
                number for number, record in enumerate(entry.records, entry.first) if record is None
            ]
            self.near_unread.add(period(hour_of(None, entry.committed_at), self.hourly))
        for number, record in enumerate(entry.records, entry.first):
            if self.span[0] <= number < self.span[1]:
                self.kept_in_span += 1
                if record is not None and not record.shadow:
                    self.in_span[period(hour_of(record.start_time, entry.committed_at), self.hourly)] += 1

    def unsure(self, places: Sequence[Place]) -> frozenset[Place]:
        """Return the periods that an unreadable record may belong to."""
        return frozenset(
            period_key
            for period_key in places
            if period_key in self.near_unread
            or self._has_unread(self.lowest.get(period_key, 1), self.highest.get(period_key, 0))
        )

    def _has_unread(self, lowest: int, highest: int) -> bool:
        index = bisect_left(self.unread, lowest)
        return index < len(self.unread) and self.unread[index] <= highest


async def compare(
    log: ReadableLog, read: Read, *, oldest: Callable[[], Awaitable[int]], at_ease: bool = False
) -> LedgerComparison:
    """
    Compare all stored records with the totals, a few hundred at a time. While a rebuild runs, nothing is
    compared, and the result has `is_done` False.
    """
    first = await oldest()
    state, counted, firsts, meters = await read(
        lambda rows: (state_of(rows), _calls(rows), rows.firsts(), _meters(rows))
    )
    if state["rebuilding"]:
        return LedgerComparison(is_done=False)
    end = min(state["reach"], log.closed_below(AI_TELEMETRY))
    span = (
        (state["missed_first"] or 1, state["missed_end"] or end)
        if state["missed"] > state["settled"]
        else (1, 1)
    )
    logged = await _kept(log, first, end, _Kept(span=span, hourly=state["hourly"]), at_ease=at_ease)
    # the oldest number is read again, because retention continues during the comparison
    removed_below = await oldest()
    places = [
        period_key
        for period_key in sorted(logged.calls.keys() | counted.keys())
        if _is_kept(period_key, firsts, logged.lowest, removed_below)
    ]
    compared = set(places)
    uncompared = sum(records for period_key, records in logged.in_span.items() if period_key not in compared)
    of_calls: list[PeriodDifference] = []
    of_meters: list[PeriodDifference] = []
    for period_key in places:
        calls, sums = logged.calls[period_key], counted.get(period_key, 0)
        if calls != sums:
            of_calls.append(PeriodDifference(place=period_key, kept=calls, counted=sums))
            continue
        difference = _of_meters(period_key, logged.meters.get(period_key, {}), meters.get(period_key, {}))
        if difference is not None:
            of_meters.append(difference)
    return LedgerComparison(
        differences=of_calls + of_meters,
        missed=state["missed"],
        gone=state["settled"] + max(0, span[1] - span[0] - logged.kept_in_span) + uncompared,
        damaged=logged.damaged,
        end=end,
        hourly=state["hourly"],
        calls={period_key: logged.calls[period_key] for period_key in places},
        numbers={
            period_key: (logged.lowest[period_key], logged.highest[period_key])
            for period_key in places
            if period_key in logged.lowest
        },
        suspects=sorted(period_key for period_key in logged.in_span if period_key in compared),
        unsure=logged.unsure(places),
    )


def _is_kept(
    period_key: Place, firsts: Mapping[Place, int], lowest: Mapping[Place, int], removed_below: int
) -> bool:
    """
    Return True if all counted records of a period are still stored. If the totals never counted the period,
    only the log has a number for it.
    """
    known = [numbers[period_key] for numbers in (firsts, lowest) if period_key in numbers]
    return bool(known) and min(known) >= removed_below


def _calls(rows: LedgerRows) -> Mapping[Place, int]:
    """
    Return the number of calls of each period. Days whose hours are stored are left out, because they are sums
    of the hours.
    """
    hourly = state_of(rows)["hourly"]
    return {
        (width, start): calls
        for width in WIDTHS
        for start, calls in rows.calls(width).items()
        if (width == HOUR_S) == (start >= hourly)
    }


def _meters(rows: LedgerRows) -> Mapping[Place, MeterSums]:
    """Return the meters of each period. The periods are the same as in `_calls`."""
    hourly = state_of(rows)["hourly"]
    return {
        (width, start): meters
        for width in WIDTHS
        for start, meters in rows.meters_by_start(width).items()
        if (width == HOUR_S) == (start >= hourly)
    }


def _of_meters(
    period_key: Place, stored: Mapping[str, int], counted: Mapping[str, int]
) -> PeriodDifference | None:
    """Return the first meter whose quantities differ, or None if all agree."""
    for name in sorted(stored.keys() | counted.keys()):
        if stored.get(name, 0) != counted.get(name, 0):
            return PeriodDifference(
                place=period_key, kept=stored.get(name, 0), counted=counted.get(name, 0), meter=name
            )
    return None


async def _kept(log: ReadableLog, first: int, end: int, logged: _Kept, *, at_ease: bool) -> _Kept:
    loop = asyncio.get_running_loop()
    for number in range(first, end, STEP):
        began = loop.time()
        following = number
        for entry in await log.read(AI_TELEMETRY, number, min(number + STEP, end) - 1, whole=True):
            if entry.first > following:
                logged.unread.append(following)
                logged.near_unread.add(period(hour_of(None, entry.committed_at), logged.hourly))
            following = entry.last + 1
            for part in entry.parts(at_once()):
                logged.add(part)
                await pause()
        if following < min(number + STEP, end):
            logged.unread.append(following)
        await asyncio.sleep((loop.time() - began) * REST if at_ease else 0)
    return logged


# -- repair: periods that lack records are counted again from the log ----------------------------------------


LOOK_S = 60.0  # seconds between checks whether a comparison is due; a check reads one row
EVERY_S = DAY_S
# maximum number of sums in a period that is counted again, because all of them are held in memory
MOST_SUMS = 100_000

_log = logging.getLogger(__name__)


class PeriodRecount:
    """
    Sums of one period, counted again from the log. The records of the comparison are read first, then the
    records that the totals have counted since.
    """

    def __init__(
        self,
        compared: LedgerComparison,
        place: Place,
        tags: Sequence[str],
        digests: Digests,
        recalculated: Recalculations,
    ) -> None:
        self.place = place
        self.hourly = compared.hourly
        self.lowest, highest = compared.numbers[place]
        self._ranges = [(self.lowest, highest + 1), (compared.end, compared.end)]
        self._kept = compared.calls[place]
        self._is_whole = True
        self.recalculated = recalculated.mark
        self.sums = HourlySums(
            tags,
            digests=digests,
            skip=lambda _, hour: period(hour, self.hourly) != place,
            restated=recalculated.restated,
        )

    @property
    def reach(self) -> int:
        return self._ranges[-1][1]

    async def read(self, log: ReadableLog) -> bool:
        """
        Read the records that were compared. Return False if some of them are deleted, or if they make
        too many sums.
        """
        first, end = self._ranges[0]
        await self._add(log, first, end)
        calls = sum(row[0] for rows in self.sums.hours.values() for row in rows.values())
        return self._is_whole and calls == self._kept

    async def read_until(self, log: ReadableLog, reach: int) -> bool:
        """Read also the records that the totals have counted since the comparison."""
        await self._add(log, self.reach, reach)
        self._ranges[-1] = (self._ranges[-1][0], max(self.reach, reach))
        return self._is_whole

    async def _add(self, log: ReadableLog, first: int, end: int) -> None:
        for number in range(first, end, STEP):
            last = min(number + STEP, end) - 1
            record_count = 0
            for entry in await log.read(AI_TELEMETRY, number, last, whole=True):
                record_count += len(entry.records)
                for part in entry.parts(at_once()):
                    self.sums.add([part])
                    await pause()
            are_few = sum(map(len, self.sums.hours.values())) <= MOST_SUMS
            self._is_whole &= record_count == last + 1 - number and not self.sums.damaged and are_few
            if not self._is_whole:
                return


def replace(rows: LedgerRows, placement: Placement, recount: PeriodRecount) -> bool:
    """
    Replace the sums of a period by the sums of a recount. If more records were counted in between, change
    nothing and return False.
    """
    state = state_of(rows)
    seen = recount.reach, 0, recount.hourly, recount.recalculated
    if (state["reach"], state["rebuilding"], state["hourly"], state[RECALCULATED]) != seen:
        return False
    width, start = recount.place
    day = start // DAY_S * DAY_S
    # the sum of the day was made from its hours, so it must be made again
    has_day = width == HOUR_S and day < state["daily"]
    for table_width, begin in [(width, start), *([(DAY_S, day)] if has_day else [])]:
        rows.remove(table_width, [(begin, number) for number in rows.numbers(table_width, begin)])
    placement.forget()
    sums = [*recount.sums.rows()]
    numbers = placement.numbers(rows, width, start, [dimensions for _, dimensions, _ in sums])
    rows.add(
        width, [(start, number, measures) for number, (_, _, measures) in zip(numbers, sums, strict=True)]
    )
    number_of: dict[DimensionValues, int] = {
        dimensions: number for number, (_, dimensions, _) in zip(numbers, sums, strict=True)
    }
    meters = [(start, number_of[dimensions], amounts) for _, dimensions, amounts in recount.sums.meter_rows()]
    note_charges(rows, (amounts for _, _, amounts in meters))
    rows.add_meters(width, meters)
    rows.drop_work(start)
    work = [each for hour in recount.sums.work for each in work_sums(recount.sums, hour, start, number_of)]
    rows.add_work(work, recount.sums.work_names, recount.sums.work_edges)
    if has_day:
        rows.sum_up_day(day)
    rows.note_periods([(width, start, recount.lowest)])
    return True


def settle(
    rows: LedgerRows, compared: LedgerComparison, *, gained: int, is_mended: bool, left: int, now: int
) -> int:
    """
    Store the result of a comparison, and lower the number of missed records. Return that number.

    `gained` is the number of calls that the repair added. Numbers that were missed since the comparison are
    searched the next time.
    """
    state = state_of(rows)
    since = state["missed"] - compared.missed
    missed = compared.missed
    if is_mended:
        # The comparison does not show which of the missed numbers the repair has found.
        missed = min(
            missed, compared.gone if state["missed_first"] else min(compared.gone, max(0, missed - gained))
        )
    rows.set_state(settled=missed, compared=now, differing=left, left=left)
    if not since:
        rows.set_state(missed_first=0, missed_end=0)
    lower_missed(rows, to=missed + since)
    return missed + since


class MendableLedger(Protocol):
    """The part of the ledger that a repair uses."""

    async def comparison_is_due(self, now: float) -> bool: ...

    async def compare(self, log: ReadableLog, *, at_ease: bool = False) -> LedgerComparison: ...

    async def replace(self, log: ReadableLog, compared: LedgerComparison, place: Place) -> bool: ...

    async def settle(
        self, compared: LedgerComparison, *, gained: int, is_mended: bool, left: int, now: int
    ) -> int: ...


@dataclass(kw_only=True)
class LedgerMender:
    """
    Task that keeps the totals right. Start `run` in the process that counts. `changed` is called after sums
    have been replaced.
    """

    ledger: MendableLedger
    log: ReadableLog
    clock: Clock
    changed: Callable[[], None] = lambda: None
    _told: frozenset[Place] = field(default_factory=frozenset)

    async def run(self) -> None:
        """Compare and repair whenever it is due, until cancelled. Failures are retried later."""
        while True:
            try:
                if await self.ledger.comparison_is_due(self.clock.now()):
                    await self.mend()
            except SpoolError as error:
                _log.warning(
                    "the totals could not be compared with the log and will be compared later: %s",
                    error,
                    extra={"action": "comparison_put_off"},
                )
            await asyncio.sleep(LOOK_S)

    async def mend(self) -> None:
        """
        Compare the totals with the log. Count those periods again that lack calls or have left-out numbers.
        """
        compared = await self.ledger.compare(self.log, at_ease=True)
        if not compared.is_done:
            return
        differing = {difference.place: difference for difference in compared.told()}
        short = [
            period_key for period_key, difference in differing.items() if difference.kept > difference.counted
        ]
        to_recount = sorted({*short, *(compared.suspects if compared.lacks else ())})
        recounted = {period_key for period_key in to_recount if await self._is_replaced(compared, period_key)}
        gained = sum(
            difference.missing_calls
            for period_key, difference in differing.items()
            if period_key in recounted
        )
        unrepaired = [
            difference for period_key, difference in differing.items() if period_key not in recounted
        ]
        missed = await self.ledger.settle(
            compared,
            gained=gained,
            is_mended=len(recounted) == len(to_recount),
            left=len(unrepaired),
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
        self._tell(unrepaired)

    async def _is_replaced(self, compared: LedgerComparison, period_key: Place) -> bool:
        is_known = period_key in compared.numbers and period_key not in compared.unsure
        return is_known and await self.ledger.replace(self.log, compared, period_key)

    def _tell(self, unrepaired: Sequence[PeriodDifference]) -> None:
        """Log the differences that remain. The same periods are logged only once."""
        places = frozenset(difference.place for difference in unrepaired)
        if places - self._told:
            message = "; ".join(difference.words() for difference in unrepaired[:MOST_TOLD])
            _log.error(
                "%d hours and days of the totals differ from the stored records and were not changed: %s",
                len(unrepaired),
                message,
                extra={"action": "ledger_differs"},
            )
        self._told = places
