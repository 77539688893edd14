"""When a laptop finds that uses lose their calls: fixed cases, and an oracle that knows which calls were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest

from gateway.devices.fleet.uses import UseLook, UseMemory, followed

MINUTE, HOUR = 60.0, 3600.0
LOOK_S = 300.0


class Day(NamedTuple):
    """A day of one home: uses and the calls that arrived. Times are in seconds, the look comes every five minutes."""

    uses: Sequence[float]
    calls: Sequence[float]
    bad: tuple[float, float] | None = None  # when the settings were wrong
    asleep: tuple[float, float] | None = None


def states(day: Day, hours: float) -> dict[float, str]:
    """Return the use that the laptop states after each look."""
    memory, found = UseMemory(), {}
    for number in range(int(hours * 3600 / LOOK_S) + 1):
        now = number * LOOK_S
        if day.asleep and day.asleep[0] <= now < day.asleep[1]:
            continue
        is_bad = day.bad is not None and day.bad[0] <= now < day.bad[1]
        look = UseLook(
            setting="not_configured" if is_bad else "configured",
            is_bad=is_bad,
            used=max((at for at in day.uses if at <= now), default=None),
            heard=max((at for at in day.calls if at <= now), default=None),
        )
        memory = msgspec.json.decode(msgspec.json.encode(followed(memory, look, now=now)), type=UseMemory)
        found[now] = memory.use(now=now)
    return found


def every(least: float, most: float, step: float) -> list[float]:
    return [least + n * step for n in range(int((most - least) / step))]


def test_calls_after_each_use_are_no_loss() -> None:
    uses = every(HOUR, 9 * HOUR, 90)
    found = states(Day(uses, [at + 20 for at in uses]), 24)
    assert {"none", "heard"} == set(found.values())


@pytest.mark.parametrize("step", [5.0, 40.0, 90.0, 240.0])
def test_uses_without_calls_are_a_loss_within_a_quarter_of_an_hour_and_a_look(step: float) -> None:
    """Also if each look sees only a use that is seconds old. It ends with a call, and not in the evening."""
    uses = every(HOUR, 9 * HOUR, step)
    calls = [at + 10 for at in uses if at < 2 * HOUR]
    found = states(Day(uses, calls, asleep=(10 * HOUR, 20 * HOUR)), 24)
    begun = min(at for at, use in found.items() if use == "losing")
    assert begun - 2 * HOUR <= 15 * MINUTE + max(LOOK_S, step)
    assert {"losing"} == {use for at, use in found.items() if at >= begun}
    repaired = states(Day(uses, [*calls, 23 * HOUR]), 24)
    assert "heard" == repaired[24 * HOUR]


def test_a_wrong_setting_is_a_loss_with_the_next_look() -> None:
    uses = every(HOUR, 9 * HOUR, 60)
    calls = [at + 10 for at in uses if not 2 * HOUR <= at < 4 * HOUR]
    found = states(Day(uses, calls, bad=(2 * HOUR, 4 * HOUR)), 10)
    losing = [at for at, use in found.items() if use == "losing"]
    assert 2 * HOUR < min(losing) <= 2 * HOUR + 2 * LOOK_S
    assert losing == every(min(losing), 4 * HOUR, LOOK_S)


@pytest.mark.parametrize(
    ("uses", "is_loss"),
    [
        ([0], False),  # opened without a prompt, and never closed
        ([0, 30], False),  # opened and closed
        ([0, 0.1, 30, 30.1], False),
        ([0, 90, 240, 330], False),  # several times on a day
        ([0, 20, 40], True),
        ([0, 5, 10], True),
        ([0, 29, 61], False),
        ([0, 30, 60], True),
    ],
)
def test_three_uses_of_an_hour_are_a_loss(uses: Sequence[float], is_loss: bool) -> None:
    """Some programs write to their session when they are opened and closed, and time alone makes no loss."""
    found = states(Day([HOUR + at * MINUTE for at in uses], []), 100)
    assert ("losing" if is_loss else "waiting") == found[100 * HOUR]
    assert is_loss == ("losing" in found.values())


def test_a_long_tool_run_is_no_loss() -> None:
    """An agent writes to its session while a tool runs for 25 minutes, and its next call comes after the result."""
    found = states(Day([HOUR, HOUR + 25 * MINUTE], [HOUR + 5, HOUR + 25 * MINUTE + 30]), 3)
    assert {"none", "heard"} == set(found.values())


@pytest.mark.parametrize("start_s", range(0, 300, 20))
def test_a_tool_that_reports_its_progress_is_no_loss(start_s: int) -> None:
    """A session grows while a tool runs for ten minutes, which is the default limit, and then the next call is made."""
    start = HOUR + start_s
    uses = every(start, start + 600, 5)
    found = states(Day(uses, [start, start + 640]), 3)
    assert {"none", "heard", "waiting"} >= set(found.values())
    assert "heard" == found[3 * HOUR]
