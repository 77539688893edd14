"""agentgateway: JSON log lines. The time of a line is the end of its request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.normalise.formats.engine.declaration import (
    Call,
    ExampleCall,
    ItemFormat,
    Members,
    count_tokens,
    declare_column,
    fail_by_status,
)
from gateway.normalise.payload import items as payload
from gateway.normalise.reading.costs import known_cost
from gateway.normalise.reading.metadata import Metadata, WorkFields
from gateway.normalise.reading.models import model_name, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.regions import region_of
from gateway.normalise.reading.times import parse_duration, parse_instant, start_before
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import count, money, text
from spool.identity import call_identity
from spool.record import Inference

NAME = "agentgateway"


class AgentgatewayEvent(WorkFields):
    time: Any = None
    duration: Any = None
    route: Any = None
    endpoint: Any = None
    http_path: Any = declare_column("http.path")
    http_status: Any = declare_column("http.status")
    trace_id: Any = declare_column("trace.id")
    span_id: Any = declare_column("span.id")
    subject: Any = declare_column("jwt.sub")
    operation: Any = declare_column("gen_ai.operation.name")
    provider: Any = declare_column("gen_ai.provider.name")
    request_model: Any = declare_column("gen_ai.request.model")
    response_model: Any = declare_column("gen_ai.response.model")
    input_tokens: Any = declare_column("gen_ai.usage.input_tokens")
    output_tokens: Any = declare_column("gen_ai.usage.output_tokens")
    cache_read_tokens: Any = declare_column("gen_ai.usage.cache_read.input_tokens")
    cache_write_tokens: Any = declare_column("gen_ai.usage.cache_creation.input_tokens")
    reasoning_tokens: Any = declare_column("gen_ai.usage.reasoning_tokens")
    cost: Any = declare_column("agw.ai.usage.cost.total")


def has_sign(members: Members) -> bool:
    is_request = payload.is_exactly(members.get("scope"), b'"request"')
    is_routed = "gateway" in members or "route" in members
    return is_request and is_routed and any("." in name for name in members)


def read_calls(event: AgentgatewayEvent) -> Iterable[Call]:
    """Read a line with a model or tokens as one call. MCP lines have neither."""
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text(event.span_id),
        trace_id=text(event.trace_id),
        span_id=text(event.span_id),
        end_time=parse_instant(event.time),
        provider=stated_or_model_provider(
            event.provider, text(event.request_model) or text(event.response_model)
        ),
        operation=text(event.operation) or operation_of_path(event.http_path),
        request_model=model_name(event.request_model, event.provider),
        response_model=model_name(event.response_model, event.provider),
    )
    record.region = region_of(address=event.endpoint, model=event.request_model)
    record.start_time = start_before(record.end_time, parse_duration(event.duration))
    # Releases before August 2026 logged the provider's own input count, which may exclude the cache. If the
    # cache count is larger than the input count, the input count excludes the cache.
    count_tokens(
        record,
        Tokens(
            count(event.input_tokens, "gen_ai.usage.input_tokens"),
            count(event.output_tokens, "gen_ai.usage.output_tokens"),
            count(event.cache_read_tokens, "gen_ai.usage.cache_read.input_tokens"),
            count(event.cache_write_tokens, "gen_ai.usage.cache_creation.input_tokens"),
            count(event.reasoning_tokens, "gen_ai.usage.reasoning_tokens"),
        ),
    )
    fail_by_status(record, event.http_status)
    record.cost = known_cost(record, money(event.cost, "agw.ai.usage.cost.total"))
    metadata = Metadata()
    metadata.learn_fields(event)
    metadata.add_tag("route", text(event.route))
    metadata.fill_record(record, principal=text(event.subject))
    return (Call(record, call_identity(record, span=True, own_id=record.request_id), metadata.left_out),)


def example(call: ExampleCall) -> Any:
    return {
        "level": "info",
        "time": call.end,
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
    has_sign=has_sign,
    example=example,
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
