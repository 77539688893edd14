"""
The OpenTelemetry SDK set up as in its documentation: OTLP over HTTP, address and key from the environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import _logs, metrics, trace
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor


@contextmanager
def exported() -> Iterator[TracerProvider]:
    """Export all spans of the block before it ends."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield provider
    finally:
        provider.shutdown()


@contextmanager
def all_exported(*, events: bool = True) -> Iterator[TracerProvider]:
    """Export traces, counters and, by default, events of the block before it ends."""
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    metrics.set_meter_provider(meters)
    loggers = LoggerProvider()
    loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    if events:
        _logs.set_logger_provider(loggers)
    try:
        with exported() as provider:
            yield provider
    finally:
        loggers.shutdown()
        meters.shutdown()
