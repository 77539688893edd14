"""
Changes of sums: add records, sum up days, delete old hours, and empty periods so that they are counted again.

Hours and days are stored side by side. A finished day is summed up, so that a query for a year does not read
each hour. Old hours are deleted, and only the sum of their day stays.
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
# Dimensions that are dropped if a period has too many sums: first OWNERS and the tags, then WORK.
OWNERS = ("user", "device", "api_key")
WORK = ("source", "provider", "model", "request_model", "team", "region", "sender")
CHANGED_BY = "changed_by"  # key in the state: mark of the process that made the last change
# key in the state: mark of the billing connections' rows, because their tags are dimensions
ROW_TAGS = "row_tags"
EVERY, EVERY_BILLED = "changed", "billed"  # keys in the state: marks of changes that may affect any month
MAX_TEXT = 256  # maximum characters of a dimension's value
MOST_PRESENT = 64  # maximum number of periods whose dimension numbers are kept in memory
MOST_PERIODS = 10_000  # maximum number of periods for which an upper bound on their sums is kept in memory


def state_of(rows: LedgerRows) -> dict[str, int]:
    """Return the whole state. A value that was never set is 0, except that record numbers begin at 1."""
    values = {
        "reach": 1,
        "rebuilding": 0,
        "daily": 0,
        "hourly": 0,
        "missed": 0,
        "damaged": 0,
        "absurd": 0,
        "whole": 0,
        # Missed numbers that were not searched in the log yet: the first one and the end. `settled` counts
        # missed numbers that were searched and have no record. Then the last comparison with the log: when it
        # ran, and the number of periods that differed.
        "missed_first": 0,
        "missed_end": 0,
        "settled": 0,
        "compared": 0,
        "differing": 0,
        "left": 0,
        "charged": 0,  # 1 after the first amount in another currency than dollars
    }
    stored = rows.state()
    return {name: stored.get(name, value) for name, value in values.items()}


def new_marks(starts: Iterable[int] | None = None, *, every: str = EVERY) -> dict[str, int]:
    """
    Return new marks for the months of the sums that begin at `starts`. Without `starts`, return the mark of a
    change in any month.
    """
    if starts is None:
        return {every: new_mark()}
    names = {mark_of(datetime.fromtimestamp(start, UTC), every) for start in starts}
    return {name: new_mark() for name in names}


def new_mark() -> int:
    return randbits(62)


def mark_of(at: datetime, every: str = EVERY) -> str:
    """
    Return the name of the mark for a moment in UTC: the mark of its month.

    The first day of a month has a separate mark. In time zones behind UTC, that day belongs partly to
    the month before.
    """
    return f"{every} {at:%Y-%m-01}" if at.day == 1 else f"{every} {at:%Y-%m}"


def whole_since(arrival: float) -> int:
    """
    Return the first hour to which no record that arrived before `arrival` can belong. Clocks that are ahead
    of this one by 2 hours or more are not believed.
    """
    return int(arrival) // HOUR_S * HOUR_S + AHEAD_S


class Placement:
    """
    Assigns numbers to sets of dimensions, and limits how many a period has.

    Beyond `max_rows`, a new combination in a period first loses its owner, then the model and similar
    dimensions. It is added to a row of `(other)`, so that every total stays right.

    The object remembers numbers in memory. After a failed transaction, call `forget`. `begin` forgets them if
    another process changed the rows.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._mark = new_mark()
        self._numbers: dict[Dimensions, int] = {}
        self._present: OrderedDict[tuple[int, int], set[int]] = OrderedDict()
        self._most: dict[tuple[int, int], int] = {}  # upper bound on the number of sums in a period

    def begin(self, rows: LedgerRows) -> None:
        """
        Begin a transaction. If the last stored change was not made by this object, forget the numbers in memory.

        Either another process made that change, or the database lost the last change of this object. In both
        cases, numbers that this object remembers may be invalid.
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
        """Return the number under which dimensions are summed in a period."""
        span = (width, start)
        row_limit = self._most.get(span, self._max_rows)
        # the period is below the limit in any case, so its numbers need not be read
        if row_limit < self._max_rows and span not in self._present:
            self._most[span] = row_limit + 1
            return self._given(rows, dimensions)
        present = self._numbers_in(rows, span)
        for step, candidate in enumerate((dimensions, _nobody(dimensions), _nothing(dimensions))):
            key_number = self._find(rows, candidate)
            if key_number is not None and key_number in present:
                return key_number
            # The second step may exceed the limit by a tenth. The last step has no limit, because
            # few combinations remain.
            if step == 2 or len(present) < self._max_rows * (10 + step) // 10:
                # assign a number only now, when it is sure to get a sum
                key_number = self._given(rows, candidate)
                present.add(key_number)
                self._most[span] = len(present)
                return key_number
        raise AssertionError("the last step always returns")

    def _given(self, rows: LedgerRows, dimensions: Dimensions) -> int:
        key_number = self._numbers.get(dimensions)
        if key_number is None:
            key_number = rows.number(kept(dimensions))
            self._remember(dimensions, key_number)
        return key_number

    def _find(self, rows: LedgerRows, dimensions: Dimensions) -> int | None:
        key_number = self._numbers.get(dimensions)
        if key_number is None:
            key_number = rows.find_number(kept(dimensions))
            if key_number is not None:
                self._remember(dimensions, key_number)
        return key_number

    def _remember(self, dimensions: Dimensions, number: int) -> None:
        if len(self._numbers) >= 100_000:
            self._numbers.clear()
        self._numbers[dimensions] = number

    def _numbers_in(self, rows: LedgerRows, span: tuple[int, int]) -> set[int]:
        present = self._present.get(span)
        if present is not None:
            self._present.move_to_end(span)
            return present
        present = self._present[span] = rows.numbers(*span)
        if len(self._present) > MOST_PRESENT:
            self._present.popitem(last=False)
        if len(self._most) > MOST_PERIODS:
            self._most.clear()
        self._most[span] = len(present)
        return present


def kept(dimensions: Dimensions) -> Dimensions:
    """Return dimensions as they are stored: texts cut to the maximum length, and "" for unknown values."""
    whole = Dimensions(*map(bounded, dimensions))
    # no further cut, because the values have been cut and the text must stay valid JSON
    return whole._replace(tags=_readable(dimensions.tags))


def bounded(value: Any) -> Any:
    """Return one dimension value as it is stored."""
    if value is None:
        return ""
    return _readable(value[:MAX_TEXT]) if isinstance(value, str) else value


def _readable(text: str) -> str:
    """Replace lone surrogates, which cannot be stored."""
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
    """
    Record numbers without a record: their number, the first number, and the end. Hours before `whole` may
    lack calls because of them.
    """

    count: int = 0
    first: int = 0
    end: int = 0
    whole: int = 0


def note_charges(rows: LedgerRows, meters: Iterable[MeterSums]) -> None:
    """Note that amounts in other currencies exist. Until then, queries skip the read of such amounts."""
    if any(name.startswith("charge.") for amounts in meters for name in amounts):
        rows.set_state(charged=1)


def add(
    rows: LedgerRows, sums: HourlySums, placement: Placement, *, first: int, reach: int, missed: Missed
) -> int:
    """
    Add the sums of the numbers from `first` until before `reach`, and store `reach`, in one transaction.
    Return the stored reach.

    Does nothing unless the stored reach is `first`, because the rows may have been lost and restarted since the
    records were read. If `reach` then covered numbers that were never added, they would be left out forever.
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
            cell = (start, placement.number(rows, width, start, dimensions))
            before = added[width].get(cell)
            if before is not None:
                measures = [a + b for a, b in zip(before, measures, strict=True)]
            added[width][cell] = measures
            if hour in sums.meters and (metered := sums.meters[hour].get(dimensions)):
                meters.append((width, (*cell, metered)))
    for width, new in added.items():
        rows.add(width, ((start, number, measures) for (start, number), measures in new.items()))
        if meters:
            rows.add_meters(width, [sum for meter_width, sum in meters if meter_width == width])
    note_charges(rows, (amounts for _, (_, _, amounts) in meters))
    rows.note_periods([(*period(hour, state["hourly"]), first) for hour, first in sums.first.items()])
    rows.set_state(reach=reach)
    # the missed, damaged and implausible numbers that a rebuild reads again have been counted before
    if state["rebuilding"]:
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
    """Return width and start of the smallest stored period that contains an hour."""
    width = HOUR_S if hour >= hourly else DAY_S
    return width, hour // width * width


