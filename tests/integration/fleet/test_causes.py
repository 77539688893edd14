"""Causes that only the gateway states, from a laptop with the real probe and reporter."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.devices.machine_state import CLOCK_WRONG, MachineState
from gateway.devices.states import STATE_CHANGES, parse_state_changes
from gateway.operations.devices.devices import DeviceWithState, describe_device_details
from spool.devices.device import Device
from spool.record import utc_iso
from tests.integration.conftest import ACTOR
from tests.integration.fleet.gateway import Gateway
from tests.integration.fleet.history import ASSISTANTS, LOOK_S, MINUTE, USERS, Call, History, Key
from tests.integration.fleet.laptop import Laptop
from tests.moved_clock import MovedClock
from tests.rounds import part

ADA = Key("gemini-cli", "ada")
NOT_FORWARDED = ("unreachable", "not_forwarded")


@pytest_asyncio.fixture
async def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    clock = MovedClock()
    monkeypatch.setattr("exporters.device_reporter.time", clock)
    opened = Gateway(tmp_path, clock)
    await opened.start()
    yield opened
    await opened.stop()


def laptop_of(
    gateway: Gateway, place: Path, calls: Sequence[Call], offsets: Sequence[tuple[float, float]]
) -> Laptop:
    keys = [Key(assistant, user) for assistant in ASSISTANTS for user in USERS]
    past = History(0.0, offsets, {key: [] for key in keys} | {ADA: list(calls)}, {key: [] for key in keys})
    return Laptop(place, "laptop", past, gateway.clock)


async def live(gateway: Gateway, laptop: Laptop, minutes: float) -> list[MachineState]:
    """Let time go by, and return the state after each look. Calls arrive with each look."""
    laptop.connect(gateway.app.url, gateway.key_file)
    states = []
    for _ in range(round(minutes * MINUTE / LOOK_S)):
        gateway.clock.move(LOOK_S)
        laptop.take_calls()
        laptop.probe()
        await laptop.report()
        await gateway.take(laptop)
        states.append(gateway.state(laptop))
    await laptop.reporter.close()
    return states


async def test_calls_that_the_agent_lost_make_a_loss(gateway: Gateway, tmp_path: Path) -> None:
    """
    If the agent lost calls, the loss is stated within 10 minutes and one look of the probe after the full hour. It
    ends when a call arrives.
    """
    start = gateway.clock.now()
    hour = -start % 3600 + start  # the next full hour after the start
    ends = [start + 8 * MINUTE, *(hour + minute * MINUTE for minute in (2, 20, 70))]
    calls = [Call(ended - 30, ended, ended + 5, is_dropped=ended in ends[1:3]) for ended in ends]
    laptop = laptop_of(gateway, tmp_path / "one", calls, [(0.0, 0.0)])
    before = await live(gateway, laptop, (hour - start) / MINUTE)
    assert ("reporting", ()) == (before[-1].word, before[-1].causes)
    [*_, at_first] = await live(gateway, laptop, 10)
    assert "reporting" == at_first.word
    lost = await live(gateway, laptop, 55)
    assert {"losing"} == {state.word for state in lost[2:]}
    assert (NOT_FORWARDED,) == lost[-1].causes
    [*_, last] = await live(gateway, laptop, 15)
    assert ("reporting", ()) == (last.word, last.causes)


async def test_the_last_changes_of_the_state_are_shown(gateway: Gateway, tmp_path: Path) -> None:
    """The last changes of a machine's state are listed with their times, at most 50. They survive a restart."""
    start = gateway.clock.now()
    calls = [Call(start + 60, start + 90, start + 95)]
    laptop = laptop_of(gateway, tmp_path / "one", calls, [(0.0, 0.0)])
    await live(gateway, laptop, 10)
    lifecycle = gateway.lifecycle
    await lifecycle.store_changed_states()
    await lifecycle.revoke_device("laptop", ACTOR)
    gateway.clock.move(MINUTE)
    for _ in range(2):  # look twice, because a second look must find nothing new
        await lifecycle.store_changed_states()
    await gateway.stop()
    await gateway.start()
    assert [(660, "revoked"), (600, "reporting")] == [
        (at - start, word) for at, word in parse_state_changes(device_of(gateway))
    ]
    for number in range(60):
        gateway.clock.move(MINUTE)
        await (gateway.lifecycle.revoke_device if number % 2 else gateway.lifecycle.approve_device)(
            "laptop", ACTOR
        )
        await gateway.lifecycle.store_changed_states()
    changes = parse_state_changes(device_of(gateway))
    assert STATE_CHANGES == 50 == len(changes)
    assert ["revoked", "reporting"] * 25 == [word for _, word in changes]
    shown = describe_device_details(DeviceWithState(device_of(gateway), gateway.state(laptop)))[
        "state_changes"
    ]
    assert [{"at": utc_iso(at), "state": word} for at, word in changes] == shown
    await gateway.lifecycle.reset_device("laptop", ACTOR)
    assert [] == parse_state_changes(device_of(gateway))


def device_of(gateway: Gateway) -> Device:
    found = gateway.lifecycle.table.find("laptop")
    assert found is not None
    return found


@pytest.mark.parametrize("offset_s", part([-400.0, 400.0], every=2))
async def test_wrong_clock_is_a_cause_and_leaves_the_state(
    gateway: Gateway, tmp_path: Path, offset_s: float
) -> None:
    """
    If a machine's clock is wrong, the state of the machine stays "covered" and the clock is stated as a cause. The
    cause ends with the first heartbeat whose clock is right.
    """
    start = gateway.clock.now()
    calls = [
        Call(start + minute * MINUTE, start + minute * MINUTE + 30, start + minute * MINUTE + 40)
        for minute in range(2, 90, 10)
    ]
    offsets = [(0.0, offset_s), (start + 45 * MINUTE, 0.0)]
    laptop = laptop_of(gateway, tmp_path / "one", calls, offsets)
    wrong = await live(gateway, laptop, 40)
    assert {("reporting", True, (CLOCK_WRONG,))} == {
        (state.word, state.covered, state.causes) for state in wrong[1:]
    }
    [*_, right] = await live(gateway, laptop, 30)
    assert ("reporting", True, ()) == (right.word, right.covered, right.causes)
