"""When a laptop finds that uses lose their calls: fixed cases, and orders in which files and calls arrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pytest

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.fleet.uses import (
    RememberedAssistantUses,
    SessionFile,
    UseObservation,
    remembered_uses_after_probe,
)

MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
LOOK_S = 300.0
PROMPT, OPENED = 4000, 351  # bytes


@dataclass
class Day:
    """
    A day of one home. `uses` are times of prompts by session, and `calls` those of calls that arrived. `opened` are the
    times at which a session got a file with a few bytes. Times are in seconds, and the probe looks every five minutes.
    """

    uses: Mapping[str, Sequence[float]]
    calls: Mapping[str, Sequence[float]] = field(default_factory=dict)
    bad: tuple[float, float] | None = None  # times in which the settings of the laptop were wrong
    cut: tuple[float, float] | None = None  # times in which the agent was stopped
    asleep: tuple[float, float] | None = None
    set_back: tuple[float, float] | None = None  # when the laptop's clock was set back, and by how much
    is_sure: bool = True
    late_s: float = 0.0  # how long each call takes to arrive
    bytes_of_use: int = PROMPT
    opened: Mapping[str, float] = field(default_factory=dict)

    def shown(self, at: float) -> float:
        """Return what the laptop's clock showed at a true time."""
        return at - self.set_back[1] if self.set_back is not None and at >= self.set_back[0] else at

    def observation(self, now: float) -> UseObservation:
        files = {}
        for session, times in self.uses.items():
            grown = [at for at in times if at <= now]
            opened = [at for name, at in self.opened.items() if name == session and at <= now]
            if grown or opened:
                size = self.bytes_of_use * len(grown) + OPENED * len(opened)
                files[session] = SessionFile(size, self.shown(max(grown + opened)))
        heard: dict[str, HeardCalls] = {}
        for session, times in self.calls.items():
            for at in times:
                if at + self.late_s <= now:
                    heard.setdefault(session, HeardCalls()).add_call(self.shown(at) - 5, self.shown(at))
        for calls in heard.values():
            calls.forget_future(self.shown(now))
        is_bad = _is_within(self.bad, now)
        return UseObservation(
            setting="not_configured" if is_bad else "configured",
            is_bad=is_bad,
            cut="agent_down" if _is_within(self.cut, now) else "",
            sessions=files,
            is_heard=lambda session, slot: session in heard and heard[session].has_slot(slot),
            heard=max((each.ended for each in heard.values()), default=None),
            least_growth=1000,
            has_sure_uses=self.is_sure,
        )

    def memories(self, hours: float, step_s: float = LOOK_S) -> Mapping[float, RememberedAssistantUses]:
        """Return what is remembered after each look, by its true time."""
        memory, found = RememberedAssistantUses(), {}
        for number in range(int(hours * 3600 / step_s) + 1):
            now = number * step_s + 1
            if _is_within(self.asleep, now):
                continue
            memory = remembered_uses_after_probe(memory, self.observation(now), now=self.shown(now))
            memory = msgspec.json.decode(msgspec.json.encode(memory), type=RememberedAssistantUses)
            found[now] = memory
        return found

    def states(self, hours: float) -> Mapping[float, str]:
        """Return the use that the laptop states after each look."""
        return {at: memory.use_state(now=self.shown(at)) for at, memory in self.memories(hours).items()}


def _is_within(times: tuple[float, float] | None, now: float) -> bool:
    return times is not None and times[0] <= now < times[1]


def every(least: float, most: float, step: float) -> list[float]:
    return [least + n * step for n in range(int((most - least) / step))]


def first(found: Mapping[float, str], word: str = "losing") -> float:
    return min(at for at, use in found.items() if use == word)


def last(found: Mapping[float, str]) -> str:
    return found[max(found)]


def test_calls_of_each_use_are_no_loss() -> None:
    uses = every(HOUR, 9 * HOUR, 90)
    found = Day({"a": uses}, {"a": [at + 20 for at in uses]}).states(24)
    assert {"none", "heard"} == set(found.values())


@pytest.mark.parametrize("step", [5.0, 40.0, 90.0, 240.0, 299.0])
@pytest.mark.parametrize("start_s", [0.0, 130.0, 299.0])
def test_uses_without_calls_are_a_loss_within_20_minutes(step: float, start_s: float) -> None:
    """A loss does not end in the evening. It ends if a later use is heard."""
    start = 2 * HOUR + start_s
    uses = every(start, 4 * HOUR, step)
    found = Day({"a": uses}, asleep=(10 * HOUR, 20 * HOUR)).states(24)
    assert first(found) - start <= 20 * MINUTE + 1
    assert {"losing"} == {use for at, use in found.items() if at >= first(found)}
    again = [*uses, 23 * HOUR]
    assert "heard" == last(Day({"a": again}, {"a": [23 * HOUR + 9]}).states(24))


