"""
A product that is in no list, declared in one file as a developer would. The file does not mention the memory.
"""

from __future__ import annotations

from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, TelemetryProduct
from gateway.normalise.otlp.span_rules import provider_rule_with_default
from gateway.normalise.reading import operations


def _operation(span: Span, attribute_names: AttributeNamesByField) -> str | None:
    return operations.CHAT if span.attributes.get("madeup.step") == "ask" else None


def _refine(span: Span, call: SpanCall) -> None:
    """Set the region of draft calls, which only the run's name identifies."""
    if str(span.attributes.get("madeup.run", "")).startswith("draft:"):
        call.record.region = "drafts"


PRODUCT = TelemetryProduct(
    source="madeup",
    marks=("madeup.step",),
    names={
        "input": ("madeup.read",),
        "output": ("madeup.written",),
        "request_model": ("madeup.engine",),
        "session": ("madeup.session",),
    },
    spans=SpanDialect(operation=_operation, provider=provider_rule_with_default("openai"), refine=_refine),
)
