"""
Databricks: rows of the AI Gateway's usage table (`system.ai_gateway.usage`), and of model serving
(`system.serving.endpoint_usage` and inference tables).

Drivers deliver structs and maps as JSON text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    add_tier_tag,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.payload.provider_bodies import ProviderBody
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import operation_of_path
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import (
    Other,
    dict_or_empty,
    first_text,
    parse_count,
    struct_or_empty,
    text_or_none,
)
from spool.identity import RecordIdentity, call_identity
from spool.record import Inference

NAME = "databricks"

# destination type of a provider's model called with the customer's own key
_EXTERNAL = "EXTERNAL_FOUNDATION_MODEL"


class DatabricksTokenDetails(msgspec.Struct):
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    output_reasoning_tokens: Any = None


class DatabricksRequest(ProviderBody):
    usage_context: Any = None


class DatabricksEvent(msgspec.Struct):
    # columns that all tables have
    requester: Any = None
    status_code: Any = None
    workspace_id: Any = None
    # columns of the table system.ai_gateway.usage
    invocation_id: Any = None
    request_id: Any = None
    event_time: Any = None
    latency_ms: Any = None
    endpoint_name: Any = None
    endpoint_tags: Any = None
    destination_type: Any = None
    destination_name: Any = None
    destination_model: Any = None
    api_type: Any = None
    url: Any = None
    request_tags: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    token_details: DatabricksTokenDetails | Other = None
    # request id, as in system.serving.endpoint_usage and in inference tables
    databricks_request_id: Any = None
    request_time: Any = None
    usage_context: Any = None
    input_token_count: Any = None
    output_token_count: Any = None
    execution_duration_ms: Any = None
    request: DatabricksRequest | Other = None
    response: ProviderBody | Other = None


def has_databricks_fields(members: RawMembers) -> bool:
    return "databricks_request_id" in members or {"event_time", "endpoint_name", "api_type"} <= members.keys()


def read_calls(event: DatabricksEvent) -> Iterable[ReadCall]:
    """Read one row as one call. Rows of MCP services have neither model nor tokens and are not calls."""
    is_of_serving = text_or_none(event.databricks_request_id) is not None
    record = _read_serving_row(event) if is_of_serving else _read_gateway_row(event)
    mark_as_failed_if_http_error(record, event.status_code)
    record.cost = struct_or_empty(event.response, ProviderBody).billed_cost
    metadata = CallMetadata()
    metadata.add_caller_and_tags(_merged_tags(event))
    metadata.add_tag("route", text_or_none(event.endpoint_name))
    metadata.add_tag("workspace", text_or_none(event.workspace_id))
    add_tier_tag(metadata, struct_or_empty(event.response, ProviderBody).service_tier_name)
    metadata.fill_record(record, principal=text_or_none(event.requester))
    return (ReadCall(record, _call_identity_of_row(record, event), metadata.left_out),)


def _read_gateway_row(event: DatabricksEvent) -> Inference:
    served_by, model = _provider_and_model(event)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=first_text(event.invocation_id, event.request_id),
        trace_id=text_or_none(event.request_id),
        start_time=parse_instant(event.event_time),
        provider=served_by,
        operation=operation_of_path(event.api_type) or operation_of_path(event.url),
        request_model=model_without_prefix(model),
    )
    record.end_time = end_after_milliseconds(record.start_time, event.latency_ms)
    details = struct_or_empty(event.token_details, DatabricksTokenDetails)
    # Unlike in Anthropic's own responses, input_tokens includes the cache.
    set_normalised_counts(
        record,
        Tokens(
            parse_count(event.input_tokens, "input_tokens"),
            parse_count(event.output_tokens, "output_tokens"),
            parse_count(details.cache_read_input_tokens, "token_details.cache_read_input_tokens"),
            parse_count(details.cache_creation_input_tokens, "token_details.cache_creation_input_tokens"),
            parse_count(details.output_reasoning_tokens, "token_details.output_reasoning_tokens"),
        ),
    )
    return record


def _read_serving_row(event: DatabricksEvent) -> Inference:
    """
    Return the call of a row. An inference table has the bodies, and the usage table has the counts. Both
    tables may contain the same call.
    """
    response_body = struct_or_empty(event.response, ProviderBody)
    request_body = struct_or_empty(event.request, DatabricksRequest)
    own_model = _model_served_by_databricks(request_body.model)
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.databricks_request_id),
        start_time=parse_instant(event.request_time),
        provider=NAME if own_model else stated_or_model_provider(None, response_body.answering_model),
        request_model=own_model,
        response_model=model_without_prefix(response_body.answering_model),
        region=region_of_call(response_body.processing_geography),
    )
    record.end_time = end_after_milliseconds(record.start_time, event.execution_duration_ms)
    tokens = response_body.counted_tokens(request_body)
    if not tokens:
        tokens = tokens._replace(
            input=parse_count(event.input_token_count, "input_token_count"),
            output=parse_count(event.output_token_count, "output_token_count"),
        )
    set_normalised_counts(record, tokens)
    return record


def _provider_and_model(event: DatabricksEvent) -> tuple[str | None, str | None]:
    """
    Return provider and model.

    If Databricks serves the model, the destination's name is the model. Otherwise the destination's name is a
    key's name. `destination_model` may then be a title with spaces (`GPT OSS 20B`), so it is used last.
    """
    model = text_or_none(event.destination_model)
    if text_or_none(event.destination_type) == _EXTERNAL:
        return stated_or_model_provider(None, model), model
    own_model = (
        _model_served_by_databricks(event.endpoint_name)
        or _model_served_by_databricks(event.destination_name)
        or model
    )
    return (NAME if own_model else None), own_model


def _model_served_by_databricks(written: Any) -> str | None:
    name = text_or_none(written)
    if name is None or not name.startswith(("system.ai.", "databricks-")):
        return None
    return name.removeprefix("system.ai.") if name.startswith("system.ai.databricks-") else name


def _merged_tags(event: DatabricksEvent) -> dict[str, Any]:
    of_request = dict_or_empty(event.request_tags)
    of_serving = dict_or_empty(event.usage_context) or dict_or_empty(
        struct_or_empty(event.request, DatabricksRequest).usage_context
    )
    return dict_or_empty(event.endpoint_tags) | of_serving | of_request


def _call_identity_of_row(record: Inference, event: DatabricksEvent) -> RecordIdentity:
    """
    Return the dedup key of a row, by the call's own ids: an agent's turn and its guardrails share one
    request_id.
    """
    own_id = first_text(event.databricks_request_id, event.invocation_id)
    if own_id is not None:
        return call_identity(record, own_id=own_id)
    return call_identity(record, shared_id=record.request_id)


def example_body(call: ExampleCall) -> Any:
    return [
        {
            "workspace_id": "1234567890123456",
            "request_id": call.uuid,
            "invocation_id": call.trace_id,
            "endpoint_name": "example-endpoint",
            "event_time": call.start_text,
            "latency_ms": call.duration_ms,
            "destination_type": _EXTERNAL,
            "destination_name": "main.default.example",
            "destination_model": call.model,
            "requester": "example-user",
            "requester_type": "USER",
            "api_type": "openai/v1/chat/completions",
            "request_tags": {"team": "example-team"},
            "input_tokens": call.input_tokens,
            "output_tokens": call.output_tokens,
            "total_tokens": call.input_tokens + call.output_tokens,
            "token_details": {"cache_read_input_tokens": call.cached_tokens, "output_reasoning_tokens": 0},
            "status_code": 200,
        }
    ]


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_databricks_fields,
    example=example_body,
    event=DatabricksEvent,
    calls=read_calls,
    origins={
        "request_id": "invocation_id, else request_id (model serving: databricks_request_id)",
        "trace_id": "request_id",
        "start_time": "event_time (model serving: request_time)",
        "end_time": "event_time + latency_ms (model serving: request_time + execution_duration_ms)",
        "provider": "destination_type, else derived from the model name",
        "operation": "api_type, else url",
        "region": "response.usage.inference_geo",
        "request_model": "endpoint_name, else destination_name, else destination_model (model serving: request.model)",
        "response_model": "response.model",
        "input_tokens": "input_tokens (model serving: response.usage, else input_token_count)",
        "output_tokens": "output_tokens (model serving: response.usage, else output_token_count)",
        "cache_read_tokens": "token_details.cache_read_input_tokens (model serving: response.usage)",
        "cache_write_tokens": "token_details.cache_creation_input_tokens (model serving: response.usage)",
        "reasoning_tokens": "token_details.output_reasoning_tokens (model serving: response.usage)",
        "status": "status_code",
        "error_type": "status_code",
        "user": "requester, else request_tags.user (model serving: usage_context.user)",
        "team": "request_tags.team, else endpoint_tags.team (model serving: usage_context.team)",
        "session": "request_tags.session, else endpoint_tags.session (model serving: usage_context.session)",
    },
)
