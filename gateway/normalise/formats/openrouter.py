"""OpenRouter: generation stats. OpenRouter's broadcast is OTLP, so a dialect reads it."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    has_object_with,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.meters import keep_valid_meters
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import CHAT
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import Other, is_true, parse_amount, parse_count, text_or_none
from spool.identity import call_identity, dedup_key_of_response_id, is_long_id
from spool.record import Inference

NAME = "openrouter"


class OpenRouterStats(msgspec.Struct):
    """
    Statistics of one generation. OpenRouter bills the native counts, not the normalized counts in the same object.
    """

    id: Any = None
    api_type: Any = None
    model: Any = None
    provider_name: Any = None
    created_at: Any = None
    latency: Any = None
    native_tokens_prompt: Any = None
    native_tokens_completion: Any = None
    native_tokens_cached: Any = None
    native_tokens_reasoning: Any = None
    native_tokens_completion_images: Any = None
    num_media_prompt: Any = None
    num_media_completion: Any = None
    num_search_results: Any = None
    total_cost: Any = None
    upstream_inference_cost: Any = None
    is_byok: Any = None
    upstream_id: Any = None
    cancelled: Any = None
    external_user: Any = None
    workspace_id: Any = None
    data_region: Any = None
    session_id: Any = None


class OpenRouterEvent(OpenRouterStats):
    data: OpenRouterStats | Other = None


def has_openrouter_fields(members: RawMembers) -> bool:
    return "native_tokens_prompt" in members or has_object_with(members, "data", "native_tokens_prompt")


def read_calls(event: OpenRouterEvent) -> Iterable[ReadCall]:
    """Read one generation as one call, with or without its envelope."""
    stats = event.data if isinstance(event.data, OpenRouterStats) else event
    api_type = text_or_none(stats.api_type)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(stats.id),
        start_time=parse_instant(stats.created_at),
        provider=stated_or_model_provider(stats.provider_name, stats.model),
        operation=CHAT if api_type == "completions" else api_type,
        request_model=model_without_prefix(stats.model, stats.provider_name),
        cost=_charged_dollars(stats),
        team=text_or_none(stats.workspace_id),
        session=text_or_none(stats.session_id),
        region=region_of_call(stats.data_region),
    )
    record.end_time = end_after_milliseconds(record.start_time, stats.latency)
    set_normalised_counts(
        record,
        Tokens(
            parse_count(stats.native_tokens_prompt, "native_tokens_prompt"),
            parse_count(stats.native_tokens_completion, "native_tokens_completion"),
            parse_count(stats.native_tokens_cached, "native_tokens_cached"),
            reasoning=parse_count(stats.native_tokens_reasoning, "native_tokens_reasoning"),
            meters=keep_valid_meters(
                {
                    "output_image_tokens": stats.native_tokens_completion_images,
                    "input_images": stats.num_media_prompt,
                    "output_images": stats.num_media_completion,
                    "web_search_results": stats.num_search_results,
                }
            ),
        ),
    )
    if is_true(stats.cancelled):
        mark_as_failed(record, "cancelled")
    metadata = CallMetadata()
    if is_true(stats.is_byok):
        metadata.add_tag("byok", "true")
    metadata.fill_record(record, principal=text_or_none(stats.external_user))
    identity = call_identity(record, response_id=record.request_id)
    upstream_id = text_or_none(stats.upstream_id)
    # the provider's own report of the call has `upstream_id` as its id
    if upstream_id is not None and is_long_id(upstream_id):
        identity = identity._replace(also=(dedup_key_of_response_id(upstream_id),))
    return (ReadCall(record, identity, metadata.left_out),)


def _charged_dollars(stats: OpenRouterStats) -> str | None:
    """
    Return the cost in dollars: with the customer's own provider key, the provider's charge, because
    OpenRouter's total is then only its fee.
    """
    total = parse_amount(stats.total_cost, "total_cost")
    upstream = parse_amount(stats.upstream_inference_cost, "upstream_inference_cost")
    return upstream if is_true(stats.is_byok) and upstream is not None else total


def example_body(call: ExampleCall) -> Any:
    return {
        "data": {
            "id": f"gen-{call.end_ns // 10**9}-{secrets.token_urlsafe(15)}",
            "api_type": "completions",
            "model": f"openai/{call.model}",
            "provider_name": "OpenAI",
            "created_at": call.start_text,
            "latency": call.duration_ms,
            "native_tokens_prompt": call.input_tokens,
            "native_tokens_completion": call.output_tokens,
            "native_tokens_cached": call.cached_tokens,
            "total_cost": call.cost,
            "cancelled": False,
            "external_user": "example-user",
        }
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_openrouter_fields,
    example=example_body,
    event=OpenRouterEvent,
    calls=read_calls,
    origins={
        "request_id": "id",
        "start_time": "created_at",
        "end_time": "created_at + latency",
        "provider": "provider_name",
        "operation": "api_type",
        "request_model": "model",
        "region": "data_region",
        "input_tokens": "native_tokens_prompt",
        "output_tokens": "native_tokens_completion",
        "cache_read_tokens": "native_tokens_cached",
        "reasoning_tokens": "native_tokens_reasoning",
        "meters": "native_tokens_completion_images, num_media_prompt, num_media_completion, num_search_results",
        "cost": "total_cost (with is_byok: upstream_inference_cost)",
        "status": "cancelled",
        "user": "external_user",
        "team": "workspace_id",
        "session": "session_id",
    },
)
