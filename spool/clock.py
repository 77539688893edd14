"""
Clocks, which are passed as parameters so that tests can replace them. A jump of the wall clock never affects
a timer.

A wrong time of day looks like a right one. So if the wall clock jumps, `SteadyClock` continues from the time
before the jump until the jump has lasted an hour, the start times of arriving calls confirm it, or an
operator accepts it. Data that look old only because of the jump are deleted later.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from statistics import median
from typing import Protocol

AHEAD_S = 300.0  # assumed difference of two machines' clocks


class Clock(Protocol):
    def now(self) -> float:
        """Return epoch seconds, for times that are stored or shown."""
        ...

    def monotonic(self) -> float:
        """Return seconds for timers, from an arbitrary start. They never go back."""
        ...


def elapsed_s(since: float, now: float) -> float:
    """
    Return the seconds from `since` to `now`, or infinity if `since` is far in the future.

    Such a `since` was written while the clock was ahead, so a wait that began at it counts as over.
    """
    return inf if since > now + AHEAD_S else now - since


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


# -- the wall clock without its jumps ------------------------------------------------------------------------


EARLIEST = 1_767_225_600.0  # start of 2026; a clock that shows an earlier time was never set
STOPPED_S = 86_400.0  # if the last commit is older at a start, the clock may be ahead
WITNESSES = 5  # the number of calls, among the last nine, that must agree about the time
# calls agree if their times differ by less; they are reported some time after they began
NEAR_S = 600.0
_log = logging.getLogger(__name__)


# This timer never goes back, and counts the time that the machine sleeps.
if sys.platform == "win32":
    time_since_boot = time.monotonic
else:
    time_since_boot = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """
    A clock that follows changes of the wall clock of up to `step_s` seconds. A larger change is a jump, which
    is ignored until it is accepted.

    While a jump is not accepted, and for `hold_s` seconds after a start or an accepted jump,
    `conservative_now_for_deletion` is the earlier of the times before and after the change.
    """

    def __init__(
        self,
        source: Clock | None = None,
        *,
        timer: Callable[[], float] = time_since_boot,
        step_s: float = 300.0,
        hold_s: float = 3600.0,
    ) -> None:
        self._source = source or SystemClock()
        self.monotonic: Callable[[], float] = self._source.monotonic
        self._timer = timer
        self._step_limit_s = step_s
        self._hold_s = hold_s
        wall = self._source.now()
        began = timer()
        # if False, the machine's clock was never set, so the time is a guess
        self._was_set = wall >= EARLIEST
        # reported time minus the timer's time
        self._offset = max(wall, EARLIEST) - began
        self._wall_offset = wall - began
        self._step_s = 0.0
        # timer at the jump; None while the wall clock is accepted
        self._stepped_at: float | None = None
        self._settled_offset, self._settled_until = self._offset, float("-inf")
        self._witnesses: deque[float] = deque(maxlen=WITNESSES + 4)

    def now(self) -> float:
        return self._update_offset(self._timer(), self._source.now())

    def _update_offset(self, timer: float, wall: float) -> float:
        """
        Compare the wall clock with the reported time and detect a jump. Return the time to report.

        Several threads may call this, each with its own readings.
        """
        offset = wall - timer
        before, self._wall_offset = self._wall_offset, offset
        step = offset - self._offset
        if -self._step_limit_s <= step <= self._step_limit_s:
            self._offset = offset
            self._was_set = True
            if self._stepped_at is not None:
                self._stepped_at = None
                _log.warning("the clock jumped back to its former time", extra={"action": "clock_back"})
            return wall
        was_moved = abs(offset - before) > self._step_limit_s
        if not self._was_set and was_moved and wall >= EARLIEST:
            self._delay_clock_of_deletion(timer)
            return self._set_to_wall_clock(timer, wall, "the clock was not set before")
        if self._stepped_at is None or abs(step - self._step_s) > self._step_limit_s:
            self._stepped_at = timer
            text = (
                "the clock was changed by %+.0f s. The change is not accepted yet (see tollhouse spool "
                "accept-clock)"
            )
            _log.error(text, step, extra={"action": "clock_stepped", "seconds": round(step)})
        self._step_s = step
        if timer - self._stepped_at >= self._hold_s and wall >= EARLIEST:
            return self._set_to_wall_clock(timer, wall, "the change has lasted long enough")
        return timer + self._offset

    def conservative_now_for_deletion(self) -> float:
        """Return the time to compare with when old data are deleted. It may be earlier than `now`."""
        now = min(self.now(), self._source.now())
        timer = self._timer()
        return min(now, timer + self._settled_offset) if timer < self._settled_until else now

    @property
    def wall_clock_ahead_s(self) -> float:
        """
        Return by how many seconds the wall clock is ahead of this clock, or 0 unless it jumped and this clock
        has not accepted the jump yet.
        """
        self.now()
        return 0.0 if self._stepped_at is None else self._step_s

    @property
    def deletion_delay_after_clock_jump_s(self) -> float:
        """
        Return for how many more seconds a jump or a long stop delays the deletion of data that may only look
        old.
        """
        self.now()
        timer = self._timer()
        until = self._settled_until if self._stepped_at is None else self._stepped_at + self._hold_s
        return max(0.0, until - timer)

    def start_no_earlier_than_last_commit(self, last_commit_at: float) -> None:
        """
        Report no time earlier than the last commit until this clock accepts the wall clock. After a long
        stop, delay the deletion of data.
        """
        now = self.now()
        timer = self._timer()
        if last_commit_at > now + self._step_limit_s:
            text = "the clock is %.0f s behind the last stored record, so it is not accepted yet"
            _log.error(text, last_commit_at - now, extra={"action": "clock_behind"})
            self._offset, self._was_set = last_commit_at - timer, False
        elif now > last_commit_at + STOPPED_S:
            text = (
                "the last record was stored %.1f days ago. In case the clock is ahead, nothing is "
                "deleted for %.0f s"
            )
            days = (now - last_commit_at) / 86_400
            _log.info(text, days, self._hold_s, extra={"action": "long_stop"})
            self._settled_offset, self._settled_until = last_commit_at - timer, timer + self._hold_s

    def correct_clock_and_return_arrival_time(self, start_time_ns: int) -> float:
        """
        Use a call's start time as evidence of the true time. If several calls agree, they confirm a jump or
        set the clock.

        Return the arrival time of the call by this clock.
        """
        timer = self._timer()
        wall = self._source.now()
        now = self._update_offset(timer, wall)
        if self._was_set and self._stepped_at is None:
            return now
        self._correct_clock_by_call_starts(start_time_ns, timer, wall)
        return self.now()

    def _correct_clock_by_call_starts(self, start_time_ns: int, timer_s: float, wall_time: float) -> None:
        self._witnesses.append(start_time_ns / 1e9 - timer_s)
        agreed_offset = median(self._witnesses)
        # any call is better evidence than a clock that was never set
        needed = WITNESSES if self._was_set else 1
        if sum(abs(offset - agreed_offset) <= NEAR_S for offset in self._witnesses) < needed:
            return
        if abs(wall_time - timer_s - agreed_offset) <= NEAR_S:
            self._delay_clock_of_deletion(timer_s)
            self._set_to_wall_clock(timer_s, wall_time, "arriving calls agree with the clock")
        elif not self._was_set and abs(agreed_offset - self._offset) > self._step_limit_s:
            _log.warning(
                "the clock is wrong, so the time is taken from arriving calls",
                extra={"action": "clock_of_calls"},
            )
            self._delay_clock_of_deletion(timer_s)
            self._offset = agreed_offset

    def accept_wall_clock_and_return_change_s(self) -> float:
        """
        Accept the wall clock, because an operator requests it. Return the change of the reported time in
        seconds.
        """
        before = self.now()
        wall = self._source.now()
        timer = self._timer()
        self._settled_until = float("-inf")
        self._set_to_wall_clock(timer, wall, "an operator accepted the clock")
        return wall - before

    def _delay_clock_of_deletion(self, timer_s: float) -> None:
        """
        Delay `conservative_now_for_deletion` by `hold_s` after a change of the reported time, so that it neither
        jumps ahead nor goes back.
        """
        if timer_s >= self._settled_until:
            self._settled_offset = self._offset
        self._settled_until = max(self._settled_until, timer_s + self._hold_s)

    def _set_to_wall_clock(self, timer: float, wall: float, reason: str) -> float:
        _log.warning("the clock is accepted: %s", reason, extra={"action": "clock_believed"})
        self._offset, self._was_set, self._stepped_at = wall - timer, True, None
        self._witnesses.clear()
        return wall


def clock_ahead_and_deletion_delay_s(clock: Clock) -> tuple[float, float]:
    """Return how far the wall clock is ahead, and how long deletion still waits, both in seconds."""
    return (
        (clock.wall_clock_ahead_s, clock.deletion_delay_after_clock_jump_s)
        if isinstance(clock, SteadyClock)
        else (0.0, 0.0)
    )


def conservative_now_for_deletion(clock: Clock) -> float:
    """
    Return the time that decides whether data are old enough to delete. A SteadyClock may return an earlier
    time than `now`.
    """
    return clock.conservative_now_for_deletion() if isinstance(clock, SteadyClock) else clock.now()
