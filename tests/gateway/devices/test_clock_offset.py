"""Times of calls whose device has not reported the offset of its clock yet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway.configuration.sections import DeviceSettings
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device
from spool.devices.table import DeviceTable
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock

FLEET = AuthenticatedKey("fleet", frozenset({ENROLL, HEARTBEAT}))
ADA = Actor("ada", "socket")
HOUR, DAY = 3600.0, 86_400.0


class Gateway:
    """A gateway that knows a device only from its calls."""

    def __init__(self, table: DeviceTable) -> None:
        self._table, self.clock = table, MovedClock()
        self.rules = DeviceLifecycle(table, settings=DeviceSettings(), clock=self.clock, secret=b"s" * 32)

    def call(self, ended: float) -> None:
        """Let a call arrive that ended at this time of the device's clock."""
        self.rules.note_telemetry(self.device, {"codex": ended}, FLEET)

    async def beat(self, offset_s: float | None) -> None:
        sent_at = None if offset_s is None else self.clock.now() + offset_s
        await self.rules.store_heartbeat_and_issue_token(DeviceReport(id="d", sent_at=sent_at), FLEET, "")

    @property
    def device(self) -> Device:
        device = self._table.find("d")
        assert device is not None
        return device

    @property
    def newest(self) -> float:
        return self.device.newest_calls["codex"]


@pytest_asyncio.fixture
async def gateway() -> AsyncIterator[Gateway]:
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    made = Gateway(table)
    await made.rules.enrol_or_list_device("d", FLEET)
    yield made
    await table.close()


@pytest.mark.parametrize("offset_s", [2 * HOUR, -3 * HOUR])
async def test_calls_before_the_first_heartbeat_get_their_true_time(
    gateway: Gateway, offset_s: float
) -> None:
    ended = gateway.clock.now()
    gateway.clock.move(HOUR)
    gateway.call(ended + offset_s)
    await gateway.beat(offset_s)
    assert ended == gateway.newest
    await gateway.beat(offset_s)
    assert ended == gateway.newest


async def test_a_call_that_ends_later_than_clocks_differ_ended_when_it_arrived(gateway: Gateway) -> None:
    gateway.call(gateway.clock.now() + 1.1 * DAY)
    assert gateway.clock.now() == gateway.newest


async def test_an_agent_that_states_no_time_has_no_call_in_the_future(gateway: Gateway) -> None:
    gateway.call(gateway.clock.now() + HOUR)
    await gateway.beat(None)
    assert gateway.clock.now() == gateway.newest


async def test_a_call_is_corrected_with_the_offset_that_another_gateway_stored(gateway: Gateway) -> None:
    before = gateway.device
    await gateway.beat(2 * HOUR)
    gateway.rules.note_telemetry(before, {"codex": gateway.clock.now() + HOUR}, FLEET)
    assert gateway.clock.now() - HOUR == gateway.newest


async def test_a_reset_forgets_the_clock_of_the_earlier_machine(gateway: Gateway) -> None:
    await gateway.beat(2 * HOUR)
    await gateway.rules.reset_device("d", ADA)
    gateway.call(gateway.clock.now())
    assert gateway.clock.now() == gateway.newest