def test_one_person_hides_no_other_session() -> None:
    """A session that was open all the time proves nothing for another one. A session that began later does."""
    heard, lost = every(HOUR, 5 * HOUR, 200), every(2 * HOUR, 3 * HOUR, 200)
    found = Day({"a": heard, "b": lost}, {"a": [at + 9 for at in heard]}).states(5)
    assert first(found) - 2 * HOUR <= 20 * MINUTE + 1
    assert "losing" == last(found)
    began = 4 * HOUR
    uses = {"a": heard, "b": lost, "c": [began]}
    found = Day(uses, {"a": [at + 9 for at in heard], "c": [began + 9]}).states(5)
    assert ("losing", "heard") == (found[began - 299], last(found))


@pytest.mark.parametrize("opened_s", [0.0, LOOK_S])
def test_a_session_begins_when_its_file_appears(opened_s: float) -> None:
    """Gemini CLI's file has a few bytes before the first answer. A heard use of such a session ends a loss as well."""
    uses = {"a": every(HOUR, 2 * HOUR, 200), "b": [3 * HOUR]}
    heard = Day(uses, {"b": [3 * HOUR + 9]}, opened={"b": 3 * HOUR - opened_s})
    assert "heard" == last(heard.states(4))
    before = Day(uses, {"b": [3 * HOUR + 9]}, opened={"b": HOUR - 2 * LOOK_S})
    assert "losing" == last(before.states(4))


def test_uses_of_different_sessions_are_a_loss() -> None:
    """One-shot prompts have a session each."""
    uses = {str(number): [HOUR + 400.0 * number] for number in range(3)}
    assert "losing" == last(Day(uses).states(3))


@pytest.mark.parametrize(
    ("minutes", "is_loss"),
    [
        ([0], False),
        ([0, 1, 2, 3], False),
        ([0, 6], False),
        ([0, 6, 7], False),
        ([0, 6, 12], True),
        ([0, 100, 800], True),
    ],
)
def test_three_slots_are_a_loss(minutes: Sequence[float], is_loss: bool) -> None:
    found = Day({"a": [HOUR + at * MINUTE for at in minutes]}).states(20)
    assert ("losing" if is_loss else "waiting") == last(found)


def test_one_use_is_a_loss_after_a_day_in_which_the_machine_was_awake() -> None:
    """It is not, if a later use was heard in any session, or if the program also writes without a prompt."""
    found = Day({"a": [HOUR]}).states(30)
    assert 25 * HOUR <= first(found) <= 25 * HOUR + 2 * LOOK_S
    slept = Day({"a": [HOUR]}, asleep=(1.1 * HOUR, 70 * HOUR)).states(80)
    assert 70.5 * HOUR <= first(slept) <= 71.5 * HOUR
    for later in ({"a": [HOUR], "b": [0.9 * HOUR, 5 * HOUR]}, {"a": [HOUR], "b": [5 * HOUR]}):
        calls = {"b": [at + 9 for at in later["b"]]}
        assert "losing" not in Day(later, calls).states(60).values()
    assert "losing" not in Day({"a": [HOUR]}, is_sure=False).states(60).values()


def test_a_program_that_also_writes_without_a_prompt_needs_five_uses() -> None:
    times = [HOUR + 10 * MINUTE * number for number in range(5)]
    assert "waiting" == last(Day({"a": times[:4]}, is_sure=False).states(60))
    assert "losing" == last(Day({"a": times}, is_sure=False).states(3))


def test_growth_by_a_few_bytes_is_no_use() -> None:
    times = every(HOUR, 3 * HOUR, 310)
    assert {"none", "heard"} >= set(Day({"a": times}, bytes_of_use=200).states(60).values())


def test_a_wrong_setting_is_a_loss_with_the_next_look() -> None:
    uses = every(HOUR, 9 * HOUR, 60)
    calls = [at + 10 for at in uses if not 2 * HOUR <= at < 4 * HOUR]
    found = Day({"a": uses}, {"a": calls}, bad=(2 * HOUR, 4 * HOUR)).states(10)
    # the uses of the first look belong to a call that was heard just before
    losing = [at for at, use in found.items() if use == "losing"]
    assert 2 * HOUR < min(losing) <= 2 * HOUR + 5 * LOOK_S
    assert losing == [at for at in found if min(losing) <= at < 4 * HOUR]


@pytest.mark.parametrize("minutes", [9.0, 14.0])
def test_a_call_belongs_to_the_ten_minutes_before_it(minutes: float) -> None:
    """A use a quarter of an hour before the next call of its session is not heard, but the next one ends the loss."""
    uses = [HOUR, HOUR + minutes * MINUTE]
    memories = Day({"a": uses}, {"a": [uses[1] + 30]}).memories(3)
    assert not memories[max(memories)].open


@pytest.mark.parametrize("late_s", [0.0, 30.0, 400.0, 2000.0])
@pytest.mark.parametrize("asleep", [None, (HOUR + 30, 12 * HOUR)])
def test_a_call_that_arrives_late_counts_by_its_own_time(
    late_s: float, asleep: tuple[float, float] | None
) -> None:
    """A laptop may fall asleep within a use, and its call may arrive at the next look or later."""
    uses = [HOUR, HOUR + 20, HOUR + 40]
    day = Day({"a": uses}, {"a": [at + 5 for at in uses]}, asleep=asleep, late_s=late_s)
    assert "losing" not in day.states(40).values()
    assert "heard" == last(day.states(40))


