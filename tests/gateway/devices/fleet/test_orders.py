"""
The orders in which files and calls of a session meet the looks: random ones, against a count by hand of the uses that
no call belongs to. The agent is killed between its answer and its file, and reads its log again.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.devices.agent.heard_calls import HeardSessions, ReceivedCall, read_heard_calls
from gateway.devices.agent.sessions import session_key
from gateway.devices.fleet.use_slots import OpenUse
from gateway.devices.fleet.uses import (
    RememberedAssistantUses,
    SessionFile,
    UseObservation,
    remembered_uses_after_probe,
)
from tests.rounds import examples

SLOT_S, LOOK_S = 300.0, 300.0
START = 1_800_000_000.0
SESSIONS = ("one", "two")


class Growth(NamedTuple):
    session: str
    at: float


class Arrival(NamedTuple):
    """A call, and when the agent received it. A batch may have several calls of the past."""

    session: str
    began: float
    ended: float
    at: float


def happened(dice: random.Random) -> tuple[list[Growth], list[Arrival]]:
    """Return some hours of two sessions: calls before and after their files, in batches, late, or never."""
    growths, arrivals = [], []
    now = START + dice.uniform(0, 900)
    for _ in range(dice.randrange(2, 25)):
        session = dice.choice(SESSIONS)
        began = now + dice.uniform(-100, 100)
        ended = began + dice.choice((5.0, 60.0, 500.0, 2000.0))
        growths.append(Growth(session, now))
        if dice.random() < 0.8:
            growths.append(Growth(session, ended + dice.uniform(-3, 3)))
        if dice.random() < 0.6:
            late_s = dice.choice((0.0, 1.0, 5.0, 300.0, 4000.0))
            arrivals.append(Arrival(session, began, ended, ended + late_s))
        now += dice.choice((20.0, 290.0, 310.0, 1500.0, 5000.0)) * dice.uniform(0.9, 1.1)
    return sorted(growths, key=lambda each: each.at), sorted(arrivals, key=lambda each: each.at)


class Laptop:
    """The agent and the probe of a laptop. `seen` has the time of each use that a look saw."""

    def __init__(self, place: Path, dice: random.Random) -> None:
        self._place, self._dice = place, dice
        self._agent = HeardSessions(place)
        self._log: list[ReceivedCall] = []
        self.memory = RememberedAssistantUses()
        self.seen: dict[tuple[str, int], float] = {}
        self.began: dict[str, float] = {}  # the last look before a session appeared
        self._sizes: dict[str, int] = {}
        self._changed: dict[str, float] = {}

    def grow(self, growth: Growth) -> None:
        key = session_key("codex", growth.session)
        self._sizes[key] = self._sizes.get(key, 0) + 5000
        self._changed[key] = growth.at

    def receive(self, arrival: Arrival) -> None:
        """Store a call. The agent may be killed before it writes its file, and then reads its log again."""
        call = ReceivedCall("codex", arrival.session, None, arrival.began, arrival.ended)
        self._log.append(call)
        self._agent.add_calls([call], arrival.at)
        if self._dice.random() < 0.3:
            self._agent = HeardSessions(self._place)
            self._agent.add_calls(self._log[self._agent.number :], arrival.at)
        self._agent.write(len(self._log), arrival.at)

    def look(self, now: float) -> None:
        for key, changed in self._changed.items():
            known = self.memory.sessions.get(key)
            if self.memory.looked and (known is None or known.size < self._sizes[key]):
                self.seen.setdefault((key, int(changed // SLOT_S)), changed)
                self.began.setdefault(key, self.memory.looked)
        heard = read_heard_calls(self._place)
        observation = UseObservation(
            setting="configured",
            is_bad=False,
            sessions={key: SessionFile(size, self._changed[key]) for key, size in self._sizes.items()},
            is_heard=lambda key, slot: key in heard and heard[key].has_slot(slot),
            least_growth=1000,
            has_sure_uses=True,
        )
        self.memory = remembered_uses_after_probe(self.memory, observation, now=now)


def open_by_hand(laptop: Laptop, arrivals: list[Arrival], now: float) -> set[tuple[str, int]]:
    """Return the uses that no call belongs to, and after which neither their session nor a later one was heard."""
    came = [each for each in arrivals if each.at <= now]

    def is_heard(key: str, slot: int) -> bool:
        begin = slot * SLOT_S
        return any(
            session_key("codex", call.session) == key
            and call.ended >= begin - 120
            and call.began <= begin + SLOT_S + 600
            for call in came
        )

    heard = {use for use in laptop.seen if is_heard(*use)}
    return {
        (key, slot)
        for (key, slot), at in laptop.seen.items()
        if (key, slot) not in heard
        and not any(later > slot and (other == key or laptop.began[other] > at) for other, later in heard)
    }


@pytest.mark.parametrize("part", range(4))
def test_the_open_uses_are_those_of_a_count_by_hand(
    tmp_path: Path, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    for seed in range(part, examples(250), 4):
        dice = random.Random(seed)
        growths, arrivals = happened(dice)
        place = tmp_path / str(seed)
        place.mkdir()
        laptop = Laptop(place, dice)
        now, waiting, coming = START - 10, list(growths), list(arrivals)
        laptop.look(now)
        while waiting or coming:
            now += LOOK_S
            while coming and coming[0].at <= now:
                laptop.receive(coming.pop(0))
            while waiting and waiting[0].at <= now:
                laptop.grow(waiting.pop(0))
            laptop.look(now)
            found = {(use.session, use.slot) for use in laptop.memory.open}
            assert found == open_by_hand(laptop, arrivals, now), (seed, now - START)
        assert all(isinstance(use, OpenUse) for use in laptop.memory.open)
