"""
How sums change: records are added, days summed up, old hours dropped, and periods emptied to be counted again.

Hours and days are kept side by side. A day that is over is summed up once more, so that a year is not read
hour by hour; once its hours are old they go, and the day alone stays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from secrets import randbits
from typing import Any

from spool.ledger.ledger_rows import LedgerRows
from spool.ledger.sums import AHEAD_S, DAY_S, HOUR_S, OTHER, Dimensions, HourlySums, Measures, MeterSums

WIDTHS = (HOUR_S, DAY_S)
# What a sum is not known by any more once there are too many of them: first (with the tags), and last.
OWNERS = ("user", "device", "api_key")
WORK = ("source", "provider", "model", "request_model", "team", "region", "sender")
CHANGED_BY = "changed_by"  # of the state: the mark of the process that changed anything last
ROW_TAGS = "row_tags"  # of the state: the mark of the rows of billing connections, whose tags are dimensions
EVERY, EVERY_BILLED = "changed", "billed"  # of the state: the marks of a change that may be anywhere
MAX_TEXT = 256  # of a dimension's value
MOST_PRESENT = 64  # periods whose numbers are kept in memory
MOST_PERIODS = 10_000  # of which it is known how many numbers they have at most


def state_of(rows: LedgerRows) -> dict[str, int]:
    """All of the state; what was never set is 0, except that numbers begin at 1."""
    values = {
        "reach": 1,
        "rebuilding": 0,
        "daily": 0,
        "hourly": 0,
        "missed": 0,
        "damaged": 0,
        "absurd": 0,
        "whole": 0,
        # Of the missed numbers: the first and the end of those that were not looked for in the log yet, and
        # how many were looked for and are gone. Of the comparison with the log: when it was, and the periods
        # that differ.
        "missed_first": 0,
        "missed_end": 0,
        "settled": 0,
        "compared": 0,
        "differing": 0,
        "left": 0,
        "charged": 0,  # 1 once an amount came in another currency than dollars
    }
    kept = rows.state()
    return {name: kept.get(name, value) for name, value in values.items()}


def new_marks(starts: Iterable[int] | None = None, *, every: str = EVERY) -> dict[str, int]:
    """New marks of the months in which sums begin at `starts` (epoch seconds), or the one of a change anywhere."""
    if starts is None:
        return {every: new_mark()}
    names = {mark_of(datetime.fromtimestamp(start, UTC), every) for start in starts}
    return {name: new_mark() for name in names}


def new_mark() -> int:
    return randbits(62)


def mark_of(at: datetime, every: str = EVERY) -> str:
    """
    The name of the mark for a moment in UTC: its month. The first day has one of its own, as it is partly of
    the month before where clocks are behind UTC.
    """
    return f"{every} {at:%Y-%m-01}" if at.day == 1 else f"{every} {at:%Y-%m}"


def whole_since(arrival: float) -> int:
    """The first hour that no record counts in that came before an arrival: no clock is believed to be 2 h ahead."""
    return int(arrival) // HOUR_S * HOUR_S + AHEAD_S


class Placement:
    """
    The numbers of dimensions, with a bound on how many a period may have.

    Beyond `max_rows` a period's new combinations lose who they belong to, then what they ran: they are added
    to a row of `(other)`, so that every total stays right. What is in memory here follows the rows: after a
    transaction that failed, `forget` it. `begin` does so where another process changed them.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._mark = new_mark()
        self._numbers: dict[Dimensions, int] = {}
        self._present: OrderedDict[tuple[int, int], set[int]] = OrderedDict()
        self._most: dict[tuple[int, int], int] = {}  # how many numbers a period has at most

    def begin(self, rows: LedgerRows) -> None:
        """
        Begin a transaction: forget what memory has if the mark in the rows is another one's. Another process
        made it, or an earlier change of this one did where a database has lost the last: numbers that were
        given since are gone then.
        """
        if rows.state().get(CHANGED_BY) != self._mark:
            self.forget()
        self._mark = new_mark()
        rows.set_state(**{CHANGED_BY: self._mark})

    def forget(self) -> None:
        self._numbers.clear()
        self._present.clear()
        self._most.clear()

    def number(self, rows: LedgerRows, width: int, start: int, dimensions: Dimensions) -> int:
        """The number under which dimensions are added up in a period."""
        place = (width, start)
        most = self._most.get(place, self._max_rows)
        if most < self._max_rows and place not in self._present:  # there is room, whatever has a sum already
            self._most[place] = most + 1
            return self._given(rows, dimensions)
        present = self._numbers_in(rows, place)
        for step, wanted in enumerate((dimensions, _nobody(dimensions), _nothing(dimensions))):
            found = self._find(rows, wanted)
            if found is not None and found in present:
                return found
            # A tenth more for the rows without owners; the last step has few by its nature.
            if step == 2 or len(present) < self._max_rows * (10 + step) // 10:
                found = self._given(rows, wanted)  # a number is given only to what gets a sum
                present.add(found)
                self._most[place] = len(present)
                return found
        raise AssertionError("the last step always returns")

    def _given(self, rows: LedgerRows, dimensions: Dimensions) -> int:
        found = self._numbers.get(dimensions)
        if found is None:
            found = rows.number(kept(dimensions))
            self._remember(dimensions, found)
        return found

    def _find(self, rows: LedgerRows, dimensions: Dimensions) -> int | None:
        found = self._numbers.get(dimensions)
        if found is None:
            found = rows.find_number(kept(dimensions))
            if found is not None:
                self._remember(dimensions, found)
        return found

    def _remember(self, dimensions: Dimensions, number: int) -> None:
        if len(self._numbers) >= 100_000:
            self._numbers.clear()
        self._numbers[dimensions] = number

    def _numbers_in(self, rows: LedgerRows, place: tuple[int, int]) -> set[int]:
        present = self._present.get(place)
        if present is not None:
            self._present.move_to_end(place)
            return present
        present = self._present[place] = rows.numbers(*place)
        if len(self._present) > MOST_PRESENT:
            self._present.popitem(last=False)
        if len(self._most) > MOST_PERIODS:
            self._most.clear()
        self._most[place] = len(present)
        return present


