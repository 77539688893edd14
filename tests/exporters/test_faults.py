"""A repeated internal fault shows a loop as parked, only while the fault lasts."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from exporters.notifications.notifier import ChannelSender
from exporters.notifications.schedule import Schedule
from exporters.service.container_metrics import ContainerFileSync
from exporters.service.device_sync import DeviceSync
from spool.container_files.stored_files import ContainerFileLimitUse
from spool.container_files.values import FILE
from spool.devices.device import Device
from spool.registry.notices import Notification
from spool.settings import ContainerSettings
from tests.exporters.spools import StoppedClock
from tests.waiting import until


class Fault:
    """A defect that a test can switch off."""

    is_there = True

    def meet(self) -> list[Any]:
        if self.is_there:
            raise ValueError("a secret value")
        return []


async def test_a_stream_of_container_metrics() -> None:
    """A fault in one stream does not stop the other streams."""
    fault, asked = Fault(), []

    class Files:
        sums = ContainerFileLimitUse(ContainerSettings())

        async def due_files(self, kind: str, *, limit: int, due_at: float) -> list[object]:
            asked.append(kind)
            if kind == FILE:
                fault.meet()
            return []

        async def unreported_files(self, *, limit: int) -> list[object]:
            return []

    clock = StoppedClock()
    sync = ContainerFileSync(cast(Any, Files()), cast(Any, None), clock=clock)
    assert 60 == await sync.send_due_and_return_wait_s()
    assert sync.state().state == "parked"
    assert sync.state().reason == "container-upload: fault: ValueError"
    assert 3 == len(asked)
    fault.is_there = False
    clock.move(60)
    await sync.send_due_and_return_wait_s()
    assert sync.state().state == "running"
    assert sync.state().reason is None


@pytest.mark.proves("an address with a user name")
async def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that sends devices recovers after a fault without a restart."""
    fault = Fault()

    class Table:
        def all(self) -> list[Device]:
            return []

        async def wait_for_changes(self) -> None:
            await asyncio.Event().wait()

    sync = DeviceSync(cast(Any, Table()), cast(Any, None), clock=StoppedClock())
    monkeypatch.setattr(sync, "_due_devices", lambda now: fault.meet())
    task = asyncio.create_task(sync.run())
    await until(lambda: (sync.state().state, sync.state().reason) == ("parked", "fault: ValueError"))
    fault.is_there = False
    sync.retry_now()
    await until(lambda: (sync.state().state, sync.state().reason) == ("running", None))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_channel_of_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notifications that wait during the fault are not lost."""
    fault, clock = Fault(), StoppedClock()

    class Table:
        version = 1

        async def notification_change_count(self, channel: str) -> int:
            return 1

        async def waiting_notifications(self) -> list[Notification]:
            fault.meet()
            return []

    class Channel:
        def secret_file_state(self) -> object:
            return 1

    monkeypatch.setattr("exporters.notifications.notifier.LOOK_EVERY_S", 0.0)
    sender = ChannelSender("one", cast(Any, Channel()), Schedule(), cast(Any, Table()), clock)
    task = asyncio.create_task(sender.run())
    await until(lambda: (sender.state, sender.state_reason) == ("parked", "fault: ValueError"))
    fault.is_there = False
    clock.move(60)
    await until(lambda: (sender.state, sender.state_reason) == ("running", ""))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
