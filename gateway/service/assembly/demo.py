"""The made-up world around a demo: laptops that report, and destinations that accept or refuse records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from exporters.errors import Misconfigured
from exporters.exporter import RouteConfig
from exporters.notifications.catalogue import build_channel
from exporters.notifications.channel import Channel, NotificationMessage
from exporters.probe import OK, Probe
from exporters.settings import NotifySettings
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.service.demo.note import REFUSAL, DemoNote
from spool.clock import Clock
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.devices.device import ENROLLED, Device
from spool.log.accounting import route_topic
from spool.log.values import LogEntry
from spool.loops import RETRY_S, repeat


class _DemoReceiver:
    """A destination without a network. It accepts all records and stores none, or it refuses the key."""

    in_flight = 1
    max_records = 1000

    def __init__(self, *, refuses: bool) -> None:
        self._refuses = refuses

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        if self._refuses:
            raise Misconfigured(REFUSAL, status=401)
        return Settlement(delivered=delivery.count)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


def planted_routes(note: DemoNote | None) -> Iterator[RouteConfig]:
    """Yield the routes that a demo planted. They have no destination in the configuration."""
    if note is None:
        return
    for names, refuses in ((note.routes, False), (note.paused_routes, True)):
        for name in names:
            spec = RouteSpec(name=name, topic=route_topic(name))
            yield RouteConfig(
                spec=spec, compared_settings=("demo", refuses), exporter=_DemoReceiver(refuses=refuses)
            )


class _DemoChannel:
    """A channel without a network. It accepts all notifications and stores none."""

    async def send(self, message: NotificationMessage) -> str:
        return ""

    def secret_file_state(self) -> None:
        return None

    def check_secret(self) -> None:
        """Accept, because the channel of the demo has no secret to check."""

    async def probe(self) -> Probe:
        return Probe(status=OK)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""


def demo_or_real_channel_builder(note: DemoNote | None) -> Callable[[NotifySettings, Clock], Channel]:
    """Return a function that builds channels. It builds a made-up one for the channels that a demo planted."""
    planted = () if note is None else note.channels
    return lambda settings, clock: (
        _DemoChannel() if settings.name in planted else build_channel(settings, clock)
    )


async def send_laptop_heartbeats(note: DemoNote, devices: DeviceLifecycle, clock: Clock) -> None:
    async def note_heartbeats() -> None:
        for id in note.laptops:
            devices.table.change_and_write_soon(
                id, lambda device: _device_seen_now(device, clock.now(), sends_calls=True)
            )
        for id in note.losing_laptops:
            devices.table.change_and_write_soon(
                id, lambda device: _device_seen_now(device, clock.now(), sends_calls=False)
            )
        await asyncio.sleep(devices.interval_s)

    await repeat(
        note_heartbeats,
        every_s=0.0,
        failed="heartbeats of the demo could not be noted",
        action="demo_heartbeats_not_noted",
        retry_s=RETRY_S,
    )


def _device_seen_now(device: Device, now: float, *, sends_calls: bool) -> Device:
    if device.state != ENROLLED:
        return device
    heard = replace(device, last_seen=now, last_heartbeat=now)
    if not sends_calls:
        return heard
    return replace(heard, last_telemetry=now, newest_calls=dict.fromkeys(device.newest_calls, now))
