"""
An oracle that knows which calls were lost: random days of laptops, through the laptop's rule, heartbeats and the
gateway's function, against the truth.
"""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from gateway.devices.fleet.assistant_states import to_gateway_time, updated_remembered_evidence_json
from gateway.devices.fleet.uses import (
    LOSING,
    LOSSES_OF_A_DAY,
    RememberedAssistantUses,
    UseObservation,
    remembered_uses_after_probe,
)
from gateway.devices.machine_state import COVERED, MachineEvidence, evaluate_machine_state
from spool.devices.device import Device
from spool.record import utc_iso
from tests.rounds import IS_LONG

MINUTE, HOUR, LOOK_S = 60.0, 3600.0, 300.0
START = 1_800_000_000.0
INTERVAL_S = 60.0


@dataclass
class History:
    """
    What happened on a laptop: uses, the ends of calls that arrived, when its settings were wrong, and when it slept.
    `opened` has the times at which a program wrote to its session without a prompt. The clock differs by `offset_s`.
    All other times are true ones.
    """

    offset_s: float
    uses: list[float] = field(default_factory=list)
    opened: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    bad: list[tuple[float, float]] = field(default_factory=list)
    asleep: list[tuple[float, float]] = field(default_factory=list)
    end: float = START

    def is_bad(self, at: float) -> bool:
        return any(least <= at < most for least, most in self.bad)

    def newest(self, times: list[float], at: float) -> float | None:
        place = bisect_right(times, at)
        return times[place - 1] if place else None

    def seen_use(self, at: float) -> float | None:
        """Return the newest use that the probe sees. It cannot tell a prompt from a program that is opened."""
        times = (self.newest(self.uses, at), self.newest(self.opened, at))
        return max((time for time in times if time is not None), default=None)

    def lost_s(self, first: float, at: float) -> float:
        """Return how long uses were lost from the first one on. A pause between two prompts counts as one look."""
        lost = [use for use in self.uses if first <= use <= at]
        return sum(min(later - use, LOOK_S) for use, later in pairwise(lost))

    def first_lost(self, at: float) -> float | None:
        """Return the first use up to now after which no call ended, or None."""
        heard = self.newest(self.calls, at)
        place = bisect_right(self.uses, -1.0 if heard is None else heard + 120)
        return self.uses[place] if place < len(self.uses) and self.uses[place] <= at else None


def history(
    dice: random.Random, *, is_old: bool, sessions: int | None = None, losses: float = 0.35
) -> History:
    """Return some days with sessions. In a lost session, no call arrives; often its settings are wrong as well."""
    made = History(offset_s=dice.choice((0.0, 0.0, 0.0, -3 * HOUR, 2 * HOUR)))
    at = START + HOUR
    for _ in range(sessions or dice.randrange(2, 7)):
        most = at + dice.uniform(15, 150) * MINUTE
        is_lost = dice.random() < losses
        if is_lost and dice.random() < 0.5:
            made.bad.append((at, most + dice.uniform(0, HOUR)))
        now = at
        while now < most:
            made.uses.append(now)
            if not is_lost:
                made.calls.append(now + dice.uniform(1, 100))
            now += dice.choice((dice.uniform(1, 20), dice.uniform(20, 200)))
        made.calls.sort()
        if not is_old:  # if the gateway gets no exact times, it takes this for a use
            made.opened += opened_and_closed(dice, most + HOUR)
        pause = dice.choice((dice.uniform(2, 4) * HOUR, dice.uniform(10, 60) * HOUR))
        if pause > 8 * HOUR:
            made.asleep.append((most + HOUR, most + pause - HOUR))
        at = most + pause
    made.opened.sort()
    made.end = at
    return made


def opened_and_closed(dice: random.Random, at: float) -> list[float]:
    """Return when a program is opened and closed without a prompt, at most once in this hour."""
    return [at, at + dice.uniform(1, 50) * MINUTE] if dice.random() < 0.5 else []