def test_a_use_from_before_the_agent_stopped_waits_for_no_call() -> None:
    """A use before the agent was stopped, as in an upgrade, is no certain loss. A later use is."""
    calls = every(HOUR, 2 * HOUR, 90)
    opened = 2 * HOUR + 20 * MINUTE
    cut = (2.5 * HOUR, 2.6 * HOUR)
    found = Day({"a": [*calls, opened]}, {"a": calls}, cut=cut).states(9)
    assert "losing" not in found.values()
    used = Day({"a": [*calls, opened, 2.6 * HOUR]}, {"a": calls}, cut=(2.5 * HOUR, 5 * HOUR)).states(9)
    assert "losing" == last(used)


def test_a_loss_has_the_cause_of_its_uses() -> None:
    """
    Stopping the agent while nobody works does not explain an earlier loss. A later use makes the stopped agent the
    cause.
    """
    lost = every(HOUR, 2 * HOUR, 90)
    for used, cause in (
        (lost, ""),
        ([*lost, 3.5 * HOUR], "agent_down"),
        ([*lost, 3 * HOUR - 9], "agent_down"),
    ):
        memories = Day({"a": used}, cut=(3 * HOUR, 4 * HOUR)).memories(5)
        memory = memories[max(memories)]
        assert ("losing", cause) == (memory.use_state(now=5 * HOUR), memory.cut)


@pytest.mark.parametrize("by", [2 * HOUR, 130.0])
def test_a_clock_that_is_set_back_makes_no_loss_and_hides_none(by: float) -> None:
    """After the clock was set back, files and calls from before have times in the future."""
    uses = every(HOUR, 8 * HOUR, 90)
    calls = [at + 10 for at in uses]
    fine = Day({"a": uses}, {"a": calls}, set_back=(3 * HOUR, by)).states(9)
    assert {"none", "heard"} == set(fine.values())
    heard = [at for at in calls if at < 6 * HOUR]
    found = Day({"a": uses}, {"a": heard}, set_back=(3 * HOUR, by)).states(9)
    assert "losing" == found[7 * HOUR + 1]


def lose_and_hear(times: int) -> tuple[list[float], list[float]]:
    """Return uses, and calls, of a session that loses its calls for an hour several times, and is heard afterwards."""
    uses: list[float] = []
    calls: list[float] = []
    for start in every(HOUR, HOUR + times * 3 * HOUR, 3 * HOUR):
        uses += [*every(start, start + HOUR, 200), start + 2 * HOUR]
        calls.append(start + 2 * HOUR)
    return uses, calls


def test_the_third_loss_of_a_day_ends_after_six_heard_uses() -> None:
    uses, calls = lose_and_hear(2)
    assert "heard" == last(Day({"a": uses}, {"a": calls}).states(24))
    uses, calls = lose_and_hear(3)
    memories = Day({"a": uses}, {"a": calls}).memories(24)
    memory = memories[max(memories)]
    assert (True, False) == (memory.is_held, memory.is_losing)
    more = every(12 * HOUR, 14 * HOUR, 400)
    for number, state in ((5, "losing"), (6, "heard")):
        heard = [*calls, *(at + 5 for at in more[: number - 1])]
        found = Day({"a": [*uses, *more[: number - 1]]}, {"a": heard}).states(24)
        assert state == last(found)


def test_a_repair_ends_an_intermittent_loss() -> None:
    uses, calls = lose_and_hear(3)
    found = Day({"a": uses}, {"a": calls}, bad=(12 * HOUR, 13 * HOUR)).states(14)
    assert ("losing", "heard") == (found[11 * HOUR + 1], last(found))


def test_a_repair_during_a_loss_ends_it() -> None:
    found = Day({"a": every(HOUR, 3 * HOUR, 200)}, bad=(HOUR, 2.9 * HOUR)).states(4)
    assert "losing" == found[2 * HOUR + 1]
    assert "losing" != found[3 * HOUR + 1]


def test_a_deleted_session_stays_lost() -> None:
    lost = Day({"a": [HOUR, HOUR + 400, HOUR + 800]})
    memory = RememberedAssistantUses()
    for number in range(60):
        now = number * LOOK_S + 1
        seen = lost.observation(now)
        if now > 2 * HOUR:
            seen = msgspec.structs.replace(seen, sessions={})
        memory = remembered_uses_after_probe(memory, seen, now=now)
    assert "losing" == memory.use_state(now=now)


@pytest.mark.parametrize("has_uses", [True, False])
def test_a_home_that_cannot_be_judged_is_unseen(has_uses: bool) -> None:
    day = Day({"a": every(HOUR, 2 * HOUR, 200)} if has_uses else {})
    memory = RememberedAssistantUses()
    for now in every(0, 5 * HOUR, LOOK_S):
        seen = msgspec.structs.replace(day.observation(now), unseen="several_users")
        memory = remembered_uses_after_probe(memory, seen, now=now)
        assert "unseen" == memory.use_state(now=now)
