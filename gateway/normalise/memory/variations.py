"""Spans of the same kind as another one: what varies is new, and what rules do not read is something else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from gateway.normalise.memory.forms import Varying
from gateway.normalise.memory.slots import COUNTS, FIRST_TEXT, TEXTS, class_of, is_of_class, slot_of
from gateway.normalise.otlp.model import Attributes, Span

WANTED: Final = 12
LEAST: Final = 6
_TRIES: Final = 200
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_LENGTHS: Final = (1, 2, 7, 15, 16, 17, 24, 31, 32, 36, 48, 64, 70, 90)


def variations(
    span: Span, texts: tuple[str, ...], counts: tuple[int, ...], reads: set[str], chance: random.Random
) -> Iterator[tuple[Span, Varying]]:
    """Yield the span itself, then others of its kind, each with what varies in it."""
    yield span, _varying(span, texts, counts)
    for number in range(WANTED):
        new_counts = _other_counts(counts, chance)
        if new_counts is None:
            return
        new_texts = tuple([_other_text(text, number, chance) for text in texts])
        trace_id = span.trace_id and f"{chance.getrandbits(128) | 1:032x}"
        span_id = span.span_id and f"{chance.getrandbits(64) | 1:016x}"
        parent_id = span.parent_id and f"{chance.getrandbits(64) | 1:016x}"
        start, end = _other_times(span.start_time, span.end_time, chance)
        attributes = _attributes(span.attributes, texts, new_texts, new_counts, reads, chance)
        other = Span(
            span.resource,
            span.scope,
            span.name,
            trace_id,
            span_id,
            parent_id,
            start,
            end,
            attributes,
            span.status_code,
            span.events,
        )
        yield other, _varying(other, new_texts, new_counts)


def _varying(span: Span, texts: tuple[str, ...], counts: tuple[int, ...]) -> Varying:
    return Varying(span.trace_id, span.span_id, span.parent_id, span.start_time, span.end_time, texts, counts)


def _attributes(
    attributes: Attributes,
    texts: tuple[str, ...],
    new_texts: tuple[str, ...],
    counts: tuple[int, ...],
    reads: set[str],
    chance: random.Random,
) -> Attributes:
    found: Attributes = {}
    at = 0
    for name, value in attributes.items():
        slot = slot_of(name)
        if slot >= FIRST_TEXT and type(value) is str:
            found[name] = new_texts[at]
            at += 1
        elif 0 < slot <= len(COUNTS):
            found[name] = counts[slot - 1]
        elif name in reads:
            found[name] = value
        else:
            found[name] = _other(value, chance)
    return found


def _other(value: Any, chance: random.Random) -> Any:
    """Return a value of the same type."""
    if type(value) is str:
        return "".join(chance.choices(_LETTERS, k=chance.randrange(0, 40)))
    if type(value) is bool:
        return chance.random() < 0.5
    if type(value) is int:
        return chance.choice((0, 1, -1, 200, 500, chance.randrange(10**12)))
    return chance.random() * 1000 if type(value) is float else value


def _other_text(text: str, number: int, chance: random.Random) -> str:
    """Return a text of the same class: what stands before the first `-` or `_` stays."""
    ends = [at for at in (text.find("-"), text.find("_")) if at >= 0]
    begin = text[: min(ends) + 1] if ends else ""
    length = max(1, min(_LENGTHS[number % len(_LENGTHS)], 96 - len(begin)))
    rest = "".join(chance.choices(_LETTERS, k=length))
    # No beginning of a secret: those are short where they are plain.
    return begin + rest if begin else "Z" + rest[: 95 if text else 0]


def _other_times(start: int | None, end: int | None, chance: random.Random) -> tuple[int | None, int | None]:
    begin = chance.randrange(10**18, 2 * 10**18)
    if start is None or end is None:
        return start and begin, end and begin
    sign = (end > start) - (end < start)
    return begin, begin + sign * chance.choice((1, 999_999, chance.randrange(1, 10**12)))


def _other_counts(counts: tuple[int, ...], chance: random.Random) -> tuple[int, ...] | None:
    """Return counts of the same class; None if none is found."""
    wanted = class_of(counts)
    for _ in range(_TRIES):
        largest = chance.choice((10, 1000, 10**5, 10**7))
        i, o, r, w, t, s = (0 if count == 0 else chance.randrange(1, largest) for count in counts)
        if counts[2] + counts[3] == counts[0] and counts[0]:
            i = r + w
        if counts[4] == counts[1] and counts[1]:
            t = o
        if counts[5]:
            s = chance.choice((s, i + o, i + o + r + w, i + o + r + w + t, i + o + t)) + chance.choice(
                (0, 0, 0, t, 7)
            )
        found = (i, o, r, w, t, s)
        if max(found) <= 10**8 and is_of_class(found, wanted):
            return found
    return None


assert set(TEXTS.values()).isdisjoint(range(FIRST_TEXT))
