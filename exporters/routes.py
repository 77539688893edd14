"""All routes of the house: built from the configuration, run, stopped, poked when a secret changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exporters.backoff import Backoff
from exporters.destinations import focus
from exporters.destinations.ndjson import FileExporter
from exporters.destinations.otlp import Endpoint
from exporters.destinations.webhook import WebhookExporter
from exporters.exporter import Exporter
from exporters.http.client import Client, ClientSettings
from exporters.keyring import Keyring
from exporters.otlp.telemetry import TelemetryExporter
from exporters.route import Route
from exporters.secret import Secret
from exporters.service import topics
from exporters.service.billing import Lanes
from exporters.service.billing_sync import BillingSync
from exporters.service.device_sync import DeviceSync
from exporters.service.paths import STREAMS
from exporters.service.upstream import Upstream, client_of
from exporters.settings import DestinationSettings, UpstreamSettings
from spool.billing_hours import BillingHours
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import RouteSpec, RouteState
from spool.devices import DeviceTable
from spool.ledger.ledger import Ledger
from spool.log.protocols import Log
from spool.record import AI_TELEMETRY

UPSTREAM = "upstream"
SECRETS_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class RouteConfig:
    """A route, how it sends, and whose change makes it try again at once."""

    spec: RouteSpec
    exporter: Exporter
    stamps: Callable[[], object] = tuple  # differs from an earlier answer when a secret file changed
    backoff: Backoff = field(default_factory=Backoff)


class Sync(Protocol):
    """A table that is brought upstream row by row, shown like a route."""

    def state(self) -> RouteState: ...

    def stamps(self) -> object: ...

    def poke(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...


class Routes:
    """What leaves the house: a route for each destination and topic, and tables that are brought upstream."""

    def __init__(
        self,
        deliveries: Deliveries,
        log: Log,
        clock: Clock,
        specs: Sequence[RouteConfig],
        syncs: Sequence[Sync] = (),
    ) -> None:
        self._deliveries = deliveries
        self._configs = list(specs)
        self._routes = [
            Route(config.spec, config.exporter, deliveries=deliveries, log=log, clock=clock, backoff=config.backoff)
            for config in self._configs
        ]
        self._syncs = list(syncs)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Tell the spool what is configured, then run every route."""
        await self._deliveries.declare([config.spec for config in self._configs])
        stood = {state.name: state.state for state in await self._deliveries.routes()}
        for route in self._routes:
            self._tasks.append(asyncio.create_task(route.run(stood[route.name]), name=f"route {route.name}"))
        for sync in self._syncs:
            self._tasks.append(asyncio.create_task(sync.run(), name=f"sync {sync.state().name}"))
        self._tasks.append(asyncio.create_task(self._watch_secrets(), name="secret files"))

    async def wait(self) -> None:
        """Never returns while all is well: raises what ended a route, for whoever owns the process."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self) -> None:
        """Cancel what is under way: an open delivery stays open and is sent again with the same bytes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for config in self._configs:
            await config.exporter.close()
        for sync in self._syncs:
            await sync.close()

    def syncs(self) -> Sequence[RouteState]:
        """The tables brought upstream, shown as routes are."""
        return [sync.state() for sync in self._syncs]

    def poke(self) -> None:
        """Let every route try again at once."""
        for route in self._routes:
            route.poke()
        for sync in self._syncs:
            sync.poke()

    async def _watch_secrets(self) -> None:
        watched: list[tuple[Callable[[], object], Route | Sync]] = [
            *((config.stamps, route) for config, route in zip(self._configs, self._routes, strict=True)),
            *((sync.stamps, sync) for sync in self._syncs),
        ]
        seen = [stamps() for stamps, _ in watched]
        while True:
            await asyncio.sleep(SECRETS_EVERY_S)
            for place, (stamps, waiting) in enumerate(watched):
                if (now := stamps()) != seen[place]:
                    seen[place] = now
                    waiting.poke()


