"""
The log beside the ledger: what is kept, recounted by hour or day, and what the ledger has counted of the same time.

A period is compared if all that was counted in it is kept. Sums of money are not: they may have been priced again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from spool.ledger.counting import WIDTHS, period, state_of
from spool.ledger.rows import LedgerRows
from spool.ledger.sums import HOUR_S, HourlySums
from spool.log.protocols import ReadableLog
from spool.record import AI_TELEMETRY

STEP = 512  # numbers that are added up at once
MOST_TOLD = 10  # periods
MEND = "`tollhouse ledger rebuild` counts again what is kept"

Place = tuple[int, int]  # width and start of a period
Read = Callable[[Callable[[LedgerRows], Any]], Awaitable[Any]]


@dataclass(frozen=True, kw_only=True)
class PeriodDifference:
    """A period in which the log keeps another number of calls than are counted."""

    place: Place
    kept: int
    counted: int

    def words(self) -> str:
        width, start = self.place
        what = "hour" if width == HOUR_S else "day"
        at = datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"the ledger has {self.counted} calls of the {what} from {at}, and {self.kept} are kept"


@dataclass(frozen=True, kw_only=True)
class LedgerComparison:
    """`missed` numbers the ledger has passed over, of which `gone` at most are not kept; `damaged` cannot be read."""

    differences: Sequence[PeriodDifference] = ()
    missed: int = 0
    gone: int = 0
    damaged: int = 0

    def words(self) -> Sequence[str]:
        """A sentence for everything that is wrong, and what mends it."""
        return list(self._words())

    def _words(self) -> Iterator[str]:
        excess = sum(max(0, one.counted - one.kept) for one in self.differences)
        told = [one for one in self.differences if one.kept > one.counted or excess > self.damaged]
        for one in told[:MOST_TOLD]:
            yield f"{one.words()}: {MEND}"
        if len(told) > MOST_TOLD:
            yield f"the ledger differs in {len(told) - MOST_TOLD} further hours and days"
        if self.missed > self.gone:
            yield f"the ledger has passed over {self.missed} numbers, and {self.gone} at most are gone: {MEND}"


@dataclass(kw_only=True)
class _Kept:
    """What the log keeps of the numbers from `first` on."""

    first: int
    calls: Counter[Place]
    lowest: dict[Place, int]
    records: int = 0
    damaged: int = 0


async def compare(log: ReadableLog, read: Read, *, oldest: Callable[[], Awaitable[int]]) -> LedgerComparison:
    """Everything that is kept is read, a few hundred records at a time. Nothing is said while a rebuild goes on."""
    first = await oldest()
    state, counted, firsts = await read(lambda rows: (state_of(rows), _calls(rows), rows.firsts()))
    if state["rebuilding"]:
        return LedgerComparison()
    end = min(state["reach"], log.closed_below(AI_TELEMETRY))
    kept = await _kept(log, first, end, hourly=state["hourly"])
    removed_below = await oldest()  # retention goes on
    places = [
        place
        for place in sorted(kept.calls.keys() | counted.keys())
        if _is_kept(place, firsts, kept.lowest, removed_below)
    ]
    return LedgerComparison(
        differences=[
            PeriodDifference(place=place, kept=kept.calls[place], counted=counted.get(place, 0))
            for place in places
            if kept.calls[place] != counted.get(place, 0)
        ],
        missed=state["missed"],
        gone=first - 1 + max(0, end - first - kept.records),
        damaged=kept.damaged,
    )


def _is_kept(place: Place, firsts: Mapping[Place, int], lowest: Mapping[Place, int], removed_below: int) -> bool:
    """Whether nothing that was counted in a period is gone; what was never counted has a number in the log alone."""
    known = [numbers[place] for numbers in (firsts, lowest) if place in numbers]
    return bool(known) and min(known) >= removed_below


def _calls(rows: LedgerRows) -> Mapping[Place, int]:
    """By period; a day that has hours is left out, because it is made from them."""
    hourly = state_of(rows)["hourly"]
    return {
        (width, start): calls
        for width in WIDTHS
        for start, calls in rows.calls(width).items()
        if (width == HOUR_S) == (start >= hourly)
    }


async def _kept(log: ReadableLog, first: int, end: int, *, hourly: int) -> _Kept:
    found = _Kept(first=first, calls=Counter(), lowest={})
    for number in range(first, end, STEP):
        entries = await log.read(AI_TELEMETRY, number, min(number + STEP, end) - 1, whole=True)
        sums = HourlySums()
        sums.add(entries)
        found.records += sum(len(entry.records) for entry in entries)
        found.damaged += sums.damaged
        for hour, lowest in sums.first.items():
            place = period(hour, hourly)
            found.lowest[place] = min(lowest, found.lowest.get(place, lowest))
            found.calls[place] += sum(measures[0] for measures in sums.hours[hour].values())
        await asyncio.sleep(0)
    return found
