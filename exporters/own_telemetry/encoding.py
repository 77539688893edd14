"""
Tollhouse's own metrics and traces as OTLP: pure.

Metrics keep the names that `/metrics` has. What a route counted is kept over restarts, so those sums say of
no time that they began with 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isinf
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from exporters.own_telemetry.sources import OwnMetric, Step

if TYPE_CHECKING:
    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

SCOPE = "tollhouse"
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_KEPT = "tollhouse_route_"


def metrics_request(
    families: Iterable[OwnMetric], resource: Mapping[str, str], *, began: int, now: int
) -> bytes:
    """An ExportMetricsServiceRequest; times in nanoseconds since the epoch."""
    request = ExportMetricsServiceRequest()
    group = request.resource_metrics.add()
    _fill(group.resource.attributes, resource)
    scope = group.scope_metrics.add()
    scope.scope.name = SCOPE
    for family in families:
        if not family.samples:
            continue
        start = 0 if family.name.startswith(_KEPT) else began
        metric = scope.metrics.add(name=family.name, description=family.documentation)
        if family.type == "histogram":
            _fill_histogram(metric, family, start, now)
            continue
        if family.type == "counter":
            metric.name = family.samples[0].name
            metric.sum.aggregation_temporality = _CUMULATIVE
            metric.sum.is_monotonic = True
        for sample in family.samples:
            if family.type == "counter":
                point = metric.sum.data_points.add(start_time_unix_nano=start)
            else:
                point = metric.gauge.data_points.add()
            point.time_unix_nano = now
            point.as_double = sample.value
            _fill(point.attributes, sample.labels)
    return request.SerializeToString(deterministic=True)


def traces_request(steps: Iterable[Step], resource: Mapping[str, str]) -> bytes:
    """Encode an ExportTraceServiceRequest."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _fill(group.resource.attributes, resource)
    scope = group.scope_spans.add()
    scope.scope.name = SCOPE
    for step in steps:
        span = scope.spans.add(
            name=step.name,
            kind=Span.SpanKind.ValueType(step.kind),
            trace_id=step.trace_id,
            span_id=step.span_id,
            parent_span_id=step.parent_id,
            start_time_unix_nano=step.start,
            end_time_unix_nano=step.end,
        )
        if step.error or _is_failed(step):
            span.status.code = Status.STATUS_CODE_ERROR
        if step.error:
            _fill(span.attributes, {"error.type": step.error})
        _fill(span.attributes, step.attributes)
    return request.SerializeToString(deterministic=True)


def _is_failed(step: Step) -> bool:
    """A lower status is the fault of who asked."""
    status = step.attributes.get("http.response.status_code", 0)
    return isinstance(status, int) and status >= 500


def _fill_histogram(metric: Metric, family: OwnMetric, start: int, now: int) -> None:
    """Buckets that count what is below their bound become buckets that count what lies between two bounds."""
    metric.histogram.aggregation_temporality = _CUMULATIVE
    points: dict[tuple[tuple[str, str], ...], HistogramDataPoint] = {}
    below: dict[tuple[tuple[str, str], ...], int] = defaultdict(int)
    for sample in family.samples:
        labels = {key: value for key, value in sample.labels.items() if key != "le"}
        series = tuple(labels.items())
        if series not in points:
            points[series] = metric.histogram.data_points.add(start_time_unix_nano=start, time_unix_nano=now)
            _fill(points[series].attributes, labels)
        point = points[series]
        if sample.name.endswith("_bucket"):
            bound = float(sample.labels["le"])
            if not isinf(bound):
                point.explicit_bounds.append(bound)
            point.bucket_counts.append(int(sample.value) - below[series])
            below[series] = int(sample.value)
        elif sample.name.endswith("_count"):
            point.count = int(sample.value)
        else:
            point.sum = sample.value


def _fill(
    attributes: RepeatedCompositeFieldContainer[KeyValue], values: Mapping[str, str] | Mapping[str, str | int]
) -> None:
    for key, value in values.items():
        attribute = attributes.add(key=key)
        if isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value
