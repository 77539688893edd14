"""The clock without its steps: what is believed when, and what may be removed by it."""

from __future__ import annotations

import logging

import pytest

from spool.clock import EARLIEST, SteadyClock, SystemClock, settled_now, time_since_boot

NOON = 1_790_000_000.0
HOUR, DAY = 3600.0, 86_400.0
NS = 10**9


class WallClock:
    """Two clocks that a test moves apart: the wall clock, and the timer of the machine."""

    def __init__(self, wall: float = NOON) -> None:
        self.wall = wall
        self.timer = 1000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.timer

    def go_on(self, seconds: float) -> None:
        self.wall += seconds
        self.timer += seconds

    def steady(self) -> SteadyClock:
        return SteadyClock(self, timer=self.monotonic)


def test_small_adjustments_are_followed() -> None:
    """However many: a clock that drifts is set every few minutes."""
    machine = WallClock()
    clock = machine.steady()
    for _ in range(100):
        machine.go_on(60)
        machine.wall += 299
        assert machine.wall == clock.now()
    assert clock.step_s == 0.0
    assert clock.held_s == 0.0


@pytest.mark.parametrize("step", [8 * DAY, 400 * DAY, 301.0, -301.0, -DAY, -NOON])
def test_a_step_is_not_followed(step: float, caplog: pytest.LogCaptureFixture) -> None:
    """Time goes on as before, and it is said once; back where it was, the wall clock is believed again."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall += step
    for _ in range(10):
        machine.go_on(60)
    assert NOON + 600 == clock.now()
    assert step == pytest.approx(clock.step_s)
    assert clock.settled_now() <= NOON + 600
    machine.wall -= step
    assert NOON + 600 == clock.now() == clock.settled_now()
    actions = [
        getattr(record, "action", "") for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert ["clock_stepped", "clock_back"] == actions


def test_a_step_that_stands_for_an_hour_is_believed() -> None:
    """Summed by the timer, not by the wall clock; another step begins another hour."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall += DAY
    clock.now()
    machine.go_on(HOUR / 2)
    machine.wall += DAY
    assert NOON + HOUR / 2 == clock.now()
    machine.go_on(HOUR - 1)
    assert NOON + 1.5 * HOUR - 1 == clock.now()
    assert 1.0 == clock.held_s
    machine.go_on(1)
    assert machine.wall == clock.now() == clock.settled_now()


def test_a_clock_that_goes_back_while_a_call_is_heard_is_back(caplog: pytest.LogCaptureFixture) -> None:
    """Each question goes by one reading of the wall clock: the calls do not confirm what was no longer read."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(4):
        clock.witness(int(NOON * NS))
    walls = iter([machine.wall])
    machine.now = lambda: next(walls, NOON)  # type: ignore[method-assign]
    clock.witness(int(NOON * NS))
    assert clock.settled_now() == NOON
    assert clock.held_s == 0.0
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert ["clock_stepped", "clock_back"] == actions


def test_calls_that_agree_with_a_step_confirm_it() -> None:
    """Five of nine: from then on time is right, and what the step made look old is kept for the hour."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(4):
        clock.witness(int((machine.wall - 5) * NS))
        assert NOON == clock.now()
    clock.witness(int((machine.wall - 60) * NS))
    assert machine.wall == clock.now()
    assert NOON == clock.settled_now()
    machine.go_on(HOUR)
    assert machine.wall == clock.settled_now()


@pytest.mark.parametrize(
    "told", [NOON, NOON - 30 * DAY], ids=["as before the step", "of a file from last month"]
)
def test_calls_that_do_not_agree_leave_it_in_doubt(told: float) -> None:
    """The gateway's clock is wrong, theirs is not; or they say nothing about today."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(50):
        clock.witness(int(told * NS))
    assert NOON == clock.now()


def test_an_operator_may_agree() -> None:
    """At once, for time and for what is removed."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall -= DAY
    assert NOON == clock.now()
    assert -DAY == clock.accept()
    assert machine.wall == clock.now() == clock.settled_now()


def test_a_clock_that_was_never_set_takes_the_time_of_calls() -> None:
    """1970 at boot: the first call that arrives says better what day it is; the setting is believed at once."""
    machine = WallClock(wall=60.0)
    clock = machine.steady()
    assert EARLIEST == clock.now()
    machine.go_on(10)
    clock.witness(int((NOON - 1) * NS))
    assert NOON - 1 == clock.now()
    machine.go_on(5)
    assert NOON + 4 == clock.now()
    machine.wall = NOON + 6
    assert NOON + 6 == clock.now()
    assert clock.settled_now() <= NOON + 6


def test_a_start_behind_the_last_record_goes_on_after_it() -> None:
    """The clock of a machine without a battery: time is not before what is on disk."""
    machine = WallClock(wall=EARLIEST + DAY)
    clock = machine.steady()
    clock.begin(NOON)
    assert NOON == clock.now()
    machine.wall = NOON + 600
    assert NOON + 600 == clock.now()


def test_a_start_after_a_long_stop_removes_nothing_for_an_hour() -> None:
    """A clock that is ahead cannot be told from a long stop: time is believed, what is old stays a little longer."""
    machine = WallClock()
    clock = machine.steady()
    clock.begin(NOON - 9 * DAY)
    assert clock.now() == NOON
    assert clock.settled_now() == NOON - 9 * DAY
    assert HOUR == clock.held_s
    machine.go_on(HOUR)
    assert machine.wall == clock.settled_now()
    clock.begin(machine.wall - 60)
    assert machine.wall == clock.settled_now()


def test_the_clock_of_the_machine() -> None:
    """The timer goes forward, and any other clock may remove by its own time."""
    assert time_since_boot() <= time_since_boot()
    clock = SteadyClock()
    assert abs(clock.now() - SystemClock().now()) < 1
    assert abs(settled_now(clock) - settled_now(SystemClock())) < 1
