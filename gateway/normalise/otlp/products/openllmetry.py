"""OpenLLMetry (Traceloop): spans with older names of the GenAI conventions."""

from __future__ import annotations

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import KindAttribute, TelemetryProduct


def _is_from_instrumentation(span: Span) -> bool:
    return span.scope.name.startswith("opentelemetry.instrumentation.")


PRODUCT = TelemetryProduct(
    source="openllmetry",
    marks=("llm.request.type",),
    mark_beginnings=("traceloop.", "llm.usage."),
    weak_marks={"gen_ai.usage.total_tokens": _is_from_instrumentation},
    names={
        "input": ("llm.usage.prompt_tokens",),
        "output": ("llm.usage.completion_tokens",),
        "total": ("llm.usage.total_tokens",),
    },
    metadata=("traceloop.association.properties.",),
    kinds=(KindAttribute(attribute="traceloop.span.kind"),),
)
