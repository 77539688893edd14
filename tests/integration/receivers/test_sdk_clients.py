"""
The OpenTelemetry Python SDK as a client: its verdict about Tollhouse's answers, over HTTP and gRPC, with gzip.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from spool.record import Inference
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import attributes


class Watched(SimpleSpanProcessor):
    """A span processor that exports at once and stores the exporter's results."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__(exporter)
        self.results: list[SpanExportResult] = []
        export = exporter.export

        def noted(spans: object) -> SpanExportResult:
            self.results.append(export(spans))  # type: ignore[arg-type]
            return self.results[-1]

        exporter.export = noted  # type: ignore[method-assign]


def trace_calls(exporter: SpanExporter, n: int) -> list[SpanExportResult]:
    """Export n chat spans through a separate tracer provider, in this thread."""
    processor = Watched(exporter)
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("tests")
    for _ in range(n):
        with tracer.start_as_current_span("chat gpt-4o", attributes=attributes("gpt-4o", 120)):
            pass
    provider.shutdown()
    return processor.results


def http(serving: Serving, key: str) -> SpanExporter:
    return OTLPSpanExporter(
        endpoint=serving.url + "/v1/traces",
        headers={"Authorization": key},
        compression=Compression.Gzip,
        timeout=60,
    )


def over_grpc(serving: Serving, key: str) -> SpanExporter:
    import grpc

    return GrpcSpanExporter(
        endpoint=serving.app.grpc_address,
        insecure=True,
        headers=(("authorization", key),),
        compression=grpc.Compression.Gzip,
        timeout=60,
    )


EXPORTERS = {"http": http, "grpc": over_grpc}


@pytest.mark.parametrize("make", EXPORTERS.values(), ids=EXPORTERS)
async def test_the_sdk_is_understood(serve: Serve, make: Callable[[Serving, str], SpanExporter]) -> None:
    """Every span becomes a record, and every export is a success."""
    serving = await serve(grpc_listen="127.0.0.1:0")
    results = await asyncio.to_thread(lambda: trace_calls(make(serving, serving.key), 5))
    assert [SpanExportResult.SUCCESS] * 5 == results
    records = await serving.records()
    assert {("openai", "gpt-4o", 120, 30)} == {
        (record.provider, record.request_model, record.input_tokens, record.output_tokens)
        for record in records
        if isinstance(record, Inference)
    }
    assert 5 == len(records)


@pytest.mark.parametrize("make", EXPORTERS.values(), ids=EXPORTERS)
async def test_the_sdk_does_not_repeat_what_cannot_help(
    serve: Serve, make: Callable[[Serving, str], SpanExporter]
) -> None:
    """A wrong key fails at once, without retries until the timeout."""
    serving = await serve(grpc_listen="127.0.0.1:0")
    begun = asyncio.get_running_loop().time()
    results = await asyncio.to_thread(lambda: trace_calls(make(serving, "th_wrong"), 1))
    assert [SpanExportResult.FAILURE] == results
    assert asyncio.get_running_loop().time() - begun < 30
    assert [] == await serving.records()


async def test_token_metrics_of_the_sdk_become_usage(serving: Serving) -> None:
    """A histogram of token usage becomes a usage metric for each token type."""

    def measure() -> None:
        exporter = OTLPMetricExporter(
            endpoint=serving.url + "/v1/metrics",
            headers={"Authorization": serving.key},
            compression=Compression.Gzip,
            timeout=60,
        )
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
        provider = MeterProvider(metric_readers=[reader])
        histogram = provider.get_meter("tests").create_histogram("gen_ai.client.token.usage", unit="{token}")
        for kind, n in (("input", 120), ("output", 30), ("input", 80)):
            histogram.record(n, {"gen_ai.token.type": kind, "gen_ai.request.model": "gpt-4o"})
        provider.force_flush(60_000)
        provider.shutdown()

    await asyncio.to_thread(measure)
    records = await serving.records()
    assert {"input": 200, "output": 30} == {record.token_type: record.value for record in records}  # type: ignore[union-attr]
