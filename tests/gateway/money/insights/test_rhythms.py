"""Sources and keys that stop sending, judged by simulated rhythms of several shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from random import Random

import pytest

from gateway.money.insights.rhythms import find_long_silence
from spool.registry.tables.sender_hours import (
    FORGOTTEN_HOURS,
    HOUR_S,
    RUNNING,
    SenderHours,
    hours_of_new_sender,
)
from tests.rounds import reduced

LEARNED_D, OBSERVED_D = 56, 90
MONDAY_H = 4 * 24 + 2840 * 7 * 24  # an hour since the epoch: the begin of a Monday
ALWAYS = SenderHours(
    source=RUNNING[0], key=RUNNING[1], end=MONDAY_H + 300 * 24, hours=(1 << FORGOTTEN_HOURS) - 1, last=0.0
)
Shape = Callable[[Random], Iterator[bool]]  # for each hour from a Monday on: whether records arrive


def by_chance(share: Callable[[int, int], float]) -> Shape:
    """Return a shape in which each hour has records with a probability, given the weekday and the hour of the day."""

    def hours(random: Random) -> Iterator[bool]:
        hour = 0
        while True:
            yield random.random() < share(hour // 24 % 7, hour % 24)
            hour += 1

    return hours


def at_work(day: int, hour: int) -> bool:
    return day < 5 and 9 <= hour < 18


def wave(most: float) -> Shape:
    """Return a shape with a peak in the afternoon and quiet weekends. `most` is the calls per hour at the peak."""
    return by_chance(
        lambda day, hour: (
            1 - math.exp(-most * (1 + math.cos((hour - 14) / 12 * math.pi)) / 2 * (1 if day < 5 else 0.3))
        )
    )


def one_person(random: Random) -> Iterator[bool]:
    """Yield working hours of a person who is ill on 2 % of the days."""
    while True:
        for day in range(7):
            is_ill = random.random() < 0.02
            for hour in range(24):
                yield at_work(day, hour) and not is_ill and random.random() < 0.6


def any_night_hour(random: Random) -> Iterator[bool]:
    """Yield one hour of each night, at random."""
    while True:
        at = random.randrange(2, 6)
        yield from (hour == at for hour in range(24))


def bursts(random: Random) -> Iterator[bool]:
    """Yield bursts of about six hours with pauses of about thirty."""
    while True:
        yield from [True] * math.ceil(random.expovariate(1 / 6))
        yield from [False] * math.ceil(random.expovariate(1 / 30))


def two_days_a_month(random: Random) -> Iterator[bool]:
    while True:
        yield from (hour < 48 for hour in range(30 * 24))


# Shape -> the hours, and the most hours after its last record in which a stop must be reported. None if the shape is
# too irregular to be judged.
SHAPES: Mapping[str, tuple[Shape, int | None]] = {
    "each hour": (by_chance(lambda *_: 1.0), 5),
    "95 % of all hours": (by_chance(lambda *_: 0.95), 12),
    "half of all hours": (by_chance(lambda *_: 0.5), 60),
    "each working hour": (by_chance(lambda *at: float(at_work(*at))), 3 * 24),
    "most working hours": (by_chance(lambda *at: 0.7 * at_work(*at)), 5 * 24),
    "working hours, rarely evenings": (by_chance(lambda *at: 0.9 if at_work(*at) else 0.03), 4 * 24),
    "a person": (one_person, 14 * 24),
    "a wave": (wave(3.0), 3 * 24),
    "a low wave": (wave(0.6), 8 * 24),
    "ten calls a week": (by_chance(lambda *_: 10 / 168), 21 * 24),
    "ten calls a week at work": (by_chance(lambda *at: 10 / 45 * at_work(*at)), 21 * 24),
    "each night": (by_chance(lambda _, hour: float(hour == 3)), 5 * 24),
    "nine nights of ten": (by_chance(lambda _, hour: 0.9 * (hour == 3)), 10 * 24),
    "an hour of each night": (any_night_hour, 8 * 24),
    "each Monday": (by_chance(lambda day, hour: float(day == 0 and hour == 2)), 5 * 7 * 24),
    "bursts": (bursts, 45 * 24),
    "two days a month": (two_days_a_month, None),
}  # fmt: skip
# most false alarms of three senders in 90 days; 0 for all other shapes
MOST_FALSE = {"a person": 1, "bursts": 1}


class Sender:
    """A simulated sender. `reported_after` has the hours of silence after which each stop was reported."""

    def __init__(self) -> None:
        self.hours: SenderHours | None = None
        self.reported_after: list[int] = []
        self._is_reported = False

    def hour(self, hour: int, *, has_records: bool) -> None:
        if has_records:
            at = {hour: hour * HOUR_S + 60.0}
            self.hours = (
                hours_of_new_sender(("litellm", "prod"), at)
                if self.hours is None
                else self.hours.with_arrivals(at)
            )
            self._is_reported = False
        elif self.hours is not None and not self._is_reported:
            now = (hour + 1) * HOUR_S + 301.0
            if find_long_silence(self.hours, ALWAYS, now=now) is not None:
                self._is_reported = True
                self.reported_after.append(hour + 1 - self.hours.end)


@pytest.mark.parametrize("name", SHAPES)
def test_a_usual_silence_is_not_reported_and_a_stop_is(name: str) -> None:
    """
    Senders of each shape are observed for 90 days without a false alarm, apart from a few of irregular shapes. Then
    each sender stops, and the stop is reported in time.
    """
    shape, most_hours = SHAPES[name]
    false_alarms = 0
    for seed in range(reduced(3, by=3)):
        random = Random(f"{name} {seed}")
        sender = Sender()
        stop = MONDAY_H + (LEARNED_D + OBSERVED_D) * 24 + random.randrange(7 * 24)
        for hour, has_records in zip(range(MONDAY_H, stop), shape(random), strict=False):
            sender.hour(hour, has_records=has_records)
        false_alarms += len(sender.reported_after)
        sender.reported_after.clear()
        assert sender.hours is not None
        for hour in range(stop, sender.hours.end + (most_hours or 90 * 24) + 1):
            sender.hour(hour, has_records=False)
        assert (most_hours is not None) == (len(sender.reported_after) == 1), (seed, sender.reported_after)
    assert false_alarms <= MOST_FALSE.get(name, 0)
