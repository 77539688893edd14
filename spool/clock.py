"""
The clock is a parameter: tests move it, and a step of the wall clock never moves a timer.

What is stored, summed and removed goes by the time of day, and a wrong time of day cannot be told from a right
one. So `SteadyClock` does not follow a step of the wall clock at once: time goes on as before it, until the step
has stood for an hour, or the calls that arrive agree with it, or an operator does. What a step may have made look
old is removed later still.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from statistics import median
from typing import Protocol

AHEAD_S = 300.0  # clocks of two machines are nearer to each other than this


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for what is stored and shown."""
        ...

    def monotonic(self) -> float:
        """Seconds that only go forward, for timers."""
        ...


def elapsed_s(since: float, now: float) -> float:
    """
    Return the seconds since a stored time. A time far ahead was written by a clock that was ahead for a while:
    what waits for it has waited long enough, so it is infinitely long ago.
    """
    return inf if since > now + AHEAD_S else now - since


class SystemClock:
    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


# -- the wall clock without its steps ------------------------------------------------------------------------


EARLIEST = 1_767_225_600.0  # 2026: a clock before this has never been set
STOPPED_S = 86_400.0  # a start so long after the last commit may have a clock that is ahead
WITNESSES = 5  # of the last nine: calls that agree with one another
NEAR_S = 600.0  # how far apart they may be: calls are reported some time after they began
_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_log = logging.getLogger(__name__)


# Seconds that only go forward, also while the machine sleeps.
time_since_boot = partial(time.clock_gettime, _SINCE_BOOT)


class SteadyClock:
    """
    A Clock. Adjustments of at most `step_s` are followed, however many; a larger one is a step.

    `settled_now` is the time by which things may be removed: while a step is in doubt, and for `hold_s` after
    the start or the step that was believed, it is the earlier of the two times.
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
        self._was_set = wall >= EARLIEST  # else its time is only the best that is known
        self._offset = max(wall, EARLIEST) - began  # of our time from the timer's
        self._wall_offset = wall - began
        self._step_s = 0.0
        self._stepped_at: float | None = None  # by the timer; None while the wall clock is believed
        self._settled_offset, self._settled_until = self._offset, float("-inf")
        self._witnesses: deque[float] = deque(maxlen=WITNESSES + 4)

    def now(self) -> float:
        return self._follow(self._timer(), self._source.now())

    def _follow(self, timer: float, wall: float) -> float:
        """Return the time at these two readings. Several threads ask, each by its own readings alone."""
        offset = wall - timer
        before, self._wall_offset = self._wall_offset, offset
        step = offset - self._offset
        if -self._step_limit_s <= step <= self._step_limit_s:
            self._offset = offset
            self._was_set = True
            if self._stepped_at is not None:
                self._stepped_at = None
                _log.warning("the clock is back where it was", extra={"action": "clock_back"})
            return wall
        was_moved = abs(offset - before) > self._step_limit_s
        if not self._was_set and was_moved and wall >= EARLIEST:
            self._hold_back(timer)
            return self._believe(timer, wall, "it was not set before")
        if self._stepped_at is None or abs(step - self._step_s) > self._step_limit_s:
            self._stepped_at = timer
            text = "the clock was moved by %+.0f s: it is not believed for now (tollhouse spool accept-clock)"
            _log.error(text, step, extra={"action": "clock_stepped", "seconds": round(step)})
        self._step_s = step
        if timer - self._stepped_at >= self._hold_s and wall >= EARLIEST:
            return self._believe(timer, wall, "it has stood for long enough")
        return timer + self._offset

    def settled_now(self) -> float:
        """The time by which things may be removed."""
        now = min(self.now(), self._source.now())
        timer = self._timer()
        return min(now, timer + self._settled_offset) if timer < self._settled_until else now

    @property
    def step_s(self) -> float:
        """Return the seconds by which the wall clock is ahead of the time that is used; 0 while it is believed."""
        self.now()
        return 0.0 if self._stepped_at is None else self._step_s

    @property
    def held_s(self) -> float:
        """
        Return the seconds for which nothing is removed that a step of the clock or a long stop may have
        made look old.
        """
        self.now()
        timer = self._timer()
        until = self._settled_until if self._stepped_at is None else self._stepped_at + self._hold_s
        return max(0.0, until - timer)

    def begin(self, last_commit_at: float) -> None:
        """Begin with the time of the last stored record; a clock that is behind it is not believed."""
        now = self.now()
        timer = self._timer()
        if last_commit_at > now + self._step_limit_s:
            text = "the clock is %.0f s behind the last record that was kept: it is not believed for now"
            _log.error(text, last_commit_at - now, extra={"action": "clock_behind"})
            self._offset, self._was_set = last_commit_at - timer, False
        elif now > last_commit_at + STOPPED_S:
            text = "the last record was kept %.1f days ago: nothing is removed for %.0f s, should the clock be ahead"
            days = (now - last_commit_at) / 86_400
            _log.info(text, days, self._hold_s, extra={"action": "long_stop"})
            self._settled_offset, self._settled_until = last_commit_at - timer, timer + self._hold_s

    def witness(self, start_time_ns: int) -> float:
        """
        A call that has just arrived says when it began. Several that agree can confirm a step, or set a
        clock. Returns the time of its arrival, as it is believed then.
        """
        timer = self._timer()
        wall = self._source.now()
        now = self._follow(timer, wall)
        if self._was_set and self._stepped_at is None:
            return now
        self._hear(start_time_ns, timer, wall)
        return self.now()

    def _hear(self, start_time_ns: int, timer: float, wall: float) -> None:
        self._witnesses.append(start_time_ns / 1e9 - timer)
        told = median(self._witnesses)
        needed = (
            WITNESSES if self._was_set else 1
        )  # whatever a call says is better than a clock that was never set
        if sum(abs(each - told) <= NEAR_S for each in self._witnesses) < needed:
            return
        if abs(wall - timer - told) <= NEAR_S:
            self._hold_back(timer)
            self._believe(timer, wall, "the calls that arrive agree with it")
        elif not self._was_set and abs(told - self._offset) > self._step_limit_s:
            _log.warning(
                "the clock is wrong: the time is taken from the calls", extra={"action": "clock_of_calls"}
            )
            self._hold_back(timer)
            self._offset = told

    def accept(self) -> float:
        """An operator says that the wall clock is right: how many seconds our time has moved."""
        before = self.now()
        wall = self._source.now()
        timer = self._timer()
        self._settled_until = float("-inf")
        self._believe(timer, wall, "an operator agreed")
        return wall - before

    def _hold_back(self, timer: float) -> None:
        """Delay `settled_now` after a change of what is believed: it never moves earlier."""
        if timer >= self._settled_until:
            self._settled_offset = self._offset
        self._settled_until = max(self._settled_until, timer + self._hold_s)

    def _believe(self, timer: float, wall: float, why: str) -> float:
        _log.warning("the clock is believed: %s", why, extra={"action": "clock_believed"})
        self._offset, self._was_set, self._stepped_at = wall - timer, True, None
        self._witnesses.clear()
        return wall


def doubts(clock: Clock) -> tuple[float, float]:
    """
    Return the seconds by which the wall clock is ahead of the time that is used, and those for which upkeep
    is held back.
    """
    return (clock.step_s, clock.held_s) if isinstance(clock, SteadyClock) else (0.0, 0.0)


def settled_now(clock: Clock) -> float:
    """The time by which things may be removed, whatever clock it is."""
    return clock.settled_now() if isinstance(clock, SteadyClock) else clock.now()
