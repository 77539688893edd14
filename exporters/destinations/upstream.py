"""
The upstream: your cost service or another Tollhouse. For a topic that it does not accept, there is no route,
and the records are stored for the retention time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from exporters.exporter import Exporter, RouteConfig
from exporters.otlp.telemetry import TelemetryExporter
from exporters.service.billing_drops import ConnectionLocks, HourlyBillingFileExporter
from exporters.service.events import STREAM as EVENTS
from exporters.service.events import EventExporter, StreamMapper
from exporters.service.paths import UPSTREAM, UpstreamPaths
from exporters.service.unit_cost import UnitCostExporter
from exporters.service.upstream_client import UpstreamClient
from exporters.settings import UpstreamSettings
from spool.clock import Clock
from spool.deliveries.values import RouteSpec
from spool.log.protocols import RecordLog
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    UNIT_COST,
    USAGE_EVENTS,
    HourlyBillingFile,
    UnitCostOperation,
)
from spool.streams import StreamReader


@dataclass(frozen=True, kw_only=True)
class UpstreamContext:
    """
    Objects that the upstream's routes use. `learn`: registers the streams of unit cost operations that the
    routes derived from events. `locks`: one per billing connection, shared with the billing sync.
    `id_upstream`: returns the upstream's id of an hourly file's connection. `single_writer`: the streams that
    no other gateway writes.
    """

    log: RecordLog
    streams: StreamReader
    learn: Callable[[Sequence[UnitCostOperation]], None]
    locks: ConnectionLocks
    id_upstream: Callable[[HourlyBillingFile], str]
    single_writer: frozenset[str] = frozenset()


def upstream_routes(
    settings: UpstreamSettings, *, clock: Clock, context: UpstreamContext | None = None
) -> Iterator[RouteConfig]:
    """
    Yield the routes to the upstream, each with a client of its own. Without `context` or a base_url, only the
    AI telemetry route exists.
    """
    if not (settings.base_url or settings.ai_telemetry_url):
        return
    made_of = replace(settings, events={}), context and context.single_writer
    yield _telemetry_route(settings, clock, made_of)
    if context is None or not settings.base_url:
        return
    has_events = UpstreamPaths(settings).url_template(EVENTS) is not None
    if has_events or settings.events:
        client = UpstreamClient.from_settings(settings, clock=clock)
        exporter: Exporter
        if has_events:
            exporter = EventExporter(client, max_bytes=settings.batch_bytes)
        else:
            exporter = StreamMapper(context.log, settings.events, context.learn)
        yield _build_route(USAGE_EVENTS, settings, (made_of, settings.events), exporter, client)
    client = UpstreamClient.from_settings(settings, clock=clock)
    unit_cost = UnitCostExporter(
        client,
        context.streams,
        clock=clock,
        single_writer=context.single_writer,
        to_tollhouse=settings.kind == "tollhouse",
    )
    yield _build_route(UNIT_COST, settings, made_of, unit_cost, client)
    client = UpstreamClient.from_settings(settings, clock=clock)
    exporter = HourlyBillingFileExporter(client, context.locks, context.id_upstream)
    yield _build_route(BILLING_DATA, settings, made_of, exporter, client)


def _telemetry_route(settings: UpstreamSettings, clock: Clock, compared_settings: object) -> RouteConfig:
    client = UpstreamClient.from_settings(settings, clock=clock)
    exporter = TelemetryExporter(
        client.client,
        client,
        in_flight=settings.in_flight,
        max_records=settings.batch_records,
        max_bytes=settings.batch_bytes,
    )
    return replace(
        _build_route(AI_TELEMETRY, settings, compared_settings, exporter, client), reads_packed=True
    )


def _build_route(
    topic: str,
    settings: UpstreamSettings,
    compared_settings: object,
    exporter: Exporter,
    client: UpstreamClient,
) -> RouteConfig:
    spec = RouteSpec(name=f"{UPSTREAM}/{topic}", topic=topic)
    linger_s = settings.linger
    return RouteConfig(
        spec=spec,
        compared_settings=compared_settings,
        exporter=exporter,
        stamps=client.secret_file_states,
        linger_s=linger_s,
    )
