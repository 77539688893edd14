"""Counters on the wire: delta sums that another Tollhouse reads back as the same records."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from exporters.otlp.metrics import MetricsRequest
from gateway.normalise.options import Options
from gateway.normalise.otlp import normalise
from spool.record import NS, Record, UsageMetric
from tests.exporters.spools import counter

BEGAN = 1_790_000_000 * NS
FULL = counter(
    1,
    token_type="cache_read",
    start_time=BEGAN,
    end_time=BEGAN + 5 * NS,
    session="s-1",
    user="u-1",
    team="search",
    api_key="alias",
    device="laptop-7",
    tags={"env": "prod"},
)
MONEY = counter(
    2, name="test.cost.usage", unit="USD", value="0.1234567890123456789", start_time=BEGAN, end_time=BEGAN + 1
)


def metrics_request(records: Iterable[tuple[UsageMetric, float]]) -> bytes:
    request = MetricsRequest()
    request.add(records)
    return request.encoded()


def taken_in(*records: UsageMetric) -> list[Record]:
    """What another Tollhouse makes of the request."""
    slices = normalise(
        "metrics", metrics_request((record, 1.0) for record in records), json=False, options=Options()
    )
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return list(end.value.records)


TAKEN_BACK = counter(6, value=-2, start_time=BEGAN, end_time=BEGAN + 5 * NS)
REFUND = counter(7, name="test.cost.usage", unit="USD", value="-0.1234567890123456789", start_time=BEGAN)


@pytest.mark.parametrize("record", [FULL, MONEY, counter(3), counter(4, end_time=BEGAN), TAKEN_BACK, REFUND])
def test_another_tollhouse_gets_every_field_back(record: UsageMetric) -> None:
    """Tokens as integers, money to the last digit, unknown times as unknown."""
    assert [record] == taken_in(record)


def test_series_are_monotonic_delta_sums() -> None:
    """One metric for each name and unit; readers that know nothing of Tollhouse can add the points up."""
    request = ExportMetricsServiceRequest.FromString(
        metrics_request([(FULL, 1.0), (MONEY, 1.0), (counter(5), 1.0)])
    )
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert [("test.token.usage", "{token}", 2), ("test.cost.usage", "USD", 1)] == [
        (metric.name, metric.unit, len(metric.sum.data_points)) for metric in metrics
    ]
    assert {(AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA, True)} == {
        (metric.sum.aggregation_temporality, metric.sum.is_monotonic) for metric in metrics
    }
    assert [2, 6] == [point.as_int for point in metrics[0].sum.data_points]


def test_what_is_taken_back_stands_in_sums_that_may_fall() -> None:
    """A monotonic sum never falls: negative values stand apart, under the same name."""
    request = ExportMetricsServiceRequest.FromString(
        metrics_request([(FULL, 1.0), (TAKEN_BACK, 1.0), (REFUND, 1.0)])
    )
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert [("test.token.usage", True), ("test.token.usage", False), ("test.cost.usage", False)] == [
        (metric.name, metric.sum.is_monotonic) for metric in metrics
    ]
    assert [-2] == [point.as_int for point in metrics[1].sum.data_points]


def test_the_same_counters_are_the_same_bytes() -> None:
    """A repeat is byte for byte the first request."""
    assert metrics_request([(FULL, 1.0), (MONEY, 1.0)]) == metrics_request([(FULL, 1.0), (MONEY, 1.0)])
