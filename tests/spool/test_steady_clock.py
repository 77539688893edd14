"""The steady clock: when it believes the wall clock, and when it permits deletions."""

from __future__ import annotations

import logging

import pytest

from spool.clock import EARLIEST, SteadyClock, SystemClock, conservative_now_for_deletion, time_since_boot

NOON = 1_790_000_000.0
HOUR, DAY = 3600.0, 86_400.0
NS = 10**9


class WallClock:
    """A wall clock and a machine timer that a test moves separately."""

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
    """
    Machine clocks are adjusted slightly every few minutes. The steady clock follows any
    number of small adjustments.
    """
    machine = WallClock()
    clock = machine.steady()
    for _ in range(100):
        machine.go_on(60)
        machine.wall += 299
        assert machine.wall == clock.now()
    assert clock.wall_clock_ahead_s == 0.0
    assert clock.deletion_delay_after_clock_jump_s == 0.0


@pytest.mark.parametrize("step", [8 * DAY, 400 * DAY, 301.0, -301.0, -DAY, -NOON])
def test_a_step_is_not_followed(step: float, caplog: pytest.LogCaptureFixture) -> None:
    """
    After a step, time continues as before, with one warning. If the wall clock returns, it is believed again.
    """
    machine = WallClock()
    clock = machine.steady()
    machine.wall += step
    for _ in range(10):
        machine.go_on(60)
    assert NOON + 600 == clock.now()
    assert step == pytest.approx(clock.wall_clock_ahead_s)
    assert clock.conservative_now_for_deletion() <= NOON + 600
    machine.wall -= step
    assert NOON + 600 == clock.now() == clock.conservative_now_for_deletion()
    actions = [
        getattr(record, "action", "") for record in caplog.records if record.levelno >= logging.WARNING
    ]
    assert ["clock_stepped", "clock_back"] == actions


def test_step_of_the_clock_is_believed_after_an_hour() -> None:
    """
    A step is believed after an hour by the timer, not by the wall clock. Another step starts another hour.
    """
    machine = WallClock()
    clock = machine.steady()
    machine.wall += DAY
    clock.now()
    machine.go_on(HOUR / 2)
    machine.wall += DAY
    assert NOON + HOUR / 2 == clock.now()
    machine.go_on(HOUR - 1)
    assert NOON + 1.5 * HOUR - 1 == clock.now()
    assert 1.0 == clock.deletion_delay_after_clock_jump_s
    machine.go_on(1)
    assert machine.wall == clock.now() == clock.conservative_now_for_deletion()


def test_clock_set_back_during_a_comparison_stays_back(caplog: pytest.LogCaptureFixture) -> None:
    """
    The wall clock may be set back while it is compared with a call's time. Each comparison reads the wall
    clock once, so calls cannot confirm a time that has already been reset.
    """
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(4):
        clock.correct_clock_and_return_arrival_time(int(NOON * NS))
    walls = iter([machine.wall])
    machine.now = lambda: next(walls, NOON)  # type: ignore[method-assign]
    clock.correct_clock_and_return_arrival_time(int(NOON * NS))
    assert clock.conservative_now_for_deletion() == NOON
    assert clock.deletion_delay_after_clock_jump_s == 0.0
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert ["clock_stepped", "clock_back"] == actions


def test_calls_that_agree_with_a_step_confirm_it() -> None:
    """
    If five of nine calls agree with a step, the step is believed at once. Records that look old only because
    of the step are still not deleted for an hour.
    """
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(4):
        clock.correct_clock_and_return_arrival_time(int((machine.wall - 5) * NS))
        assert NOON == clock.now()
    clock.correct_clock_and_return_arrival_time(int((machine.wall - 60) * NS))
    assert machine.wall == clock.now()
    assert NOON == clock.conservative_now_for_deletion()
    machine.go_on(HOUR)
    assert machine.wall == clock.conservative_now_for_deletion()


@pytest.mark.parametrize(
    "told", [NOON, NOON - 30 * DAY], ids=["as before the step", "of a file from last month"]
)
def test_calls_that_do_not_agree_leave_it_in_doubt(told: float) -> None:
    """
    If calls do not agree with a step, it stays in doubt. Either the gateway's clock is wrong, or the calls
    are not from today.
    """
    machine = WallClock()
    clock = machine.steady()
    machine.wall += 8 * DAY
    for _ in range(50):
        clock.correct_clock_and_return_arrival_time(int(told * NS))
    assert NOON == clock.now()


def test_an_operator_may_agree() -> None:
    """An operator's confirmation applies at once, to time and to deletions."""
    machine = WallClock()
    clock = machine.steady()
    machine.wall -= DAY
    assert NOON == clock.now()
    assert -DAY == clock.accept_wall_clock_and_return_change_s()
    assert machine.wall == clock.now() == clock.conservative_now_for_deletion()


def test_clock_that_was_never_set_accepts_the_time_of_calls() -> None:
    """
    A clock that was never set starts in 1970. The first call's time is then believed, and so is the first
    setting of the clock.
    """
    machine = WallClock(wall=60.0)
    clock = machine.steady()
    assert EARLIEST == clock.now()
    machine.go_on(10)
    clock.correct_clock_and_return_arrival_time(int((NOON - 1) * NS))
    assert NOON - 1 == clock.now()
    machine.go_on(5)
    assert NOON + 4 == clock.now()
    machine.wall = NOON + 6
    assert NOON + 6 == clock.now()
    assert clock.conservative_now_for_deletion() <= NOON + 6


def test_start_before_the_last_record_continues_after_it() -> None:
    """On a machine without a clock battery, time never starts before the last record on disk."""
    machine = WallClock(wall=EARLIEST + DAY)
    clock = machine.steady()
    clock.start_no_earlier_than_last_commit(NOON)
    assert NOON == clock.now()
    machine.wall = NOON + 600
    assert NOON + 600 == clock.now()


def test_a_start_after_a_long_stop_removes_nothing_for_an_hour() -> None:
    """A clock that is ahead looks like a long stop. Time is believed, but old records stay an hour longer."""
    machine = WallClock()
    clock = machine.steady()
    clock.start_no_earlier_than_last_commit(NOON - 9 * DAY)
    assert clock.now() == NOON
    assert clock.conservative_now_for_deletion() == NOON - 9 * DAY
    assert HOUR == clock.deletion_delay_after_clock_jump_s
    machine.go_on(HOUR)
    assert machine.wall == clock.conservative_now_for_deletion()
    clock.start_no_earlier_than_last_commit(machine.wall - 60)
    assert machine.wall == clock.conservative_now_for_deletion()


def test_the_clock_of_the_machine() -> None:
    """
    The timer of the real machine never goes back. Where tests use another clock, deletions use that clock's time.
    """
    assert time_since_boot() <= time_since_boot()
    clock = SteadyClock()
    assert abs(clock.now() - SystemClock().now()) < 1
    assert abs(conservative_now_for_deletion(clock) - conservative_now_for_deletion(SystemClock())) < 1