def kept(dimensions: Dimensions) -> Dimensions:
    """Dimensions as they are kept: bounded texts, and "" for what is unknown."""
    whole = Dimensions(*map(bounded, dimensions))
    return whole._replace(tags=_readable(dimensions.tags))  # their values are bounded, their text is JSON


def bounded(value: Any) -> Any:
    """A value of a dimension as it is kept."""
    if value is None:
        return ""
    return _readable(value[:MAX_TEXT]) if isinstance(value, str) else value


def _readable(text: str) -> str:
    """Text without lone surrogates, which cannot be stored."""
    if text.isascii():
        return text
    return text.encode("utf-8", "replace").decode()


def _nobody(dimensions: Dimensions) -> Dimensions:
    return dimensions._replace(user=OTHER, device=OTHER, api_key=OTHER, tags="")


def _nothing(dimensions: Dimensions) -> Dimensions:
    return _nobody(dimensions)._replace(
        source=OTHER, provider=OTHER, model=OTHER, request_model=OTHER, team=OTHER, region=OTHER, sender=OTHER
    )


@dataclass(frozen=True, slots=True)
class Missed:
    """How many numbers have no record, the first of them, and an end; hours before `whole` may lack them."""

    count: int = 0
    first: int = 0
    end: int = 0
    whole: int = 0


def note_charges(rows: LedgerRows, meters: Iterable[MeterSums]) -> None:
    """Remember that amounts came in other currencies: only then are questions about them asked."""
    if any(name.startswith("charge.") for found in meters for name in found):
        rows.set_state(charged=1)


