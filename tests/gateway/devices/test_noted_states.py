"""
The states that are noted each minute: no change is missed, and a device is not computed again while its state is
valid.
"""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.matching import ExpectedMachines
from gateway.devices.fleet.uses import USES
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.machine_state import MachineEvidence, MachineState, evaluate_machine_state
from gateway.devices.states import approved_device, last_recorded_state
from spool.devices.device import ENROLLED, PENDING, REVOKED, Device
from spool.devices.table import DeviceTable
from spool.registry.tables.inventory import Machine
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock

RECENT_S = 14 * 86_400  # docs/fleet/coverage.md: within 14 days
HOUR, DAY = 3600.0, 86_400.0


@pytest_asyncio.fixture
async def lifecycle() -> AsyncIterator[DeviceLifecycle]:
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    yield DeviceLifecycle(table, settings=DeviceSettings(), clock=MovedClock(), secret=b"i" * 32)
    await table.close()


def drawn(dice: random.Random, id: str, now: float) -> Device:
    """Return a device of any kind, with times near the ends of states."""

    def ago(*spans: float) -> float:
        return now - dice.choice((0.0, *spans)) - dice.uniform(-2, 2) * HOUR

    state = dice.choice([state for state in CAUSES if state != "not_installed"])
    claim = {"state": state, "cause": next(iter(CAUSES[state]), ""), "use": dice.choice(("", *USES))}
    heartbeat: dict[str, Any] = {"serial": f"S{dice.randrange(4)}"}
    heartbeat["spool"] = {"records": 1, "oldest_age_s": dice.choice((0, 90_000))}
    kind = dice.choice(("assistants", "assistants", "calls", "agent", "cluster"))
    if kind == "assistants":
        heartbeat["assistants"] = {"codex": claim}
    seen = ago(DAY)
    uses = {"setting": "unset", "since": ago(DAY)}
    uses |= {"unheard": ago(HOUR)} if dice.random() < 0.5 else {"missing": ago(HOUR), "missed": ago()}
    return Device(
        id=id, enrolled_at=seen, enrolled_by="fleet", last_seen=seen,
        state=dice.choice((ENROLLED, ENROLLED, ENROLLED, REVOKED)),
        last_heartbeat=None if kind == "calls" else seen,
        copied_at=now if dice.random() < 0.1 else None,
        newest_calls={dice.choice(("codex", "")): ago(RECENT_S, DAY)} if dice.random() < 0.8 else {},
        uses=json.dumps({"codex": uses} if kind == "assistants" and dice.random() < 0.7 else {}),
        labels={"kind": "cluster"} if kind == "cluster" else {},
        heartbeat=json.dumps(heartbeat).encode(),
    )  # fmt: skip


def expected(dice: random.Random, now: float) -> ExpectedMachines:
    machines = [
        Machine(serial=f"S{number}", last_seen=now + DAY, seen_before=now + dice.choice((-DAY, DAY)))
        for number in range(3)
    ]
    return ExpectedMachines(machines)


@pytest.mark.parametrize("seed", range(12))
async def test_no_change_is_missed(lifecycle: DeviceLifecycle, seed: int) -> None:
    """
    After each look at random times, the noted word of each device is the one of a full computation: after reports,
    deletions, an import of the inventory, another interval of reports, and a clock that was set back.
    """
    dice, clock, changes = random.Random(seed), lifecycle._clock, 0
    assert isinstance(clock, MovedClock)
    words: dict[str, str] = {}
    for _ in range(60):
        step = dice.choice((1.0, 60.0, 600.0, HOUR, DAY, 7 * DAY, -HOUR))
        clock.move(step)
        now = clock.now()
        for device in lifecycle.table.all():
            if dice.random() < 0.1:
                lifecycle.table.change_and_write_soon(device.id, partial(replace, last_seen=now))
            if dice.random() < 0.05:
                lifecycle.table._put_in_memory(device.id, None)
        for number in range(dice.randrange(4)):
            device = drawn(dice, f"{dice.randrange(30)}-{number}", now)
            lifecycle.table._put_in_memory(device.id, device)
        if dice.random() < 0.1:
            machines = expected(dice, now)
            lifecycle.expected = lambda machines=machines: machines  # type: ignore[misc]
        if dice.random() < 0.1:
            interval_s = dice.choice((60.0, HOUR))
            lifecycle.settings = replace(lifecycle.settings, heartbeat_interval=interval_s)
        await lifecycle.store_changed_states()
        for device in lifecycle.table.all():
            machine = lifecycle.expected().find_machine(device)
            evidence = MachineEvidence(device, lifecycle.interval_s, machine, lifecycle.listening_since)
            word = evaluate_machine_state(evidence, now).word
            assert word == last_recorded_state(device), device
            changes += words.get(device.id, word) != word
            words[device.id] = word
    assert changes > 5


async def test_quiet_devices_are_not_computed_again(
    lifecycle: DeviceLifecycle, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, computed = lifecycle.now(), []
    for number in range(100):
        id = f"laptop-{number}"
        device = Device(
            id=id, enrolled_at=now, enrolled_by="fleet", last_seen=now, newest_calls={"codex": now}
        )
        lifecycle.table._put_in_memory(id, device)
    for _ in range(2):  # the first read notes the states, and the second one finds them noted
        await lifecycle.store_changed_states()
    state_of = lifecycle.machine_state

    def counted(device: Device) -> MachineState:
        computed.append(device.id)
        return state_of(device)

    monkeypatch.setattr(lifecycle, "machine_state", counted)
    await lifecycle.store_changed_states()
    assert [] == computed
    lifecycle.table.change_and_write_soon("laptop-7", lambda known: replace(known, hostname="another"))
    await lifecycle.store_changed_states()
    assert ["laptop-7"] == computed
    lifecycle._clock.move(RECENT_S + 1)  # type: ignore[attr-defined]
    await lifecycle.store_changed_states()
    assert 1 + 2 * 100 == len(computed)
    assert {"unknown"} == {last_recorded_state(device) for device in lifecycle.table.all()}


@pytest.mark.parametrize(("state", "since"), [(ENROLLED, 1.0), (PENDING, 9.0), (REVOKED, 9.0)])
def test_a_copied_device_that_is_approved_was_enrolled_all_along(state: str, since: float) -> None:
    """Calls from before an enrolment are no loss, so an approval must not hide those of a copied device."""
    device = Device(
        id="laptop", state=state, enrolled_at=1.0, enrolled_by="fleet", last_seen=2.0, copied_at=3.0
    )
    known = approved_device(device, 9.0)
    assert (ENROLLED, None, since) == (known.state, known.copied_at, known.enrolled_at)
