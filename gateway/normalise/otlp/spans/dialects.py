"""Whose dialect a span speaks: by its attributes where they tell, else by scope and sender."""

from __future__ import annotations

from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.model import Resource, Scope, Span
from gateway.normalise.otlp.product import AttributeShape, Product
from gateway.normalise.otlp.sources import sender_of


def span_sender_of(resource: Resource, scope: Scope) -> Product:
    """The product that sends, before its spans have said anything."""
    sender = sender_of(resource, scope)
    return sender if sender.names_spans else OTEL


def product_of(span: Span, shape: AttributeShape, sender: Product) -> Product:
    """The product whose dialect a span speaks."""
    marked = shape.product
    if marked is not None and (marked.marks_above_sender or sender is OTEL):
        return marked
    if sender is OTEL:
        for product, holds in shape.weak_marks:
            if holds(span):
                return product
    return sender
