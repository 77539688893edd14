"""
The table of slots. A slot is an attribute whose value varies from call to call. If a rule reads another
attribute, that attribute's value is part of the span's kind.

Each entry promises that rules examine only the class of the value. If a product's rules search for a part of
a value, that part must be in `PARTS`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gateway.normalise.otlp import admission, semconv
from gateway.normalise.otlp.admission import DECLARED_RULES, RULES, reduced_content
from gateway.normalise.otlp.model import READ_EVENTS, Attributes
from gateway.normalise.otlp.products.litellm import CACHE_HIT
from gateway.normalise.otlp.senders import UNKNOWN_SERVICE, is_known_product_service_name
from gateway.normalise.otlp.shapes import (
    BEGINNINGS,
    DECLARED,
    FIELD_NAMES,
    METADATA_BEGINNINGS,
    NO_METADATA,
    QUOTED_METADATA,
    TAG_LISTS,
)
from gateway.normalise.reading.ai_names import AI_PARTS, CONVENTION_BEGINNINGS
from gateway.normalise.reading.content import CONTENT_BEGINNINGS, NOT_CONTENT, needs_operator_permission
from gateway.normalise.reading.tags import SECRET_STARTS
from gateway.normalise.reading.values import ABSENT
from spool import identity

COUNTS: Final = ("input", "output", "cache_read", "cache_write", "reasoning", "total")
# Slot number of each text. If the number is odd, the letters before the first `-` or `_` are part of
# the text's class. A user may be an e-mail address, which is part of the class as well.
TEXTS: Final = {
    "request_id": 7, "session": 8, "user": 10, "email": 10, "team": 12, "provider_request_id": 14, "run": 16,
    "parent_run": 18,
}  # fmt: skip
FIRST_TEXT: Final = 7
# slot number of a tag; a short text without spaces varies within a kind of spans, other values distinguish kinds
TAG: Final = 255
# Resource attributes whose values vary from program to program
OF_RESOURCE: Final = ("service.name",)
# Parts of texts for which rules search. If a text of a span contains one of these parts, the rules read the span.
PARTS: Final = ("..", CACHE_HIT)
# Sums of counts. The sign of each sum is part of a kind, because `normalise_counts`,
# `usage_if_consistent` and `with_missing_reasoning` only compare these sums with 0.
SUMS: Final = (
    (-1, 0, 1, 1, 0, 0),
    (0, -1, 0, 0, 1, 0),
    (-1, -1, 0, 0, 0, 1),
    (-1, -1, -1, -1, 0, 1),
    (-1, -1, -1, -1, -1, 1),
    (-1, -1, 0, 0, -1, 1),
    (0, 0, 1, 1, 0, 0),
    (1, 1, 0, 0, 0, 0),
)
_RULES: Final = {admission.SCALAR: 0, admission.WORDS: 1, admission.DROPPED: 2, admission.REDUCED: 3}


def _build_slot_number_by_attribute() -> dict[str, int]:
    slots: dict[str, int] = {}
    numbers = {field: number for number, field in enumerate(COUNTS, start=1)} | TEXTS
    for field, number in numbers.items():
        for name in FIELD_NAMES[field]:
            slots[name] = number if slots.get(name, number) == number else 0
    return slots


_SLOTS: Final = _build_slot_number_by_attribute()
_NAMED: Final = frozenset(
    name
    for tag in ("environment", "organization", "department", "cost_center")
    for name in semconv.NAMED_TAGS[tag]
)
_NO_TAGS: Final = (*NO_METADATA, *QUOTED_METADATA)


def varying_value_slot_or_zero(attribute_name: str) -> int:
    return _SLOTS.get(attribute_name, 0)


def can_attribute_become_tag(name: str, operator_kept_names: frozenset[str]) -> bool:
    """
    Return whether the text of an attribute may become a tag by its name, without examining the text, unless a
    rule reads the attribute for another purpose as well. `operator_kept_names` are the
    attributes that the operator keeps as tags.
    """
    if name in _SLOTS or RULES[name] is not admission.SCALAR:
        return False
    if name in operator_kept_names or name in _NAMED:
        return True
    if name in TAG_LISTS or not name.startswith(METADATA_BEGINNINGS) or name.startswith(_NO_TAGS):
        return False
    key = next(name.removeprefix(begin) for begin in METADATA_BEGINNINGS if name.startswith(begin))
    return not needs_operator_permission(key)


def decoding_rule_number(attribute_name: str) -> int:
    return _RULES[RULES[attribute_name]]


def has_readable_figures(name: bytes, text: bytes) -> bool:
    return reduced_content(name.decode(), text.decode()) is not None


_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:-]{1,96}")


def varying_resource_texts(attributes: Attributes, fixed_values: Sequence[object]) -> dict[str, str]:
    """
    Return by name the resource texts that may vary within a kind of spans: plain texts that name no product,
    and that differ from the values in `fixed_values`.
    """
    found = {}
    for name in OF_RESOURCE:
        text = attributes.get(name)
        if type(text) is str and text not in fixed_values and _is_plain_service_name(text):
            found[name] = text
    return found


def _is_plain_service_name(text: str) -> bool:
    return (
        _PLAIN.fullmatch(text) is not None
        and text not in ABSENT
        and not any(part in text for part in PARTS)
        and not is_known_product_service_name(text)
        and not text.startswith(UNKNOWN_SERVICE)
    )


def encode_texts(texts: Iterable[str]) -> list[bytes]:
    return [text.encode() for text in texts]


def settings_of_compiled_module() -> dict[str, object]:
    """Return the settings that the compiled module gets once, at the start of the process."""
    return {
        "absent": encode_texts(ABSENT),
        "secrets": encode_texts(SECRET_STARTS),
        "parts": encode_texts(PARTS),
        "sums": [list(sum) for sum in SUMS],
        "events": encode_texts(READ_EVENTS),
        "hashed": (TEXTS["request_id"], identity.RESPONSE_PERSON, identity.LONG_ENOUGH),
        "person": TEXTS["user"],
        "declared": set(encode_texts((*DECLARED, *DECLARED_RULES))),
        "beginnings": encode_texts((*BEGINNINGS, *CONVENTION_BEGINNINGS)),
        "name_parts": encode_texts(AI_PARTS),
        "dropped": (encode_texts(CONTENT_BEGINNINGS), encode_texts(NOT_CONTENT)),
    }


_FACTORS: Final = (*[tuple([int(a == b) for b in range(len(COUNTS))]) for a in range(len(COUNTS))], *SUMS)


def signs_of_counts_and_sums(token_counts: tuple[int, ...]) -> tuple[int, ...]:
    """
    Return the class of token counts: the sign (-1, 0 or 1) of each count, and of each sum in `SUMS`. The
    compiled module compares the same signs.
    """
    return tuple([_sign_of_weighted_sum(factors, token_counts) for factors in _FACTORS])


def has_signs_of_counts_and_sums(token_counts: tuple[int, ...], signs: tuple[int, ...]) -> bool:
    return all(
        _sign_of_weighted_sum(factors, token_counts) == sign
        for factors, sign in zip(_FACTORS, signs, strict=True)
    )


def _sign_of_weighted_sum(factors: tuple[int, ...], token_counts: tuple[int, ...]) -> int:
    a, b, c, d, e, f = factors
    i, o, r, w, t, s = token_counts
    value = a * i + b * o + c * r + d * w + e * t + f * s
    return (value > 0) - (value < 0)
