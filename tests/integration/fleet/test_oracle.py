"""
An oracle that knows which calls were lost: random days of laptops, through the real probe, heartbeats and telemetry
over HTTP, against the truth. `TOLLHOUSE_ORACLE_SEEDS` sets the number of random fleets.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from gateway.devices.fleet.uses import LOSING, LOSSES_OF_A_DAY
from gateway.devices.machine_state import COVERED, MachineState
from tests.integration.fleet.gateway import Gateway
from tests.integration.fleet.history import ASLEEP, HOUR, LOOK_S, MINUTE, history
from tests.integration.fleet.laptop import Laptop
from tests.moved_clock import MovedClock

SEEDS = int(os.environ.get("TOLLHOUSE_ORACLE_SEEDS", "2"))
HOURS = 24
BOUND_S = 15 * MINUTE


def check(laptop: Laptop, state: MachineState, now: float) -> None:
    """Compare the word of a laptop that was heard just now with the truth."""
    past = laptop.past
    if state.word == LOSING:
        if laptop.words[-1:] != [LOSING]:
            laptop.losses.append(now)
        is_third = len([at for at in laptop.losses if at > now - 48 * HOUR]) >= LOSSES_OF_A_DAY
        assert is_third or any(past.may_be_losing(key, now) for key in past.calls), (state, now)
    laptop.words.append(state.word)
    if state.word in COVERED:
        for key in past.calls:
            lost_s = past.lost_s(key, now)
            assert lost_s <= BOUND_S + LOOK_S, (key, lost_s, state, now)


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_states_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """
    An online laptop that loses calls has no covered word for more than 15 minutes of use, plus the time of a look. A
    laptop whose calls came or wait is not losing. A restart of the gateway changes only the link.
    """
    dice = random.Random(seed)
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    start = clock.now()
    laptops = [
        Laptop(tmp_path / name, name, history(dice, start, hours=HOURS), clock)
        for name in ("laptop-1", "laptop-2")
    ]
    gateway = Gateway(tmp_path, clock)
    await gateway.start()
    try:
        for laptop in laptops:
            laptop.connect(gateway.app.url, gateway.key_file)
        restart_at = start + dice.uniform(2, HOURS) * HOUR
        while clock.now() < max(laptop.past.end for laptop in laptops):
            clock.move(LOOK_S)
            for laptop in laptops:
                laptop.take_calls()
                if laptop.past.has(ASLEEP, clock.now()):
                    continue
                laptop.probe()
                await laptop.report()
                if laptop.is_online:
                    await gateway.take(laptop)
                    check(laptop, gateway.state(laptop), clock.now())
            if clock.now() > restart_at:
                restart_at += 100 * HOUR
                before = [gateway.state(laptop) for laptop in laptops]
                await gateway.stop()
                await gateway.start()
                after = [gateway.state(laptop) for laptop in laptops]
                assert [(state.word, state.covered) for state in before] == [
                    (state.word, state.covered) for state in after
                ]
                for laptop in laptops:
                    await laptop.reporter.close()
                    laptop.connect(gateway.app.url, gateway.key_file)
        words = {word for laptop in laptops for word in laptop.words}
        assert words - COVERED, (
            "each laptop had a wrong setting, and its user may have used another assistant"
        )
        assert words & COVERED
    finally:
        for laptop in laptops:
            await laptop.reporter.close()
        await gateway.stop()
