"""Own telemetry of a running Tollhouse: what arrives at an endpoint, what a dead one costs, and a reload."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from exporters.settings import DestinationSettings, TelemetrySettings
from gateway.app import App
from gateway.cli.examples import example
from gateway.configuration.sections import Config
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.integration.conftest import ACTOR, Serve, Serving

CONFIG = Config(spool=SpoolSettings(hold=0, counter_wait=0))
SECRET = "k3y-of-the-collector"


@pytest_asyncio.fixture
async def collector() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as collector:
        yield collector


def sending_to(endpoint: str, **settings: object) -> Config:
    telemetry = TelemetrySettings(otlp_endpoint=endpoint, **{"interval": 0.2, **settings})  # type: ignore[arg-type]
    return replace(CONFIG, telemetry=telemetry)


async def send_a_call(serving: Serving) -> None:
    answer = await serving.send("/v1/ai-telemetry/litellm", example("litellm"))
    assert 200 == answer.status


def spans(requests: list[Received]) -> list[Span]:
    return [
        span
        for request in requests
        if request.path == "/otel/v1/traces"
        for group in ExportTraceServiceRequest.FromString(request.body).resource_spans
        for span in group.scope_spans[0].spans
    ]


def counted(request: Received, name: str) -> float | None:
    """The sum of a metric's points; None if it is not in the request."""
    if request.path != "/otel/v1/metrics":
        return None
    (group,) = ExportMetricsServiceRequest.FromString(request.body).resource_metrics
    found = [metric.sum for metric in group.scope_metrics[0].metrics if metric.name == name]
    return sum(point.as_double for point in found[0].data_points) if found else None


@pytest.mark.asyncio
async def test_metrics_and_traces_arrive_without_content_or_keys(
    serve: Serve, collector: FakeUpstream, tmp_path: Path
) -> None:
    """The call that was counted, its request with the commit, its delivery."""
    secret_file = tmp_path / "secret"
    secret_file.write_text(SECRET)
    config = sending_to(f"{collector.url}/otel", secret_file=secret_file, headers={"X-Tenant": "north"})
    upstream = DestinationSettings(name="other", type="otlp", url=f"{collector.url}/T0KEN")
    serving = await serve(config=replace(config, destinations=(upstream,)))
    await send_a_call(serving)
    names = {"ai-telemetry", "commit", "deliver other/ai-telemetry"}
    await collector.until(lambda: names <= {span.name for span in spans(collector.requests)})
    await collector.until(lambda: counted(collector.requests[-1], "tollhouse_records_accepted_total") == 1.0)
    found = {span.name: span for span in spans(collector.requests)}
    assert found["ai-telemetry"].span_id == found["commit"].parent_span_id
    delivery = found["deliver other/ai-telemetry"]
    assert (b"", Span.SPAN_KIND_CLIENT, "") == (
        delivery.parent_span_id,
        delivery.kind,
        delivery.status.message,
    )
    own = [request for request in collector.requests if request.path.startswith("/otel/")]
    assert {(SECRET, "north")} == {
        (request.headers["authorization"], request.headers["x-tenant"]) for request in own
    }
    sent = b"".join(request.body for request in own)
    assert [] == [word for word in (serving.key, SECRET, "T0KEN", "gpt") if word.encode() in sent]


@pytest.mark.asyncio
async def test_another_tollhouse_takes_it_and_counts_nothing(serve: Serve) -> None:
    """Nothing of it is an AI call: every item is ignored, none rejected or kept."""
    other = await serve()
    serving = await serve(config=sending_to(other.url, headers={"Authorization": other.key}))
    await send_a_call(serving)
    log, answered = other.app.services.storage.log, other.app.services.receivers.metrics.registry
    async with asyncio.timeout(60):
        for signal in ("metrics", "traces"):
            taken = {"endpoint": f"otlp/{signal}", "status": "200"}
            while not answered.get_sample_value("tollhouse_requests_total", taken):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.05)
    terms = (await log.books()).topics[AI_TELEMETRY]
    assert terms["received"] > 100
    assert terms["received"] == terms["ignored.not_ai"]
    assert ([], []) == (await other.records(), await log.unrecognised())


@pytest.mark.asyncio
async def test_a_dead_endpoint_is_counted_and_logged_once(
    serve: Serve, collector: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    """Records are taken as ever; when it is back, the counters have what was missed."""
    caplog.set_level(logging.INFO)
    collector.judge = lambda _: Reply(503)
    serving = await serve(config=sending_to(f"{collector.url}/otel"))
    await send_a_call(serving)
    await collector.until(lambda: len(collector.requests) >= 3)
    collector.judge = lambda _: None
    await collector.until(lambda: len(collector.accepted) >= 3)
    names = ("tollhouse_records_accepted_total", "tollhouse_telemetry_failures_total")
    accepted, failures = (counted(collector.accepted[0], name) for name in names)
    assert 1.0 == accepted
    assert failures is not None and failures >= 3
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert ["own_telemetry_failed", "own_telemetry_sent"] == [
        one for one in actions if one.startswith("own_telemetry")
    ]


@pytest.mark.asyncio
async def test_a_reload_begins_and_ends_it(collector: FakeUpstream, tmp_path: Path) -> None:
    """Without an endpoint nothing is sent and nothing is traced."""
    off = replace(
        CONFIG, data_dir=tmp_path, server=replace(CONFIG.server, listen="127.0.0.1:0", grpc_listen="")
    )
    on = replace(off, telemetry=sending_to(f"{collector.url}/otel").telemetry)
    configurations = iter([on, off])
    app = App(off, version="0", reread=lambda: next(configurations))
    await app.start()
    try:
        traces = app.services.receivers.traces
        assert (False, []) == (traces.is_on, collector.requests)
        told = await app.reload(ACTOR)
        assert {"telemetry.otlp_endpoint", "telemetry.interval"} == set(told.changed)
        await collector.until(lambda: len(collector.accepted) >= 1)
        await app.reload(ACTOR)
        assert not traces.is_on
    finally:
        await app.stop()
