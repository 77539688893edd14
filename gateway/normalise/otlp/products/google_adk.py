"""
Google's Agent Development Kit (ADK): spans of the GenAI conventions, with the model's response as an object.
The kit for Python writes the members of that object in snake case, and the kits for JavaScript and Java in
camel case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanRole, TelemetryProduct
from gateway.normalise.otlp.span_rules import ERROR_CODE, operation_by_span_name
from gateway.normalise.otlp.usage_objects import UsageObject, first_usage_with_counts
from gateway.normalise.payload.items import UNREADABLE
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.tokens import Tokens, sum_of_known
from gateway.normalise.reading.values import Other, decimal_json_decoder, first_machine_readable
from spool.identity import dedup_key_from_call_id

SOURCE = "google_adk"
_RESPONSE = "gcp.vertex.agent.llm_response"
_THOUGHTS_APART = "gen_ai.usage.experimental.reasoning_tokens"
# Attribute with the id of the model's response, on its span and its event. A span of OpenInference covers a
# whole turn, so it has several responses.
_ANSWER = ("gcp.vertex.agent.event_id",)
_CALL = "call_llm"
_ANSWERED = frozenset({*semconv.PROVIDER, *semconv.REQUEST_MODEL, semconv.OPERATION_NAME})
# Finish reasons that the kit writes as an error if the response has no content.
_ENDS = frozenset({"STOP", "MAX_TOKENS"})
_LANGUAGE = "telemetry.sdk.language"
_JAVA = "java"
# languages that the kit for JavaScript states; by default it states none
_JAVASCRIPT = frozenset({None, "nodejs", "webjs"})


class AdkResponse(msgspec.Struct):
    """The model's response in a span of Google's ADK, in both spellings. Content is not decoded."""

    usage_metadata: UsageObject | Other = None
    usageMetadata: UsageObject | Other = None
    error_code: Any = None
    errorCode: Any = None


def _counts_and_error_of_response(written: str) -> dict[str, Any]:
    try:
        response = decimal_json_decoder(AdkResponse).decode(written)
    except UNREADABLE:
        return {}
    stated = first_usage_with_counts(response.usageMetadata, response.usage_metadata)
    error = values.text_or_none(response.errorCode) or values.text_or_none(response.error_code)
    return (
        stated if error is None or error in _ENDS else {**stated, "error": first_machine_readable((error,))}
    )


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    # the kit for Java writes the name of the span as the operation, so compare that
    is_call = span.attributes.get(semconv.OPERATION_NAME) == _CALL or _is_unanswered(span)
    return operations.GENERATE if is_call else operation_by_span_name(span, attribute_names)


def _is_unanswered(span: Span) -> bool:
    """
    Return whether a span is a call without a response, because it raised an exception. Such a span has no
    model. In Google's ADK for Python this returns False, because a span below reports the failure.
    """
    if span.name != _CALL or any(name in span.attributes for name in _ANSWERED):
        return False
    language = span.resource.attributes.get(_LANGUAGE)
    return language in _JAVASCRIPT or (language == _JAVA and span.status_code == ERROR_CODE)


def _set_counts_and_error_from_response(span: Span, call: SpanCall) -> None:
    record, response = call.record, span.attributes.get(_RESPONSE)
    response = response if isinstance(response, dict) else {}
    # Read the whole response, because the counts in attributes omit tool results, and some omit reasoning.
    whole = Tokens(*[response.get(field) for field in Tokens._fields])
    if "total" in response and sum_of_known(whole.input, whole.output) == response["total"]:
        call.replace_counts(whole)
    error = response.get("error")
    if record.status == "ok" and (error is not None or _is_unanswered(span)):
        record.status, record.error_type = "error", error or values.OTHER


def _has_output_count_without_reasoning(span: Span) -> bool:
    """Return whether the attribute for reasoning tokens exists. Then the output count excludes them."""
    return _THOUGHTS_APART in span.attributes


def _add_dedup_key_of_answer(span: Span, call: SpanCall) -> None:
    answer = semconv.first_text(span.attributes, _ANSWER)
    if answer is not None:
        call.also += (dedup_key_from_call_id(SOURCE, answer),)


def _span_role(span: Span, attribute_names: AttributeNamesByField) -> SpanRole:
    # The first versions of Google's ADK name no operation for agents.
    return SpanRole(is_agent=span.name.startswith("agent_run ["))


PRODUCT = TelemetryProduct(
    source=SOURCE,
    scopes=("gcp.vertex.agent",),
    texts={_RESPONSE: _counts_and_error_of_response},
    details=replace(LOGGED, own_id=_ANSWER, call_id=_ANSWER, operation=operations.GENERATE),
    spans=SpanDialect(
        operation=_operation_if_call,
        without_reasoning=_has_output_count_without_reasoning,
        refine=_set_counts_and_error_from_response,
        refine_sent=_add_dedup_key_of_answer,
        role=_span_role,
    ),
)
