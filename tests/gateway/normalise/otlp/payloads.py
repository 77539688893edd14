"""Builders of short trace payloads in both encodings, and helpers that normalise them."""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.normalise import otlp
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.record import Inference
from tests.gateway.normalise.otlp.items import NOW, SECOND, assert_balanced, finished

ENCODINGS = ("json", "protobuf")
_IDS = ("traceId", "spanId", "parentSpanId")


def attribute(name: str, value: Any) -> dict[str, Any]:
    return {"key": name, "value": any_value(value)}


def any_value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [any_value(part) for part in value]}}
    return {"stringValue": value}


def span(number: int, attributes: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Create a span of one second. `parent` is the number of another span."""
    parent = changes.pop("parent", None)
    start = changes.pop("start", NOW)
    encoded = {
        "traceId": f"{1:032x}",
        "spanId": f"{number:016x}",
        "name": changes.pop("name", "span"),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(changes.pop("end", start + SECOND)),
        "attributes": [attribute(name, value) for name, value in attributes.items()],
    }
    if parent is not None:
        encoded["parentSpanId"] = f"{parent:016x}"
    return encoded | changes


def traces(*spans: dict[str, Any], scope: str = "", resource: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "resourceSpans": [
            {
                "resource": {
                    "attributes": [attribute(name, value) for name, value in (resource or {}).items()]
                },
                "scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}],
            }
        ]
    }


def in_json(payload: Any) -> bytes:
    return json.dumps(payload).encode()


def in_protobuf(payload: dict[str, Any], form: Any = ExportTraceServiceRequest) -> bytes:
    """
    Encode the request in protobuf. Ids are converted first, because protobuf's own JSON has ids in base64.
    """

    def translated(node: Any) -> Any:
        if isinstance(node, list):
            return [translated(part) for part in node]
        if isinstance(node, dict):
            return {
                name: as_base64(part) if name in _IDS else translated(part) for name, part in node.items()
            }
        return node

    def as_base64(digits: str) -> str:
        return base64.b64encode(bytes.fromhex(digits)).decode()

    message = json_format.ParseDict(translated(payload), form(), ignore_unknown_fields=True)
    encoded: bytes = message.SerializeToString()
    return encoded


def normalised(
    payload: dict[str, Any] | bytes, *, encoding: str = "json", options: ReadOptions | None = None
) -> ReadOutcome:
    """Normalise a trace payload, and check its accounting."""
    if isinstance(payload, bytes):
        body = payload
    else:
        body = in_json(payload) if encoding == "json" else in_protobuf(payload)
    outcome = finished(
        otlp.normalise_otlp("traces", body, json=encoding == "json", options=options or ReadOptions())
    )
    assert_balanced(outcome)
    return outcome


def records(payload: dict[str, Any], **how: Any) -> list[Inference]:
    found = normalised(payload, **how).records
    assert all(isinstance(record, Inference) for record in found)
    return found  # type: ignore[return-value]


def only(payload: dict[str, Any], **how: Any) -> Inference:
    (record,) = records(payload, **how)
    return record


def said(record: Inference, *fields: str) -> dict[str, Any]:
    """Return the named fields, or all fields with a value except ids and times."""
    if fields:
        return {field: getattr(record, field) for field in fields}
    left_out = {"id", "trace_id", "span_id", "start_time", "end_time", "cost_source"}
    found = {field: getattr(record, field) for field in record.__struct_fields__ if field not in left_out}
    return {
        field: value
        for field, value in found.items()
        if value is not None and value is not False and value != {}
    }
