"""agentgateway: JSON log lines. Their time is the end of the request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.call import Call, Format, count_tokens, fail_by_status, is_call
from gateway.normalise.reading.metadata import Metadata
from gateway.normalise.reading.models import model_name, provider
from gateway.normalise.reading.operations import of_path
from gateway.normalise.reading.times import before, duration, instant
from gateway.normalise.reading.usage import settled
from gateway.normalise.reading.values import count, money, text
from spool.identity import of_call
from spool.record import Inference

NAME = "agentgateway"


def _key(name: str) -> Any:
    return msgspec.field(name=name, default=None)


class Event(msgspec.Struct):
    time: Any = None
    duration: Any = None
    route: Any = None
    http_path: Any = _key("http.path")
    http_status: Any = _key("http.status")
    trace_id: Any = _key("trace.id")
    span_id: Any = _key("span.id")
    subject: Any = _key("jwt.sub")
    operation: Any = _key("gen_ai.operation.name")
    provider: Any = _key("gen_ai.provider.name")
    request_model: Any = _key("gen_ai.request.model")
    response_model: Any = _key("gen_ai.response.model")
    input_tokens: Any = _key("gen_ai.usage.input_tokens")
    output_tokens: Any = _key("gen_ai.usage.output_tokens")
    cache_read_tokens: Any = _key("gen_ai.usage.cache_read.input_tokens")
    cache_write_tokens: Any = _key("gen_ai.usage.cache_creation.input_tokens")
    reasoning_tokens: Any = _key("gen_ai.usage.reasoning_tokens")
    cost: Any = _key("agw.ai.usage.cost.total")


def calls(event: Event) -> Iterable[Call]:
    """A line with a model or tokens is a call; MCP lines have neither."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.span_id),
        trace_id=text(event.trace_id),
        span_id=text(event.span_id),
        end_time=instant(event.time),
        provider=provider(event.provider, text(event.request_model) or text(event.response_model)),
        operation=text(event.operation) or of_path(event.http_path),
        request_model=model_name(event.request_model, event.provider),
        response_model=model_name(event.response_model, event.provider),
        cost=money(event.cost, "agw.ai.usage.cost.total"),
    )
    record.start_time = before(record.end_time, duration(event.duration))
    # Releases before August 2026 logged the provider's own number, without the cache: `settled` sees where it can.
    count_tokens(record, settled(
        count(event.input_tokens, "gen_ai.usage.input_tokens"),
        count(event.output_tokens, "gen_ai.usage.output_tokens"),
        count(event.cache_read_tokens, "gen_ai.usage.cache_read.input_tokens"),
        count(event.cache_write_tokens, "gen_ai.usage.cache_creation.input_tokens"),
        count(event.reasoning_tokens, "gen_ai.usage.reasoning_tokens"),
    ))  # fmt: skip
    if not is_call(record):
        return ()
    fail_by_status(record, event.http_status)
    metadata = Metadata()
    metadata.tag("route", text(event.route))
    metadata.describe(record, principal=text(event.subject))
    return (Call(record, of_call(record, span=True, own_id=record.request_id), metadata.left_out),)


FORMAT = Format(
    NAME,
    Event,
    calls,
    origins={
        "request_id": "span.id",
        "trace_id": "trace.id",
        "start_time": "time - duration",
        "end_time": "time",
        "provider": "gen_ai.provider.name",
        "operation": "gen_ai.operation.name, else http.path",
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
        "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning_tokens",
        "cost": "agw.ai.usage.cost.total",
        "status": "http.status",
        "error_type": "http.status",
        "user": "jwt.sub",
    },
)
