"""
Cloudflare AI Gateway: entries of its Logs API as a page, a list or lines. Its OTLP is read by a dialect.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    Items,
    RawMembers,
    ReadCall,
    has_object_with,
    mark_as_failed,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.items import NestedPayloadUnpacker
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import CHAT, EMBEDDINGS, IMAGE, operation_of_path
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import (
    dict_or_empty,
    is_false,
    is_true,
    parse_amount,
    parse_count,
    status_code,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference

NAME = "cloudflare"

_REQUEST_TYPES = {"chat": CHAT, "embedding": EMBEDDINGS, "image": IMAGE}


class CloudflareEvent(msgspec.Struct):
    id: Any = None
    cached: Any = None
    cost: Any = None
    created_at: Any = None
    duration: Any = None
    metadata: Any = None
    model: Any = None
    path: Any = None
    provider: Any = None
    request_type: Any = None
    status_code: Any = None
    success: Any = None
    tokens_in: Any = None
    tokens_out: Any = None


def has_cloudflare_fields(members: RawMembers) -> bool:
    is_page = {"result", "result_info"} <= members.keys()  # also True for a page of logs without entries
    return is_page or "tokens_in" in members or has_object_with(members, "result", "tokens_in")


def unwrap_entries(raw: payload.Raw, _: NestedPayloadUnpacker) -> Items:
    page = payload.undecoded_members(raw).get("result")
    return payload.array_elements(raw if page is None else page)


def read_calls(event: CloudflareEvent) -> Iterable[ReadCall]:
    """Read an entry as one call. Each step of a dynamic route has its own entry."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.id),
        start_time=parse_instant(event.created_at),
        provider=stated_or_model_provider(event.provider, event.model),
        operation=operation_of_path(event.path) or _REQUEST_TYPES.get(text_or_none(event.request_type) or ""),
        request_model=model_without_prefix(event.model, event.provider),
    )
    record.end_time = end_after_milliseconds(record.start_time, event.duration)
    set_normalised_counts(
        record, Tokens(parse_count(event.tokens_in, "tokens_in"), parse_count(event.tokens_out, "tokens_out"))
    )
    if event.success is not None and is_false(event.success):
        mark_as_failed(record, status_code(event.status_code) or None)
    elif not mark_as_failed_if_http_error(record, event.status_code) and is_true(event.cached):
        record.status = "cached"
    record.cost = cost_unless_placeholder_zero(record, parse_amount(event.cost, "cost"))
    metadata = CallMetadata()
    metadata.add_caller_and_tags(dict_or_empty(event.metadata))
    metadata.fill_record(record)
    return (ReadCall(record, call_identity(record, own_id=record.request_id), metadata.left_out),)


def example_body(call: ExampleCall) -> Any:
    return [
        {
            "id": call.uuid,
            "cached": False,
            "created_at": call.start_text,
            "duration": call.duration_ms,
            "model": call.model,
            "path": "chat/completions",
            "provider": "openai",
            "request_type": "chat",
            "success": True,
            "status_code": 200,
            "tokens_in": call.input_tokens,
            "tokens_out": call.output_tokens,
            "cost": call.cost,
            "metadata": {"user_id": "example-user"},
        }
    ]


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_cloudflare_fields,
    example=example_body,
    event=CloudflareEvent,
    calls=read_calls,
    unwrap=unwrap_entries,
    origins={
        "request_id": "id",
        "start_time": "created_at",
        "end_time": "created_at + duration",
        "provider": "provider",
        "operation": "path, else request_type",
        "request_model": "model",
        "input_tokens": "tokens_in",
        "output_tokens": "tokens_out",
        "cost": "cost",
        "status": "success, status_code, cached",
        "error_type": "status_code",
        "user": "metadata.user_id",
        "team": "metadata.team",
        "session": "metadata.session_id",
    },
)
