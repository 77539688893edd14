"""
Rules for decoding attributes. Content is dropped here, as are e-mail addresses under names that do not mean
the user's address.

A few attributes with content or request settings are reduced at once to the numbers or the model name in
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.shapes import FIELD_NAMES, TAG_LISTS
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import LARGEST_VALUE
from gateway.normalise.reading.content import is_name_of_content
from spool.caches import CachedResults
from spool.people import USER_EMAIL

MAX_VALUE = 16 * 1024  # maximum bytes of a name, an id, a number or a usage object
_LARGE = 256 * 1024  # bytes of a text above which only its small members are decoded

SCALAR = "scalar"
WORDS = "words"  # decision: keep a list of texts
REDUCED = "reduced"  # decision: keep only the part of a text that may be stored
DROPPED = "dropped"

_REDUCTIONS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    name: reduce for product in PRODUCTS for name, reduce in product.reductions.items()
}
_TEXTS: dict[str, Callable[[str], dict[str, Any]]] = {
    name: read for product in PRODUCTS for name, read in product.texts.items()
}
# Names of token counts and costs. `is_content` would drop some of them, because of words such as `prompt`.
_FIGURES = frozenset({*FIELD_NAMES["input"], *FIELD_NAMES["output"], *FIELD_NAMES["total"], *semconv.METERS})

# attributes that have the email address of the user
_USER_EMAILS = frozenset(
    {
        f"tollhouse.tag.{USER_EMAIL}",
        *FIELD_NAMES["email"],
        *(name for product in PRODUCTS for name in product.own_names.get("email", ())),
    }
)


DECLARED_RULES = {
    **dict.fromkeys(_FIGURES, SCALAR),
    **dict.fromkeys((*TAG_LISTS, *semconv.FINISH_REASONS), WORDS),
    **dict.fromkeys((*_REDUCTIONS, *_TEXTS), REDUCED),
}


def decoding_rule_of_attribute(name: str) -> str:
    if (declared := DECLARED_RULES.get(name)) is not None:
        return declared
    if is_name_of_content(name) or (semconv.is_email_attribute(name) and name not in _USER_EMAILS):
        return DROPPED
    return SCALAR


RULES = CachedResults(decoding_rule_of_attribute)


def reduced_content(name: str, value: str) -> dict[str, Any] | None:
    """
    Reduce a text of content, such as messages, to the numbers and names that a call's record needs. Return
    None if it has none.
    """
    if len(value) > LARGEST_VALUE:
        return None
    if (read := _TEXTS.get(name)) is not None:
        return read(value) or None
    try:
        tree = msgspec.json.decode(value) if len(value) <= _LARGE else _decode_small_members(value)
    except (ValueError, RecursionError):
        return None
    return (_REDUCTIONS[name](tree) or None) if isinstance(tree, dict) else None


def _decode_small_members(value: str) -> dict[str, Any]:
    members = payload.undecoded_members(value.encode())
    return {name: msgspec.json.decode(raw) for name, raw in members.items() if len(raw) <= _LARGE}
