"""An exporter whose deliveries are traced."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import cast

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from exporters.exporter import Exporter, LandingExporter, RouteConfig
from exporters.own_telemetry.sources import Tracer
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import Entry


class TracedLandingExporter:
    def __init__(self, exporter: LandingExporter, traces: Tracer) -> None:
        self.in_flight = exporter.in_flight
        self.max_records = exporter.max_records
        self._exporter = exporter
        self._traces = traces

    async def land(
        self,
        delivery: Delivery,
        entries: AsyncIterator[Entry],
        keep_mark: Callable[[str], Awaitable[None]],
    ) -> Settlement:
        with self._traces.trace(f"land {delivery.route}", Span.SPAN_KIND_CLIENT) as step:
            if step is not None:
                step.attributes["tollhouse.records"] = delivery.count
            return await self._exporter.land(delivery, entries, keep_mark)

    async def close(self) -> None:
        await self._exporter.close()


class TracedExporter:
    def __init__(self, exporter: Exporter, traces: Tracer) -> None:
        self.in_flight = exporter.in_flight
        self.max_records = exporter.max_records
        self._exporter = exporter
        self._traces = traces

    async def prepare(self, delivery: Delivery) -> str | None:
        return await self._exporter.prepare(delivery)

    async def send(self, delivery: Delivery, entries: Sequence[Entry]) -> Settlement:
        with self._traces.trace(f"deliver {delivery.route}", Span.SPAN_KIND_CLIENT) as step:
            if step is not None:
                step.attributes["tollhouse.records"] = delivery.count
            return await self._exporter.send(delivery, entries)

    async def close(self) -> None:
        await self._exporter.close()


def traced(route: RouteConfig, traces: Tracer) -> RouteConfig:
    """The route with an exporter whose deliveries are traced."""
    if route.lands:
        return replace(route, exporter=TracedLandingExporter(cast("LandingExporter", route.exporter), traces))
    return replace(route, exporter=TracedExporter(cast("Exporter", route.exporter), traces))
