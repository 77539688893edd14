"""
An oracle that knows which calls were lost: random days of laptops, through the real probe, heartbeats and telemetry
over HTTP, against the truth. `make proofs` tries more random fleets.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path

import pytest

from gateway.devices.fleet.uses import INTERMITTENT_LOSSES, LOSING
from gateway.devices.machine_state import CLOCK_WRONG, COPIED, COVERED, MachineState
from gateway.devices.states import SAME_HARDWARE
from spool.devices.device import PENDING
from tests.integration.conftest import ACTOR
from tests.integration.fleet.gateway import Gateway
from tests.integration.fleet.history import ASLEEP, CAUSES, DROPPED, HOUR, LOOK_S, MINUTE, History, history
from tests.integration.fleet.laptop import Laptop
from tests.integration.test_two_gateways import shared_config
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.postgres_cluster import Schema

SEEDS = 20 if IS_LONG else 1
FIRST = int(os.environ.get("TOLLHOUSE_ORACLE_FIRST", "0"))
HOURS = 24 if IS_LONG else 6
BOUND_S = 30 * MINUTE  # five slots of five minutes, because both programs also write without a prompt


def check(laptop: Laptop, state: MachineState, now: float) -> None:
    """Compare the word of a laptop that was heard just now with the truth."""
    past = laptop.past
    assert (abs(laptop.told_offset_s or 0.0) > 5 * MINUTE) == (CLOCK_WRONG in state.causes)
    lacking = list(laptop.lacking(now))
    if state.word in COVERED:
        assert not any(map(laptop.is_stated, lacking)), (lacking, state, now)
    if state.word == LOSING:
        if laptop.words[-1:] != [LOSING]:
            laptop.losses.append(now)
        is_third = len([at for at in laptop.losses if at > now - 48 * HOUR]) >= INTERMITTENT_LOSSES
        is_true = lacking or any(past.may_be_losing(key, now) for key in past.calls)
        assert is_third or is_true, (state, now)
        known = {cause for key in past.calls for cause in past.causes(key, now)}
        known |= {CAUSES[DROPPED]} if lacking else set()
        is_known = any((name, cause) in known or (name, "") in known for name, cause in state.causes)
        assert is_third or is_known, (known, state, now)
    laptop.words.append(state.word)
    if state.word in COVERED:
        for key in past.calls:
            lost_s = past.lost_s(key, now)
            assert lost_s <= BOUND_S + LOOK_S, (key, lost_s, state, now)


class Story:
    """Two laptops and their gateways, of which one gets the heartbeats and another the calls."""

    def __init__(self, dice: random.Random, place: Path, clock: MovedClock, gateways: list[Gateway]) -> None:
        self._dice, self._place, self.clock, self.gateways = dice, place, clock, gateways
        start = clock.now()
        names = ("laptop-1", "laptop-2")
        self.laptops = [
            Laptop(place / name, name, history(dice, start, hours=HOURS), clock) for name in names
        ]
        times = dice.uniform(2, HOURS), dice.uniform(1, HOURS / 2), dice.uniform(1, HOURS / 2)
        self.restart_at, self.listed_at, self.copied_at = (start + hours * HOUR for hours in times)
        self.installed_at = start + dice.uniform(1, HOURS) * HOUR
        self.end = max(laptop.past.end for laptop in self.laptops)

    async def look(self) -> None:
        """Let the laptops report after five minutes, and compare."""
        self.clock.move(LOOK_S)
        for laptop in self.laptops:
            laptop.take_calls()
            if not laptop.past.has(ASLEEP, self.clock.now()):
                await self._report(laptop)
        await self._go_on()

    async def _report(self, laptop: Laptop) -> None:
        laptop.probe()
        await laptop.report()
        one, other = self.gateways[0], self.gateways[-1]
        await self._share()
        device = one.find(laptop)
        if device is not None and device.state == PENDING:
            state = one.state(laptop)
            assert (PENDING, False) == (state.word, state.covered)
            laptop.words.append(PENDING)
            may_approve = device.cause == SAME_HARDWARE and self._dice.random() < 0.1
            # the gateway may be away, and then does not see the device
            if may_approve and device.last_seen == self.clock.now():
                await one.lifecycle.approve_device(laptop.name, ACTOR)
        elif laptop.is_online:
            await other.take(laptop)
            await self._share()
            state = one.state(laptop)
            assert state[0] == other.state(laptop)[0]
            check(laptop, state, self.clock.now())

    async def _share(self) -> None:
        """Let each gateway read what the other one wrote."""
        for one, other in zip(self.gateways, self.gateways[1:] + self.gateways[:1], strict=True):
            if one is not other:
                await one.lifecycle.table.flush()
                await other.lifecycle.table.read_changes_of_other_processes(None)

    async def _go_on(self) -> None:
        """Do what is due: a late list, a copied disk, a new installation, or a restart."""
        now = self.clock.now()
        one, other = self.laptops
        if now > self.listed_at:
            self.listed_at = inf
            await self.gateways[0].expect(self.laptops)
        if now > self.copied_at and one.is_online and not one.has_backlog:
            self.copied_at = inf
            await self._copy(one)
        if now > self.installed_at and other.is_online:
            self.installed_at = inf
            await other.reporter.close()
            other.install_again(f"{other.name}-again")
            other.connect(other.url, other.enrolment_key)
        if now > self.restart_at:
            self.restart_at = inf
            await self._restart()

    async def _copy(self, laptop: Laptop) -> None:
        """Let a copy of a disk report once. Then an operator deletes the copy, and accepts the laptop."""
        [gateway, *_] = self.gateways
        keys = laptop.past.calls
        nothing = History(0.0, laptop.past.offsets, {key: [] for key in keys}, {key: [] for key in keys})
        copy = Laptop(self._place / "copy", laptop.name, nothing, self.clock)
        shutil.copytree(laptop.data, copy.data, dirs_exist_ok=True)
        copy.connect(laptop.url, laptop.enrolment_key)
        for _ in range(2):
            await laptop.restart()  # a new process begins with a heartbeat
            await laptop.report()
        await copy.report()
        await copy.reporter.close()
        state = gateway.state(laptop)
        assert (COPIED, False) == (state.word, state.covered)
        await gateway.lifecycle.approve_device(laptop.name, ACTOR)

    async def _restart(self) -> None:
        [gateway, *_] = self.gateways
        heard = [laptop for laptop in self.laptops if gateway.find(laptop) is not None]
        before = [gateway.state(laptop) for laptop in heard]
        await gateway.stop()
        await gateway.start()
        after = [gateway.state(laptop) for laptop in heard]
        assert [(state.word, state.covered) for state in before] == [
            (state.word, state.covered) for state in after
        ]
        for laptop in self.laptops:
            laptop.url = gateway.app.url
            await laptop.restart()

    async def tell(self) -> None:
        """Let the whole story happen."""
        for gateway in self.gateways:
            await gateway.start()
        try:
            for laptop in self.laptops:
                laptop.connect(self.gateways[0].app.url, self.gateways[0].key_file)
            while self.clock.now() < self.end:
                await self.look()
            coverage = await self.gateways[0].coverage()
            assert len(self.laptops) == coverage.machines
        finally:
            for laptop in self.laptops:
                await laptop.reporter.close()
            for gateway in self.gateways:
                await gateway.stop()


@pytest.mark.parametrize("seed", range(FIRST, FIRST + SEEDS))
async def test_states_are_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """
    The stated states of all laptops are true. An online laptop that loses calls is not stated as covered for more
    than 30 minutes of use, plus the time of a look. A laptop whose calls arrived or wait is not stated as losing,
    and a loss has its cause. A restart of the gateway changes only the link. A copied disk, a new installation and
    a list that comes late change no other state.
    """
    dice = random.Random(seed)
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    policy = dice.choice(("auto", "expected"))
    story = Story(dice, tmp_path, clock, [Gateway(tmp_path, clock, policy=policy)])
    await story.tell()
    compare_words(story)


@pytest.mark.proof
async def test_states_are_true_at_two_gateways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_schema: Callable[[], Schema]
) -> None:
    """If one gateway gets the heartbeats and another one the calls, both state the same about each laptop."""
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    gateways = [Gateway(tmp_path, clock, name=name, config=config) for name in ("one", "two")]
    story = Story(random.Random(FIRST), tmp_path, clock, gateways)
    await story.tell()
    compare_words(story)


def compare_words(story: Story) -> None:
    words = {word for laptop in story.laptops for word in laptop.words}
    assert words & COVERED
    assert words - COVERED, "each laptop had a wrong setting, and its user may have used another assistant"
