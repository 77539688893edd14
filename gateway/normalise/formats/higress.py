"""Higress: access-log lines. `ai_log` is JSON inside text, and its details are again JSON inside text."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    ReadCall,
    has_any_member,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.reading.metadata import CallMetadata, WorkFields
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Details, Tokens
from gateway.normalise.reading.values import Other, first_text, parse_count, struct_or_empty, text_or_none
from spool.identity import RecordIdentity, call_identity, is_long_id
from spool.record import Inference

NAME = "higress"


class HigressAiLog(WorkFields):
    model: Any = None
    input_token: Any = None
    output_token: Any = None
    llm_service_duration: Any = None
    session_id: Any = None
    cached_tokens: Any = None
    reasoning_tokens: Any = None
    input_token_details: Details | Other = None
    output_token_details: Details | Other = None
    consumer: Any = None
    chat_id: Any = None
    cache_status: Any = None


class HigressEvent(msgspec.Struct):
    ai_log: HigressAiLog | Other = None
    start_time: Any = None
    request_id: Any = None
    trace_id: Any = None
    consumer: Any = None
    response_code: Any = None
    path: Any = None
    route_name: Any = None


def read_calls(event: HigressEvent) -> Iterable[ReadCall]:
    """Read a line as one call if its `ai_log` is not `-`."""
    log = struct_or_empty(event.ai_log, HigressAiLog)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.request_id),
        trace_id=text_or_none(event.trace_id),
        start_time=parse_instant(event.start_time),
        provider=stated_or_model_provider(None, log.model),
        operation=operation_of_path(event.path),
        request_model=model_without_prefix(log.model),
        session=text_or_none(log.session_id),
    )
    record.end_time = end_after_milliseconds(record.start_time, log.llm_service_duration)
    cached = first_text(log.cached_tokens, struct_or_empty(log.input_token_details, Details).cached_tokens)
    reasoning = first_text(
        log.reasoning_tokens, struct_or_empty(log.output_token_details, Details).reasoning_tokens
    )
    set_normalised_counts(
        record,
        Tokens(
            parse_count(log.input_token, "ai_log.input_token"),
            parse_count(log.output_token, "ai_log.output_token"),
            parse_count(cached, "ai_log.cached_tokens"),
            reasoning=parse_count(reasoning, "ai_log.reasoning_tokens"),
        ),
    )
    if not mark_as_failed_if_http_error(record, event.response_code) and log.cache_status == "hit":
        record.status = "cached"
    metadata = CallMetadata()
    metadata.add_work_fields(log)
    metadata.add_tag("route", text_or_none(event.route_name))
    metadata.fill_record(record, principal=first_text(log.consumer, event.consumer))
    return (
        ReadCall(record, _call_identity_of_response(record, text_or_none(log.chat_id)), metadata.left_out),
    )


def _call_identity_of_response(record: Inference, response_id: str | None) -> RecordIdentity:
    """
    Return the dedup key of a call, by the provider's response id. SDKs report it as well, and callers can
    choose the request id.
    """
    unique = response_id if response_id and is_long_id(response_id) else None
    return call_identity(record, response_id=unique, shared_id=record.request_id)


def example_body(call: ExampleCall) -> Any:
    log = {
        "model": call.model,
        "input_token": str(call.input_tokens),
        "output_token": str(call.output_tokens),
        "cached_tokens": str(call.cached_tokens),
        "llm_service_duration": str(call.duration_ms),
        "consumer": "example-user",
    }
    return {
        "ai_log": json.dumps(log),
        "start_time": call.start_text,
        "request_id": call.uuid,
        "response_code": "200",
        "path": "/v1/chat/completions",
        "route_name": "example-route",
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_any_member("ai_log"),
    example=example_body,
    event=HigressEvent,
    calls=read_calls,
    origins={
        "request_id": "request_id",
        "trace_id": "trace_id",
        "start_time": "start_time",
        "end_time": "start_time + ai_log.llm_service_duration",
        "provider": "derived from the model name",
        "operation": "path",
        "request_model": "ai_log.model",
        "input_tokens": "ai_log.input_token",
        "output_tokens": "ai_log.output_token",
        "cache_read_tokens": "ai_log.cached_tokens, else ai_log.input_token_details",
        "reasoning_tokens": "ai_log.reasoning_tokens, else ai_log.output_token_details",
        "status": "response_code, ai_log.cache_status",
        "error_type": "response_code",
        "user": "ai_log.consumer, else consumer",
        "session": "ai_log.session_id",
    },
)
