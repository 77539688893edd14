"""
The table of slots: what varies from call to call, by canonical field. All else that a rule reads decides.

A line here says that no rule looks at the value closer than its class does; a product whose rules look for a part of
it says so in `PARTS`.
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
# Odd: the letters before the first `-` or `_` are in its class.
TEXTS: Final = {"request_id": 7, "session": 8, "user": 10}
FIRST_TEXT: Final = 7
# A text with one of these is looked at by a rule: such a span is read by the rules.
PARTS: Final = ("..", CACHE_HIT)
# Signs of these sums decide: they are all that `settle`, `agreeing` and `with_thoughts` compare.
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
    """Return the number of the slot under a name; 0 if its value decides."""
    return _SLOTS.get(name, 0)


def rule_of(name: str) -> int:
    """Return how a name is read, in the module's numbers."""
    return _RULES[RULES[name]]


def has_figures(name: bytes, text: bytes) -> bool:
    """True if something may be read of a text of content."""
    return reduced(name.decode(), text.decode()) is not None


def plan() -> dict[str, object]:
    """Return what the compiled module is told once."""
    return {
        "absent": [word.encode() for word in ABSENT],
        "secrets": [word.encode() for word in SECRET_STARTS],
        "parts": [part.encode() for part in PARTS],
        "sums": [list(sum) for sum in SUMS],
        "events": [EXCEPTION.encode()],
    }


_FACTORS: Final = (*[tuple([int(a == b) for b in range(len(COUNTS))]) for a in range(len(COUNTS))], *SUMS)


def class_of(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Return the signs of counts and of their sums, as the module compares them."""
    return tuple([_sign(factors, counts) for factors in _FACTORS])


def is_of_class(counts: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """True if counts have these signs."""
    return all(_sign(factors, counts) == sign for factors, sign in zip(_FACTORS, wanted, strict=True))


def _sign(factors: tuple[int, ...], counts: tuple[int, ...]) -> int:
    a, b, c, d, e, f = factors
    i, o, r, w, t, s = counts
    value = a * i + b * o + c * r + d * w + e * t + f * s
    return (value > 0) - (value < 0)
