"""
The slots in which an assistant was used, and how many of them lost their calls.

A slot is five minutes by the clock. The counts are a lower bound, so a laptop states no loss that it did not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

DAY_S: Final = 86_400.0
SLOT_S: Final = 300.0
CALL_AFTER_USE_S: Final = 600.0  # seconds after a use in which its call may begin
COUNTED_DAYS: Final = 8  # UTC days of which a laptop states counts, with today
# a request of at most ten minutes and its prompt touch at most this number of slots
SLOTS_OF_A_CALL: Final = 4
_EARLIER: Final = (
    ""  # in place of a day: the lost slots of earlier days that a call may share with later ones
)


class OpenUse(msgspec.Struct, frozen=True, array_like=True):
    """
    A use that is not heard. `at` is the last growth in its slot, in epoch seconds, and `awake` the same moment by the
    awake clock. `is_lost` says that a loss included it.
    """

    session: str
    at: float
    awake: float
    is_lost: bool = False

    @property
    def slot(self) -> int:
        return slot_of(self.at)

    @property
    def left_of_slot_s(self) -> float:
        return SLOT_S - self.at % SLOT_S

    def is_due(self, awake: float) -> bool:
        """Return whether the slot ended so long ago that its call must have arrived."""
        return awake - self.awake >= self.left_of_slot_s + CALL_AFTER_USE_S


def slot_of(moment: float) -> int:
    return int(moment // SLOT_S)


class SlotCount(NamedTuple):
    """The slots with a use, those of them that lost their calls, and the least number of calls that were lost."""

    used: int = 0
    lost: int = 0
    calls: int = 0


class UseCounts(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """
    The counts of an assistant in a home.

    `used` has the counted slots by day, and `lost` those that were lost, by session and day. `closed` has the lost
    slots and calls of days that do not change any more. `waiting` are uses that are not counted yet, and those that
    were lost within a day, because their calls may still arrive. `newest` is the newest counted slot of a session.
    """

    used: dict[str, int] = {}
    lost: dict[str, dict[str, int]] = {}
    closed: dict[str, tuple[int, int]] = {}
    waiting: tuple[OpenUse, ...] = ()
    newest: dict[str, int] = {}

    def by_day(self) -> Mapping[str, SlotCount]:
        lost, calls = Counter[str](), Counter[str]()
        for day, (slots, lost_calls) in self.closed.items():
            lost[day] += slots
            calls[day] += lost_calls
        for of_session in self.lost.values():
            for day, slots, lost_calls in _lost_calls_by_day(of_session):
                lost[day] += slots
                calls[day] += lost_calls
        return {day: SlotCount(used, lost[day], calls[day]) for day, used in self.used.items()}


def _lost_calls_by_day(lost_of_session: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """
    Yield the days of a session with their lost slots and calls. All calls together are a quarter of all slots, rounded
    up, so a call before and after midnight counts once.
    """
    earlier = lost_of_session.get(_EARLIER, 0)
    for day in sorted(lost_of_session.keys() - {_EARLIER}):
        slots = lost_of_session[day]
        yield day, slots, -(-(earlier + slots) // SLOTS_OF_A_CALL) + (-earlier // SLOTS_OF_A_CALL)
        earlier += slots


def counts_after_look(
    before: UseCounts,
    new: Iterable[OpenUse],
    open_uses: Collection[OpenUse],
    *,
    is_heard: Callable[[str, int], bool],
    has_sure_uses: bool,
    awake: float,
    now: float,
    max_waiting: int,
) -> UseCounts:
    """
    Return the counts after a run of the probe (a look). `open_uses` are the uses that matter for the state.

    A slot counts once: when it is heard, or when it is lost. A program that also writes without a prompt lost only the
    slots of which the state says so. A call that arrives within a day makes its slot a heard one.
    """
    used = Counter(before.used)
    lost = {session: Counter(days) for session, days in before.lost.items()}
    # times from before the clock was set back
    newest = {name: slot for name, slot in before.newest.items() if now - SLOT_S * slot < DAY_S}
    newest = {name: slot for name, slot in newest.items() if slot <= slot_of(now)}
    known = {(each.session, each.slot): each for each in before.waiting if each.at <= now}
    for use in new:
        if use.slot > newest.get(use.session, -1):
            known.setdefault((use.session, use.slot), use)
    state = {(each.session, each.slot): each.is_lost for each in open_uses}
    waiting = []
    for key, use in known.items():
        day, heard, is_due = utc_day(use.at), is_heard(*key), use.is_due(awake)
        if use.is_lost and heard:
            lost[use.session][day] -= 1
        elif use.is_lost:
            waiting += [use] if now - use.at < DAY_S else []
        elif heard or state.get(key) or (has_sure_uses and is_due):
            used[day] += 1
            newest[use.session] = max(use.slot, newest.get(use.session, -1))
            if not heard:
                lost.setdefault(use.session, Counter())[day] += 1
                waiting.append(msgspec.structs.replace(use, is_lost=True))
        elif not is_due or key in state:
            waiting.append(use)
    today = datetime.fromtimestamp(now, UTC).date()
    oldest = (today - timedelta(days=COUNTED_DAYS - 1)).isoformat()
    yesterday, last = (today - timedelta(days=1)).isoformat(), today.isoformat()
    closed = {day: counts for day, counts in before.closed.items() if oldest <= day <= last}
    open_lost = {}
    for session, days in lost.items():
        still_open = _close_days(days, closed, oldest=oldest, open_since=yesterday, last=last)
        if still_open.keys() - {_EARLIER}:
            open_lost[session] = still_open
    return UseCounts(
        used={day: count for day, count in used.items() if oldest <= day <= last},
        lost=open_lost,
        closed=closed,
        waiting=tuple(sorted(waiting, key=lambda each: each.at)[-max_waiting:]),
        newest=newest,
    )


def _close_days(
    lost_of_session: Mapping[str, int],
    closed: dict[str, tuple[int, int]],
    *,
    oldest: str,
    open_since: str,
    last: str,
) -> dict[str, int]:
    """Add the days before `open_since` to `closed`, and return the other days of a session."""
    still_open = {day: slots for day, slots in lost_of_session.items() if open_since <= day <= last and slots}
    earlier = lost_of_session.get(_EARLIER, 0)
    for day, slots, calls in _lost_calls_by_day(lost_of_session):
        if day < open_since:
            earlier += slots
            if day >= oldest:
                before = closed.get(day, (0, 0))
                closed[day] = before[0] + slots, before[1] + calls
    if earlier % SLOTS_OF_A_CALL:
        still_open[_EARLIER] = earlier % SLOTS_OF_A_CALL
    return still_open


def utc_day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()
