"""Small OTLP requests in both encodings."""

from __future__ import annotations

import json
import secrets
from typing import Any

from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

JSON = "application/json"
PROTOBUF = "application/x-protobuf"
ENCODINGS = (JSON, PROTOBUF)
SIGNALS = ("traces", "metrics", "logs")

REQUESTS: dict[str, type[Message]] = {
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
}

START = 1_790_000_000_000_000_000


def attributes(model: str, tokens: int) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": tokens,
        "gen_ai.usage.output_tokens": 30,
    }


def json_span(model: str = "gpt-4o", *, tokens: int = 120, **changes: Any) -> dict[str, Any]:
    """Return one chat call. `changes` replace members. The value None removes a member."""
    span = {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": f"chat {model}",
        "kind": 3,
        "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 1_000_000_000),
        "attributes": [
            {
                "key": key,
                "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
            }
            for key, value in attributes(model, tokens).items()
        ],
    }
    return {name: value for name, value in {**span, **changes}.items() if value is not None}


def json_traces(*spans: dict[str, Any]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": list(spans)}]}]}).encode()


def proto_span(model: str = "gpt-4o", *, tokens: int = 120) -> Span:
    return Span(
        trace_id=secrets.token_bytes(16),
        span_id=secrets.token_bytes(8),
        name=f"chat {model}",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=START,
        end_time_unix_nano=START + 1_000_000_000,
        attributes=[
            KeyValue(
                key=key,
                value=AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value),
            )
            for key, value in attributes(model, tokens).items()
        ],
    )


def proto_traces(*spans: Span) -> bytes:
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])])
    return request.SerializeToString()


def traces(encoding: str, n: int = 1) -> bytes:
    """Encode a request with n calls."""
    if encoding == JSON:
        return json_traces(*(json_span() for _ in range(n)))
    return proto_traces(*(proto_span() for _ in range(n)))
