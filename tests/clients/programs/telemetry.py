"""The OpenTelemetry SDK as its documentation sets it up: OTLP over HTTP, address and key from the environment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


@contextmanager
def exported() -> Iterator[TracerProvider]:
    """What is traced inside has been exported when it ends."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield provider
    finally:
        provider.shutdown()
