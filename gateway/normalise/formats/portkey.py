"""
Portkey: rows of its analytics, lines of exports, the JSON file of one log (with or without its row), and
posts of its log hook.

Costs are in cents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import MAX_EMAX, MIN_EMIN, Context
from typing import Any

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    add_tier_tag,
    declare_field_with_payload_name,
    has_object_with,
    is_model_call,
    mark_as_failed,
    mark_as_failed_if_http_error,
    set_normalised_counts,
)
from gateway.normalise.payload.provider_bodies import ProviderBody
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, first_key_name
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import (
    CHAT,
    COMPLETION,
    EMBEDDINGS,
    IMAGE,
    RERANK,
    SPEECH,
    TRANSCRIPTION,
    operation_of_path,
)
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.request_ids import RequestIdHeaders, dedup_keys_from_headers
from gateway.normalise.reading.times import end_after_milliseconds, parse_instant
from gateway.normalise.reading.tokens import Tokens
from gateway.normalise.reading.values import (
    Other,
    dict_or_empty,
    first_text,
    is_false,
    parse_amount,
    parse_count,
    parse_number,
    status_code,
    struct_or_empty,
    text_or_none,
)
from spool.identity import call_identity
from spool.record import Inference

NAME = "portkey"

# Portkey's log hook: request type -> operation
_OPERATIONS = {
    "chatComplete": CHAT,
    "messages": CHAT,
    "createModelResponse": CHAT,
    "complete": COMPLETION,
    "embed": EMBEDDINGS,
    "rerank": RERANK,
    "imageGenerate": IMAGE,
    "createTranscription": TRANSCRIPTION,
    "createSpeech": SPEECH,
}

# With this context, the decimal point of any JSON number is shifted exactly. The default precision of 28
# digits would round, and large exponents would overflow.
_EXACT = Context(prec=4096, Emax=MAX_EMAX, Emin=MIN_EMIN)


class PortkeyConfig(msgspec.Struct):
    provider: Any = None


class PortkeyHeaders(RequestIdHeaders):
    """The headers of a Portkey log that are read. All other headers may hold masked provider keys."""

    config: Any = declare_field_with_payload_name("x-portkey-config")
    provider: Any = declare_field_with_payload_name("x-portkey-provider")
    trace_id: Any = declare_field_with_payload_name("x-portkey-trace-id")
    metadata: Any = declare_field_with_payload_name("x-portkey-metadata")
    cache_status: Any = declare_field_with_payload_name("x-portkey-cache-status")


class PortkeyRequest(msgspec.Struct):
    url: Any = None
    json: ProviderBody | Other = None  # response body, which only the hook sends
    headers: PortkeyHeaders | Other = None
    body: ProviderBody | Other = None
    portkeyHeaders: PortkeyHeaders | Other = None


class PortkeyResponse(msgspec.Struct):
    status: Any = None
    json: ProviderBody | Other = None  # response body, which only the hook sends
    statusCode: Any = None
    responseTime: Any = None
    headers: PortkeyHeaders | Other = None
    body: ProviderBody | Other = None


class PortkeyEvent(msgspec.Struct):
    created_at: Any = None
    # JSON members of table rows and of export lines.
    id: Any = None
    trace_id: Any = None
    ai_org: Any = None
    ai_model: Any = None
    req_units: Any = None
    res_units: Any = None
    cost: Any = None
    request_url: Any = None
    response_time: Any = None
    response_status_code: Any = None
    is_success: Any = None
    cache_status: Any = None
    metadata: Any = None
    # Portkey's table has this column name
    metadata_keys: Any = declare_field_with_payload_name("metadata.key")
    metadata_values: Any = declare_field_with_payload_name("metadata.value")
    environment: Any = declare_field_with_payload_name("_environment")
    end_user: Any = declare_field_with_payload_name("_user")
    user_id: Any = None
    workspace_slug: Any = None
    api_key_id: Any = None
    # Fields of Portkey's JSON file of a single log.
    file_id: Any = declare_field_with_payload_name("_id")
    organisation_id: Any = None
    request: PortkeyRequest | Other = None
    response: PortkeyResponse | Other = None
    metrics: PortkeyEvent | Other = None
    # Members that only a post of the log hook has.
    provider: Any = None
    requestType: Any = None


def has_portkey_fields(members: RawMembers) -> bool:
    return (
        "ai_org" in members
        or has_object_with(members, "request", "portkeyHeaders")
        or (
            has_object_with(members, "request", "json") and has_object_with(members, "response", "statusCode")
        )
    )


def read_calls(event: PortkeyEvent) -> Iterable[ReadCall]:
    """
    Read one analytics row, export line, log file or hook post as one call.

    An export line may have a file's members. A log file without bodies has its analytics row (`metrics`). A
    hook that runs before the request has no response, so it is not a call.
    """
    metrics = struct_or_empty(event.metrics, PortkeyEvent)
    for read, source in (
        (_read_analytics_row, event),
        (_read_log_file, event),
        (_read_webhook_event, event),
        (_read_analytics_row, metrics),
    ):
        call = read(source)
        if is_model_call(call.record):
            return (call,)
    return ()


def _read_analytics_row(event: PortkeyEvent) -> ReadCall:
    # NA is what Portkey writes if it found no model
    model = None if event.ai_model == "NA" else event.ai_model
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(event.id),
        trace_id=text_or_none(event.trace_id),
        start_time=parse_instant(event.created_at),
        provider=stated_or_model_provider(event.ai_org, model),
        operation=operation_of_path(event.request_url),
        request_model=model_without_prefix(model, event.ai_org),
        team=text_or_none(event.workspace_slug),
        api_key=first_key_name(event.api_key_id),
    )
    record.region = region_of_call(address=event.request_url, model=model)
    record.end_time = end_after_milliseconds(record.start_time, event.response_time)
    set_normalised_counts(
        record, Tokens(parse_count(event.req_units, "req_units"), parse_count(event.res_units, "res_units"))
    )
    if not mark_as_failed_if_http_error(record, event.response_status_code):
        if event.is_success is not None and is_false(event.is_success):
            mark_as_failed(record)
        elif _is_cache_hit(event.cache_status):
            record.status = "cached"
    record.cost = cost_unless_placeholder_zero(record, _dollars_from_cents(event.cost))
    metadata = CallMetadata()
    metadata.add_tag("environment", text_or_none(event.environment))
    _add_metadata_facts(
        metadata, event.metadata or {"key": event.metadata_keys, "value": event.metadata_values}
    )
    metadata.fill_record(record, principal=text_or_none(event.user_id), end_user=text_or_none(event.end_user))
    return ReadCall(record, call_identity(record, own_id=record.request_id), metadata.left_out)


def _read_log_file(event: PortkeyEvent) -> ReadCall:
    request, response = (
        struct_or_empty(event.request, PortkeyRequest),
        struct_or_empty(event.response, PortkeyResponse),
    )
    request_body, response_body = (
        struct_or_empty(request.body, ProviderBody),
        struct_or_empty(response.body, ProviderBody),
    )
    headers = struct_or_empty(request.portkeyHeaders, PortkeyHeaders)
    answer_headers = struct_or_empty(response.headers, PortkeyHeaders)
    cache_status = answer_headers.cache_status
    row = struct_or_empty(event.metrics, PortkeyEvent)
    written_provider = struct_or_empty(headers.config, PortkeyConfig).provider or headers.provider
    record = Inference(
        id=b"",
        source=NAME,
        request_id=first_text(event.file_id, event.id),
        trace_id=first_text(headers.trace_id, event.trace_id),
        start_time=parse_instant(event.created_at) or parse_instant(row.created_at),
        provider=stated_or_model_provider(
            written_provider, request_body.model or response_body.answering_model
        ),
        operation=operation_of_path(request.url),
        request_model=model_without_prefix(request_body.model, written_provider),
        response_model=model_without_prefix(response_body.answering_model, written_provider),
        team=text_or_none(event.organisation_id),
    )
    record.region = region_of_call(
        response_body.processing_geography, address=request.url, model=request_body.model
    )
    record.end_time = end_after_milliseconds(record.start_time, response.responseTime)
    set_normalised_counts(record, response_body.counted_tokens(request_body))
    if not mark_as_failed_if_http_error(record, response.status) and _is_cache_hit(cache_status):
        record.status = "cached"
    gateway_cost = cost_unless_placeholder_zero(record, _dollars_from_cents(row.cost))
    # a cached response repeats what its first call cost
    is_cached = record.status == "cached"
    record.cost = gateway_cost if is_cached else response_body.billed_cost or gateway_cost
    metadata = CallMetadata()
    _add_metadata_facts(metadata, headers.metadata)
    add_tier_tag(metadata, response_body.service_tier_name)
    metadata.fill_record(record)
    identity = response_body.call_identity(record, own_id=record.request_id)
    names = dedup_keys_from_headers(record, answer_headers)
    identity = identity._replace(also=identity.also + names)
    return ReadCall(record, identity, metadata.left_out, names_request=bool(names))


def _read_webhook_event(event: PortkeyEvent) -> ReadCall:
    request, response = (
        struct_or_empty(event.request, PortkeyRequest),
        struct_or_empty(event.response, PortkeyResponse),
    )
    request_body, response_body = (
        struct_or_empty(request.json, ProviderBody),
        struct_or_empty(response.json, ProviderBody),
    )
    headers = struct_or_empty(request.headers, PortkeyHeaders)
    record = Inference(id=b"", source=NAME)
    if not status_code(response.statusCode):
        return ReadCall(record, call_identity(record))
    record.request_id = text_or_none(response_body.id) or text_or_none(response_body.responseId)
    record.trace_id = text_or_none(headers.trace_id)
    record.provider = stated_or_model_provider(
        event.provider, request_body.model or response_body.answering_model
    )
    record.operation = _OPERATIONS.get(text_or_none(event.requestType) or "")
    record.request_model = model_without_prefix(request_body.model, event.provider)
    record.response_model = model_without_prefix(response_body.answering_model, event.provider)
    record.region = region_of_call(
        response_body.processing_geography, address=request.url, model=request_body.model
    )
    set_normalised_counts(record, response_body.counted_tokens(request_body))
    mark_as_failed_if_http_error(record, response.statusCode)
    record.cost = response_body.billed_cost
    metadata = CallMetadata()
    _add_metadata_facts(metadata, event.metadata)
    add_tier_tag(metadata, response_body.service_tier_name)
    metadata.fill_record(record)
    return ReadCall(record, response_body.call_identity(record, own_id=record.request_id), metadata.left_out)


def _is_cache_hit(cache_status: Any) -> bool:
    return "hit" in (text_or_none(cache_status) or "").lower()


def _dollars_from_cents(written: Any) -> str | None:
    cents = parse_number(written, "cost")
    return None if cents is None else parse_amount(cents.scaleb(-2, _EXACT), "cost")


def _add_metadata_facts(metadata: CallMetadata, reported_fields: Any) -> None:
    pairs = dict(_pairs_of_facts(dict_or_empty(reported_fields)))
    metadata.add_tag("environment", text_or_none(pairs.pop("_environment", None)))
    metadata.add_caller_and_tags(pairs)


def _pairs_of_facts(reported_fields: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    names, values = reported_fields.get("key"), reported_fields.get("value")
    if isinstance(names, list) and isinstance(values, list):
        pairs = zip(names, values, strict=False)
        return ((name, value) for name, value in pairs if isinstance(name, str))
    return iter(reported_fields.items())


def example_body(call: ExampleCall) -> Any:
    return {
        "id": call.uuid,
        "trace_id": call.trace_id,
        "created_at": call.start_text,
        "response_time": call.duration_ms,
        "ai_org": "openai",
        "ai_model": call.model,
        "req_units": call.input_tokens,
        "res_units": call.output_tokens,
        "cost": call.cost * 100,
        "request_url": "https://api.openai.com/v1/chat/completions",
        "response_status_code": 200,
        "workspace_slug": "example-team",
        "metadata": {"_user": "example-user", "env": "example"},
    }


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_portkey_fields,
    example=example_body,
    event=PortkeyEvent,
    calls=read_calls,
    origins={
        "request_id": "id (log file: _id; hook: response.json.id)",
        "trace_id": "trace_id (log file: x-portkey-trace-id)",
        "start_time": "created_at",
        "end_time": "created_at + response_time",
        "provider": "ai_org (log file: provider in x-portkey-config; hook: provider)",
        "operation": "request_url (log file: request.url; hook: requestType)",
        "region": "usage.inference_geo of the response, else the called URL",
        "request_model": "ai_model (log file: request.body.model; hook: request.json.model)",
        "response_model": "response.body.model (hook: response.json.model)",
        "input_tokens": "req_units (log file: response.body.usage; hook: response.json.usage)",
        "output_tokens": "res_units (log file: response.body.usage; hook: response.json.usage)",
        "cache_read_tokens": "response.body.usage (hook: response.json.usage)",
        "cache_write_tokens": "response.body.usage (hook: response.json.usage)",
        "reasoning_tokens": "response.body.usage (hook: response.json.usage)",
        "cost": "cost / 100 (cents)",
        "status": "response_status_code, is_success, cache_status (hook: response.statusCode)",
        "error_type": "response_status_code (hook: response.statusCode)",
        "user": "user_id, else _user",
        "team": "workspace_slug (log file: organisation_id)",
        "session": "metadata.session_id",
        "api_key": "api_key_id",
    },
)
