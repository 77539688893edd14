"""
VoltAgent. The span of a model's run reports only the last call of a run with tools. The agent's span has the sum.
"""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, SpanRole, TelemetryProduct
from gateway.normalise.otlp.span_rules import is_failed_span
from gateway.normalise.reading import operations
from spool.identity import dedup_key_from_call_id

SOURCE = "voltagent"
_TYPE, _MODEL_RUN = "span.type", "llm"
_TOOLS, _ATTEMPT = "llm.tools.count", "llm.attempt"
_OPERATION_ID = ("operation.id",)
_OF_AGENT = {
    "input": "usage.prompt_tokens",
    "output": "usage.completion_tokens",
    "cache_read": "usage.cached_tokens",
    "reasoning": "usage.reasoning_tokens",
    "total": "usage.total_tokens",
}


def _operation_if_call(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    attributes = span.attributes
    kind = attributes.get(_TYPE)
    if kind == _MODEL_RUN:
        is_summed_up = (
            _is_main_model_run(span)
            and bool(attributes.get(_TOOLS))
            and not is_failed_span(span, attribute_names)
        )
        return None if is_summed_up else operations.CHAT
    is_agent = kind is None and attributes.get("entity.type") == "agent"
    return operations.CHAT if is_agent and _OF_AGENT["input"] in attributes else None


def _is_main_model_run(span: Span) -> bool:
    """Return whether a model run produces the agent's response. The agent's counts exclude all other runs."""
    return _ATTEMPT in span.attributes


def _correct_cost_and_mark_attempt(span: Span, call: SpanCall) -> None:
    if span.attributes.get(_TYPE) != _MODEL_RUN:
        call.record.cost = None  # the span states the cost of its last call only, so ignore it
    elif not _is_main_model_run(span):
        call.is_attempt = True
        return
    operation_id = semconv.first_text(span.attributes, _OPERATION_ID)
    if operation_id is not None and call.has_usage:
        call.also += (dedup_key_from_call_id(SOURCE, operation_id),)


def _span_role(span: Span, attribute_names: AttributeNamesByField) -> SpanRole:
    # Agents below a tool or a scorer make calls of their own, so their spans are agents.
    return SpanRole(is_agent=span.attributes.get(_TYPE) != _MODEL_RUN)


PRODUCT = TelemetryProduct(
    source=SOURCE,
    scopes=("@voltagent/core",),
    marks=("llm.model_index", "voltagent.operation_id"),
    names={"cache_read": ("llm.usage.cached_tokens",), "reasoning": ("llm.usage.reasoning_tokens",)},
    own_names={
        **{field: (f"llm.{name}", name) for field, name in _OF_AGENT.items()},
        "request_model": ("llm.model", "ai.model.name"),
        "cost": ("usage.cost",),
    },
    tags={"agent": ("subagent.name", "entity.name")},
    spans=SpanDialect(operation=_operation_if_call, refine=_correct_cost_and_mark_attempt, role=_span_role),
)