def begin_anew(rows: LedgerRows, *, seen: int, reach: int) -> int:
    """
    Lower the reach after the log was replaced, because the new log assigns the same numbers to other records.
    Return the reach.

    Existing sums stay, because their records cannot be counted again. Does nothing unless the reach is
    `seen`, as in `add`.
    """
    before = state_of(rows)["reach"]
    if before != seen:
        return before
    rows.forget_firsts()
    missed = state_of(rows)["missed"]
    rows.set_state(reach=reach, rebuilding=0, settled=missed, missed_first=0, missed_end=0, compared=0)
    return reach


def lower_missed(rows: LedgerRows, *, to: int) -> None:
    """Note that the records of some missed numbers have been counted after all."""
    state = state_of(rows)
    missed = max(0, min(state["missed"], to))
    rows.set_state(missed=missed, settled=min(state["settled"], missed))
    if not missed:
        rows.set_state(whole=0, missed_first=0, missed_end=0)


def begin_rebuild(rows: LedgerRows, oldest: int) -> tuple[int, int, int]:
    """
    Start a rebuild. Empty every period whose records are all stored (numbers from `oldest` on), and freeze
    all other periods.

    Returns the number of emptied periods, the number of frozen periods, and the end of the last frozen one
    (0 if none).
    """
    state = state_of(rows)
    sum_up_again(rows)
    rows.freeze_periods(below=oldest)
    emptied = rows.drop_open_periods()
    frozen = rows.frozen_periods()
    if oldest < state["reach"]:
        # Numbers that are read again are no longer missed. Deleted numbers stay missed.
        rows.set_state(reach=oldest, rebuilding=state["reach"])
        lower_missed(rows, to=oldest - 1)
    else:  # no counted record is stored any more, so there is nothing to rebuild
        rows.freeze_periods(below=0)
    return emptied, len(frozen), max((start + width for width, start in frozen), default=0)


def sum_up_again(rows: LedgerRows) -> None:
    """Delete the daily sums whose hours are still stored, because these hours are about to change."""
    hourly = state_of(rows)["hourly"]
    rows.drop_days(hourly)
    rows.set_state(daily=hourly)


def sum_up(rows: LedgerRows, before: int) -> bool:
    """Sum up the next day that ended at or before `before`. Return False if there is no such day."""
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
    Delete the hours of the next day before `before`, a midnight. Return the number of deleted sums.

    Returns None if there is no such day. Each call handles one day, so that a ledger that was idle for weeks
    does not need one long transaction.
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
