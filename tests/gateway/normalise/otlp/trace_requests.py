"""Every trace request of the cases and captures in protobuf, to compare fast paths with the plain decoder."""

from __future__ import annotations

import json
from functools import cache

from tests.clients.capture import kept
from tests.gateway.normalise.otlp.payloads import in_protobuf
from tests.gateway.normalise.otlp.test_span_cases import cases


@cache
def trace_requests() -> tuple[bytes, ...]:
    """Return bodies of ExportTraceServiceRequest."""
    of_cases = [in_protobuf(json.loads(path.read_text())) for path in cases()]
    captured = [
        request.body
        for capture in kept()
        for request in capture.requests
        if request.path.endswith("/v1/traces") and "protobuf" in request.headers.get("content-type", "")
    ]
    assert len(captured) >= 20
    return (*of_cases, *captured)
