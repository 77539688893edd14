"""
LiteLLM's proxy: spans whose operations are LiteLLM's call types, and whose response model may be the caller's
alias.
"""

from __future__ import annotations

import re
from typing import Any

from gateway.normalise.litellm_calls import (
    dedup_keys_from_provider_headers,
    further_dedup_keys,
    links_to_openmeter_count,
    lost_response_id,
    reads_stored_response,
    remove_zeros_of_background_call,
)
from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import Caller, SpanCall, merge_callers
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanFields, TelemetryProduct
from gateway.normalise.otlp.span_rules import operation_by_span_name
from gateway.normalise.otlp.usage_objects import counts_by_field, numbers_in_python_repr
from gateway.normalise.reading import agent_headers, operations, values
from gateway.normalise.reading.assistants import program_of_request

_RAW_TWIN = "raw_gen_ai_request"
CACHE_HIT = "_cache_hit"
_CACHE_HIT = re.compile(rf".+{CACHE_HIT}\d+(?:\.\d+)?")
# attribute of the call id, which a failed attempt and its fallback share, so it identifies no call
_CALL_ID = "litellm.call_id"
# attribute with the same value as `trace_id` in LiteLLM's log, from integrations without a call id
_TRACE_ID = "litellm.trace_id"
_HIDDEN = "hidden_params"
_USAGE = {
    "cache_read": ("cached_tokens", "cache_read_input_tokens"),
    "cache_write": ("cache_creation_tokens", "cache_creation_input_tokens"),
    "cache_write_1h": ("ephemeral_1h_input_tokens",),
    "reasoning": ("reasoning_tokens",),
}


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    if span.name == _RAW_TWIN:
        return None
    call_type = semconv.first_text(span.attributes, semconv.OPERATION)
    if reads_stored_response(call_type):
        return None
    if call_type is None:
        return operation_by_span_name(span, attribute_names)
    return operations.operation_of_function_name(call_type)


def _id_of_cached_response(attributes: Attributes) -> str | None:
    """
    Return the id of a response from the cache, or None if the response is not known to come from the cache.

    If LiteLLM made up an id for the cached response, return that id, because the generic callback reports it as
    well. Otherwise return the call id if the span states a cache hit. Older spans state no cache hit, so they
    are recognized only by a made-up id, which LiteLLM gives embeddings, for example. Any other id repeats the
    id of the first call, so the response counts as that call.
    """
    response_id = values.text_or_none(attributes.get("gen_ai.response.id"))
    if response_id is not None and _CACHE_HIT.fullmatch(response_id):
        return response_id
    return (
        values.text_or_none(attributes.get(_CALL_ID)) if attributes.get("litellm.cache_hit") is True else None
    )


def _response_id_or_id_of_several_calls(attributes: Attributes) -> tuple[str | None, str | None]:
    response_id, shared_id = semconv.response_id_or_id_of_several_calls(
        attributes, shared_id_names=(*semconv.SHARED_ID, _CALL_ID)
    )
    if response_id is not None and response_id == attributes.get(_CALL_ID):
        return None, response_id
    return response_id, shared_id


def _apply_litellm_attributes(span: Span, call: SpanCall) -> None:
    record, attributes = call.record, span.attributes
    if record.status == "ok" and (own_id := _id_of_cached_response(attributes)) is not None:
        record.status, call.own_id = "cached", own_id
    alias = attributes.get("litellm.model_group")
    if record.response_model == alias and alias != record.request_model:
        record.response_model = None
    if record.request_id is None:
        # LiteLLM's generic callback reports the call under this id as well
        record.request_id = values.text_or_none(attributes.get(_CALL_ID))
    # All integrations of LiteLLM write into one trace, but not all of them state the trace id.
    trace_ids = (values.text_or_none(attributes.get(_TRACE_ID)), record.trace_id)
    call_type = semconv.first_value(attributes, semconv.OPERATION)
    remove_zeros_of_background_call(record, call_type)
    call_id = values.text_or_none(attributes.get(_CALL_ID))
    call.also = further_dedup_keys(record, call_type=call_type, trace_ids=trace_ids, call_id=call_id)
    call.links = links_to_openmeter_count(record, call_type=call_type, call_id=call_id)
    client = agent_headers.parse_headers_in_text(attributes.get("metadata.requester_custom_headers"))
    if (session := client.session_id) is not None:
        client.fill_run(record)
        call.caller = merge_callers(call.caller, Caller(session=session))
        call.relayed_session = session
    call.lacks_common_id = session is None and lost_response_id(record, call_type=call_type)
    call.further_model = values.text_or_none(alias)
    user_agent = attributes.get("metadata.user_agent")
    call.program = program_of_request(user_agent=user_agent, initiator=client.initiator)
    if record.status == "error":
        names = dedup_keys_from_provider_headers(record, attributes.get(_HIDDEN))
        call.also, call.names_request = call.also + names, bool(names)


def _usage_fields(value: Any) -> SpanFields:
    return counts_by_field(numbers_in_python_repr(value), _USAGE)


PRODUCT = TelemetryProduct(
    source="litellm",
    scopes=("litellm",),
    is_gateway=True,
    # True, because LiteLLM's spans for Langfuse and Arize use the attribute names of OpenInference
    scopes_above_marks=True,
    scope_beginnings=("litellm.",),
    services=("litellm",),
    mark_beginnings=("metadata.user_api_key_", "litellm."),
    names={
        "cost": ("litellm.cost.total",),
        "team": ("metadata.user_api_key_team_id", "litellm.team.id"),
        "api_key": ("metadata.user_api_key_alias",),
    },
    containers={"metadata.usage_object": _usage_fields},
    zero_cost_is_unknown=True,
    spans=SpanDialect(
        operation=_operation_if_call,
        ids=_response_id_or_id_of_several_calls,
        refine=_apply_litellm_attributes,
    ),
)
