"""How many slots and calls a laptop counts as lost: fixed cases, and random lives against a count by hand."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.fleet.use_slots import SlotCount, UseCounts
from gateway.devices.fleet.uses import (
    RememberedAssistantUses,
    SessionFile,
    UseObservation,
    remembered_uses_after_probe,
)
from tests.gateway.devices.fleet.lives import (
    DAY,
    HOUR,
    LOOK_S,
    MINUTE,
    SURE,
    Story,
    Terminal,
    always,
    often,
    often_used,
)
from tests.gateway.devices.fleet.test_oracle import Laptop
from tests.gateway.devices.fleet.test_uses import PROMPT, Day, every
from tests.rounds import examples


def counts(day: Day, hours: float, step_s: float = LOOK_S) -> Mapping[str, SlotCount]:
    memories = day.memories(hours, step_s)
    return memories[max(memories)].counts.by_day()


def total(day: Day, hours: float) -> tuple[int, ...]:
    found = counts(day, hours).values()
    return tuple(map(sum, zip(*found, strict=True))) if found else (0, 0, 0)


FIRST, SECOND = "1970-01-01", "1970-01-02"


def test_a_slot_counts_once_as_heard_or_lost() -> None:
    heard = every(HOUR, 2 * HOUR, 100)
    assert counts(Day({"a": heard}, {"a": [at + 9 for at in heard]}), 5) == {FIRST: (12, 0, 0)}
    assert counts(Day({"a": heard}), 5) == {FIRST: (12, 12, 3)}


def test_an_unheard_use_that_ends_no_state_counts() -> None:
    """A later heard use of the session ends a loss, and the slots before it were lost all the same."""
    uses = [HOUR, HOUR + 20 * MINUTE, HOUR + 40 * MINUTE]
    assert counts(Day({"a": uses}, {"a": [uses[2] + 9]}), 5) == {FIRST: (3, 2, 1)}
    # a call at 9 minutes belongs to the first use as well, so nothing is lost
    assert counts(Day({"a": [HOUR]}, {"a": [HOUR + 9 * MINUTE]}), 5) == {FIRST: (1, 0, 0)}


@pytest.mark.parametrize(("minutes", "lost"), [(14.0, 0), (16.0, 0), (400.0, 0), (1500.0, 1)])
def test_a_call_that_arrives_within_a_day_is_not_lost(minutes: float, lost: int) -> None:
    day = Day({"a": [HOUR]}, {"a": [HOUR + 9]}, late_s=minutes * MINUTE)
    assert total(day, 0.9) == (0, 0, 0)
    assert total(day, 48) == (1, lost, lost)


def test_sessions_share_no_call_and_a_night_shares_one() -> None:
    apart = Day({"a": [HOUR, HOUR + 400], "b": [HOUR, HOUR + 400]})
    assert counts(apart, 5) == {FIRST: (4, 4, 2)}
    night = Day({"a": [DAY - 400, DAY - 100, DAY + 200, DAY + 500]})
    assert counts(night, 30) == {FIRST: (2, 2, 1), SECOND: (2, 2, 0)}
    late = Day({"a": [DAY - 400, DAY - 100, DAY + 200, DAY + 500]}, {"a": [DAY - 390]}, late_s=2 * HOUR)
    assert counts(late, 30) == {FIRST: (2, 0, 0), SECOND: (2, 2, 1)}


def test_days_are_kept_for_a_week_and_their_calls_do_not_change() -> None:
    uses = [number * DAY + 23 * HOUR + 56 * MINUTE + part for number in range(12) for part in (0, 300, 600)]
    found = {number: counts(Day({"a": uses}), 24 * number + 2, 4 * LOOK_S) for number in (2, 9, 12)}
    assert len(found[9]) == len(found[12]) == 8
    assert found[9]["1970-01-09"] == found[12]["1970-01-09"]
    assert sum(count[2] for count in found[12].values()) <= 8


def test_a_program_that_also_writes_without_a_prompt_lost_only_what_its_state_says() -> None:
    times = [HOUR + 10 * MINUTE * number for number in range(5)]
    assert total(Day({"a": times[:4]}, is_sure=False), 60) == (0, 0, 0)
    assert total(Day({"a": times}, is_sure=False), 60) == (5, 5, 2)
    heard = Day({"a": times[:4]}, {"a": [times[3] + 9]}, is_sure=False)
    assert total(heard, 60) == (2, 0, 0)  # the call is also within ten minutes of the third use


def test_growth_in_a_counted_slot_and_a_clock_that_is_set_back_count_nothing_twice() -> None:
    lost = Day({"a": [HOUR, HOUR + 100, HOUR + 200]}, bad=(0.5 * HOUR, 9 * HOUR))
    assert sum(count.lost for count in lost.memories(5, 40.0)[5 * HOUR + 1].counts.by_day().values()) == 1
    uses = every(HOUR, 8 * HOUR, 90)
    back = Day({"a": uses}, {"a": [at + 10 for at in uses]}, set_back=(3 * HOUR, 2 * HOUR))
    assert total(back, 9)[1:] == (0, 0)
    assert UseCounts().by_day() == {}


class Request(NamedTuple):
    """A request of a session: the file grows at `began` and `ended`, and the call arrives `late_s` after its end."""

    session: str
    began: float
    ended: float
    is_lost: bool
    late_s: float


def random_requests(dice: random.Random) -> list[Request]:
    """Return requests of at most ten minutes, in sessions at once, of which all, some or none are lost at times."""
    requests = []
    for session in "abc"[: dice.randrange(1, 4)]:
        now, chance = dice.uniform(0, 30) * HOUR, dice.choice((0.0, 0.3, 0.7, 1.0))
        gap = dice.choice((2 * MINUTE, 10 * MINUTE, 2 * HOUR))
        for _ in range(dice.randrange(1, 40)):
            ended = now + dice.choice((dice.uniform(2, 40), dice.uniform(40, 590), 590.0))
            late_s = dice.choice((0.0, 0.0, 20 * MINUTE))
            requests.append(Request(session, now, ended, dice.random() < chance, late_s))
            now = ended + dice.uniform(0, 2) * gap
            if dice.random() < 0.1:
                chance = dice.choice((0.0, 1.0))
    return requests


def stated_days(requests: Sequence[Request], dice: random.Random) -> Mapping[str, SlotCount]:
    """Let the probe look at files and calls, and return the newest count of each day, as the gateway keeps it."""
    memory, days = RememberedAssistantUses(), dict[str, SlotCount]()
    growths = sorted((at, each.session) for each in requests for at in (each.began, each.ended))
    calls = sorted(
        (each.ended + each.late_s, each.session, each.began, each.ended)
        for each in requests
        if not each.is_lost
    )
    files: dict[str, SessionFile] = {}
    heard: dict[str, HeardCalls] = {}
    asleep = dice.uniform(0, 60) * HOUR
    now, end = 1.0, growths[-1][0] + 30 * HOUR
    while now < end:
        now += LOOK_S
        while growths and growths[0][0] <= now:
            at, session = growths.pop(0)
            files[session] = SessionFile(files[session].size + PROMPT if session in files else PROMPT, at)
        while calls and calls[0][0] <= now:
            _, session, began, ended = calls.pop(0)
            heard.setdefault(session, HeardCalls()).add_call(began, ended)
        if asleep <= now < asleep + 8 * HOUR:
            continue
        seen = UseObservation(
            setting="configured",
            is_bad=False,
            sessions=dict(files),
            is_heard=lambda session, slot: session in heard and heard[session].has_slot(slot),
            least_growth=1000,
        )
        memory = remembered_uses_after_probe(memory, seen, now=now)
        days |= memory.counts.by_day()
    return days


@pytest.mark.parametrize("number", range(examples(30)))
def test_lost_calls_never_exceed_the_count_by_hand(number: int) -> None:
    _check_history(number)


@pytest.mark.proof
@pytest.mark.parametrize("lot", range(50))
def test_lost_calls_of_1000_histories_never_exceed_the_count_by_hand(lot: int) -> None:
    for number in range(1000 + 20 * lot, 1020 + 20 * lot):
        _check_history(number)


def _check_history(number: int) -> None:
    dice = random.Random(f"history {number}")
    requests = random_requests(dice)
    days = stated_days(requests, dice)
    by_hand = sum(each.is_lost for each in requests)
    used, lost, calls = (sum(each) for each in zip(*days.values(), strict=True))
    assert calls <= by_hand, (number, days)
    assert lost <= 4 * calls, (number, days)
    assert all(count.calls <= count.lost <= count.used for count in days.values())
    if by_hand == len(requests):
        assert used == lost > 0


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(4))
def test_the_probe_states_no_more_losses_than_a_life_had(seed: int, tmp_path: Path) -> None:
    """With real folders and heartbeats. Only programs that tell a prompt from other growth are used."""
    dice = random.Random(f"counts {seed}")
    story = Story(dice, "counts", dice.uniform(0.5, 2), homes=2)
    story.fix_days()
    for home in range(2):
        terminal = Terminal(home, dice.choice(sorted(SURE)), home, dice.choice((always, often)))
        story.work([terminal], often_used(dice), session_s=dice.choice((1.0, HOUR)))
    life = story.told()
    prompts = {(at, use.session) for use in life.uses for at in (use.at, use.answered)}
    life.growths = [each for each in life.growths if (each[0], each[3]) in prompts]
    days: dict[str, dict[str, Sequence[int]]] = {}
    for _, device in Laptop(tmp_path, life).looks():
        for name, fields in json.loads(device.heartbeat)["assistants"].items():
            days[name] = days.get(name, {}) | fields.get("slots", {})
    found = [numbers for each in days.values() for numbers in each.values()]
    used, lost, calls = (sum(each) for each in zip(*found, strict=True))
    assert 0 < calls <= sum(use.is_lost for use in life.uses)
    assert calls <= lost <= min(used, 4 * calls)