def looks(past: History, *, is_old: bool) -> Iterator[tuple[float, Device]]:
    """Yield the device after each heartbeat. An old agent states only its claim and the hour of the last use."""
    device = Device(id="d", enrolled_at=START, enrolled_by="f", last_seen=START)
    memory, now = RememberedAssistantUses(), START
    while now < past.end:
        now += LOOK_S
        if any(least <= now < most for least, most in past.asleep):
            continue
        is_bad, used, heard = past.is_bad(now), past.seen_use(now), past.newest(past.calls, now)
        setting = "not_configured" if is_bad else "configured"
        memory = remembered_uses_after_probe(
            memory, UseObservation(setting=setting, is_bad=is_bad, used=used, heard=heard), now=now
        )
        claim: dict[str, object] = {"state": setting if is_bad else "unused"}
        if used is not None:
            claim["used_at"] = utc_iso((used + past.offset_s) // HOUR * HOUR)
        if not is_old:
            claim["use"] = memory.use_state(now=now)
        heartbeat = json.dumps({"assistants": {"codex": claim}}).encode()
        device = replace(device, clock_offset_s=past.offset_s, last_seen=now, last_heartbeat=now)
        if heard is not None:
            ended = to_gateway_time(device, heard + past.offset_s, now=now)
            device = replace(device, newest_calls={"codex": ended})
        uses = updated_remembered_evidence_json(device, heartbeat, now=now)
        device = replace(device, heartbeat=heartbeat, uses=uses)
        yield now, device


@pytest.mark.parametrize(("is_old", "bound_s"), [(False, 15 * MINUTE), (True, 130 * MINUTE)])
def test_no_loss_is_covered_for_long_and_no_fine_day_is_a_loss(is_old: bool, bound_s: float) -> None:
    """
    While an online laptop loses uses, it has no covered word for more than 15 minutes, plus the time of a look. Agents
    that state only hours take up to 70 minutes after the first full hour. No laptop whose calls came is losing, and
    a loss ends only with a later call or a repair, whatever sleeps or restarts, or after a day if it is the third.
    """
    lost_days = 0
    for seed in range(150 if IS_LONG else 15):
        dice = random.Random(seed)
        past = history(dice, is_old=is_old)
        before, before_at = "", START
        losses: list[float] = []
        for now, device in looks(past, is_old=is_old):
            state = evaluate_machine_state(MachineEvidence(device, INTERVAL_S), now)
            first = past.first_lost(now)
            used = past.newest(past.uses, now) or 0.0
            if state.word == LOSING != before:
                losses.append(now)
            # the third loss of a day lasts until a day without a loss
            latest = losses[-LOSSES_OF_A_DAY:]
            is_third = len(latest) == LOSSES_OF_A_DAY and latest[-1] - latest[0] <= 24 * HOUR
            if first is None:
                assert LOSING != state.word or is_third, (seed, now - START)
            elif state.word in COVERED and not repaired_since(past, first, now):
                # uses that went on for the bound, and were not only the last ones of a session
                lost_days += 1
                lost_s = min(now, used) - first if is_old else past.lost_s(first, now)
                assert lost_s <= bound_s + LOOK_S, (seed, now - START)
            if before == LOSING and state.word in COVERED:
                heard = past.newest(past.calls, now) or 0.0
                is_over = heard > before_at - LOOK_S or repaired_since(past, before_at - LOOK_S, now)
                assert is_over or is_third, seed
            asleep = evaluate_machine_state(
                MachineEvidence(device, INTERVAL_S, listening_since=now), now + 20 * HOUR
            )
            assert (state.word, state.covered) == (asleep.word, asleep.covered)
            before, before_at = state.word, now
    assert lost_days


def repaired_since(past: History, at: float, now: float) -> bool:
    return any(at <= most <= now for _, most in past.bad)
