"""Bifrost: one trace of its log exporter; the spans of kind `llm.call` are calls, the root only repeats them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.call import Call, Format, count_tokens, fail, is_call
from gateway.normalise.formats.metadata import Metadata, key_name
from gateway.normalise.formats.models import model_name, provider
from gateway.normalise.formats.times import instant
from gateway.normalise.formats.usage import settled
from gateway.normalise.formats.values import Other, count, money, nested, text
from spool.identity import of_call
from spool.record import Inference

NAME = "bifrost"


def _key(name: str) -> Any:
    return msgspec.field(name=name, default=None)


class Attributes(msgspec.Struct):
    """Content stands beside these and is not decoded."""

    provider: Any = _key("gen_ai.provider.name")
    request_model: Any = _key("gen_ai.request.model")
    response_model: Any = _key("gen_ai.response.model")
    response_id: Any = _key("gen_ai.response.id")
    prompt_tokens: Any = _key("gen_ai.usage.prompt_tokens")
    completion_tokens: Any = _key("gen_ai.usage.completion_tokens")
    cache_read_tokens: Any = _key("gen_ai.usage.cache_read.input_tokens")
    cache_write_tokens: Any = _key("gen_ai.usage.cache_creation.input_tokens")
    reasoning_tokens: Any = _key("gen_ai.usage.reasoning_tokens")
    cost: Any = _key("gen_ai.usage.cost")
    key_name: Any = _key("bifrost.virtual_key.name")
    error_type: Any = _key("error.type")


class Span(msgspec.Struct):
    SpanID: Any = None
    TraceID: Any = None
    Name: Any = None
    Kind: Any = None
    StartTime: Any = None
    EndTime: Any = None
    Status: Any = None
    Attributes: Attributes | Other = None


class Event(msgspec.Struct):
    TraceID: Any = None
    Spans: list[Span | Other] | str | int | float | bool | None = None


def calls(event: Event) -> Iterable[Call]:
    """One call a span of kind `llm.call`."""
    for span in event.Spans if isinstance(event.Spans, list) else ():
        if isinstance(span, Span) and span.Kind == "llm.call":
            call = _call(event, span, nested(span.Attributes, Attributes))
            if is_call(call.record):
                yield call


def _call(event: Event, span: Span, said: Attributes) -> Call:
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(span.SpanID),
        trace_id=text(event.TraceID) or text(span.TraceID),
        span_id=text(span.SpanID),
        start_time=instant(span.StartTime),
        end_time=instant(span.EndTime),
        provider=provider(said.provider, said.request_model),
        operation=(text(span.Name) or "").partition(" ")[0] or None,
        request_model=model_name(said.request_model, said.provider),
        response_model=model_name(said.response_model, said.provider),
        cost=money(said.cost, "gen_ai.usage.cost"),
        api_key=key_name(said.key_name),
    )
    count_tokens(record, settled(
        count(said.prompt_tokens, "gen_ai.usage.prompt_tokens"),
        count(said.completion_tokens, "gen_ai.usage.completion_tokens"),
        count(said.cache_read_tokens, "gen_ai.usage.cache_read.input_tokens"),
        count(said.cache_write_tokens, "gen_ai.usage.cache_creation.input_tokens"),
        count(said.reasoning_tokens, "gen_ai.usage.reasoning_tokens"),
    ))  # fmt: skip
    if span.Status == "error":
        fail(record, said.error_type)
    metadata = Metadata()
    metadata.describe(record)
    # The exporter's OTLP push carries the same trace and span ids.
    return Call(record, of_call(record, response_id=text(said.response_id), span=True, own_id=record.request_id))


FORMAT = Format(
    NAME,
    Event,
    calls,
    origins={
        "request_id": "SpanID",
        "trace_id": "TraceID",
        "start_time": "StartTime",
        "end_time": "EndTime",
        "provider": "gen_ai.provider.name",
        "operation": "the first word of Name",
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "input_tokens": "gen_ai.usage.prompt_tokens",
        "output_tokens": "gen_ai.usage.completion_tokens",
        "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
        "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning_tokens",
        "cost": "gen_ai.usage.cost",
        "status": "Status",
        "error_type": "error.type",
        "api_key": "bifrost.virtual_key.name",
    },
)
