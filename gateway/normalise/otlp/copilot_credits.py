"""GitHub Copilot's credits, which its spans state: what a call is worth by GitHub's list, not what is paid for it."""

from __future__ import annotations

from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import SpanCall
from gateway.normalise.otlp.model import Span
from gateway.normalise.reading import tags
from gateway.normalise.reading.values import BadValue
from spool.record import decimal_text

BEGINNING = "github.copilot."
# billionths; `.aiu` has two scales, and nothing says which one a release writes
_CREDITS = f"{BEGINNING}nano_aiu"
_DOLLARS = Decimal("0.01")  # a credit


def read_credits(span: Span, call: SpanCall) -> None:
    """Put the credits of a call into its cost; those of an agent are the sum of its calls."""
    record = call.record
    try:
        stated = semconv.money(span.attributes.get(_CREDITS), _CREDITS)
    except BadValue:
        return
    if stated is not None and record.operation != "invoke_agent":
        credits = Decimal(stated).scaleb(-9)
        record.cost = decimal_text(credits * _DOLLARS)
        tags.put_on(record, "credits", decimal_text(credits))
