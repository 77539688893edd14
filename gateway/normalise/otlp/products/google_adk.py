"""Google's Agent Development Kit: spans of the conventions, with the model's response as an object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Fields, Product, SpanDialect, SpanRole
from gateway.normalise.otlp.usage_objects import counts, object_in, token_counts_under
from gateway.normalise.reading import operations
from spool.identity import of_call_id

SOURCE = "google_adk"
_RESPONSE = "gcp.vertex.agent.llm_response"
_USAGE = "usage_metadata"
_THOUGHTS_APART = "gen_ai.usage.experimental.reasoning_tokens"
# Id of the model's response, on its span and its event. OpenInference's spans cover a whole turn, so one such
# span has several responses.
_ANSWER = ("gcp.vertex.agent.event_id",)


def _response(value: Any) -> Fields:
    names = {"cache_read": ("cached_content_token_count",), "total": ("total_token_count",)}
    return counts(object_in(value, _USAGE), names)


def _leaves_thoughts_out(span: Span) -> bool:
    """Return True if output excludes reasoning. That is the case only with this attribute name."""
    return _THOUGHTS_APART in span.attributes


def _name_answer(span: Span, call: SpanCall) -> None:
    answer = semconv.first_text(span.attributes, _ANSWER)
    if answer is not None:
        call.also += (of_call_id(SOURCE, answer),)


def _role(span: Span, shape: AttributeShape) -> SpanRole:
    # The first versions of Google's ADK name no operation for agents.
    return SpanRole(is_agent=span.name.startswith("agent_run ["))


PRODUCT = Product(
    source=SOURCE,
    scopes=("gcp.vertex.agent",),
    containers={_RESPONSE: _response},
    reductions={_RESPONSE: token_counts_under(_USAGE)},
    details=replace(LOGGED, own_id=_ANSWER, call_id=_ANSWER, operation=operations.GENERATE),
    spans=SpanDialect(without_reasoning=_leaves_thoughts_out, refine_sent=_name_answer, role=_role),
)
