from __future__ import annotations

import asyncio
from typing import Any

import pytest

from exporters.batch import TURN
from exporters.destinations.otlp import OtlpEndpoint
from exporters.http.answers import HttpAnswer
from exporters.http.client import ClientSettings, HttpClient
from exporters.otlp.spans import SpanEncoder
from exporters.otlp.telemetry import TelemetryExporter
from exporters.settings import DestinationSettings
from spool.clock import SystemClock
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, Inference
from tests.exporters.spools import ROUTE, call, calls

AT = 1_790_000_000.25


class KeptClient(HttpClient):
    """An HTTP client that stores the request body and sends nothing."""

    def __init__(self) -> None:
        super().__init__(ClientSettings(), clock=SystemClock())
        self.body = b""

    async def send(self, url: str, body: bytes, **_: Any) -> HttpAnswer:
        self.body = body
        return HttpAnswer(status=200)


@pytest.mark.parametrize("count", [1, TURN, TURN + 1, 1000])
async def test_the_loop_has_its_turns_while_a_delivery_is_encoded(count: int) -> None:
    """
    Encoding a whole delivery takes as long as dozens of requests, so the encoder yields to them. The result
    is the same.
    """
    settings = DestinationSettings(name="d", type="otlp", url="http://127.0.0.1:1")
    client = KeptClient()
    exporter = TelemetryExporter(client, OtlpEndpoint(settings, None))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += not client.body

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    delivery = Delivery(id=1, route=ROUTE, first=1, last=count, attempts=0, idempotency_key="k")
    entry = LogEntry(topic=AI_TELEMETRY, first=1, committed_at=AT, records=calls(1, count))
    assert Settlement(delivered=count) == await exporter.send(delivery, [entry])
    beside.cancel()
    assert (count - 1) // TURN == turns
    encoded: list[tuple[Inference, float]] = [(call(number), AT) for number in range(1, count + 1)]
    assert SpanEncoder().encode_request(encoded) == client.body
    await exporter.close()
