"""
The ledger is compared with the log once a day, and when it has passed over numbers. What it lacks is counted again.

A period is read beside everything else, and its sums are replaced in one transaction, with the reach up to
which it was read: nobody sees a part of it, and who is killed has changed nothing. Left as it is, and told,
is a period that damaged records, or records that are gone, may belong to.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from spool.clock import Clock
from spool.errors import SpoolError
from spool.ledger.comparing import MOST_TOLD, STEP, LedgerComparison, PeriodDifference, Place, at_once
from spool.ledger.counting import Placement, lower_missed, note_charges, period, state_of
from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import DAY_S, HOUR_S, HourlySums
from spool.log.protocols import ReadableLog
from spool.record import AI_TELEMETRY
from spool.turns.fair_turns import pause

LOOK_S = 60.0  # between looks at whether it is due: one row is read
EVERY_S = DAY_S
MOST_SUMS = 100_000  # of one period that is counted again: they are in memory at once

_log = logging.getLogger(__name__)


class PeriodRecount:
    """
    The sums of one period, read again from the log: from the lowest number to the highest, then what came since.
    """

    def __init__(self, compared: LedgerComparison, place: Place, tags: Sequence[str]) -> None:
        self.place = place
        self.hourly = compared.hourly
        self.lowest, highest = compared.numbers[place]
        self._ranges = [(self.lowest, highest + 1), (compared.end, compared.end)]
        self._kept = compared.calls[place]
        self._is_whole = True
        self.sums = HourlySums(tags, skip=lambda _, hour: period(hour, self.hourly) != place)

    @property
    def reach(self) -> int:
        return self._ranges[-1][1]

    async def read(self, log: ReadableLog) -> bool:
        """Read what the comparison saw. False when it is not there as a whole any more, or is too much."""
        first, end = self._ranges[0]
        await self._add(log, first, end)
        calls = sum(row[0] for rows in self.sums.hours.values() for row in rows.values())
        return self._is_whole and calls == self._kept

    async def read_until(self, log: ReadableLog, reach: int) -> bool:
        """Read what was counted since the comparison, too."""
        await self._add(log, self.reach, reach)
        self._ranges[-1] = (self._ranges[-1][0], max(self.reach, reach))
        return self._is_whole

    async def _add(self, log: ReadableLog, first: int, end: int) -> None:
        for number in range(first, end, STEP):
            last = min(number + STEP, end) - 1
            found = 0
            for entry in await log.read(AI_TELEMETRY, number, last, whole=True):
                found += len(entry.records)
                for part in entry.parts(at_once()):
                    self.sums.add([part])
                    await pause()
            are_few = sum(map(len, self.sums.hours.values())) <= MOST_SUMS
            self._is_whole &= found == last + 1 - number and not self.sums.damaged and are_few
            if not self._is_whole:
                return


def replace(rows: LedgerRows, placement: Placement, recount: PeriodRecount) -> bool:
    """Have the sums of a period be those of a recount; False, and nothing is done, if more was counted meanwhile."""
    state = state_of(rows)
    if (state["reach"], state["rebuilding"], state["hourly"]) != (recount.reach, 0, recount.hourly):
        return False
    width, start = recount.place
    day = start // DAY_S * DAY_S
    has_day = width == HOUR_S and day < state["daily"]  # it was made from its hours, and is again
    for of, begin in [(width, start), *([(DAY_S, day)] if has_day else [])]:
        rows.remove(of, [(begin, number) for number in rows.numbers(of, begin)])
    placement.forget()
    for _, dimensions, measures in recount.sums.rows():
        rows.add(width, [(start, placement.number(rows, width, start, dimensions), measures)])
    note_charges(rows, (meters for _, _, meters in recount.sums.meter_rows()))
    for _, dimensions, meters in recount.sums.meter_rows():
        rows.add_meters(width, [(start, placement.number(rows, width, start, dimensions), meters)])
    if has_day:
        rows.sum_up_day(day)
    rows.note_periods([(width, start, recount.lowest)])
    return True


def settle(
    rows: LedgerRows, compared: LedgerComparison, *, gained: int, is_mended: bool, left: int, now: int
) -> int:
    """
    Keep what a comparison came to, and lower what is missed; returns that. `gained`: calls that were counted
    after all. What was missed meanwhile is looked for the next time.
    """
    state = state_of(rows)
    since = state["missed"] - compared.missed
    missed = compared.missed
    if is_mended:
        # After a comparison it is not known any more which numbers are missed.
        missed = min(
            missed, compared.gone if state["missed_first"] else min(compared.gone, max(0, missed - gained))
        )
    rows.set_state(settled=missed, compared=now, differing=left, left=left)
    if not since:
        rows.set_state(missed_first=0, missed_end=0)
    lower_missed(rows, to=missed + since)
    return missed + since


class MendableLedger(Protocol):
    """What is needed of the ledger."""

    async def comparison_is_due(self, now: float) -> bool: ...

    async def compare(self, log: ReadableLog, *, at_ease: bool = False) -> LedgerComparison: ...

    async def replace(self, log: ReadableLog, compared: LedgerComparison, place: Place) -> bool: ...

    async def settle(
        self, compared: LedgerComparison, *, gained: int, is_mended: bool, left: int, now: int
    ) -> int: ...


@dataclass(kw_only=True)
class LedgerMender:
    """Keeps a ledger right: `run` it in the process that counts. `changed` is called when sums were replaced."""

    ledger: MendableLedger
    log: ReadableLog
    clock: Clock
    changed: Callable[[], None] = lambda: None
    _told: frozenset[Place] = field(default_factory=frozenset)

    async def run(self) -> None:
        """Runs until cancelled; what fails is tried again later."""
        while True:
            try:
                if await self.ledger.comparison_is_due(self.clock.now()):
                    await self.mend()
            except SpoolError as error:
                _log.warning(
                    "the ledger is compared later: %s", error, extra={"action": "comparison_put_off"}
                )
            await asyncio.sleep(LOOK_S)

    async def mend(self) -> None:
        """Compare, and count again what is short or was passed over."""
        compared = await self.ledger.compare(self.log, at_ease=True)
        if not compared.is_done:
            return
        told = {one.place: one for one in compared.told()}
        short = [place for place, one in told.items() if one.kept > one.counted]
        wanted = sorted({*short, *(compared.suspects if compared.lacks else ())})
        mended = {place for place in wanted if await self._is_replaced(compared, place)}
        gained = sum(one.missing_calls for place, one in told.items() if place in mended)
        left = [one for place, one in told.items() if place not in mended]
        missed = await self.ledger.settle(
            compared,
            gained=gained,
            is_mended=len(mended) == len(wanted),
            left=len(left),
            now=int(self.clock.now()),
        )
        if mended:
            _log.warning(
                "the ledger has counted %d hours and days again, which lacked %d calls: %d numbers were "
                "passed over,"
                " %d still are",
                len(mended),
                gained,
                compared.missed,
                missed,
                extra={"action": "ledger_mended", "calls": gained},
            )
            self.changed()
        self._tell(left)

    async def _is_replaced(self, compared: LedgerComparison, place: Place) -> bool:
        is_known = place in compared.numbers and place not in compared.unsure
        return is_known and await self.ledger.replace(self.log, compared, place)

    def _tell(self, left: Sequence[PeriodDifference]) -> None:
        """Log the differences that remain, each once."""
        places = frozenset(one.place for one in left)
        if places - self._told:
            words = "; ".join(one.words() for one in left[:MOST_TOLD])
            _log.error(
                "%d hours and days of the ledger differ from what is kept and are left as they are: %s",
                len(left),
                words,
                extra={"action": "ledger_differs"},
            )
        self._told = places
