"""Google's Agent Development Kit: spans of the conventions, and the model's answer as an object."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.normalise.otlp.containers import counts, object_in, token_counts_under
from gateway.normalise.otlp.conventions import LOGGED
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import Fields, Product, SpanDialect
from gateway.normalise.reading import operations

_RESPONSE = "gcp.vertex.agent.llm_response"
_USAGE = "usage_metadata"
# Of the model's answer: its span and its event bear it. Under OpenInference the answers of a whole turn share
# one span.
_ANSWER = ("gcp.vertex.agent.event_id",)


def _response(value: Any) -> Fields:
    names = {"cache_read": ("cached_content_token_count",), "total": ("total_token_count",)}
    return counts(object_in(value, _USAGE), names)


def _is_agent(span: Span) -> bool:
    return span.name.startswith("agent_run [")  # of its first versions, which name no operation


PRODUCT = Product(
    source="google_adk",
    scopes=("gcp.vertex.agent",),
    containers={_RESPONSE: _response},
    reductions={_RESPONSE: token_counts_under(_USAGE)},
    details=replace(LOGGED, own_id=_ANSWER, call_id=_ANSWER, operation=operations.GENERATE),
    spans=SpanDialect(
        # Its thoughts stand apart from the candidates' tokens under this name only.
        without_reasoning=("gen_ai.usage.experimental.reasoning_tokens",),
        is_agent=_is_agent,
    ),
)
