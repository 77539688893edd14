"""agentgateway: JSON log lines. The time of a line is the end of its request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    declare_field_with_payload_name,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.payload import items as payload
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, WorkFields
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.times import parse_duration_ns, parse_instant, start_before_end
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import parse_amount, parse_count, text_or_none
from spool.identity import call_identity
from spool.record import Inference

NAME = "agentgateway"


class AgentgatewayEvent(WorkFields):
    time: Any = None
    duration: Any = None
    route: Any = None
    endpoint: Any = None
    http_path: Any = declare_field_with_payload_name("http.path")
    http_status: Any = declare_field_with_payload_name("http.status")
    trace_id: Any = declare_field_with_payload_name("trace.id")
    span_id: Any = declare_field_with_payload_name("span.id")
    subject: Any = declare_field_with_payload_name("jwt.sub")
    operation: Any = declare_field_with_payload_name("gen_ai.operation.name")
    provider: Any = declare_field_with_payload_name("gen_ai.provider.name")
    request_model: Any = declare_field_with_payload_name("gen_ai.request.model")
    response_model: Any = declare_field_with_payload_name("gen_ai.response.model")
    input_tokens: Any = declare_field_with_payload_name("gen_ai.usage.input_tokens")
    output_tokens: Any = declare_field_with_payload_name("gen_ai.usage.output_tokens")
    cache_read_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_read.input_tokens")
    cache_write_tokens: Any = declare_field_with_payload_name("gen_ai.usage.cache_creation.input_tokens")
    reasoning_tokens: Any = declare_field_with_payload_name("gen_ai.usage.reasoning_tokens")
    cost: Any = declare_field_with_payload_name("agw.ai.usage.cost.total")


def has_agentgateway_fields(members: RawMembers) -> bool:
    is_request = payload.is_equal_text(members.get("scope"), b'"request"')
    is_routed = "gateway" in members or "route" in members
    return is_request and is_routed and any("." in name for name in members)


def read_calls(event: AgentgatewayEvent) -> Iterable[ReadCall]:
    """Read a line with a model or tokens as one call. MCP lines have neither."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.span_id),
        trace_id=text_or_none(event.trace_id),
        span_id=text_or_none(event.span_id),
        end_time=parse_instant(event.time),
        provider=stated_or_model_provider(
            event.provider, text_or_none(event.request_model) or text_or_none(event.response_model)
        ),
        operation=text_or_none(event.operation) or operation_of_path(event.http_path),
        request_model=model_without_prefix(event.request_model, event.provider),
        response_model=model_without_prefix(event.response_model, event.provider),
    )
    record.region = region_of_call(address=event.endpoint, model=event.request_model)
    record.start_time = start_before_end(record.end_time, parse_duration_ns(event.duration))
    # Releases before August 2026 logged the provider's own input count, which may exclude the cache. If the
    # cache count is larger than the input count, the input count excludes the cache.
    set_normalised_counts(
        record,
        Tokens(
            parse_count(event.input_tokens, "gen_ai.usage.input_tokens"),
            parse_count(event.output_tokens, "gen_ai.usage.output_tokens"),
            parse_count(event.cache_read_tokens, "gen_ai.usage.cache_read.input_tokens"),
            parse_count(event.cache_write_tokens, "gen_ai.usage.cache_creation.input_tokens"),
            parse_count(event.reasoning_tokens, "gen_ai.usage.reasoning_tokens"),
        ),
    )
    mark_as_failed_if_http_error(record, event.http_status)
    record.cost = cost_unless_placeholder_zero(record, parse_amount(event.cost, "agw.ai.usage.cost.total"))
    metadata = CallMetadata()
    metadata.add_work_fields(event)
    metadata.add_tag("route", text_or_none(event.route))
    metadata.fill_record(record, principal=text_or_none(event.subject))
    return (ReadCall(record, call_identity(record, span=True, own_id=record.request_id), metadata.left_out),)


def example_body(call: ExampleCall) -> Any:
    return {
        "level": "info",
        "time": call.end_text,
        "duration": f"{call.duration_ms}ms",
        "scope": "request",
        "gateway": "default/gw",
        "route": "default/example",
        "http.status": 200,
        "trace.id": call.trace_id,
        "span.id": call.span_id,
        "jwt.sub": "example-user",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": call.model,
        "gen_ai.response.model": call.response_model,
        "gen_ai.usage.input_tokens": call.input_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "agw.ai.usage.cost.total": str(call.cost),
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_agentgateway_fields,
    example=example_body,
    event=AgentgatewayEvent,
    calls=read_calls,
    origins={
        "request_id": "span.id",
        "trace_id": "trace.id",
        "start_time": "time - duration",
        "end_time": "time",
        "provider": "gen_ai.provider.name",
        "operation": "gen_ai.operation.name, else http.path",
        "request_model": "gen_ai.request.model",
        "response_model": "gen_ai.response.model",
        "region": "endpoint",
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
