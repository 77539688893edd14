"""One small payload for each format, as its gateway would send it now: a first record without a client."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from gateway.normalise.formats.engine.declaration import ExampleCall
from gateway.normalise.formats.list import FORMATS


def example(format: str, call: ExampleCall | None = None) -> bytes:
    """A payload with one call in it."""
    return json.dumps(EXAMPLES[format](call or ExampleCall())).encode()


def _otlp(call: ExampleCall) -> Any:
    attributes = {
        "gen_ai.operation.name": {"stringValue": "chat"},
        "gen_ai.provider.name": {"stringValue": "openai"},
        "gen_ai.request.model": {"stringValue": call.model},
        "gen_ai.response.model": {"stringValue": call.response_model},
        "gen_ai.response.id": {"stringValue": call.response_id},
        "gen_ai.usage.input_tokens": {"intValue": str(call.input_tokens)},
        "gen_ai.usage.output_tokens": {"intValue": str(call.output_tokens)},
    }
    span = {
        "traceId": call.trace_id,
        "spanId": call.span_id,
        "name": f"chat {call.model}",
        "kind": 3,
        "startTimeUnixNano": str(call.start_ns),
        "endTimeUnixNano": str(call.end_ns),
        "attributes": [{"key": name, "value": value} for name, value in attributes.items()],
    }
    service = {"key": "service.name", "value": {"stringValue": "example"}}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": [span]}]}]}


EXAMPLES: dict[str, Callable[[ExampleCall], Any]] = {
    **{format.name: format.example for format in FORMATS},
    "otlp/traces": _otlp,
}
