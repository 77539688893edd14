"""
The table of slots: attributes whose values vary from call to call. If a rule reads another attribute, its
value is part of the span's kind.

A line here promises that no rule examines the value beyond its class. If a product's rules search for a part
of a value, that part must be in `PARTS`.
"""

from __future__ import annotations

from typing import Final

from gateway.normalise.otlp import admission
from gateway.normalise.otlp.admission import RULES, reduced
from gateway.normalise.otlp.decoding.protobuf_decoder import EXCEPTION
from gateway.normalise.otlp.products.litellm import CACHE_HIT
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.reading.tags import SECRET_STARTS
from gateway.normalise.reading.values import ABSENT

COUNTS: Final = ("input", "output", "cache_read", "cache_write", "reasoning", "total")
# Slot number of each text. If the number is odd, the letters before the first `-` or `_` are part of
# the text's class.
TEXTS: Final = {"request_id": 7, "session": 8, "user": 10}
FIRST_TEXT: Final = 7
# Parts of texts for which rules search. If a text of a span contains one of these parts, the rules read the span.
PARTS: Final = ("..", CACHE_HIT)
# Sums of counts. The sign of each sum is part of a kind, because `settle`, `agreeing` and `with_thoughts`
# only compare these sums with 0.
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


def _slots() -> dict[str, int]:
    slots: dict[str, int] = {}
    numbers = {field: number for number, field in enumerate(COUNTS, start=1)} | TEXTS
    for field, number in numbers.items():
        for name in FIELD_NAMES[field]:
            slots[name] = 0 if name in slots else number
    return slots


_SLOTS: Final = _slots()


def slot_of(name: str) -> int:
    """Return the slot number of an attribute, or 0 if its value is part of the kind."""
    return _SLOTS.get(name, 0)


def rule_of(name: str) -> int:
    """Return the rule for an attribute, as a number of the compiled module."""
    return _RULES[RULES[name]]


def has_figures(name: bytes, text: bytes) -> bool:
    """Return True if a text of content contains figures that rules read."""
    return reduced(name.decode(), text.decode()) is not None


def plan() -> dict[str, object]:
    """Return the settings that the compiled module gets once, at the start of the process."""
    return {
        "absent": [word.encode() for word in ABSENT],
        "secrets": [word.encode() for word in SECRET_STARTS],
        "parts": [part.encode() for part in PARTS],
        "sums": [list(sum) for sum in SUMS],
        "events": [EXCEPTION.encode()],
    }


_FACTORS: Final = (*[tuple([int(a == b) for b in range(len(COUNTS))]) for a in range(len(COUNTS))], *SUMS)


def class_of(counts: tuple[int, ...]) -> tuple[int, ...]:
    """
    Return the class of counts: the signs of the counts and of their sums, as the compiled module compares them.
    """
    return tuple([_sign(factors, counts) for factors in _FACTORS])


def is_of_class(counts: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Return True if the signs of the counts and of their sums equal `wanted`."""
    return all(_sign(factors, counts) == sign for factors, sign in zip(_FACTORS, wanted, strict=True))


def _sign(factors: tuple[int, ...], counts: tuple[int, ...]) -> int:
    a, b, c, d, e, f = factors
    i, o, r, w, t, s = counts
    value = a * i + b * o + c * r + d * w + e * t + f * s
    return (value > 0) - (value < 0)
