"""A sender that stops is reported once, over restarts, and its insight ends when a record arrives."""

from __future__ import annotations

import asyncio
import time

from aiohttp import ClientSession

from gateway.monitoring.metrics import CACHE_S
from gateway.operations.money.insights import make_insight_updater
from gateway.service.app import TollhouseApp
from spool.registry.insights import Insight
from spool.registry.tables.sender_hours import HOUR_S, RUNNING
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_internet_receiver import operator

STOPPED = 'tollhouse_sender_stopped{kind="key",sender="sender"} 1.0'
OPEN = 'tollhouse_insights{detector="stopped_sender",severity="warning"} 1.0'


async def insights(app: TollhouseApp) -> list[Insight]:
    registry = app.services.storage.registry
    assert registry is not None
    return [
        insight
        for insight in await registry.insights.detector_insights()
        if str(insight.finding).startswith("stopped_sender:")
    ]


async def stop(serving: Serving) -> None:
    """Store four weeks in which the server's key sent each hour, and stopped eight hours ago."""
    registry = serving.app.services.storage.registry
    assert registry is not None
    now = time.time()
    hour = int(now // HOUR_S)
    ran = {each: each * HOUR_S + 1.0 for each in range(hour - 28 * 24, hour + 1)}
    sent = {each: at for each, at in ran.items() if each <= hour - 8}
    await registry.sender_hours.add({RUNNING: ran, ("otel", "sender"): sent}, now=now)


async def metrics(app: TollhouseApp) -> str:
    async with ClientSession() as client, client.get(app.operator_url + "/metrics") as response:
        return await response.text()


async def test_a_stop_is_reported_until_records_arrive(serve: Serve) -> None:
    serving = await serve()
    await stop(serving)
    for number in range(3):
        if number == 2:
            await serving.app.stop()
            serving.app = TollhouseApp(serving.app.config, version="0")
            await serving.app.start()
        merged = (await make_insight_updater(serving.app.services.operators).find_and_store_insights()).merged
        assert (number == 0, 0) == (merged.new, merged.gone)
    [insight] = await insights(serving.app)
    assert ("The API key sender has stopped sending", True) == (insight.title, insight.present)
    shown = await metrics(serving.app)
    assert STOPPED in shown
    assert OPEN in shown
    [age] = [
        line for line in shown.splitlines() if line.startswith('tollhouse_last_record_seconds{source="otel"}')
    ]
    assert 7 * HOUR_S < float(age.split()[-1]) < 9 * HOUR_S
    keys = await serving.app.services.operators.senders.access.listed_keys()
    assert [float(int(time.time() // HOUR_S) - 8) * HOUR_S + 1.0] == [
        getattr(key, "last_record", None) for key in keys
    ]
    answer = await operator(serving, "/report?by=source&range=last_7d")
    assert ["otel"] == [*answer["last_records"]]
    assert "last_records" not in await operator(serving, "/report?by=model&range=last_7d")
    watching = make_insight_updater(serving.app.services.operators)
    assert not await watching.has_changed_state()
    start = time.time_ns()  # an old start would be an insight of its own
    span = json_span(startTimeUnixNano=str(start), endTimeUnixNano=str(start + 1_000_000_000))
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    assert await watching.has_changed_state()
    merged = (await watching.find_and_store_insights()).merged
    assert (0, 1) == (merged.new, merged.gone)
    [insight] = await insights(serving.app)
    assert not insight.present
    await asyncio.sleep(CACHE_S)
    assert OPEN not in await metrics(serving.app)
    [key] = await serving.app.services.operators.senders.access.listed_keys()
    assert time.time() - 60 < getattr(key, "last_record", 0.0) <= time.time()


async def test_a_disabled_key_is_not_reported(serve: Serve) -> None:
    serving = await serve()
    await stop(serving)
    registry = serving.app.services.storage.registry
    assert registry is not None
    await registry.keys.disable("sender", actor=ACTOR)
    assert (
        0 == (await make_insight_updater(serving.app.services.operators).find_and_store_insights()).merged.new
    )
    assert "tollhouse_sender_stopped{" not in await metrics(serving.app)
