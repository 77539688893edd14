"""
The log beside the ledger: what is kept, recounted by hour or day, and what the ledger has counted of the same time.

A period is compared if all that was counted in it is kept. Sums of money are not: they may have been priced again.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spool.ledger.counting import WIDTHS, period, state_of
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import HOUR_S, HourlySums, MeterSums, hour_of
from spool.log.protocols import ReadableLog
from spool.log.values import Entry
from spool.meters import quantity_of
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import others_are_there, pause

STEP = 512  # numbers that are read at once
AT_ONCE = 100  # records that are added up at once
AT_ONCE_BESIDE = 25  # the same while others have requests
REST = 4  # times as long as a slice takes, for whoever compares at ease
_NO_METERS: Mapping[Any, MeterSums] = {}
MOST_TOLD = 10  # periods
MEND = "`tollhouse ledger rebuild` counts again what is kept"


def at_once() -> int:
    """Return how many records are added up in one step of the event loop."""
    return AT_ONCE_BESIDE if others_are_there() else AT_ONCE


Place = tuple[int, int]  # width and start of a period
Read = Callable[[Callable[[LedgerRows], Any]], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class PeriodDifference:
    """
    A period in which the log keeps another number of calls than are counted, or of as many calls another
    quantity of a meter, in millionths.
    """

    place: Place
    kept: int
    counted: int
    meter: str = ""

    def words(self) -> str:
        width, start = self.place
        what = "hour" if width == HOUR_S else "day"
        at = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")
        if self.meter.startswith("charge."):
            return f"the ledger has other charges in {self.meter.split('.')[1]} of the {what} from {at} than are kept"
        if self.meter:
            counted, kept = quantity_of(self.counted), quantity_of(self.kept)
            return f"the ledger has {counted} of {self.meter} of the {what} from {at}, and {kept} are kept"
        return f"the ledger has {self.counted} calls of the {what} from {at}, and {self.kept} are kept"

    @property
    def missing_calls(self) -> int:
        return 0 if self.meter else self.kept - self.counted


@dataclass(frozen=True, kw_only=True)
class LedgerComparison:
    """
    `missed` numbers the ledger has passed over, of which `gone` at most cannot be counted again; `damaged`
    cannot be read. `end`: what has a lower number was compared. `numbers` are the lowest and the highest kept
    number of each period that was compared, `suspects` those that numbers which were passed over belong to,
    and `unsure` those that records which are damaged or gone may belong to.
    """

    differences: Sequence[PeriodDifference] = ()
    missed: int = 0
    gone: int = 0
    damaged: int = 0
    is_done: bool = True  # False while a rebuild goes on
    end: int = 1
    hourly: int = 0
    calls: Mapping[Place, int] = field(default_factory=dict)
    numbers: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    suspects: Sequence[Place] = ()
    unsure: frozenset[Place] = frozenset()
    rollups: int = 0  # that were not what their days are, and are made again

    @property
    def lacks(self) -> bool:
        """True if numbers were passed over though their records are kept."""
        return self.missed > self.gone

    def told(self) -> Sequence[PeriodDifference]:
        """The differences that damage does not account for."""
        excess = sum(max(0, -one.missing_calls) for one in self.differences)
        return [
            one
            for one in self.differences
            if one.kept > one.counted or (not self.damaged if one.meter else excess > self.damaged)
        ]

    def words(self) -> Sequence[str]:
        """A sentence for everything that is wrong, and what mends it."""
        return list(self._words())

    def _words(self) -> Iterator[str]:
        told = self.told()
        for one in told[:MOST_TOLD]:
            yield f"{one.words()}: {MEND}"
        if len(told) > MOST_TOLD:
            yield f"the ledger differs in {len(told) - MOST_TOLD} further hours and days"
        if self.lacks:
            yield f"the ledger has passed over {self.missed} numbers, and {self.gone} at most are gone: {MEND}"
        if self.rollups:
            yield f"{self.rollups} rollups of the ledger differed from their days: they are made again by themselves"


@dataclass(kw_only=True)
class _Kept:
    """What the log keeps. `span`: the numbers among which some were passed over, an end behind them."""

    span: tuple[int, int]
    hourly: int
    calls: Counter[Place] = field(default_factory=Counter)
    meters: dict[Place, Counter[str]] = field(default_factory=dict)
    lowest: dict[Place, int] = field(default_factory=dict)
    highest: dict[Place, int] = field(default_factory=dict)
    in_span: Counter[Place] = field(default_factory=Counter)
    kept_in_span: int = 0
    damaged: int = 0
    unread: list[int] = field(default_factory=list)  # numbers from which on some are damaged or gone
    near_unread: set[Place] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        """Add a part of an entry."""
        sums = HourlySums()
        sums.add([entry])
        for hour, lowest in sums.first.items():
            place = period(hour, self.hourly)
            self.lowest[place] = min(lowest, self.lowest.get(place, lowest))
            self.highest[place] = entry.last
            self.calls[place] += sum(measures[0] for measures in sums.hours[hour].values())
            for found in sums.meters.get(hour, _NO_METERS).values():
                self.meters.setdefault(place, Counter()).update(found)
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
            place
            for place in places
            if place in self.near_unread
            or self._has_unread(self.lowest.get(place, 1), self.highest.get(place, 0))
        )

    def _has_unread(self, lowest: int, highest: int) -> bool:
        found = bisect_left(self.unread, lowest)
        return found < len(self.unread) and self.unread[found] <= highest


async def compare(
    log: ReadableLog, read: Read, *, oldest: Callable[[], Awaitable[int]], at_ease: bool = False
) -> LedgerComparison:
    """
    Compare everything that is stored, a few hundred records at a time. The comparison is not done while
    a rebuild runs.
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
    removed_below = await oldest()  # retention goes on
    places = [
        place
        for place in sorted(logged.calls.keys() | counted.keys())
        if _is_kept(place, firsts, logged.lowest, removed_below)
    ]
    compared = set(places)
    beyond = sum(records for place, records in logged.in_span.items() if place not in compared)
    of_calls: list[PeriodDifference] = []
    of_meters: list[PeriodDifference] = []
    for place in places:
        calls, sums = logged.calls[place], counted.get(place, 0)
        if calls != sums:
            of_calls.append(PeriodDifference(place=place, kept=calls, counted=sums))
            continue
        difference = _of_meters(place, logged.meters.get(place, {}), meters.get(place, {}))
        if difference is not None:
            of_meters.append(difference)
    return LedgerComparison(
        differences=of_calls + of_meters,
        missed=state["missed"],
        gone=state["settled"] + max(0, span[1] - span[0] - logged.kept_in_span) + beyond,
        damaged=logged.damaged,
        end=end,
        hourly=state["hourly"],
        calls={place: logged.calls[place] for place in places},
        numbers={
            place: (logged.lowest[place], logged.highest[place]) for place in places if place in logged.lowest
        },
        suspects=sorted(place for place in logged.in_span if place in compared),
        unsure=logged.unsure(places),
    )


