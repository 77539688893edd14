"""How the value of a metric point is read: token counts and amounts of money."""

from __future__ import annotations

from decimal import Decimal

from gateway.normalise.otlp import semconv
from gateway.normalise.outcome import IMPLAUSIBLE
from gateway.normalise.reading.values import BadValue

MAX_TOKENS = 10**15  # more than a process lives to count: a time stamp


def tokens_of(value: object) -> int:
    """A point's value as a token count; `107.0` is one. Raises BadValue when it cannot be."""
    if isinstance(value, int | float) and 0 <= value <= MAX_TOKENS and value == int(value):
        return int(value)
    raise BadValue(IMPLAUSIBLE, "a token count that is negative, fractional or absurd")


def money_of(value: object) -> Decimal:
    """A point's value as an amount, from the shortest text of the double, so that 0.1 stays 0.1."""
    amount = semconv.money(value, "the cost")
    if amount is None:
        raise BadValue(IMPLAUSIBLE, "a cost that is not a number")
    return Decimal(amount)
