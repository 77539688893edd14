"""Learning a kind of span: the rules run on the span and on others of its kind, and a form is found."""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gateway.normalise.memory.alone import LearnedKind, alone_of, is_booked_as, is_same_together
from gateway.normalise.memory.forms import SpanForm, Varying, form_of, leaves
from gateway.normalise.memory.observing import NotObserved, ObservedAttributes
from gateway.normalise.memory.slots import COUNTS, slot_of
from gateway.normalise.memory.variations import LEAST, variations
from gateway.normalise.options import Options
from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.model import Resource, Span
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.otlp.spans.reader import ReadSpan, read_alone

# Figures beside counts that no rule compares with them.
_APART: Final = frozenset({*semconv.HTTP_STATUS, *FIELD_NAMES["cost"], *FIELD_NAMES["error"], "server.port"})
_FIGURE: Final = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*|\s*[\[{].*", re.DOTALL)


class Learned(NamedTuple):
    """What was found out: names whose values were read, those of the resource, and the kind if there is one."""

    reads: set[str]
    of_resource: set[str]
    kind: LearnedKind | None


class ReadOtherwise(NamedTuple):
    """A shape of which memory and rules differed: who tells it, its instrumentation, and the names of fields."""

    source: str
    scope: str
    fields: tuple[str, ...]


def learn(
    span: Span,
    texts: tuple[str, ...],
    counts: tuple[int, ...],
    reads: set[str],
    options: Options,
    chance: random.Random,
) -> Generator[None, None, Learned]:
    """
    Learn the kind of a span, in short turns; `reads` are names that other kinds of its shape read. If it reads more
    there is no form yet: what is not read varies.
    """
    known, reads, of_resource = len(reads), set(reads), set[str]()
    found: list[ReadSpan] = []
    varying: list[Varying] = []
    for other, slots in variations(span, texts, counts, reads, chance):
        read = _read(other, reads, of_resource, options)
        if len(reads) > known or read is None or (_has_counts(span) and _has_figures(span, reads)):
            return Learned(reads, of_resource, None)
        found.append(read)
        varying.append(slots)
        yield
    form = form_of(found, varying) if len(found) > LEAST else None
    if form is None or not _holds(form, found, varying):
        return Learned(reads, of_resource, None)
    yield
    alone = alone_of(form, span.resource, span.scope, varying, options)
    return Learned(reads, of_resource, LearnedKind(form, alone))


def _read(span: Span, reads: set[str], of_resource: set[str], options: Options) -> ReadSpan | None:
    """Read a span and note what was asked for; None if that is not known, or if it is more than a span alone."""
    observed = msgspec.structs.replace(
        span,
        attributes=ObservedAttributes(span.attributes, reads),
        resource=Resource(ObservedAttributes(span.resource.attributes, of_resource)),
    )
    try:
        read = read_alone(observed, options)
    except NotObserved:
        return None
    plain = read_alone(span, options)
    if read is None or plain is None:
        return None
    return plain if _is_same(read, plain) else None


def _is_same(one: ReadSpan, other: ReadSpan) -> bool:
    said = leaves(one)
    return said is not None and said == leaves(other) and (one.key, one.parent) == (other.key, other.parent)


def _holds(form: SpanForm, found: Sequence[ReadSpan], varying: Sequence[Varying]) -> bool:
    return all(
        _is_same(form.read_span(slots.values, slots.counts), read)
        for slots, read in zip(varying, found, strict=True)
    )


def read_otherwise(
    kind: LearnedKind, rows: Sequence[tuple[Any, ...]], span: Span, options: Options
) -> tuple[str, ...]:
    """
    Return the names of the fields that the rules read otherwise than a kind says; none if it holds.

    `rows` are those of the module: the first is that of the span, then some others of the kind.
    """
    row = rows[0]
    varying = Varying._make([*row[3:8], row[8:], row[2]])
    form, alone = kind
    read, said = read_alone(span, options), form.read_span(varying.values, varying.counts)
    if read is None:
        return ("read",)
    if not _is_same(said, read):
        one, other = leaves(read) or {}, leaves(said) or {}
        paths = {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
        return tuple(sorted([f"{kind} {name}" for kind, name in paths])) or ("ids",)
    if alone is None:
        return ()
    if not is_booked_as(alone, form, span.resource, span.scope, varying, options):
        return ("booked",)
    return () if is_same_together(alone, rows) else ("booked together",)


def _has_counts(span: Span) -> bool:
    return any(0 < slot_of(name) <= len(COUNTS) for name in span.attributes)


def _has_figures(span: Span, reads: set[str]) -> bool:
    """True if a figure is read that is no count, and could be compared with one."""
    for name in reads - _APART:
        value = span.attributes.get(name)
        if slot_of(name) or value is None or type(value) is bool:
            continue
        if type(value) is not str or _FIGURE.fullmatch(value):
            return type(value) is not list
    return False
