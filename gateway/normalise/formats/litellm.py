"""
LiteLLM: the standard logging payload, rows of its spend-log table, and the old payload, in which all
values are text.

This is the most frequent format, so each event is decoded only once, into a typed struct. Of messages and
responses, only the model's name is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

import msgspec

from gateway.normalise.formats.engine.declaration import (
    ExampleCall,
    ItemFormat,
    RawMembers,
    ReadCall,
    add_tier_tag,
    mark_as_failed,
    set_normalised_counts,
)
from gateway.normalise.litellm_calls import (
    dedup_keys_from_provider_headers,
    further_dedup_keys,
    has_response_id_of_provider,
    links_to_openmeter_count,
    links_to_reads,
    litellm_call_identity,
    lost_response_id,
    reads_stored_response,
    remove_zeros_of_background_call,
)
from gateway.normalise.outcome import NOT_AI
from gateway.normalise.payload.literal import read_python_literal
from gateway.normalise.payload.provider_bodies import (
    CohereMeta,
    DocumentPageCounts,
    billed_unit_tokens,
    count_searches_in_output,
    image_meters,
    response_image_meters,
)
from gateway.normalise.reading.agent_headers import NO_HEADERS, AgentHeaders
from gateway.normalise.reading.assistants import program_of_request
from gateway.normalise.reading.costs import cost_unless_placeholder_zero
from gateway.normalise.reading.metadata import CallMetadata, first_key_name
from gateway.normalise.reading.meters import BilledUnits, merge_meters
from gateway.normalise.reading.models import model_without_prefix, stated_or_model_provider
from gateway.normalise.reading.operations import IMAGE, RERANK, operation_of_function_name
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.request_ids import dedup_keys_from_ids
from gateway.normalise.reading.times import parse_instant
from gateway.normalise.reading.tokens import Tokens, Usage, tokens_of_usage
from gateway.normalise.reading.values import (
    Other,
    decode_if_json_text,
    dict_or_empty,
    first_text,
    is_true,
    parse_amount,
    parse_count,
    struct_or_empty,
    struct_or_none,
    text_or_none,
)
from spool.identity import (
    AS_GATEWAY,
    RecordIdentity,
    build_relayed_report,
    dedup_key_of_parts,
    with_dedup_keys_and_links,
)
from spool.record import NS, Inference

NAME = "litellm"
MOST_READ_AFTER_NS = 3600 * NS  # a later read states no new usage

NULL = msgspec.Raw(b"null")
NO_COUNTS = Tokens()


class LiteLLMRequester(msgspec.Struct):
    session_id: Any = None


class LiteLLMFailure(msgspec.Struct):
    error_class: Any = None
    error_code: Any = None
    # provider's request id of a failed call; rows of the spend log have it as well
    error_provider_request_id: Any = None


class LiteLLMCosts(msgspec.Struct):
    """The regions of a call by which LiteLLM found the prices for its cost."""

    data_residency: Any = None
    vertex_location: Any = None


class LiteLLMMeta(msgspec.Struct):
    user_api_key_user_id: Any = None
    user_api_key_user_email: Any = None
    user_api_key_end_user_id: Any = None
    user_api_key_team_id: Any = None
    user_api_key_team_alias: Any = None
    user_api_key_alias: Any = None
    user_api_key_hash: Any = None
    requester_metadata: LiteLLMRequester | Other = None
    user_agent: Any = None
    # every header of the caller that starts with `x-`; only those of assistants are read
    requester_custom_headers: AgentHeaders | Other = None
    spend_logs_metadata: Any = None
    usage_object: Usage | Other = None
    additional_usage_values: Usage | Other = None  # usage in older rows of the spend log
    cost_breakdown: LiteLLMCosts | Other = None  # costs of a call, only in rows of the spend log
    error_information: LiteLLMFailure | Other = None


class LiteLLMResponse(msgspec.Struct):
    model: Any = None
    created_at: Any = None  # seconds; only of the Responses API
    usage: msgspec.Raw = NULL
    service_tier: Any = None
    # Response members with facts that the usage object omits.
    output: Other = None
    data: Other = None
    size: Any = None
    quality: Any = None
    meta: CohereMeta | Other = None
    usage_info: DocumentPageCounts | Other = None


class LiteLLMAsked(msgspec.Struct):
    n: Any = None
    size: Any = None
    quality: Any = None


class LiteLLMEvent(msgspec.Struct):
    id: Any = None
    litellm_call_id: Any = None
    trace_id: Any = None
    session_id: Any = None
    call_type: Any = None
    cache_hit: Any = None
    status: Any = None
    custom_llm_provider: Any = None
    startTime: Any = None
    endTime: Any = None
    model: Any = None
    model_group: Any = None
    api_base: Any = None
    cost_breakdown: LiteLLMCosts | Other = None
    metadata: LiteLLMMeta | Other = None
    response_cost: Any = None
    prompt_tokens: Any = None
    completion_tokens: Any = None
    request_tags: Any = None
    end_user: Any = None
    response: LiteLLMResponse | Other = None
    model_parameters: LiteLLMAsked | Other = None
    error_information: LiteLLMFailure | Other = None
    hidden_params: msgspec.Raw = NULL
    # Columns of LiteLLM's spend log.
    request_id: Any = None
    spend: Any = None
    user: Any = None
    team_id: Any = None
    api_key: Any = None
    # Members of LiteLLM's older payload.
    modelParameters: Any = None
    usage: Usage | Other = None
    cost: Any = None


def has_litellm_fields(members: RawMembers) -> bool:
    return (
        "litellm_call_id" in members
        or {"custom_llm_provider", "call_type"} <= members.keys()
        # payloads of older releases and older rows have these members, and no provider
        or {"call_type", "startTime"} <= members.keys()
    )


def read_calls(event: LiteLLMEvent) -> Iterable[ReadCall]:
    """Read one event or row. Return its call, or nothing if it is not a call."""
    is_row = event.id is None and event.request_id is not None
    if is_row:
        record, left_out = _spend_log_record_and_left_out(event)
    elif isinstance(event.modelParameters, str) and isinstance(event.usage, str):
        record, left_out = _old_payload_record_and_left_out(event)
    else:
        record, left_out = _standard_payload_record_and_left_out(event)
    if _is_tool_call(event, record):
        return ()
    created_at = parse_instant(struct_or_empty(event.response, LiteLLMResponse).created_at)
    if reads_stored_response(event.call_type):
        return _bill_in_read(record, created_at, left_out)
    call_id = text_or_none(event.litellm_call_id)
    identity = litellm_call_identity(record, call_id)
    trace_ids, named = (text_or_none(event.trace_id),), call_id or record.request_id
    also = further_dedup_keys(record, call_type=event.call_type, trace_ids=trace_ids, call_id=named)
    names_of_request = _dedup_keys_of_provider_request(event, record)
    also += names_of_request
    meta = struct_or_empty(event.metadata, LiteLLMMeta)
    client = _client_headers(meta)
    session = client.session_id
    # LiteLLM may take a header with the session as the id of a trace. It also makes up ids of traces, and writes
    # them as the session of rows.
    has_session = session is not None or (record.session is not None and not is_row)
    relay = build_relayed_report(
        record,
        *((record.session, *trace_ids) if session is None else (session,)),
        report_kind=AS_GATEWAY,
        states_request_id=bool(names_of_request),
        lacks_common_id=not has_session and lost_response_id(record, call_type=event.call_type),
        other_names=(text_or_none(event.model_group),),
        program=program_of_request(user_agent=meta.user_agent, initiator=client.initiator),
    )
    links = links_to_openmeter_count(record, call_type=event.call_type, call_id=named)
    links += links_to_reads(record, created_at)
    if also or links or relay is not None:
        is_final = session is not None and record.status == "ok"
        identity = with_dedup_keys_and_links(identity, also, links, (), relay=relay)._replace(
            is_final=is_final
        )
    return (ReadCall(record, identity, left_out),)


def _bill_in_read(record: Inference, created_at: int | None, left_out: int) -> Iterable[ReadCall]:
    """
    Return the read of a new response that has counts. In background mode, only such a read states them. It belongs
    to the call that made the response, and a second read repeats the first one. Other reads are no calls.
    """
    has_counts = record.input_tokens or record.output_tokens
    if created_at is None or record.start_time is None or record.status != "ok" or not has_counts:
        return ()
    if record.start_time - created_at > MOST_READ_AFTER_NS:
        return ()
    record.start_time = record.end_time = created_at
    facts = (record.api_key, record.request_model, created_at, record.input_tokens, record.output_tokens)
    identity = RecordIdentity(dedup_key_of_parts(5, NAME, "read", *facts))
    links = links_to_reads(record, created_at, is_read=True)
    return (ReadCall(record, with_dedup_keys_and_links(identity, (), links, ()), left_out),)


def _dedup_keys_of_provider_request(event: LiteLLMEvent, record: Inference) -> tuple[bytes, ...]:
    if record.status == "ok" and has_response_id_of_provider(record):
        return ()
    names = dedup_keys_from_provider_headers(record, event.hidden_params)
    if names or record.status != "error":
        return names
    failure = struct_or_empty(event.error_information, LiteLLMFailure)
    if failure.error_provider_request_id is None:
        failure = struct_or_empty(
            struct_or_empty(event.metadata, LiteLLMMeta).error_information, LiteLLMFailure
        )
    return dedup_keys_from_ids(record, failure.error_provider_request_id)


def _standard_payload_record_and_left_out(event: LiteLLMEvent) -> tuple[Inference, int]:
    meta = struct_or_empty(event.metadata, LiteLLMMeta)
    record = _build_record(event, meta, event.id, parse_amount(event.response_cost, "response_cost"))
    record.trace_id = text_or_none(event.trace_id)
    record.response_model = _response_model(event, record)
    record.team = first_text(meta.user_api_key_team_id, meta.user_api_key_team_alias)
    record.api_key = first_key_name(meta.user_api_key_alias, meta.user_api_key_hash)
    record.session = text_or_none(event.session_id)
    if record.session is None:
        record.session = first_text(
            struct_or_empty(meta.requester_metadata, LiteLLMRequester).session_id,
            _client_headers(meta).session_id,
        )
    end_user = first_text(event.end_user, meta.user_api_key_end_user_id)
    return record, _add_metadata_and_count_dropped_tags(
        record, event, meta, text_or_none(meta.user_api_key_user_id), end_user
    )


def _spend_log_record_and_left_out(event: LiteLLMEvent) -> tuple[Inference, int]:
    meta = struct_or_empty(event.metadata, LiteLLMMeta)
    record = _build_record(event, meta, event.request_id, parse_amount(event.spend, "spend"))
    record.team = first_text(event.team_id, meta.user_api_key_team_alias)
    record.api_key = first_key_name(meta.user_api_key_alias, event.api_key)
    # a row without a session has the trace id in the session column
    record.session = first_text(_client_headers(meta).session_id, event.session_id)
    return record, _add_metadata_and_count_dropped_tags(
        record, event, meta, text_or_none(event.user), text_or_none(event.end_user)
    )


def _old_payload_record_and_left_out(event: LiteLLMEvent) -> tuple[Inference, int]:
    meta = read_python_literal(event.metadata, LiteLLMMeta)
    event.usage = read_python_literal(event.usage, Usage)
    record = _build_record(event, meta, event.id, parse_amount(event.cost, "cost"))
    record.team = first_text(meta.user_api_key_team_id, meta.user_api_key_team_alias)
    record.api_key = first_key_name(meta.user_api_key_alias, meta.user_api_key_hash)
    return record, _add_metadata_and_count_dropped_tags(
        record, event, meta, text_or_none(meta.user_api_key_user_id), text_or_none(event.user)
    )


def _build_record(event: LiteLLMEvent, meta: LiteLLMMeta, own_id: Any, cost: str | None) -> Inference:
    operation = operation_of_function_name(text_or_none(event.call_type) or "")
    record = Inference(
        id=b"",
        source=NAME,
        request_id=text_or_none(own_id),
        start_time=parse_instant(event.startTime),
        end_time=parse_instant(event.endTime),
        provider=stated_or_model_provider(event.custom_llm_provider, event.model),
        # The convention for operations has no name for rerank.
        operation=None if operation == RERANK else operation,
        request_model=model_without_prefix(event.model, event.custom_llm_provider),
    )
    # the region is set afterwards, because calls with more than 15 keyword arguments are slow in Python
    record.region = _region_of_event(event, meta)
    _client_headers(meta).fill_run(record)
    set_normalised_counts(record, _tokens_of_event(event, meta))
    if event.status == "failure":
        failure = struct_or_empty(event.error_information or meta.error_information, LiteLLMFailure)
        mark_as_failed(record, failure.error_class, failure.error_code)
    elif is_true(event.cache_hit):
        record.status = "cached"
    record.cost = cost_unless_placeholder_zero(record, cost, operation)
    remove_zeros_of_background_call(record, event.call_type)
    return record


def _region_of_event(event: LiteLLMEvent, meta: LiteLLMMeta) -> str | None:
    usage, costs = meta.usage_object, event.cost_breakdown or meta.cost_breakdown
    stated_region = usage.inference_geo if isinstance(usage, Usage) else None
    priced = costs if isinstance(costs, LiteLLMCosts) else LiteLLMCosts()
    model = event.model
    if isinstance(model, str) and model.startswith("bedrock/"):
        model = model.removeprefix("bedrock/").removeprefix("converse/").removeprefix("invoke/")
    return region_of_call(
        stated_region, priced.data_residency, priced.vertex_location, address=event.api_base, model=model
    )


def _client_headers(meta: LiteLLMMeta) -> AgentHeaders:
    headers = meta.requester_custom_headers
    return NO_HEADERS if headers is None else struct_or_empty(headers, AgentHeaders)


def _add_metadata_and_count_dropped_tags(
    record: Inference, event: LiteLLMEvent, meta: LiteLLMMeta, principal: str | None, end_user: str | None
) -> int:
    metadata = CallMetadata()
    metadata.add_labels_as_tags(
        word for word in _tags_as_list(event.request_tags) if not str(word).startswith("User-Agent:")
    )
    response, usage = event.response, meta.usage_object
    used = usage.service_tier if isinstance(usage, Usage) else None
    served = response.service_tier if isinstance(response, LiteLLMResponse) else None
    if used is not None or served is not None:
        add_tier_tag(metadata, used, served)
    if meta.spend_logs_metadata:
        metadata.add_caller_and_tags(dict_or_empty(meta.spend_logs_metadata))
    email = text_or_none(meta.user_api_key_user_email)
    metadata.fill_record(record, principal=principal, email=email, end_user=end_user)
    return metadata.left_out


def _tags_as_list(tags: Any) -> list[Any]:
    tag_list = decode_if_json_text(tags)
    return tag_list if isinstance(tag_list, list) else []


def _tokens_of_event(event: LiteLLMEvent, meta: LiteLLMMeta) -> Tokens:
    """
    Return the counts. LiteLLM's totals have OpenAI's form for every provider. The details are in its usage object.
    """
    details = _with_facts_of_response(_tokens_of_usage_object(event, meta), event)
    input_tokens = parse_count(event.prompt_tokens, "prompt_tokens")
    output_tokens = parse_count(event.completion_tokens, "completion_tokens")
    is_read = reads_stored_response(event.call_type)  # its totals may be 0, although the response has counts
    if is_read or (input_tokens, output_tokens) in (details[:2], (None, None)):
        return details
    return Tokens(input_tokens, output_tokens, *details[2:])


def _with_facts_of_response(tokens: Tokens, event: LiteLLMEvent) -> Tokens:
    """
    Add counts that only the response has: searches in its output, images, pages, and the searches of a rerank
    call.
    """
    answer = struct_or_empty(event.response, LiteLLMResponse)
    extra_meters = count_searches_in_output(answer.output) if answer.output else None
    if answer.data or _is_image_call_without_usage(event, tokens):
        asked = struct_or_empty(event.model_parameters, LiteLLMAsked)
        size, quality = answer.size or asked.size, answer.quality or asked.quality
        extra_meters = (
            response_image_meters(answer.data, size, quality)
            if answer.data
            else image_meters(asked.n, size, quality)
        )
    if answer.usage_info is not None:
        extra_meters = struct_or_empty(answer.usage_info, DocumentPageCounts).page_meters_as_tokens().meters
    if answer.meta is not None:
        billed = struct_or_empty(answer.meta, CohereMeta).billed_units
        extra_meters = billed_unit_tokens(billed).meters if isinstance(billed, BilledUnits) else extra_meters
    return (
        tokens if extra_meters is None else tokens._replace(meters=merge_meters(tokens.meters, extra_meters))
    )


def _is_image_call_without_usage(event: LiteLLMEvent, tokens: Tokens) -> bool:
    if event.status == "failure" or tokens.meters or tokens.input or tokens.output:
        return False
    return operation_of_function_name(text_or_none(event.call_type) or "") == IMAGE


def _tokens_of_usage_object(event: LiteLLMEvent, meta: LiteLLMMeta) -> Tokens:
    """
    Return the counts of the usage object. Its place depends on the version; the oldest have it only in the
    response.
    """
    for usage in (meta.usage_object, meta.additional_usage_values, event.usage):
        if usage is None:
            continue
        tokens = tokens_of_usage(struct_or_empty(usage, Usage))
        if tokens != NO_COUNTS:
            return tokens
    return tokens_of_usage(
        struct_or_none(struct_or_empty(event.response, LiteLLMResponse).usage, Usage) or Usage()
    )


def _response_model(event: LiteLLMEvent, record: Inference) -> str | None:
    """
    Return the model of the response, or None for the caller's alias, which LiteLLM's OpenAI routes write in
    its place.
    """
    stated = text_or_none(struct_or_empty(event.response, LiteLLMResponse).model)
    if stated == event.model_group and stated not in (record.request_model, event.model):
        return None
    return model_without_prefix(stated, event.custom_llm_provider)


def _reason_event_is_ignored(event: LiteLLMEvent) -> str | None:
    is_tool = isinstance(event.call_type, str) and "mcp" in event.call_type
    is_read = reads_stored_response(event.call_type)
    return NOT_AI if is_tool or is_read or event.status == "failure" else None


def _is_tool_call(event: LiteLLMEvent, record: Inference) -> bool:
    """
    Return whether an event is a call of an MCP tool without tokens and price. Such an event has the tool's
    name as its model.
    """
    is_mcp = isinstance(event.call_type, str) and "mcp" in event.call_type
    return is_mcp and not (record.input_tokens or record.output_tokens) and record.cost in (None, "0")


def example_body(call: ExampleCall) -> Any:
    return [
        {
            "id": call.response_id,
            "litellm_call_id": str(uuid4()),
            "trace_id": call.trace_id,
            "call_type": "acompletion",
            "status": "success",
            "custom_llm_provider": "openai",
            "startTime": call.start_ns / 1e9,
            "endTime": call.end_ns / 1e9,
            "model": f"openai/{call.model}",
            "model_group": call.model,
            "prompt_tokens": call.input_tokens,
            "completion_tokens": call.output_tokens,
            "response_cost": call.cost,
            "request_tags": ["env:example"],
            "metadata": {
                "user_api_key_alias": "example-key",
                "user_api_key_team_id": "example-team",
                "user_api_key_user_id": "example-user",
                "usage_object": call.usage,
            },
            "response": {"id": call.response_id, "model": call.model},
        }
    ]


FORMAT = ItemFormat(
    name=NAME,
    has_sign=has_litellm_fields,
    example=example_body,
    event=LiteLLMEvent,
    calls=read_calls,
    ignored_as=_reason_event_is_ignored,
    origins={
        "request_id": "id (spend row: request_id)",
        "start_time": "startTime",
        "end_time": "endTime",
        "provider": "custom_llm_provider, else model",
        "operation": "call_type",
        "request_model": "model without the provider prefix",
        "response_model": "response.model, unless it only repeats model_group",
        "region": "metadata.usage_object.inference_geo, else cost_breakdown, else api_base",
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "cache_read_tokens": "metadata.usage_object.prompt_tokens_details.cached_tokens",
        "cache_write_tokens": "metadata.usage_object.prompt_tokens_details.cache_creation_tokens",
        "reasoning_tokens": "metadata.usage_object.completion_tokens_details.reasoning_tokens",
        "cost": "response_cost (spend row: spend)",
        "status": "status, cache_hit",
        "error_type": "error_information.error_class",
        "user": "metadata.user_api_key_user_id, else its user_api_key_user_email, else end_user",
        "team": "metadata.user_api_key_team_id, else the team alias",
        "session": "session_id, else from requester_metadata, the header of an assistant or end_user",
        "run": "x-claude-code-agent-id",
        "parent_run": "x-claude-code-parent-agent-id",
        "api_key": "metadata.user_api_key_alias, else user_api_key_hash",
    },
)
