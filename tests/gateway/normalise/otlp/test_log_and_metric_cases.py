"""Every log and metric case of tests/cases/otlp, in JSON and in protobuf, decoded in slices."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.log.counters import SeriesState, advance_series, delta_record
from spool.record import Record, record_to_json
from tests.gateway.normalise.otlp.items import assert_balanced, finished

CASES = Path(__file__).parents[3] / "cases/otlp"
SIGNALS = {
    "resourceLogs": ("logs", ExportLogsServiceRequest),
    "resourceMetrics": ("metrics", ExportMetricsServiceRequest),
}
IDS = ("traceId", "spanId")


def cases() -> list[tuple[str, Path]]:
    payloads = (path for path in sorted(CASES.rglob("*.json")) if not path.name.endswith(".expected.json"))
    return [(key, path) for path in payloads for key in SIGNALS if key in json.loads(path.read_text())]


def in_protobuf(key: str, payload: dict[str, Any]) -> bytes:
    """
    Encode the request in protobuf. Ids are converted first, because protobuf's own JSON has ids in base64.
    """

    def translated(node: Any) -> Any:
        if isinstance(node, list):
            return [translated(part) for part in node]
        if isinstance(node, dict):
            return {name: as_base64(part) if name in IDS else translated(part) for name, part in node.items()}
        return node

    def as_base64(digits: str) -> str:
        return base64.b64encode(bytes.fromhex(digits)).decode()

    message = json_format.ParseDict(translated(payload), SIGNALS[key][1](), ignore_unknown_fields=True)
    return bytes(message.SerializeToString())


def records_of(outcome: ReadOutcome) -> list[Record]:
    """Return the records that an empty log creates. Cumulative points become increases."""
    records: list[Record] = [*outcome.records]
    states: dict[bytes, SeriesState | None] = {}
    for point in outcome.points:
        states[point.series], delta = advance_series(states.get(point.series), point)
        if not isinstance(delta, str):
            records.append(delta_record(point, delta)[0])
    return records


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: Decimal(row[name]) for name in ("cost", "value") if isinstance(row.get(name), str)}


@pytest.mark.parametrize(("key", "path"), cases(), ids=lambda part: getattr(part, "stem", None))
@pytest.mark.parametrize("encoding", ["json", "protobuf"])
def test_the_case_becomes_the_expected_records(key: str, path: Path, encoding: str) -> None:
    """Every field is equal in both encodings, and the accounting balances."""
    payload, signal = json.loads(path.read_text()), SIGNALS[key][0]
    body = path.read_bytes() if encoding == "json" else in_protobuf(key, payload)
    outcome = finished(otlp.normalise_otlp(signal, body, json=encoding == "json", options=ReadOptions()))  # type: ignore[arg-type]
    assert_balanced(outcome)
    expected = [
        comparable(row) for row in json.loads(path.with_suffix(".expected.json").read_text())["records"]
    ]
    rows = [comparable(record_to_json(record)) for record in records_of(outcome)]
    fields = expected[0].keys() if expected else ()
    found = [{name: row[name] for name in fields} for row in rows]
    order = lambda row: json.dumps(row, default=str, sort_keys=True)  # noqa: E731
    assert sorted(expected, key=order) == sorted(found, key=order)
