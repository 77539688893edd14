"""
The words that every entrance shares: how a value is read, and what a provider, a model or an operation is called.

Pure tables and pure functions over one value; knows no signal, no span and no source.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.values import ABSENT

MAX_TOKENS = 1_000_000_000  # more than any model can take: a wrong unit or a time stamp
MAX_TEXT = 2048  # a longer text is no name, id or model; as for the formats, or an id would be one here and not there

# --- Operations ------------------------------------------------------------------------------------------

CHAT, TEXT_COMPLETION, EMBEDDINGS, RERANK = "chat", "text_completion", "embeddings", "rerank"
OPERATIONS = {
    "chat": CHAT, "text_completion": TEXT_COMPLETION, "generate_content": "generate_content",
    "embeddings": EMBEDDINGS, "rerank": RERANK, "completion": CHAT, "acompletion": CHAT, "responses": CHAT,
    "aresponses": CHAT, "messages": CHAT, "anthropic_messages": CHAT, "embedding": EMBEDDINGS, "aembedding": EMBEDDINGS,
    "arerank": RERANK,
    "chat.completions": CHAT, "text.completions": TEXT_COMPLETION,  # Semantic Kernel
    "chat_completions": CHAT,  # Logfire
}  # fmt: skip

_NUMBER = re.compile(r"\s*[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_LARGEST_DURATION_MS = Decimal(10) ** 10  # four months


class Implausible(ValueError):
    """A number that no call can have: negative, fractional or absurd. It is never billed."""


def text(value: Any) -> str | None:
    """A value read as text; None for what stands for nothing, and for what is too long to be a name."""
    if type(value) is str:
        return None if value in ABSENT or len(value) > MAX_TEXT else value
    return None if value is None else tag_rules.text_of(value)


def count(value: Any) -> int | None:
    """A token count as int; None when it is no number, NaN or infinite. Implausible: negative, fractional, absurd."""
    if type(value) is int:
        number: int | float = value
    else:
        parsed = _number(value)
        if parsed is None:
            return None
        number = parsed
    if 0 <= number <= MAX_TOKENS and number == int(number):
        return int(number)
    raise Implausible("a token count that is negative, fractional or above 10^9")


def money(value: Any) -> str | None:
    """Decimal text of an amount, from the shortest text of a double, without exponent or trailing zeros."""
    if type(value) is float:
        if not math.isfinite(value):
            return None
        digits = repr(value)
    elif type(value) is int:
        digits = str(value)
    elif type(value) is str and _NUMBER.fullmatch(value):
        digits = value.strip()
    else:
        return None
    return plain(Decimal(digits))


def plain(amount: Decimal) -> str:
    """An amount without exponent or trailing zeros. Implausible: negative, or of a size that no cost has."""
    if amount.is_zero():
        return "0"
    if amount < 0 or not -40 < amount.adjusted() < 15:
        raise Implausible("a cost that is negative or absurd")
    digits = f"{amount:f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def nanoseconds(milliseconds: Any) -> int | None:
    """A duration that came in milliseconds; None when it is no number, or none that a call can take."""
    number = _number(milliseconds) if type(milliseconds) is not int else milliseconds
    if number is None or not 0 <= number <= _LARGEST_DURATION_MS:
        return None
    return int(Decimal(str(number)).scaleb(6))


def unquoted(value: Any) -> Any:
    """Langfuse SDKs from 5 on write metadata as JSON: a text in quotes is unquoted, what is nested stays nested."""
    if type(value) is str and value[:1] in ('"', "{", "["):
        try:
            return msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return value
    return value


def json_object(value: Any) -> dict[str, Any]:
    """The object in a JSON text; empty when it is none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> int | float | None:
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is str and _NUMBER.fullmatch(value):
        try:
            exact = Decimal(value.strip())
        except InvalidOperation:
            return None
        return int(exact) if exact == exact.to_integral_value() and exact.adjusted() < 30 else float(exact)
    return None
