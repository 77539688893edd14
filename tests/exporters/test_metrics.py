"""Counters as OTLP delta sums, which another Tollhouse reads back as the same records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from exporters.otlp.telemetry import MetricsRequest
from gateway.normalise.otlp import normalise_otlp
from gateway.normalise.outcome import ReadOptions
from spool import money
from spool.ledger.sums import COUNTS, HourlySums
from spool.ledger.verdicts import counted_amounts
from spool.log.planning.corrections import correction_subtracting_duplicate
from spool.log.values import LogEntry
from spool.record import CALL_UNIT, NS, Correction, Record, UsageMetric
from tests.exporters.spools import call, counter

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
    meter="cache_audio_read_tokens",
)
MONEY = counter(
    2, name="test.cost.usage", unit="USD", value="0.1234567890123456789", start_time=BEGAN, end_time=BEGAN + 1
)


def metrics_request(records: Iterable[tuple[UsageMetric | Correction, float]]) -> bytes:
    request = MetricsRequest()
    request.add_records(records)
    return request.encode()


def taken_in(*records: UsageMetric | Correction) -> list[Record]:
    """Return the records that another Tollhouse makes of the request."""
    slices = normalise_otlp(
        "metrics", metrics_request((record, 1.0) for record in records), json=False, options=ReadOptions()
    )
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return list(end.value.records)


EUROS = counter(8, name="test.cost.usage", unit="EUR", value="0.1234567890123456789", start_time=BEGAN)
TAKEN_BACK = counter(6, value=-2, start_time=BEGAN, end_time=BEGAN + 5 * NS)
REFUND = counter(7, name="test.cost.usage", unit="USD", value="-0.1234567890123456789", start_time=BEGAN)


@pytest.mark.parametrize(
    "record", [FULL, MONEY, counter(3), counter(4, end_time=BEGAN), TAKEN_BACK, REFUND, EUROS]
)
def test_another_tollhouse_gets_every_field_back(record: UsageMetric) -> None:
    """Another Tollhouse reads tokens as integers, money with every digit, and unknown times as unknown."""
    assert [record] == taken_in(record)


def test_series_are_monotonic_delta_sums() -> None:
    """Each name and unit has one metric, so readers that know nothing of Tollhouse can add up its points."""
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


def test_negative_values_are_sent_as_non_monotonic_sums() -> None:
    """Negative values are sent in a separate metric of the same name, because a monotonic sum never falls."""
    request = ExportMetricsServiceRequest.FromString(
        metrics_request([(FULL, 1.0), (TAKEN_BACK, 1.0), (REFUND, 1.0)])
    )
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    assert [("test.token.usage", True), ("test.token.usage", False), ("test.cost.usage", False)] == [
        (metric.name, metric.sum.is_monotonic) for metric in metrics
    ]
    assert [-2] == [point.as_int for point in metrics[1].sum.data_points]


def test_the_same_counters_are_the_same_bytes() -> None:
    assert metrics_request([(FULL, 1.0), (MONEY, 1.0)]) == metrics_request([(FULL, 1.0), (MONEY, 1.0)])


def test_a_correction_leaves_as_sums_that_may_fall() -> None:
    """
    Each changed count of a correction, and the cost, is sent as a sum that may fall. Another Tollhouse adds
    these sums up to the corrected call.
    """
    before = call(
        1, output_tokens=9, start_time=BEGAN, estimated_cost="0.5", cost_source="estimated", team="search"
    )
    heard = {"input_audio_tokens": 50, "web_searches": 2}
    after = msgspec.structs.replace(
        before, output_tokens=4, reasoning_tokens=2, cost="0.1", cost_source="reported", meters=heard
    )
    correction = Correction(
        id=b"c" * 16, source="kong", corrects=before.id, reason="final_cost", known_at=BEGAN + 9, start_time=BEGAN,
        before=before, after=after,
    )  # fmt: skip
    taken = taken_in(correction)
    assert all(isinstance(one, UsageMetric) for one in taken)
    counters = [one for one in taken if isinstance(one, UsageMetric)]
    assert {
        ("cost", None, "0.1"), ("cost", None, "-0.5"), ("tokens", "output", -5), ("tokens", "reasoning", 2),
        ("tokens", "input_audio_tokens", 50),
    } == {
        (one.name.removeprefix("tollhouse.correction."), one.token_type or one.meter, one.value) for one in counters
    }  # fmt: skip
    assert {("gpt-4o", "search", BEGAN, before.id.hex(), "final_cost")} == {
        (one.model, one.team, one.start_time, one.tags["correction_of"], one.tags["correction_reason"])
        for one in counters
    }
    sums = HourlySums()
    sums.add_entries(
        [LogEntry(topic="ai-telemetry", first=1, committed_at=BEGAN / NS, records=[before, *taken])]
    )
    added = [row for _, _, row in sums.hourly_rows()]
    assert sum(row[2] for row in added) == 4
    assert sum(row[5] for row in added) == 2
    # the estimate of the call is replaced by a reported cost, as in the totals of the sender
    reported, estimated = [sum(row[len(COUNTS) + place] for row in added) for place in (0, 1)]
    assert ("0.1", "0") == (money.units_to_text(reported), money.units_to_text(estimated))
    assert [50_000_000] == [found["input_audio_tokens"] for _, _, found in sums.meter_rows()]


def test_a_correction_moves_a_call_to_another_kind() -> None:
    """Another Tollhouse counts a call with late usage and a late failure under its new kind, and as one call."""
    before = call(1, start_time=BEGAN, input_tokens=None, output_tokens=None)
    after = msgspec.structs.replace(before, input_tokens=5, output_tokens=7, status="error")
    correction = Correction(
        id=b"c" * 16, source="otel", corrects=before.id, reason="late_usage", known_at=BEGAN, start_time=BEGAN,
        before=before, after=after,
    )  # fmt: skip
    sums = HourlySums()
    records = [before, *taken_in(correction)]
    sums.add_entries([LogEntry(topic="ai-telemetry", first=1, committed_at=BEGAN / NS, records=records)])
    calls: Counter[tuple[str, str]] = Counter()
    for _, key, row in sums.hourly_rows():
        calls[key.status, key.cost_source] += row[0]
    assert {("error", "none"): 1} == {outcome: number for outcome, number in calls.items() if number}
    assert 1 == sum(counted_amounts(record).calls for record in records)


def test_reversed_call_is_sent_as_minus_one() -> None:
    """
    A span cannot be reverted, so a failure that another record counts is sent as -1 call with its outcome. Another
    Tollhouse then counts no call, no failure and no cost.
    """
    priced: dict[str, Any] = {"cost": "0.4", "cost_source": "reported", "request_model": "gpt-4o"}
    failed = call(1, start_time=BEGAN, status="error", team="search", **priced)
    correction = correction_subtracting_duplicate(failed, 0, b"f" * 16, failed, now_ns=BEGAN + 9)
    taken = taken_in(correction)
    [calls] = [one for one in taken if isinstance(one, UsageMetric) and one.unit == CALL_UNIT]
    assert ("tollhouse.correction.calls", -1, "search") == (calls.name, calls.value, calls.team)
    sums = HourlySums()
    sums.add_entries(
        [LogEntry(topic="ai-telemetry", first=1, committed_at=BEGAN / NS, records=[failed, *taken])]
    )
    added = list(sums.hourly_rows())
    assert 0 == sum(row[0] for _, _, row in added)
    assert {0} == {sum(row[0] for _, key, row in added if key.status == status) for status in ("ok", "error")}
    assert [0] * len(COUNTS) == [sum(row[place] for _, _, row in added) for place in range(len(COUNTS))]
    assert 0 == sum(row[len(COUNTS)] for _, _, row in added)
    assert 0 == sum(counted_amounts(record).calls for record in (failed, *taken))
