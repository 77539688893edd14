"""The stated days of devices, from heartbeats to storage: who counts, what replaces what, and random orders."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.fleet.use_days import MAX_HEARTBEATS, UseDayRecorder
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.table import DeviceTable
from spool.devices.use_days import UseDay
from spool.errors import SpoolUnavailable
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL
from spool.sql.use_days import SqlUseDays
from spool.sqlite.database import SqliteTransactions
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock
from tests.rounds import examples

FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))
ADA = Actor("ada", "")
ONE, TWO = "2026-11-29", "2026-11-30"

Slots = Mapping[str, Sequence[int]]


class Site:
    """A gateway that gets heartbeats, and what it stores."""

    def __init__(self, table: DeviceTable, rows: SqlUseDays, *, policy: str = "open") -> None:
        self.devices = DeviceLifecycle(
            table, settings=DeviceSettings(policy=policy), clock=MovedClock(), secret=b"i" * 32
        )
        self.rows = rows
        self.recorder = UseDayRecorder(self.devices, rows)

    async def beat(self, id: str, slots: Slots | None, *, team: str = "", assistant: str = "codex") -> None:
        claim: dict[str, Any] = {"state": "reporting"} | ({} if slots is None else {"slots": slots})
        heartbeat = json.dumps({"assistants": {assistant: claim}}).encode()
        labels = {"team": team} if team else {}
        report = DeviceReport(id=id, labels=labels, heartbeat=heartbeat)
        await self.devices.store_heartbeat_and_issue_token(report, FLEET, "")

    async def losses(self) -> list[tuple[str, str, str, int]]:
        await self.recorder.store_changed_days()
        found = await self.rows.losses_between("0001-01-01", "9999-12-31")
        return [(each.device, each.assistant, each.team, each.lost) for each in found]


@pytest_asyncio.fixture
async def site() -> AsyncIterator[Site]:
    database = MemoryDatabase(SPOOL)
    table = await DeviceTable.open(SqliteDevices(database))
    yield Site(table, SqlUseDays(SqliteTransactions(database, "days")))
    await table.close()


async def test_a_restated_day_replaces_the_earlier_one_and_an_unstated_one_stays(site: Site) -> None:
    await site.beat("d1", {ONE: [9, 4, 1], TWO: [5, 2, 1]}, team="ads")
    assert [("d1", "codex", "ads", 6)] == await site.losses()
    await site.beat("d1", {TWO: [5, 1, 1]}, team="ads")
    assert [("d1", "codex", "ads", 5)] == await site.losses()
    await site.beat("d1", {TWO: [9, 9, 3]}, team="ads", assistant="opencode")
    await site.beat("d2", {TWO: [1, 1, 1]})
    found = [("d1", "codex", "ads", 5), ("d1", "opencode", "ads", 9), ("d2", "codex", "", 1)]
    assert found == await site.losses()


async def test_a_heartbeat_hides_no_day_that_an_earlier_one_stated(site: Site) -> None:
    """Several heartbeats may arrive before the days are stored. A limited number of them waits."""
    await site.beat("d1", {ONE: [9, 4, 1], TWO: [5, 2, 1]})
    await site.beat("d1", {TWO: [5, 1, 1]})
    await site.beat("d1", {TWO: [9, 8, 2]}, assistant="opencode")
    await site.beat("d1", None)
    assert [("d1", "codex", "", 5), ("d1", "opencode", "", 8)] == await site.losses()
    for count in range(MAX_HEARTBEATS + 1):
        await site.beat("d2", {f"2026-10-{1 + count:02}": [1, 1, 1]})
    assert ("d2", "codex", "", MAX_HEARTBEATS) == (await site.losses())[-1]


async def test_an_old_agent_states_no_days_and_deletes_none(site: Site) -> None:
    await site.beat("d1", {TWO: [5, 2, 1]})
    await site.losses()
    await site.beat("d2", None)
    await site.beat("d1", None)
    assert [("d1", "codex", "", 2)] == await site.losses()


async def test_only_enrolled_devices_count(site: Site) -> None:
    waiting = Site(site.devices.table, site.rows, policy="approve")
    await waiting.beat("d1", {TWO: [5, 2, 1]})
    assert [] == await waiting.losses()
    await waiting.devices.approve_device("d1", ADA)
    await waiting.beat("d1", {TWO: [5, 2, 1]})
    assert [("d1", "codex", "", 2)] == await waiting.losses()
    await waiting.beat("d1", {TWO: [5, 5, 2]})
    await waiting.devices.revoke_device("d1", ADA)
    assert [("d1", "codex", "", 2)] == await waiting.losses()


async def test_a_deleted_device_leaves_the_sum_of_its_team(site: Site) -> None:
    await site.beat("d1", {TWO: [5, 2, 1]}, team="ads")
    await site.losses()
    await site.beat("d2", {TWO: [5, 4, 1]})
    await site.devices.delete_device("d1", ADA)
    await site.devices.delete_device("d2", ADA)  # before its days were stored
    assert [("d1", "codex", "ads", 2)] == await site.losses()
    await site.recorder.sum_old_days()
    assert [("", "codex", "ads", 2)] == await site.losses()


async def test_days_that_could_not_be_stored_are_stored_later(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(days: Sequence[UseDay]) -> None:
        raise SpoolUnavailable("the disk is full")

    await site.beat("d1", {TWO: [5, 2, 1]})
    with monkeypatch.context() as patch:
        patch.setattr(site.rows, "replace_days", fail)
        with pytest.raises(SpoolUnavailable):
            await site.recorder.store_changed_days()
    assert [("d1", "codex", "", 2)] == await site.losses()


async def test_a_restart_stores_the_next_heartbeat_again(site: Site) -> None:
    await site.beat("d1", {TWO: [5, 2, 1]})
    later = Site(site.devices.table, site.rows)  # the process ended before the days were stored
    assert [] == await later.losses()
    await later.beat("d1", {TWO: [5, 2, 1]})
    assert [("d1", "codex", "", 2)] == await later.losses()


@pytest.mark.parametrize("seed", range(examples(60)))
async def test_random_orders_of_heartbeats_add_up_to_the_last_statements(site: Site, seed: int) -> None:
    """A device that states nonsense, leaves or is deleted changes no number of another device."""
    dice = random.Random(f"days {seed}")
    stated: dict[str, dict[str, int]] = {}
    unstored: dict[str, dict[str, int]] = {}
    summed = 0
    for _ in range(25):
        id = dice.choice(("d1", "d2", "liar"))
        action = dice.random()
        if action < 0.8:
            days = dice.sample((ONE, TWO, "2026-11-28"), dice.randrange(1, 4))
            lost = {day: dice.choice((0, 4, 100_000 if id == "liar" else 8)) for day in days}
            await site.beat(id, {day: [100_000, count, count // 4] for day, count in lost.items()})
            unstored.setdefault(id, {}).update(lost)
            if dice.random() < 0.5:
                continue
        elif id in stated and action < 0.9:
            await site.devices.delete_device(id, ADA)
            await site.recorder.sum_old_days()
            unstored.pop(id, None)  # a deleted device counts with what was stored
            summed += sum(stated.pop(id).values())
        else:
            await site.recorder.sum_old_days()
        for device, newer in unstored.items():
            stated.setdefault(device, {}).update(newer)
        unstored.clear()
        found = {device: lost for device, _, _, lost in await site.losses()}
        expected = {device: sum(days.values()) for device, days in stated.items()}
        assert {device: lost for device, lost in {**expected, "": summed}.items() if lost} == found
