"""Counters that the real OpenTelemetry SDK sends, cumulative (its default) or as deltas."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions
from spool.log.counters import SeriesState, advance_series, delta_record
from spool.record import UsageMetric
from tests.gateway.normalise.otlp.items import assert_balanced, finished

CUMULATIVE, DELTA = AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA


class Client:
    """A process with an SDK, and the state that the server stores for its counters."""

    def __init__(self, temporality: AggregationTemporality) -> None:
        self._reader = InMemoryMetricReader(
            preferred_temporality=dict.fromkeys((Counter, Histogram), temporality)
        )
        resource = Resource.create({"service.name": "shop", "session.id": "session-1"})
        self._provider = MeterProvider(metric_readers=[self._reader], resource=resource)
        self.meter = self._provider.get_meter("shop.ai", "1.0")
        self._states: dict[bytes, SeriesState | None] = {}

    def export(self) -> list[UsageMetric]:
        """Export one interval; return the records that a log creates."""
        data = self._reader.get_metrics_data()
        assert data is not None
        body = encode_metrics(data).SerializeToString()
        outcome = finished(otlp.normalise_otlp("metrics", body, json=False, options=ReadOptions()))
        assert_balanced(outcome)
        records = [record for record in outcome.records if isinstance(record, UsageMetric)]
        for point in outcome.points:
            self._states[point.series], delta = advance_series(self._states.get(point.series), point)
            if not isinstance(delta, str):
                records.append(delta_record(point, delta)[0])
        return records

    def close(self) -> None:
        self._provider.shutdown()


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_what_a_process_counts_is_counted_once(temporality: AggregationTemporality) -> None:
    """Over three exports, the records add up to the recorded values, for both temporalities."""
    client = Client(temporality)
    usage = client.meter.create_histogram("gen_ai.client.token.usage", "{token}")
    kinds = {"gen_ai.request.model": "gpt-4o", "gen_ai.token.type": "input"}
    records = []
    for tokens in (100, 250, 7):
        usage.record(tokens, kinds)
        records += client.export()
    client.close()
    assert [100, 250, 7] == [record.value for record in records]
    assert {("gpt-4o", "input", "session-1", "otel")} == {
        (r.model, r.token_type, r.session, r.source) for r in records
    }
    assert 3 == len({record.start_time for record in records})


@pytest.mark.parametrize("temporality", [CUMULATIVE, DELTA])
def test_money_adds_up_to_the_cent(temporality: AggregationTemporality) -> None:
    """Three amounts of 0.125 add up exactly, in decimal text."""
    client = Client(temporality)
    cost = client.meter.create_counter("operation.cost", "{USD}")
    for _ in range(3):
        cost.add(0.125, {"gen_ai.request.model": "gpt-4o"})
    assert [("0.375", "USD")] == [(record.value, record.unit) for record in client.export()]
    client.close()


def test_what_can_fall_is_no_counter() -> None:
    """An up-down counter of tokens is a level, not usage."""
    client = Client(CUMULATIVE)
    level = client.meter.create_up_down_counter("gen_ai.client.token.usage", "{token}")
    level.add(5, {"gen_ai.token.type": "input"})
    assert [] == client.export()
    client.close()
