"""OTLP's partial success: how many items of a 2xx answer were rejected, and why."""

from __future__ import annotations

from typing import Any

import orjson
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from exporters.http.answers import HttpAnswer, rejected_by_receipt

_JSON_COUNT = {"traces": "rejectedSpans", "metrics": "rejectedDataPoints"}


def rejected(answer: HttpAnswer, stream: str) -> tuple[int, str | None]:
    """
    Return how many items were rejected, and the message. The receipt of a Tollhouse counts too.

    (0, None) if neither can be read: the status was a 2xx, so everything was accepted. A message without a
    count is a warning.
    """
    is_json = answer.media_type == "application/json"
    count, words = _json(answer.body, stream) if is_json else _protobuf(answer, stream)
    count = max(count, rejected_by_receipt(answer))
    return (count, answer.without_secrets(words) or None) if count > 0 else (0, None)


def _protobuf(answer: HttpAnswer, stream: str) -> tuple[int, str]:
    try:
        if stream == "metrics":
            metrics = ExportMetricsServiceResponse.FromString(answer.body).partial_success
            return metrics.rejected_data_points, metrics.error_message
        traces = ExportTraceServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        return 0, ""
    return traces.rejected_spans, traces.error_message


def _json(body: bytes, stream: str) -> tuple[int, str]:
    try:
        document: Any = orjson.loads(body)
        partial = document["partialSuccess"]
        count = int(partial.get(_JSON_COUNT[stream], 0))  # int64 is text in JSON
        words = partial.get("errorMessage", "")
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return 0, ""
    return count, words if isinstance(words, str) else ""