def _is_kept(
    place: Place, firsts: Mapping[Place, int], lowest: Mapping[Place, int], removed_below: int
) -> bool:
    """True if nothing that was counted in a period is gone; what was never counted has a number in the log alone."""
    known = [numbers[place] for numbers in (firsts, lowest) if place in numbers]
    return bool(known) and min(known) >= removed_below


def _calls(rows: LedgerRows) -> Mapping[Place, int]:
    """Return the calls of each period; a day that has hours is left out, because it is made from them."""
    hourly = state_of(rows)["hourly"]
    return {
        (width, start): calls
        for width in WIDTHS
        for start, calls in rows.calls(width).items()
        if (width == HOUR_S) == (start >= hourly)
    }


def _meters(rows: LedgerRows) -> Mapping[Place, MeterSums]:
    """Return the meters by period, as `_calls` does."""
    hourly = state_of(rows)["hourly"]
    return {
        (width, start): found
        for width in WIDTHS
        for start, found in rows.meters_by_start(width).items()
        if (width == HOUR_S) == (start >= hourly)
    }


def _of_meters(place: Place, kept: Mapping[str, int], counted: Mapping[str, int]) -> PeriodDifference | None:
    """Return the first meter that differs; None if all agree."""
    for name in sorted(kept.keys() | counted.keys()):
        if kept.get(name, 0) != counted.get(name, 0):
            return PeriodDifference(
                place=place, kept=kept.get(name, 0), counted=counted.get(name, 0), meter=name
            )
    return None


async def _kept(log: ReadableLog, first: int, end: int, found: _Kept, *, at_ease: bool) -> _Kept:
    loop = asyncio.get_running_loop()
    for number in range(first, end, STEP):
        began = loop.time()
        following = number
        for entry in await log.read(AI_TELEMETRY, number, min(number + STEP, end) - 1, whole=True):
            if entry.first > following:
                found.unread.append(following)
                found.near_unread.add(period(hour_of(None, entry.committed_at), found.hourly))
            following = entry.last + 1
            for part in entry.parts(at_once()):
                found.add(part)
                await pause()
        if following < min(number + STEP, end):
            found.unread.append(following)
        await asyncio.sleep((loop.time() - began) * REST if at_ease else 0)
    return found