def add(
    rows: LedgerRows, sums: HourlySums, placement: Placement, *, first: int, reach: int, missed: Missed
) -> int:
    """
    Add the sums of the numbers from `first` until before `reach`, and move the reach, which is only right together.

    Returns the reach. Nothing is done unless it was `first`: since the numbers were read, the rows may have
    been lost and begun anew, and a reach beyond numbers that nobody added would leave them out for ever.
    """
    state = state_of(rows)
    if state["reach"] != first:
        return state["reach"]
    added: dict[int, dict[tuple[int, int], Measures]] = {width: {} for width in WIDTHS}
    meters: list[tuple[int, tuple[int, int, MeterSums]]] = []
    for hour, dimensions, measures in sums.rows():
        for width in WIDTHS:
            if hour < state["hourly"] if width == HOUR_S else hour >= state["daily"]:
                continue
            start = hour // width * width
            place = (start, placement.number(rows, width, start, dimensions))
            before = added[width].get(place)
            if before is not None:
                measures = [a + b for a, b in zip(before, measures, strict=True)]
            added[width][place] = measures
            if hour in sums.meters and (found := sums.meters[hour].get(dimensions)):
                meters.append((width, (*place, found)))
    for width, new in added.items():
        rows.add(width, ((start, number, measures) for (start, number), measures in new.items()))
        if meters:
            rows.add_meters(width, [sum for of, sum in meters if of == width])
    note_charges(rows, (found for _, (_, _, found) in meters))
    rows.note_periods([(*period(hour, state["hourly"]), first) for hour, first in sums.first.items()])
    rows.set_state(reach=reach)
    if state["rebuilding"]:  # what is read again was counted as missed, damaged or absurd the first time
        if reach >= state["rebuilding"]:
            rows.freeze_periods(below=0)
            rows.set_state(rebuilding=0, compared=0)
        return reach
    rows.set_state(damaged=state["damaged"] + sums.damaged, absurd=state["absurd"] + sums.absurd)
    if missed.count:
        rows.set_state(
            missed=state["missed"] + missed.count,
            missed_first=min(missed.first, state["missed_first"] or missed.first),
            missed_end=max(missed.end, state["missed_end"]),
            whole=max(state["whole"], missed.whole),
        )
    return reach


def period(hour: int, hourly: int) -> tuple[int, int]:
    """The width and start of the smallest period that keeps an hour's sums."""
    width = HOUR_S if hour >= hourly else DAY_S
    return width, hour // width * width


def begin_anew(rows: LedgerRows, *, seen: int, reach: int) -> int:
    """
    Numbers below the reach come again, for other records: nothing that is summed can be counted anew.

    Returns the reach. Nothing is done unless it was `seen`, as in `add`.
    """
    before = state_of(rows)["reach"]
    if before != seen:
        return before
    rows.forget_firsts()
    missed = state_of(rows)["missed"]
    rows.set_state(reach=reach, rebuilding=0, settled=missed, missed_first=0, missed_end=0, compared=0)
    return reach


def lower_missed(rows: LedgerRows, *, to: int) -> None:
    """Numbers that were passed over were counted after all."""
    state = state_of(rows)
    missed = max(0, min(state["missed"], to))
    rows.set_state(missed=missed, settled=min(state["settled"], missed))
    if not missed:
        rows.set_state(whole=0, missed_first=0, missed_end=0)


def begin_rebuild(rows: LedgerRows, oldest: int) -> tuple[int, int, int]:
    """
    Empty every period whose records are all kept (numbers from `oldest` on), freeze the others, and read again.

    Returns how many are emptied and frozen, and the end of the last frozen one: the border (0 without one).
    """
    state = state_of(rows)
    sum_up_again(rows)
    rows.freeze_periods(below=oldest)
    emptied = rows.drop_open_periods()
    frozen = rows.frozen_periods()
    if oldest < state["reach"]:
        # What is read again is not missed; what is gone for good still is.
        rows.set_state(reach=oldest, rebuilding=state["reach"])
        lower_missed(rows, to=oldest - 1)
    else:  # no record that was counted is kept: the rebuild is done
        rows.freeze_periods(below=0)
    return emptied, len(frozen), max((start + width for width, start in frozen), default=0)


def sum_up_again(rows: LedgerRows) -> None:
    """Forget the days that can be made from their hours, because these are about to change."""
    hourly = state_of(rows)["hourly"]
    rows.drop_days(hourly)
    rows.set_state(daily=hourly)


def sum_up(rows: LedgerRows, before: int) -> bool:
    """Sum up the next day that ended at or before `before`; False when there is none."""
    oldest = rows.oldest(HOUR_S, state_of(rows)["daily"])
    if oldest is None:
        return False
    day = oldest // DAY_S * DAY_S
    if day + DAY_S > before:
        return False
    rows.sum_up_day(day)
    rows.set_state(daily=day + DAY_S)
    return True


def drop_hours(rows: LedgerRows, before: int) -> int | None:
    """
    Drop the hours of the next day before `before`, a midnight, that is summed up; how many sums went.

    None when there is none: so a ledger that was not tidied for weeks takes a transaction for each day.
    """
    state = state_of(rows)
    before = min(before, state["daily"])
    if before <= state["hourly"]:
        return None
    oldest = rows.oldest(HOUR_S, state["hourly"])
    if oldest is not None:
        before = min(before, oldest // DAY_S * DAY_S + DAY_S)
    gone = rows.drop_hours(before)
    rows.set_state(hourly=before)
    return gone
