"""
The log events that are AI calls, collected from the products.

Everything else that these products log (prompts, tools, turns, sub-agents, compactions) repeats a call or is none.
"""

from __future__ import annotations

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.conventions import LOGGED, OTEL
from gateway.normalise.otlp.metrics.families import find_family, is_repeat
from gateway.normalise.otlp.model import Attributes, LogRecord
from gateway.normalise.otlp.product import LogEvent, Product
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.reading import operations, values
from gateway.normalise.reading.ai_names import is_usage_name

DETAILS = "gen_ai.client.inference.operation.details"  # the conventions' event


def _is_call(attributes: Attributes) -> bool:
    operation = values.text(attributes.get("gen_ai.operation.name"))
    if operation is not None:
        return operation in operations.BY_NAME
    named = semconv.first_text(attributes, (*LOGGED.model, *LOGGED.response_model, *LOGGED.provider))
    figures = (*LOGGED.tokens.input, *LOGGED.tokens.output)
    reported = semconv.first_name(attributes, (*figures, *semconv.ERROR_TYPE))
    return named is not None and reported is not None


_EVENTS = {name: (product, event) for product in PRODUCTS for name, event in product.events.items()}
_DETAILS = {
    product: LogEvent(dialect=product.details, is_call=_is_call, adds_to_call=True)
    for product in PRODUCTS
    if product.details is not None  # the others write it as the conventions say
}
_NAMING = tuple([product.event_name for product in PRODUCTS if product.event_name is not None])
_UNDERSTOOD = tuple([beginning for product in PRODUCTS for beginning in product.event_beginnings])
_STEPS_OF_COUNTERS = frozenset({"counter", "monotonic_counter", "histogram"})
_NO_CALLS = frozenset({name for product in PRODUCTS for name in product.no_calls})


def find_event(name: str, sender: Product) -> tuple[Product, LogEvent] | None:
    """The product whose event has that name, and what it stands for; None when it can be no call."""
    if name == DETAILS:
        return sender, _DETAILS.get(sender, _DETAILS[OTEL])
    return _EVENTS.get(name)


def is_understood(name: str, attributes: Attributes) -> bool:
    """True if an event without an entry in the table is known to be no call."""
    return name in _NO_CALLS or (name.startswith(_UNDERSTOOD) and not _counts(attributes))


def repeats_counters(attributes: Attributes) -> bool:
    """
    True if all counts of the event are steps of counters, as Rust's tracing logs them: they are sent as metrics, too.
    """
    counted = [name for name in attributes if is_usage_name(name)]
    return bool(counted) and all(_is_step(name) for name in counted)


def _is_step(name: str) -> bool:
    kind, _, metric = name.partition(".")
    return kind in _STEPS_OF_COUNTERS and (find_family(metric) is not None or is_repeat(metric))


def _counts(attributes: Attributes) -> bool:
    """True if there is a count of tokens or a cost above 0."""
    return any(is_usage_name(name) and _is_positive(value) for name, value in attributes.items())


def _is_positive(value: object) -> bool:
    try:
        return float(str(value)) > 0
    except ValueError:
        return False


def event_name(record: LogRecord, sender: Product) -> str:
    """The event's whole name: by attribute, else by the record's own field, else the body."""
    name = values.text(record.attributes.get("event.name")) or record.event_name or record.body
    for whole_name in _NAMING:
        name = whole_name(record, name, sender.source)
    return name
