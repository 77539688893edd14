"""
AISIX: lines that its object store exporter writes, one per attempt. After a restart AISIX writes the same
lines again under another object name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    ReadCall,
    has_all_members,
    mark_as_failed,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, first_key_name
from gateway.normalise.reading.meters import keep_valid_meters
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.times import milliseconds_to_ns, parse_instant, start_before_end
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import first_text, is_true, parse_amount, parse_count, text_or_none
from spool.identity import call_identity
from spool.record import Inference

NAME = "aisix"

_ANY_OF_ITS_SHAPE = "openai"  # provider name that AISIX uses for every provider with OpenAI's protocol


class AisixEvent(msgspec.Struct):
    """An attempt as AISIX exports it. Content and error messages are not decoded."""

    request_id: Any = None
    trace_id: Any = None
    occurred_at: Any = None
    api_key_id: Any = None
    requested_model: Any = None
    attempt_model: Any = None
    attempt_index: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    cached_prompt_tokens: Any = None
    reasoning_tokens: Any = None
    cache_creation_tokens: Any = None
    cache_read_tokens: Any = None
    audio_duration_seconds: Any = None
    usage_estimated: Any = None
    upstream_latency_ms: Any = None
    downstream_latency_ms: Any = None
    status_code: Any = None
    provider_request_id: Any = None
    provider_model_version: Any = None
    provider_kind: Any = None
    cost_usd: Any = None
    cache_status: Any = None
    cache_hit_saved_input_tokens: Any = None
    cache_hit_saved_output_tokens: Any = None
    error_class: Any = None


def read_calls(event: AisixEvent) -> Iterable[ReadCall]:
    """Read one attempt as one call. Attempts of one request share its id."""
    is_cached = text_or_none(event.cache_status) == "hit"
    answered_by = text_or_none(event.provider_model_version)
    model = first_text(event.attempt_model, event.requested_model)
    kind = text_or_none(event.provider_kind)
    took = event.upstream_latency_ms or event.downstream_latency_ms
    end = parse_instant(event.occurred_at)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=first_text(event.provider_request_id, event.request_id),
        trace_id=text_or_none(event.trace_id),
        start_time=start_before_end(end, milliseconds_to_ns(took)),
        end_time=end,
        provider=stated_or_model_provider(None if kind == _ANY_OF_ITS_SHAPE else kind, answered_by or model)
        or stated_or_model_provider(kind, None),
        request_model=model_without_prefix(model),
        response_model=model_without_prefix(answered_by),
        api_key=first_key_name(event.api_key_id),
    )
    _fill_token_counts(record, event, is_cached=is_cached)
    error = text_or_none(event.error_class)
    if error is not None:
        mark_as_failed(record, error, event.status_code)
    elif not mark_as_failed_if_http_error(record, event.status_code) and is_cached:
        record.status = "cached"
    record.cost = cost_unless_placeholder_zero(record, parse_amount(event.cost_usd, "cost_usd"))
    metadata = CallMetadata()
    if is_true(event.usage_estimated):
        metadata.add_tag("usage_estimated", "true")
    metadata.fill_record(record)
    own_id = text_or_none(event.request_id)
    if own_id is not None:
        own_id += f"\0{text_or_none(event.attempt_index) or 0}"
    identity = call_identity(record, response_id=text_or_none(event.provider_request_id), own_id=own_id)
    return (ReadCall(record, identity, metadata.left_out),)


def _fill_token_counts(record: Inference, event: AisixEvent, *, is_cached: bool) -> None:
    """
    Fill in the token counts of an attempt. Anthropic's prompt count excludes the cache counts, and OpenAI's
    includes them. An answer from AISIX's cache states the tokens that the cache saved, so these are used.
    """
    created = parse_count(event.cache_creation_tokens, "cache_creation_tokens")
    read = parse_count(event.cache_read_tokens, "cache_read_tokens")
    beside = bool(created or read)
    tokens = Tokens(
        parse_count(event.prompt_tokens, "prompt_tokens"),
        parse_count(event.completion_tokens, "completion_tokens"),
        read if beside else parse_count(event.cached_prompt_tokens, "cached_prompt_tokens"),
        created,
        parse_count(event.reasoning_tokens, "reasoning_tokens"),
        meters=keep_valid_meters({"audio_seconds": event.audio_duration_seconds}),
    )
    if is_cached and not tokens:
        tokens = Tokens(
            parse_count(event.cache_hit_saved_input_tokens, "cache_hit_saved_input_tokens"),
            parse_count(event.cache_hit_saved_output_tokens, "cache_hit_saved_output_tokens"),
        )
    set_normalised_counts(record, tokens, without_cache=beside)


def example_body(call: ExampleCall) -> Any:
    return {
        "schema_version": "1.0",
        "request_id": call.uuid,
        "trace_id": call.trace_id,
        "occurred_at": call.end_text,
        "api_key_id": "example-key",
        "requested_model": call.model,
        "provider_model_version": call.response_model,
        "attempt_index": 0,
        "prompt_tokens": call.input_tokens,
        "completion_tokens": call.output_tokens,
        "cached_prompt_tokens": call.cached_tokens,
        "upstream_latency_ms": call.duration_ms,
        "status_code": 200,
        "provider_request_id": call.response_id,
        "provider_kind": "openai",
        "cost_usd": call.cost,
        "cache_status": "miss",
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_all_members("schema_version", "occurred_at", "upstream_latency_ms"),
    example=example_body,
    event=AisixEvent,
    calls=read_calls,
    origins={
        "request_id": "provider_request_id, else request_id",
        "trace_id": "trace_id",
        "start_time": "occurred_at - upstream_latency_ms",
        "end_time": "occurred_at",
        "provider": "provider_kind, or derived from the model name",
        "request_model": "attempt_model, else requested_model",
        "response_model": "provider_model_version",
        "input_tokens": (
            "prompt_tokens + cache_creation_tokens + cache_read_tokens "
            "(cache hit: cache_hit_saved_input_tokens)"
        ),
        "output_tokens": "completion_tokens (cache hit: cache_hit_saved_output_tokens)",
        "cache_read_tokens": "cache_read_tokens, else cached_prompt_tokens",
        "cache_write_tokens": "cache_creation_tokens",
        "reasoning_tokens": "reasoning_tokens",
        "meters": "audio_duration_seconds",
        "cost": "cost_usd",
        "status": "error_class, status_code, cache_status",
        "error_type": "error_class, else status_code",
        "api_key": "api_key_id",
    },
)
