"""
APISIX: entries of its http-logger with `llm_summary`. All values are text, because they are nginx variables.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    ReadCall,
    has_any_member,
    input_excludes_cache,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.reading.agent_headers import AgentHeaders
from gateway.normalise.reading.metadata import CallMetadata, WorkFields
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.request_ids import RequestIdHeaders, dedup_keys_from_headers
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import Other, parse_count, struct_or_empty, text_or_none
from spool.identity import call_identity
from spool.record import Inference

NAME = "apisix"


class ApisixSummary(msgspec.Struct):
    request_model: Any = None
    model: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    reasoning_tokens: Any = None
    end_user_id: Any = None


class ApisixRequest(msgspec.Struct):
    uri: Any = None
    url: Any = None
    headers: AgentHeaders | Other = None


class ApisixResponse(msgspec.Struct):
    status: Any = None
    headers: RequestIdHeaders | Other = None


class ApisixConsumer(msgspec.Struct):
    username: Any = None


class ApisixEvent(WorkFields):
    start_time: Any = None
    latency: Any = None
    request: ApisixRequest | Other = None
    response: ApisixResponse | Other = None
    route_id: Any = None
    service_id: Any = None
    llm_summary: ApisixSummary | Other = None
    consumer: ApisixConsumer | Other = None


def read_calls(event: ApisixEvent) -> Iterable[ReadCall]:
    summary, request = (
        struct_or_empty(event.llm_summary, ApisixSummary),
        struct_or_empty(event.request, ApisixRequest),
    )
    headers = struct_or_empty(request.headers, AgentHeaders)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(headers.x_request_id),
        start_time=parse_instant(event.start_time),
        provider=stated_or_model_provider(
            None, text_or_none(summary.request_model) or text_or_none(summary.model)
        ),
        operation=operation_of_path(request.uri) or operation_of_path(request.url),
        request_model=model_without_prefix(summary.request_model),
        response_model=model_without_prefix(summary.model),
    )
    headers.fill_session_and_run(record)
    record.end_time = end_after_milliseconds(record.start_time, event.latency)
    tokens = Tokens(
        parse_count(summary.prompt_tokens, "llm_summary.prompt_tokens"),
        parse_count(summary.completion_tokens, "llm_summary.completion_tokens"),
        parse_count(summary.cache_read_input_tokens, "llm_summary.cache_read_input_tokens"),
        parse_count(summary.cache_creation_input_tokens, "llm_summary.cache_creation_input_tokens"),
        parse_count(summary.reasoning_tokens, "llm_summary.reasoning_tokens"),
    )
    path = text_or_none(request.uri) or request.url
    set_normalised_counts(
        record, tokens, without_cache=input_excludes_cache(path, summary.request_model, summary.model)
    )
    mark_as_failed_if_http_error(record, struct_or_empty(event.response, ApisixResponse).status)
    metadata = CallMetadata()
    metadata.add_work_fields(event)
    metadata.add_tag("route", text_or_none(event.route_id))
    metadata.add_tag("service", text_or_none(event.service_id))
    principal = text_or_none(struct_or_empty(event.consumer, ApisixConsumer).username)
    metadata.fill_record(record, principal=principal, end_user=text_or_none(summary.end_user_id))
    # callers may choose x-request-id, so it is not a unique id
    identity = call_identity(record, shared_id=record.request_id)
    answered = struct_or_empty(event.response, ApisixResponse).headers
    if isinstance(answered, RequestIdHeaders):
        identity = identity._replace(also=dedup_keys_from_headers(record, answered))
    return (ReadCall(record, identity, metadata.left_out, names_request=bool(identity.also)),)


def example_body(call: ExampleCall) -> Any:
    return [
        {
            "start_time": call.start_ns // 1_000_000,
            "latency": float(call.duration_ms),
            "response": {"status": 200},
            "request": {"uri": "/v1/chat/completions", "headers": {"x-request-id": call.uuid}},
            "route_id": "example-route",
            "consumer": {"username": "example-user"},
            "llm_summary": {
                "request_model": call.model,
                "model": call.response_model,
                "prompt_tokens": str(call.input_tokens),
                "completion_tokens": str(call.output_tokens),
                "cache_read_input_tokens": str(call.cached_tokens),
                "reasoning_tokens": "0",
            },
        }
    ]


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_any_member("llm_summary"),
    example=example_body,
    event=ApisixEvent,
    calls=read_calls,
    origins={
        "request_id": "request.headers.x-request-id",
        "session": "request.headers.x-claude-code-session-id",
        "start_time": "start_time",
        "end_time": "start_time + latency",
        "provider": "derived from the model name",
        "operation": "request.uri",
        "request_model": "llm_summary.request_model",
        "response_model": "llm_summary.model",
        "input_tokens": "llm_summary.prompt_tokens",
        "output_tokens": "llm_summary.completion_tokens",
        "cache_read_tokens": "llm_summary.cache_read_input_tokens",
        "cache_write_tokens": "llm_summary.cache_creation_input_tokens",
        "reasoning_tokens": "llm_summary.reasoning_tokens",
        "status": "response.status",
        "error_type": "response.status",
        "user": "consumer.username, else llm_summary.end_user_id",
    },
)
