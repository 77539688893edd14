"""Tollhouse's own metrics and traces as OTLP, and what [telemetry] must hold."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from exporters.own_telemetry.encoding import metrics_request, traces_request
from exporters.own_telemetry.settings import problems
from exporters.settings import TelemetrySettings
from gateway.monitoring.metrics import Metrics
from gateway.monitoring.snapshot import Snapshot
from gateway.monitoring.traces import EVERY_S, INTERNAL, MOST_STEPS, SERVER, Traces, step
from spool.log.values import Commit
from tests.gateway.monitoring.test_metrics import ROUTE, STATS
from tests.moved_clock import MovedClock

LISTENING = {"server.listen": "127.0.0.1:4318", "server.operator_listen": "0.0.0.0:443"}
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def exported() -> dict[str, Metric]:
    metrics = Metrics()
    for seconds in (0.002, 0.02, 60.0):
        terms = {("ai-telemetry", "accepted", "litellm"): 2}
        metrics.committed(Commit(seconds=seconds, flush_seconds=0.001, terms=terms))
    families = metrics.families(Snapshot(stats=STATS, routes=[ROUTE]))
    body = metrics_request(families, {"service.name": "tollhouse"}, began=5, now=9)
    (group,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    assert ["tollhouse"] == [one.value.string_value for one in group.resource.attributes]
    return {metric.name: metric for metric in group.scope_metrics[0].metrics}


def test_counters_are_cumulative_sums_under_the_names_of_the_page() -> None:
    """They begin with the process; those of routes, which outlive it, say of no time that they began with 0."""
    metrics = exported()
    accepted = metrics["tollhouse_records_accepted_total"].sum
    assert (True, CUMULATIVE) == (accepted.is_monotonic, accepted.aggregation_temporality)
    found = {
        tuple((one.key, one.value.string_value) for one in point.attributes): point
        for point in accepted.data_points
    }
    point = found[("topic", "ai-telemetry"), ("source", "litellm")]
    assert (6.0, 5, 9) == (point.as_double, point.start_time_unix_nano, point.time_unix_nano)
    (delivered,) = metrics["tollhouse_route_delivered_total"].sum.data_points
    assert (40.0, 0) == (delivered.as_double, delivered.start_time_unix_nano)
    assert [4096.0] == [point.as_double for point in metrics["tollhouse_spool_bytes"].gauge.data_points]


def test_a_histogram_counts_between_its_bounds() -> None:
    """Once each, the last bucket above every bound; count and sum are those of the page."""
    (point,) = exported()["tollhouse_commit_seconds"].histogram.data_points
    bounds = [0.0, *point.explicit_bounds, float("inf")]
    full = [place for place, n in enumerate(point.bucket_counts) if n]
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert [(0.001, 0.0025), (0.01, 0.025), (10.0, float("inf"))] == [
        (bounds[n], bounds[n + 1]) for n in full
    ]
    assert 3 == point.count
    assert pytest.approx(60.022) == point.sum


def test_a_trace_holds_its_steps_and_how_they_ended() -> None:
    """Steps have their parent's id; what rose, and a status that says so, is an error."""
    traces = Traces(MovedClock())
    traces.is_on = True
    with pytest.raises(KeyError), traces.trace("litellm", SERVER), step("commit"):
        raise KeyError("a prompt")
    with traces.trace("deliver a/b", INTERNAL) as sent:
        assert sent is not None
        sent.attributes["http.response.status_code"] = 503
    (group,) = ExportTraceServiceRequest.FromString(traces_request(traces.take(), {})).resource_spans
    commit, request, delivery = group.scope_spans[0].spans
    assert (request.span_id, request.trace_id) == (commit.parent_span_id, commit.trace_id)
    assert b"" == request.parent_span_id
    assert [2, 2, 2] == [span.status.code for span in (commit, request, delivery)]
    assert b"prompt" not in group.SerializeToString()
    assert () == traces.take()


def test_traces_are_bounded() -> None:
    """One a second of each name, the newest MOST_STEPS, and none while they are off."""
    clock = MovedClock()
    traces = Traces(clock)
    for _ in range(2):
        with traces.trace("litellm", SERVER) as begun, step("commit") as inner:
            assert (None, None) == (begun, inner)
    traces.is_on = True
    for _ in range(MOST_STEPS + 5):
        for _ in range(2):
            with traces.trace("litellm", SERVER):
                clock.monotonic()
        clock.move(EVERY_S)
    assert MOST_STEPS == len(traces.take())


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("", 0),
        ("http://127.0.0.1:4317", 0),
        ("http://collector:4318", 0),
        ("http://localhost:4318/", 1),
        ("https://127.0.0.1", 1),
        ("https://example.com", 0),
        ("collector:4318", 1),
        ("http://collector:99999", 1),
    ],
)
def test_its_own_address_is_a_problem(endpoint: str, expected: int) -> None:
    """And so is what is not an address; another port or machine is none."""
    found = list(problems(TelemetrySettings(otlp_endpoint=endpoint), LISTENING))
    assert expected == len(found)
    assert all(problem.startswith("telemetry.otlp_endpoint") for problem in found)
