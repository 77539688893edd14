"""The wish of an operator, a reload or a changed key ends every wait that a response began."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from exporters.device_reporter import DeviceReporter
from exporters.errors import Misconfigured, Rejected, Retryable, SendError
from exporters.pace import Backoff
from exporters.route_loop import RouteLoop
from exporters.secret_source import SecretSource
from exporters.service.billing_sync import BillingSync
from exporters.service.container_metrics import ContainerFileSync
from exporters.service.device_sync import DeviceSync
from exporters.service.paths import UpstreamPaths
from exporters.settings import UpstreamSettings
from spool.container_files.values import STATUS, ContainerFile
from spool.deliveries.values import Delivery, Settlement
from spool.devices.device import Device
from spool.log.values import LogEntry
from tests.exporters.capture import Capture
from tests.exporters.spools import SPEC, StoppedClock, calls, spooled
from tests.waiting import until

DAY_S = 86_400.0
ERRORS: list[SendError] = [
    Rejected("400", status=400),
    Misconfigured("401", status=401),
    Retryable("503", status=503, retry_after_s=DAY_S),
    Retryable("429", status=429, retry_after_s=DAY_S),
]


class TickingClock(StoppedClock):
    """A clock of which no two reads are equal, and under which no wait ends by itself."""

    def now(self) -> float:
        self.at += 0.001
        return self.at


class Upstream:
    """
    An HTTP client that answers each request with `error`. It can hold a request open, so that a wish arrives before
    the response.
    """

    def __init__(self, error: SendError, *, is_slow: bool) -> None:
        self.error = error
        self.requests = 0
        self.may_answer = asyncio.Event()
        if not is_slow:
            self.may_answer.set()

    async def send(self, *_: object, **__: object) -> Any:
        self.requests += 1
        await self.may_answer.wait()
        raise self.error

    post = send


class DeviceRow:
    """A table of devices with one device that waits to be sent."""

    def __init__(self) -> None:
        self.row = Device(id="laptop", enrolled_at=1.0, enrolled_by="ada", last_seen=1.0)

    def all(self) -> list[Device]:
        return [self.row]

    def find(self, id: str) -> Device:
        return self.row

    async def update(self, id: str, change: Callable[[Device], Device]) -> None:
        self.row = change(self.row)

    async def wait_for_changes(self) -> None:
        await asyncio.Event().wait()


class StatusFile:
    """A queue of statuses with one status that waits to be sent."""

    def __init__(self, clock: StoppedClock) -> None:
        self._clock = clock
        self.file = ContainerFile(
            id="1",
            kind=STATUS,
            account="1",
            region="r",
            cluster="c",
            reference="config",
            key="k",
            announced_at=1.0,
        )

    async def due_files(self, kind: str, *, limit: int, due_at: float) -> list[ContainerFile]:
        is_due = self.file.not_before <= max(due_at, self._clock.now())
        return [self.file] if kind == STATUS and is_due else []

    async def unreported_files(self, *, limit: int) -> list[ContainerFile]:
        return []

    async def postpone_sending(self, file: ContainerFile, problem: str, *, not_before: float) -> None:
        self.file = replace(file, problem=problem, not_before=not_before)

    async def wait_for_changes(self) -> None:
        await asyncio.Event().wait()


# the loop of a sender, and the request to it to try now
Sender = tuple[Coroutine[Any, Any, None], Callable[[], object]]


@asynccontextmanager
async def devices(upstream: Upstream, clock: StoppedClock, _: Path) -> AsyncIterator[Sender]:
    sync = DeviceSync(cast(Any, DeviceRow()), cast(Any, upstream), clock=clock)
    yield sync.run(), sync.retry_now


@asynccontextmanager
async def container_metrics(upstream: Upstream, clock: StoppedClock, _: Path) -> AsyncIterator[Sender]:
    sync = ContainerFileSync(cast(Any, StatusFile(clock)), cast(Any, upstream), clock=clock)
    yield sync.run(), sync.retry_now


@asynccontextmanager
async def billing(upstream: Upstream, clock: StoppedClock, _: Path) -> AsyncIterator[Sender]:
    settings = UpstreamSettings(base_url="http://localhost")
    any: Any = None
    sync = BillingSync(any, any, any, settings, any, clock=clock)
    sync.send_changed_hours = upstream.send  # type: ignore[method-assign]
    yield sync.run(), sync.retry_now


@asynccontextmanager
async def route(upstream: Upstream, clock: StoppedClock, place: Path) -> AsyncIterator[Sender]:
    class Exporter(Capture):
        async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
            await upstream.send()
            return await super().send(delivery, entries)

    async with spooled("memory", place, clock) as spool:
        await spool.deliveries.set_routes([SPEC])
        await spool.add(calls(1, 1))
        loop = RouteLoop(
            SPEC,
            Exporter(),
            deliveries=spool.deliveries,
            record_log=spool.log,
            clock=clock,
            backoff=Backoff(),
        )
        yield loop.run(), loop.send_now


@asynccontextmanager
async def agent(upstream: Upstream, _: StoppedClock, place: Path) -> AsyncIterator[Sender]:
    """The reporter of a device itself. The wish is another enrolment key in the same file."""
    key = place / "enrolment"
    key.write_text("one")

    async def nothing() -> dict[str, object]:
        return {}

    reporter = DeviceReporter(
        cast(Any, upstream),
        UpstreamPaths(UpstreamSettings(base_url="http://localhost", kind="tollhouse")),
        facts=dict,
        report=nothing,
        enrolment_key=SecretSource("the enrolment key", file=key),
        key_file=place / "device.key",
        keep_key=lambda _: None,
    )
    yield reporter.run(), lambda: key.write_text("another")


async def _round(sender: Any, error: SendError, place: Path, *, is_slow: bool) -> None:
    upstream, clock = Upstream(error, is_slow=is_slow), TickingClock()
    async with sender(upstream, clock, place) as (run, wish):
        task = asyncio.create_task(run)
        try:
            await until(lambda: upstream.requests > 0)
            if not is_slow:
                await _until_quiet(upstream)
            clock.move(1)
            before = upstream.requests
            wish()
            upstream.may_answer.set()
            await until(lambda: upstream.requests > before)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _until_quiet(upstream: Upstream) -> None:
    """Wait until all attempts that the sender makes without a wait were made."""
    before = -1
    while before != upstream.requests:
        before = upstream.requests
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("sender", [devices, container_metrics, billing, route, agent])
async def test_a_wish_ends_every_wait(
    sender: Any, error: SendError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporters.device_reporter.CHECK_S", 0.01)
    await _round(sender, error, tmp_path, is_slow=False)


@pytest.mark.parametrize("error", ERRORS, ids=str)
@pytest.mark.parametrize("sender", [devices, container_metrics, billing])
async def test_a_wish_that_arrives_before_a_response_counts(
    sender: Any, error: SendError, tmp_path: Path
) -> None:
    """The response to a request with the old key must not begin a wait for the new key."""
    await _round(sender, error, tmp_path, is_slow=True)