def build(
    upstream: UpstreamSettings,
    destinations: Sequence[DestinationSettings],
    *,
    clock: Clock,
    rooms: topics.Rooms | None = None,
) -> list[RouteConfig]:
    """
    The routes of a configuration; ValueError for a type or topic that a destination cannot take.

    Without `rooms` nothing but AI telemetry leaves for the upstream.
    """
    routes = [_upstream(upstream, clock)] if upstream.base_url or upstream.ai_telemetry_url else []
    if rooms is not None and upstream.base_url:
        routes += _topics(upstream, rooms, clock)
    return routes + [_destination(settings, topic, clock) for settings in destinations for topic in settings.topics]


def device_sync(settings: UpstreamSettings, table: DeviceTable, *, clock: Clock) -> DeviceSync:
    """Devices to the upstream, under whichever keys cover the control plane."""
    return DeviceSync(
        table, Upstream.of(settings, Keyring(settings.keys), clock=clock), clock=clock, in_flight=settings.in_flight
    )


def billing_sync(
    settings: UpstreamSettings, ledger: Ledger, hours: BillingHours, lanes: Lanes, *, clock: Clock
) -> BillingSync:
    """AI cost by the hour to the connection of the settings."""
    return BillingSync(ledger, hours, client_of(settings, clock=clock), settings, lanes, clock=clock)


def _upstream(settings: UpstreamSettings, clock: Clock) -> RouteConfig:
    for name in settings.paths.keys() - STREAMS.keys():
        raise ValueError(f"upstream.paths: there is no stream {name!r}, only {', '.join(STREAMS)}")
    keyring = Keyring(settings.keys)
    upstream = Upstream.of(settings, keyring, clock=clock)
    exporter = TelemetryExporter(
        upstream.client,
        upstream,
        in_flight=settings.in_flight,
        max_records=settings.batch_records,
        max_bytes=settings.batch_bytes,
    )
    spec = RouteSpec(name=f"{UPSTREAM}/{AI_TELEMETRY}", topic=AI_TELEMETRY)
    return RouteConfig(spec=spec, exporter=exporter, stamps=keyring.stamps)


def _topics(settings: UpstreamSettings, rooms: topics.Rooms, clock: Clock) -> list[RouteConfig]:
    """Routes of the other topics; each keeps to itself when it parks."""
    keyring = Keyring(settings.keys)
    return [
        RouteConfig(spec=RouteSpec(name=f"{UPSTREAM}/{topic}", topic=topic), exporter=exporter, stamps=keyring.stamps)
        for topic, exporter in topics.exporters(settings, rooms, keyring, clock=clock)
    ]


def _destination(settings: DestinationSettings, topic: str, clock: Clock) -> RouteConfig:
    exporter: FileExporter | TelemetryExporter | WebhookExporter
    secret: Secret | None = None
    if settings.type == "ndjson" and settings.path is not None:
        exporter = FileExporter(settings.path)
    elif settings.type == "focus" and settings.path is not None and topic == AI_TELEMETRY:
        exporter = FileExporter(settings.path, write=focus.written, head=focus.header())
    elif settings.type == "otlp" and topic == AI_TELEMETRY:
        endpoint = Endpoint(settings)
        secret = endpoint.secret
        exporter = TelemetryExporter(Client(ClientSettings(), clock=clock), endpoint)
    elif settings.type == "webhook":
        exporter = WebhookExporter(Client(ClientSettings(compression="none"), clock=clock), settings, clock=clock)
        secret = exporter.secret
    else:
        raise ValueError(f"destination {settings.name}: type {settings.type!r} cannot take the topic {topic}")
    spec = RouteSpec(name=f"{settings.name}/{topic}", topic=topic, required=settings.required, start=settings.start)
    return RouteConfig(spec=spec, exporter=exporter, stamps=lambda: secret and secret.stamp())
