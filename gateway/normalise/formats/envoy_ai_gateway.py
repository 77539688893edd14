"""
Envoy AI Gateway: JSON access-log lines. The current key names and the key names of the first versions are read.

Operators may write numbers as text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    ReadCall,
    declare_field_with_payload_name,
    has_any_member,
    mark_as_failed,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.reading.metadata import CallMetadata, WorkFields
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.request_ids import dedup_keys_from_field
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import first_text, parse_count, status_code, text_or_none
from spool.identity import call_identity
from spool.record import Inference

NAME = "envoy_ai_gateway"
# columns by which the format is recognized, because no other gateway writes them
OWN_COLUMNS = ("gen_ai.request.model_override", "x-envoy-origin-path")


class EnvoyEvent(WorkFields):
    request_id: Any = declare_field_with_payload_name("x-request-id")
    start_time: Any = None
    duration: Any = None
    backend: Any = declare_field_with_payload_name("gen_ai.provider.name")
    model: Any = declare_field_with_payload_name("gen_ai.request.model")
    model_override: Any = declare_field_with_payload_name("gen_ai.request.model_override")
    response_model: Any = declare_field_with_payload_name("gen_ai.response.model")
    input_tokens: Any = declare_field_with_payload_name("gen_ai.usage.input_tokens")
    output_tokens: Any = declare_field_with_payload_name("gen_ai.usage.output_tokens")
    cached_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cached_input_tokens")
    cache_read_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_read.input_tokens")
    cache_write_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_creation.input_tokens")
    reasoning_tokens: Any = declare_field_with_payload_name("gen_ai.usage.reasoning_tokens")
    response_code: Any = None
    response_flags: Any = None
    old_backend: Any = declare_field_with_payload_name("genai_backend_name")
    old_model: Any = declare_field_with_payload_name("genai_model_name")
    old_model_override: Any = declare_field_with_payload_name("genai_model_name_override")
    old_input_tokens: Any = declare_field_with_payload_name("genai_tokens_input")
    old_output_tokens: Any = declare_field_with_payload_name("genai_tokens_output")
    session_id: Any = declare_field_with_payload_name("session.id")
    path: Any = declare_field_with_payload_name("x-envoy-origin-path")
    route_name: Any = None
    # a header of the provider's response, which appears only if the operator logs it
    provider_request_id: Any = None


def read_calls(event: EnvoyEvent) -> Iterable[ReadCall]:
    """Read a line with a model as one call. MCP traffic is in the same log, without models."""
    sent = first_text(event.model_override, event.model, event.old_model_override, event.old_model)
    backend = first_text(event.backend, event.old_backend)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.request_id),
        start_time=parse_instant(event.start_time),
        provider=stated_or_model_provider(backend, sent or event.response_model),
        operation=operation_of_path(event.path),
        request_model=model_without_prefix(sent, backend),
        response_model=model_without_prefix(event.response_model, backend),
        session=text_or_none(event.session_id),
    )
    record.end_time = end_after_milliseconds(record.start_time, event.duration)
    cached = first_text(event.cached_tokens, event.cache_read_tokens)
    set_normalised_counts(
        record,
        Tokens(
            parse_count(
                _current_or_older_value(event.input_tokens, event.old_input_tokens),
                "gen_ai.usage.input_tokens",
            ),
            parse_count(
                _current_or_older_value(event.output_tokens, event.old_output_tokens),
                "gen_ai.usage.output_tokens",
            ),
            parse_count(cached, "gen_ai.usage.cached_input_tokens"),
            parse_count(event.cache_write_tokens, "gen_ai.usage.cache_creation.input_tokens"),
            parse_count(event.reasoning_tokens, "gen_ai.usage.reasoning_tokens"),
        ),
    )
    if record.request_model is None and record.response_model is None:
        return ()
    if status_code(event.response_code) == 0:  # status 0 means that no response arrived
        mark_as_failed(record, event.response_flags)
    else:
        mark_as_failed_if_http_error(record, event.response_code)
    metadata = CallMetadata()
    metadata.add_work_fields(event)
    metadata.add_tag("route", text_or_none(event.route_name))
    metadata.fill_record(record)
    # callers may choose x-request-id, so it is not a unique id
    identity = call_identity(record, shared_id=record.request_id)
    if event.provider_request_id is not None:
        identity = identity._replace(also=dedup_keys_from_field(record, event.provider_request_id))
    return (ReadCall(record, identity, metadata.left_out, names_request=bool(identity.also)),)


def _current_or_older_value(today: Any, older: Any) -> Any:
    return older if today is None or today == "-" else today


def example_body(call: ExampleCall) -> Any:
    return {
        "x-request-id": call.uuid,
        "start_time": call.start_text,
        "duration": call.duration_ms,
        "response_code": 200,
        "response_flags": "-",
        "x-envoy-origin-path": "/v1/chat/completions",
        "route_name": "example-route",
        "gen_ai.provider.name": "default/example/route/rule/0",
        "gen_ai.request.model": call.model,
        "gen_ai.request.model_override": None,
        "gen_ai.usage.input_tokens": call.input_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_any_member(*OWN_COLUMNS),
    example=example_body,
    event=EnvoyEvent,
    calls=read_calls,
    origins={
        "request_id": "x-request-id",
        "start_time": "start_time",
        "end_time": "start_time + duration",
        "provider": "gen_ai.provider.name (path of a backend: derived from the model name)",
        "operation": "x-envoy-origin-path",
        "request_model": "gen_ai.request.model_override, else gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "input_tokens": "gen_ai.usage.input_tokens",
        "output_tokens": "gen_ai.usage.output_tokens",
        "cache_read_tokens": "gen_ai.usage.cached_input_tokens, else gen_ai.usage.cache_read.input_tokens",
        "cache_write_tokens": "gen_ai.usage.cache_creation.input_tokens",
        "reasoning_tokens": "gen_ai.usage.reasoning_tokens",
        "status": "response_code",
        "error_type": "response_code, for 0 response_flags",
        "session": "session.id",
    },
)
