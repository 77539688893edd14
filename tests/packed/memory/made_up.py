"""A product that is in no list, in one file, as somebody adds one: nothing here says a word about the memory."""

from __future__ import annotations

from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.product import AttributeShape, Product, SpanDialect
from gateway.normalise.reading import operations
from spool.record import Inference


def _operation(span: Span, shape: AttributeShape) -> str | None:
    return operations.CHAT if span.attributes.get("madeup.step") == "ask" else None


def _refine(span: Span, record: Inference) -> None:
    """Its draft mode is told by the name of a run alone."""
    if str(span.attributes.get("madeup.run", "")).startswith("draft:"):
        record.region = "drafts"


PRODUCT = Product(
    source="madeup",
    marks=("madeup.step",),
    names={
        "input": ("madeup.read",),
        "output": ("madeup.written",),
        "request_model": ("madeup.engine",),
        "session": ("madeup.session",),
    },
    spans=SpanDialect(operation=_operation, provider="openai", refine=_refine),
)
