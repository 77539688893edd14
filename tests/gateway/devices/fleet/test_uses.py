"""When a laptop finds that uses lose their calls: fixed cases, and an oracle that knows which calls were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pytest

from gateway.devices.fleet.uses import RememberedAssistantUses, UseObservation, remembered_uses_after_probe

MINUTE, HOUR = 60.0, 3600.0
LOOK_S = 300.0


class Day(NamedTuple):
    """
    A day of one home: uses, and the calls that arrived. Times are in seconds, and the probe looks every five
    minutes.
    """

    uses: Sequence[float]
    calls: Sequence[float]
    bad: tuple[float, float] | None = None  # times in which the settings of the laptop were wrong
    asleep: tuple[float, float] | None = None
    cut: tuple[float, float] | None = None  # times in which the agent was stopped
    set_back: tuple[float, float] | None = None  # when the laptop's clock was set back, and by how much


def states(day: Day, hours: float) -> dict[float, str]:
    """Return the use that the laptop states after each look."""
    memory, found = RememberedAssistantUses(), {}
    for number in range(int(hours * 3600 / LOOK_S) + 1):
        now = number * LOOK_S
        if day.asleep and day.asleep[0] <= now < day.asleep[1]:
            continue
        is_bad = day.bad is not None and day.bad[0] <= now < day.bad[1]
        look = UseObservation(
            setting="not_configured" if is_bad else "configured",
            is_bad=is_bad,
            cut="agent_down" if day.cut is not None and day.cut[0] <= now < day.cut[1] else "",
            used=max((shown(day, at) for at in day.uses if at <= now), default=None),
            heard=max((shown(day, at) for at in day.calls if at <= now), default=None),
        )
        local = shown(day, now)
        memory = msgspec.json.decode(
            msgspec.json.encode(remembered_uses_after_probe(memory, look, now=local)),
            type=RememberedAssistantUses,
        )
        found[now] = memory.use_state(now=local)
    return found


def shown(day: Day, at: float) -> float:
    """Return what the laptop's clock showed at a true time."""
    return at - day.set_back[1] if day.set_back is not None and at >= day.set_back[0] else at


def every(least: float, most: float, step: float) -> list[float]:
    return [least + n * step for n in range(int((most - least) / step))]


def test_calls_after_each_use_are_no_loss() -> None:
    uses = every(HOUR, 9 * HOUR, 90)
    found = states(Day(uses, [at + 20 for at in uses]), 24)
    assert {"none", "heard"} == set(found.values())


@pytest.mark.parametrize("step", [5.0, 40.0, 90.0, 240.0])
def test_uses_without_calls_are_a_loss_within_a_quarter_of_an_hour_and_a_look(step: float) -> None:
    """
    A loss is found even if each look sees only a use that is seconds old. It ends with a call, and not in the
    evening.
    """
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
        ([0], False),  # a session that was opened without a prompt, and never closed
        ([0, 30], False),  # a session that was opened and closed
        ([0, 0.1, 30, 30.1], False),
        ([0, 90, 240, 330], False),  # sessions that were opened several times on a day
        ([0, 20, 40], True),
        ([0, 5, 10], True),
        ([0, 29, 61], False),
        ([0, 30, 60], True),
        ([0, 90, 240, 330, 331], False),
        ([0, 90, 240, 330, 420], True),
        ([0, 1500, 3000, 4500, 5900], True),
    ],
)
def test_three_uses_of_an_hour_or_five_of_any_time_are_a_loss(uses: Sequence[float], is_loss: bool) -> None:
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


def test_a_use_from_before_the_agent_stopped_waits_for_no_call() -> None:
    """
    A program is opened without a prompt, and later the agent is stopped while the probe looks, as in an upgrade.
    The use from before waits for no call, so it is no loss.
    """
    calls = every(HOUR, 2 * HOUR, 90)
    opened = 2 * HOUR + 20 * MINUTE
    found = states(Day([*calls, opened], calls, cut=(2.5 * HOUR, 2.6 * HOUR)), 9)
    assert "losing" not in found.values()
    used = states(Day([*calls, opened, 2.6 * HOUR], calls, cut=(2.5 * HOUR, 5 * HOUR)), 9)
    assert "losing" == used[3 * HOUR]


def test_a_loss_has_the_cause_of_its_uses() -> None:
    """
    Stopping the agent while nobody works does not explain an earlier loss. A later use makes the stopped agent the
    cause.
    """
    lost = every(HOUR, 2 * HOUR, 90)
    pause = (3 * HOUR, 4 * HOUR)
    for used, cause in (
        (lost, ""),
        ([*lost, 3.5 * HOUR], "agent_down"),
        ([*lost, 3 * HOUR - 9], "agent_down"),
    ):
        memory = RememberedAssistantUses()
        for number in range(60):
            now = number * LOOK_S
            cut = "agent_down" if pause[0] <= now < pause[1] else ""
            newest = max((at for at in used if at <= now), default=None)
            look = UseObservation(setting="configured", is_bad=False, cut=cut, used=newest)
            memory = remembered_uses_after_probe(memory, look, now=now)
        assert ("losing", cause) == (memory.use_state(now=now), memory.cut)


def test_a_clock_that_is_set_back_makes_no_loss_and_hides_none() -> None:
    """After the clock was set back, files and calls from before have times in the future."""
    uses = every(HOUR, 6 * HOUR, 90)
    calls = [at + 10 for at in uses]
    fine = states(Day(uses, calls, set_back=(3 * HOUR, 2 * HOUR)), 9)
    assert {"none", "heard"} == set(fine.values())
    lost = [at for at in calls if at < 4 * HOUR]
    found = states(Day(uses, lost, set_back=(3 * HOUR, 2 * HOUR)), 9)
    assert "losing" == found[5 * HOUR + 30 * MINUTE]


def test_the_third_loss_of_a_day_lasts_until_a_day_without_a_loss() -> None:
    lost = [every(start, start + HOUR, 90) for start in (HOUR, 4 * HOUR, 7 * HOUR)]
    calls = [3 * HOUR, 6 * HOUR, 9 * HOUR]
    uses = sorted([*lost[0], *lost[1], *lost[2], *calls])
    twice = states(Day([at for at in uses if at < 6.5 * HOUR], calls), 40)
    assert ("losing", "heard", "losing") == (twice[2 * HOUR], twice[4 * HOUR], twice[5 * HOUR])
    assert "heard" == twice[8 * HOUR]
    found = states(Day(uses, calls), 40)
    assert {"losing"} == {found[at] for at in every(9 * HOUR, 31 * HOUR, HOUR)}
    assert "heard" == found[34 * HOUR]
