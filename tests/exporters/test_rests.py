"""No loop oversleeps: it wakes in time for everything that it skipped as not yet due."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from exporters.errors import Retryable
from exporters.lake.watch import LakeCheckResult, LakeWatch
from exporters.notifications.notifier import ChannelSender
from exporters.notifications.schedule import Schedule
from exporters.pace import Backoff
from exporters.route_loop import RouteLoop
from exporters.service.container_metrics import UPLOAD, ContainerFileSync
from exporters.service.device_sync import DeviceSync
from spool.container_files.values import FILE
from spool.devices.device import ENROLLED, Device
from spool.registry.notices import Notification
from tests.exporters.capture import Capture
from tests.exporters.notifications.examples import waiting
from tests.exporters.spools import SPEC, calls, spooled

STEP_S = 0.01
BORDERS = range(12)  # more borders than the number of times that a round reads the clock


class SteppingClock:
    """A clock that advances at every read, as for a process that the system keeps interrupting."""

    def __init__(self) -> None:
        self.at = 1000.0
        self.step_s = 0.0

    def now(self) -> float:
        self.at += self.step_s
        return self.at

    def monotonic(self) -> float:
        return self.now()


class Tried(BaseException):
    """Raised when the loop tries the waiting item."""


# A function of this type runs one round and returns the seconds until the loop wakes again.
Rest = Callable[[SteppingClock, float, Path], Awaitable[float]]


async def lane_of_container_metrics(clock: SteppingClock, border: float, _: Path) -> float:
    """Run one round of a stream of container metrics that waits after a failure."""

    class Files:
        async def due_files(self, kind: str, *, limit: int, due_at: float) -> list[object]:
            if kind == FILE:
                raise Tried
            return []

        async def unreported_files(self, *, limit: int) -> list[object]:
            return []

    sync = ContainerFileSync(cast(Any, Files()), cast(Any, None), clock=clock)
    sync._lanes[UPLOAD].closed_until = border
    clock.step_s = STEP_S
    return await sync.send_due_and_return_wait_s()


async def device_that_rests(clock: SteppingClock, border: float, _: Path) -> float:
    return await _devices(clock, lambda sync: sync._backoffs.update({"laptop": (1, border)}))


async def devices_that_wait_together(clock: SteppingClock, border: float, _: Path) -> float:
    return await _devices(clock, lambda sync: setattr(sync, "_closed_until", border))


async def _devices(clock: SteppingClock, wait: Callable[[DeviceSync], object]) -> float:
    class Table:
        def all(self) -> list[Device]:
            return [Device(id="laptop", state=ENROLLED, enrolled_at=1.0, enrolled_by="ada", last_seen=1.0)]

    async def tried(device: Device) -> None:
        raise Tried

    sync = DeviceSync(cast(Any, Table()), cast(Any, None), clock=clock)
    wait(sync)
    sync._send_device = tried  # type: ignore[method-assign]
    clock.step_s = STEP_S
    return await sync._send_due_devices_and_return_wait_s()


async def delivery_that_was_put_off(clock: SteppingClock, border: float, place: Path) -> float:
    failed = Retryable("503", status=503, retry_after_s=0.0)
    async with spooled("memory", place, clock) as spool:
        await spool.deliveries.set_routes([SPEC])
        await spool.add(calls(1, 1))
        exporter = Capture(answers=[failed, None])
        route = RouteLoop(
            SPEC, exporter, deliveries=spool.deliveries, record_log=spool.log, clock=clock, backoff=Backoff()
        )
        await route.forward_one_delivery()
        due_at = await spool.deliveries.next_due_at(SPEC.name)
        assert due_at is not None
        # The clock is set so that the item becomes due at the border.
        clock.at += due_at - route._throttle.now() - (border - clock.at)
        clock.step_s = STEP_S
        if await route.forward_one_delivery():
            raise Tried
        return await route._seconds_until_due()


async def notification_that_was_put_off(clock: SteppingClock, border: float, _: Path) -> float:
    class Table:
        version = 1

        async def notification_change_count(self, channel: str) -> int:
            return 1

        async def waiting_notifications(self) -> list[Notification]:
            return [waiting(1, message=1, not_before=border)]

        async def update(self, changed: object) -> None: ...

        async def wait_until_durable(self) -> None: ...

    class Channel:
        def secret_file_state(self) -> object:
            return 1

        async def send(self, message: object) -> str:
            raise Tried

    sender = ChannelSender("one", cast(Any, Channel()), Schedule(), cast(Any, Table()), clock)
    sender._is_eager = False
    clock.step_s = STEP_S
    return await sender.send_due_and_return_next_time() - clock.at


async def lake_that_is_verified_daily(clock: SteppingClock, border: float, _: Path) -> float:
    every_s = 60.0

    class Verdicts:
        async def read_pull_state(self, name: str) -> object:
            return {"at": border - every_s, "files": 0, "rows": 0, "differences": {}, "words": ""}

    async def seen() -> LakeCheckResult:
        raise Tried

    clock.step_s = STEP_S
    watch = LakeWatch(check=seen, verdicts=cast(Any, Verdicts()), route="lake", every_s=every_s, clock=clock)
    return await watch.check_if_due_and_return_wait_s()


@pytest.mark.proves("a retry that sleeps too long")
@pytest.mark.parametrize("border", BORDERS)
@pytest.mark.parametrize(
    "rest",
    [
        lane_of_container_metrics,
        device_that_rests,
        devices_that_wait_together,
        delivery_that_was_put_off,
        notification_that_was_put_off,
        lake_that_is_verified_daily,
    ],
)
async def test_no_retry_oversleeps(rest: Rest, border: int, tmp_path: Path) -> None:
    """Whenever an item becomes due within a round, this round tries it or the loop wakes in time for it."""
    clock = SteppingClock()
    comes_at = clock.at + (border + 0.5) * STEP_S
    try:
        rest_s = await rest(clock, comes_at, tmp_path)
    except Tried:
        return
    assert rest_s <= (len(BORDERS) + 1) * STEP_S
