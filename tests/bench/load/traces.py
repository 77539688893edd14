"""
Requests of related spans: trees as agents write them, and captured requests of real clients.

Trace and call ids contain the mark that each request replaces by its number, as in `payloads`.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.load.payloads import RUN, numbers_of, texts_of
from tests.clients.capture import kept

CALLS_OF_TREE = 3
# each trace has the agent's span, its calls, and one HTTP request below each call
SPANS_OF_TREE = 1 + 2 * CALLS_OF_TREE
_IDS = ("gen_ai.response.id", "llm.response.id", "ai.response.id", "request_id", "response_id")
_SHORTEST_ID = 16


def tree_spans(spans: int) -> bytes:
    """
    Make a request of whole trees, with `spans` spans or a few fewer: an agent, its calls, and their HTTP requests.
    """
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    agents = group.scope_spans.add()
    agents.scope.name = "opentelemetry.instrumentation.openai_agents"
    calls = group.scope_spans.add()
    calls.scope.name = "opentelemetry.instrumentation.openai_v2"
    clients = group.scope_spans.add()
    clients.scope.name = "opentelemetry.instrumentation.httpx"
    for tree in range(spans // SPANS_OF_TREE):
        agent = _add(agents, tree, 0, None, "invoke_agent shop")
        _say(agent, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"})
        for place in range(CALLS_OF_TREE):
            number = tree * CALLS_OF_TREE + place
            call = _add(calls, tree, 1 + place, agent, "chat gpt-4o")
            _say(call, texts_of(number, users=50) | numbers_of(number))
            client = _add(clients, tree, 1 + CALLS_OF_TREE + place, call, "POST")
            _say(
                client,
                {"http.request.method": "POST", "server.address": "api.openai.com", "server.port": 443},
            )
            _say(client, {"url.full": "https://api.openai.com/v1/chat/completions"})
            _say(client, {"http.response.status_code": 200})
    return message.SerializeToString()


def _add(scope: Any, tree: int, place: int, parent: Any, name: str) -> Any:
    span = scope.spans.add(name=name, kind=1 if parent is None else 3)
    span.trace_id = RUN + tree.to_bytes(7, "big") + b"\1"
    span.span_id = b"\1" + (tree * SPANS_OF_TREE + place).to_bytes(7, "big")
    if parent is not None:
        span.parent_span_id = parent.span_id
    span.start_time_unix_nano = time.time_ns()
    span.end_time_unix_nano = span.start_time_unix_nano + 900_000_000
    return span


def _say(span: Any, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        said = span.attributes.add(key=name).value
        if isinstance(value, str):
            said.string_value = value
        else:
            said.int_value = value


def captured_spans() -> list[bytes]:
    """Return every captured request of spans. Each request gets new trace ids and response ids."""
    now = time.time_ns()
    found = []
    for capture in kept():
        for sent in capture.requests:
            if sent.path.endswith("/v1/traces") and "protobuf" in sent.headers.get("content-type", ""):
                found.append(_renewed(sent.body, now))
    return found


def _renewed(body: bytes, now: int) -> bytes:
    message = ExportTraceServiceRequest.FromString(body)
    scopes = [scope for group in message.resource_spans for scope in group.scope_spans]
    spans = [span for scope in scopes for span in scope.spans]
    later = now - max((span.end_time_unix_nano for span in spans), default=now)
    for span in spans:
        span.trace_id = RUN + hashlib.sha256(span.trace_id).digest()[:8]
        span.start_time_unix_nano += later if span.start_time_unix_nano else 0
        span.end_time_unix_nano += later if span.end_time_unix_nano else 0
        for attribute in span.attributes:
            id = attribute.value.string_value
            if attribute.key in _IDS and len(id) >= _SHORTEST_ID:
                attribute.value.string_value = id[: -len(RUN)] + RUN.decode()
    return message.SerializeToString()
