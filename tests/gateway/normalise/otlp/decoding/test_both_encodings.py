"""Log records and metric points are equal in both encodings, JSON and protobuf."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.normalise.otlp.decoding import json_decoder, protobuf_decoder
from gateway.normalise.otlp.metrics import SeriesKeys
from gateway.normalise.otlp.model import END_OF_TIME, LogRecord, MetricPoint
from tests.gateway.normalise.otlp.decoding.whole import in_one
from tests.gateway.normalise.otlp.items import NOW
from tests.gateway.normalise.otlp.payloads import attribute, in_json

ENCODINGS = ("json", "protobuf")
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def points(encoding: str, *encoded: dict[str, Any]) -> list[MetricPoint]:
    """Encode and decode the points of a cumulative histogram."""
    metric = {
        "name": "gen_ai.client.token.usage",
        "histogram": {"aggregationTemporality": 2, "dataPoints": encoded},
    }
    payload = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    if encoding == "json":
        part = in_one(json_decoder.metrics(in_json(payload)))
    else:
        request = json_format.ParseDict(payload, ExportMetricsServiceRequest())
        part = in_one(protobuf_decoder.metrics(request.SerializeToString()))
    return [point for _, point in part.items]


def point(attributes: dict[str, Any], *, start: int = NOW, time: int = NOW + 1) -> dict[str, Any]:
    pairs = [attribute(name, value) for name, value in attributes.items()]
    return {"sum": 5, "startTimeUnixNano": str(start), "timeUnixNano": str(time), "attributes": pairs}


def log_record(encoding: str, encoded: dict[str, Any]) -> LogRecord:
    payload = {"resourceLogs": [{"scopeLogs": [{"logRecords": [encoded]}]}]}
    if encoding == "json":
        part = in_one(json_decoder.logs(in_json(payload)))
    else:
        part = in_one(
            protobuf_decoder.logs(
                json_format.ParseDict(payload, ExportLogsServiceRequest()).SerializeToString()
            )
        )
    ((_, record),) = part.items
    return record


APART: list[dict[str, Any]] = [
    {"contact.email": "ada@example.com"},
    {"contact.email": "bob@example.com"},
    {"question": "secret-words"},
    {"question": 5},
    {"user.groups": ["a", "b"]},
    {"user.groups": ["a"]},
    {"long": "x" * 20_000},
    {"tag.tags": "x" * 20_000},
    {},
]


@every_encoding
def test_unstored_attribute_still_distinguishes_series(encoding: str) -> None:
    """
    An attribute that is not stored still distinguishes series. For example, two people's counters are two
    series even if only an e-mail address differs.
    """
    found = points(encoding, *(point({"gen_ai.token.type": "input", **more}) for more in APART))
    assert len(APART) == len({SeriesKeys().series_key(one) for one in found})
    assert [{"gen_ai.token.type": "input"}] * len(APART) == [one.attributes for one in found]


@pytest.mark.parametrize("more", [*APART, {"numbers": [1, 2]}, {"contact.email": "", "b": False}])
def test_a_series_is_the_same_in_both_encodings(more: dict[str, Any]) -> None:
    """A counter continues if the sender changes the protocol."""
    by_json, by_protobuf = (
        SeriesKeys().series_key(one)
        for encoding in ENCODINGS
        for one in points(encoding, point({"gen_ai.token.type": "input", **more}))
    )
    assert by_json == by_protobuf


def test_a_list_of_another_kind_rejects_nothing() -> None:
    """A malformed list in an attribute that no rule reads rejects nothing."""
    odd = point({}) | {"attributes": [{"key": "x", "value": {"arrayValue": {"values": [7]}}}]}
    assert 1 == len(points("json", odd))


@every_encoding
@pytest.mark.parametrize("time", [END_OF_TIME, 2 * END_OF_TIME - 1])
def test_what_is_beyond_all_clocks_is_no_time(encoding: str, time: int) -> None:
    """A time beyond all clocks, which no store can hold, counts as unknown. The item still counts."""
    (found,) = points(encoding, point({}, start=time, time=time))
    assert found.start_time == 0
    assert found.time == 0
    assert log_record(encoding, {"timeUnixNano": str(time)}).time is None
    assert NOW == log_record(encoding, {"timeUnixNano": str(time), "observedTimeUnixNano": str(NOW)}).time
