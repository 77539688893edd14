"""
Bifrost: spans of its log exporter. A span of kind `llm.call` is a call. A span of kind `retry` is a further
attempt with its own tokens, so it is a call as well.

The root span repeats the last attempt. Bifrost releases rename attributes, so the newest name takes precedence.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    Items,
    ReadCall,
    add_tier_tag,
    declare_field_with_payload_name,
    has_any_member,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.items import NestedPayloadUnpacker
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, first_key_name
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import BY_NAME, operation_of_function_name
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import (
    Other,
    first_text,
    parse_amount,
    parse_count,
    struct_or_empty,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference

NAME = "bifrost"

_CALL: Final = "llm.call"
_ATTEMPTS: Final = frozenset({_CALL, "retry"})
# limit in bytes for a trace id as JSON: the id is copied to every span, and no real id is longer
_MAX_ID: Final = 1024


class BifrostAttributes(msgspec.Struct):
    """The attributes of a Bifrost span that are decoded, without those that have content."""

    operation: Any = declare_field_with_payload_name("gen_ai.operation.name")
    service_tier: Any = declare_field_with_payload_name("gen_ai.response.service_tier")
    provider: Any = declare_field_with_payload_name("gen_ai.provider.name")
    request_model: Any = declare_field_with_payload_name("gen_ai.request.model")
    response_model: Any = declare_field_with_payload_name("gen_ai.response.model")
    response_id: Any = declare_field_with_payload_name("gen_ai.response.id")
    input_tokens: Any = declare_field_with_payload_name("gen_ai.usage.input_tokens")
    prompt_tokens: Any = declare_field_with_payload_name("gen_ai.usage.prompt_tokens")
    output_tokens: Any = declare_field_with_payload_name("gen_ai.usage.output_tokens")
    completion_tokens: Any = declare_field_with_payload_name("gen_ai.usage.completion_tokens")
    cache_read_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_read.input_tokens")
    older_cache_read_tokens: Any = declare_field_with_payload_name(
        "gen_ai.usage.prompt_token_details.cached_read_tokens"
    )
    cache_write_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_creation.input_tokens")
    older_cache_write_tokens: Any = declare_field_with_payload_name(
        "gen_ai.usage.prompt_token_details.cached_write_tokens"
    )
    reasoning_tokens: Any = declare_field_with_payload_name("gen_ai.usage.reasoning.output_tokens")
    older_reasoning_tokens: Any = declare_field_with_payload_name(
        "gen_ai.usage.completion_token_details.reasoning_tokens"
    )
    plain_reasoning_tokens: Any = declare_field_with_payload_name("gen_ai.usage.reasoning_tokens")
    cost: Any = declare_field_with_payload_name("gen_ai.usage.cost")
    key_name: Any = declare_field_with_payload_name("bifrost.virtual_key.name")
    older_key_name: Any = declare_field_with_payload_name("gen_ai.virtual_key_name")
    error_type: Any = declare_field_with_payload_name("error.type")
    older_error_type: Any = declare_field_with_payload_name("gen_ai.error.type")


class BifrostSpan(msgspec.Struct):
    SpanID: Any = None
    TraceID: Any = None
    Name: Any = None
    Kind: Any = None
    StartTime: Any = None
    EndTime: Any = None
    Status: Any = None
    Attributes: BifrostAttributes | Other = None


class BifrostEvent(msgspec.Struct):
    TraceID: Any = None
    Span: BifrostSpan | Other = None


def spans_of_trace(raw: payload.Raw, _: NestedPayloadUnpacker) -> Items:
    """Yield each span of a trace as a separate item, so that a bad span does not affect other spans."""
    members = payload.undecoded_members(raw)
    spans = members.get("Spans")
    if spans is None:
        yield raw
        return
    trace_id = members.get("TraceID")
    if trace_id is None or len(trace_id) > _MAX_ID:
        trace_id = msgspec.Raw(b"null")
    for span in payload.array_elements(spans):
        yield b'{"TraceID":%b,"Span":%b}' % (trace_id, span) if len(span) else span


def read_calls(event: BifrostEvent) -> Iterable[ReadCall]:
    span = struct_or_empty(event.Span, BifrostSpan)
    if not isinstance(span.Kind, str) or span.Kind not in _ATTEMPTS:
        return ()
    attributes = struct_or_empty(span.Attributes, BifrostAttributes)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(span.SpanID),
        trace_id=text_or_none(event.TraceID) or text_or_none(span.TraceID),
        span_id=text_or_none(span.SpanID),
        start_time=parse_instant(span.StartTime),
        end_time=parse_instant(span.EndTime),
        provider=stated_or_model_provider(attributes.provider, attributes.request_model),
        operation=_operation_of_span(span, attributes),
        request_model=model_without_prefix(attributes.request_model, attributes.provider),
        response_model=model_without_prefix(attributes.response_model, attributes.provider),
        api_key=first_key_name(attributes.key_name, attributes.older_key_name),
    )
    set_normalised_counts(record, _tokens_of_attributes(attributes))
    if span.Status == "error":
        mark_as_failed(record, attributes.error_type, attributes.older_error_type)
    record.cost = cost_unless_placeholder_zero(record, parse_amount(attributes.cost, "gen_ai.usage.cost"))
    # The OTLP that the same exporter pushes has these trace and span ids as well.
    identity = call_identity(
        record, response_id=text_or_none(attributes.response_id), span=True, own_id=record.request_id
    )
    metadata = CallMetadata()
    add_tier_tag(metadata, attributes.service_tier)
    record.tags = metadata.tags
    return (ReadCall(record, identity),)


def _operation_of_span(span: BifrostSpan, attributes: BifrostAttributes) -> str | None:
    """
    Read the first word of the span name. In the first releases it is only the kind, and the reported
    operation is used.
    """
    name = text_or_none(span.Name) or ""
    word = name.partition(" ")[0]
    if span.Kind == _CALL and word not in ("", _CALL):
        return operation_of_function_name(word) or word
    stated = text_or_none(attributes.operation)
    return None if stated is None else BY_NAME.get(stated)


def _tokens_of_attributes(attributes: BifrostAttributes) -> Tokens:
    input_tokens = first_text(attributes.input_tokens, attributes.prompt_tokens)
    output_tokens = first_text(attributes.output_tokens, attributes.completion_tokens)
    cache_read = first_text(attributes.cache_read_tokens, attributes.older_cache_read_tokens)
    cache_write = first_text(attributes.cache_write_tokens, attributes.older_cache_write_tokens)
    older_reasoning = first_text(attributes.older_reasoning_tokens, attributes.plain_reasoning_tokens)
    reasoning = first_text(attributes.reasoning_tokens, older_reasoning)
    return Tokens(
        parse_count(input_tokens, "gen_ai.usage.prompt_tokens"),
        parse_count(output_tokens, "gen_ai.usage.completion_tokens"),
        parse_count(cache_read, "gen_ai.usage.cache_read.input_tokens"),
        parse_count(cache_write, "gen_ai.usage.cache_creation.input_tokens"),
        parse_count(reasoning, "gen_ai.usage.reasoning.output_tokens"),
    )


def example_body(call: ExampleCall) -> Any:
    attributes = {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": call.model,
        "gen_ai.response.model": call.response_model,
        "gen_ai.usage.prompt_tokens": call.input_tokens,
        "gen_ai.usage.completion_tokens": call.output_tokens,
        "gen_ai.usage.cost": call.cost,
        "bifrost.virtual_key.name": "example-key",
    }
    span = {
        "SpanID": call.span_id,
        "Name": f"chat {call.model}",
        "Kind": "llm.call",
        "StartTime": call.start_text,
        "EndTime": call.end_text,
        "Status": "ok",
        "Attributes": attributes,
    }
    return {
        "TraceID": call.trace_id,
        "RootSpan": {"SpanID": secrets.token_hex(8), "Kind": "http.request"},
        "Spans": [span],
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_any_member("RootSpan"),
    example=example_body,
    event=BifrostEvent,
    calls=read_calls,
    unwrap=spans_of_trace,
    origins={
        "request_id": "SpanID",
        "trace_id": "TraceID",
        "start_time": "StartTime",
        "end_time": "EndTime",
        "provider": "gen_ai.provider.name",
        "operation": "the first word of Name (retry: gen_ai.operation.name)",
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "input_tokens": "gen_ai.usage.input_tokens, else prompt_tokens",
        "output_tokens": "gen_ai.usage.output_tokens, else completion_tokens",
        "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
        "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
        "cost": "gen_ai.usage.cost",
        "status": "Status",
        "error_type": "error.type",
        "api_key": "bifrost.virtual_key.name",
    },
)
