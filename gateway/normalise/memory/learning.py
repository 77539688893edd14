"""
Learning of a kind of span. The rules read the span and variations of it, and a form is derived that holds for
all of them.

In each variation, values that vary between calls get new values, and values that rules do not read get
arbitrary values. The names of the attributes that rules read are noted.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Generator, Iterator, KeysView, Sequence, Set
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from gateway.normalise.memory.forms import SpanForm, VaryingValues, derive_common_span_form, values_by_path
from gateway.normalise.memory.lone_spans import (
    FIRST_PLACE,
    ID_PLACE,
    LearnedKind,
    build_unrelated_span_template,
    has_same_outcome_as_rules,
)
from gateway.normalise.memory.slots import (
    COUNTS,
    FIRST_TEXT,
    OF_RESOURCE,
    TEXTS,
    can_attribute_become_tag,
    has_signs_of_counts_and_sums,
    signs_of_counts_and_sums,
    varying_value_slot_or_zero,
)
from gateway.normalise.otlp import semconv, shapes
from gateway.normalise.otlp.model import Attributes, Resource, Span
from gateway.normalise.otlp.shapes import FIELD_NAMES
from gateway.normalise.otlp.spans.reader import ReadSpan, read_span_if_independent
from gateway.normalise.outcome import ReadOptions

WANTED: Final = 12
LEAST: Final = 6
_TRIES: Final = 200
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_LENGTHS: Final = (1, 2, 7, 15, 16, 17, 24, 31, 32, 36, 48, 64, 70, 90)


def vary_span(
    span: Span,
    varying_texts: tuple[str, ...],
    resource_texts: tuple[str, ...],
    token_counts: tuple[int, ...],
    names_read_by_rules: set[str],
    tag_only_names: Set[str],
    random_generator: random.Random,
) -> Iterator[tuple[Span, VaryingValues]]:
    """
    Yield the span itself, then variations of it, each with its varying values. `resource_texts` are the
    varying texts of its resource, and `tag_only_names` the names of attributes that only become tags.
    """
    yield span, _varying_values_of_span(span, (*varying_texts, *resource_texts), token_counts)
    for number in range(WANTED):
        new_counts = _random_counts_with_same_signs(token_counts, random_generator)
        if new_counts is None:
            return
        new_texts = tuple(
            [_random_text_of_same_class(text, number, random_generator) for text in varying_texts]
        )
        new_outside = tuple(
            [_random_text_of_same_class(text, number, random_generator) for text in resource_texts]
        )
        start, end = _random_times(span.start_time, span.end_time, random_generator)
        other = msgspec.structs.replace(
            span,
            resource=_with_replaced_texts(span.resource, resource_texts, new_outside),
            trace_id=span.trace_id and f"{random_generator.getrandbits(128) | 1:032x}",
            span_id=span.span_id and f"{random_generator.getrandbits(64) | 1:016x}",
            parent_id=span.parent_id and f"{random_generator.getrandbits(64) | 1:016x}",
            start_time=start,
            end_time=end,
            attributes=_with_varied_attributes(
                span.attributes,
                varying_texts,
                new_texts,
                new_counts,
                names_read_by_rules,
                tag_only_names,
                random_generator,
            ),
        )
        yield other, _varying_values_of_span(other, (*new_texts, *new_outside), new_counts)


def _with_replaced_texts(resource: Resource, texts: tuple[str, ...], new_texts: tuple[str, ...]) -> Resource:
    attributes = dict(resource.attributes)
    changed = dict(zip(texts, new_texts, strict=True))
    for name in OF_RESOURCE:
        if attributes.get(name) in changed:
            attributes[name] = changed[attributes[name]]
    return Resource(attributes)


def _varying_values_of_span(
    span: Span, varying_texts: tuple[str, ...], token_counts: tuple[int, ...]
) -> VaryingValues:
    return VaryingValues(
        span.trace_id,
        span.span_id,
        span.parent_id,
        span.start_time,
        span.end_time,
        varying_texts,
        token_counts,
    )


def _with_varied_attributes(
    attributes: Attributes,
    texts: tuple[str, ...],
    new_texts: tuple[str, ...],
    token_counts: tuple[int, ...],
    names_read_by_rules: set[str],
    tag_only_names: Set[str],
    random_generator: random.Random,
) -> Attributes:
    found: Attributes = {}
    at = 0
    for name, value in attributes.items():
        slot = varying_value_slot_or_zero(name)
        # A tag that is not plain does not vary. Its text is skipped here, because it differs from all texts
        # that vary.
        if (slot >= FIRST_TEXT or name in tag_only_names) and at < len(texts) and value == texts[at]:
            found[name] = new_texts[at]
            at += 1
        elif 0 < slot <= len(COUNTS):
            found[name] = token_counts[slot - 1]
        elif name in names_read_by_rules:
            found[name] = value
        else:
            found[name] = _random_value_of_same_type(value, random_generator)
    return found


def _random_value_of_same_type(value: Any, random_generator: random.Random) -> Any:
    if type(value) is str:
        return "".join(random_generator.choices(_LETTERS, k=random_generator.randrange(0, 40)))
    if type(value) is bool:
        return random_generator.random() < 0.5
    if type(value) is int:
        return random_generator.choice((0, 1, -1, 200, 500, random_generator.randrange(10**12)))
    return random_generator.random() * 1000 if type(value) is float else value


def _random_text_of_same_class(text: str, variation_number: int, random_generator: random.Random) -> str:
    """
    Return a random text of the same class, so that rules for spans read both alike. It keeps the beginning up
    to the first `-` or `_`, and an e-mail address becomes another one.
    """
    if "@" in text:
        local, domain = (
            "".join(random_generator.choices(_LETTERS, k=1 + variation_number)) for _ in range(2)
        )
        return f"Z{local}@{domain}.org"
    ends = [at for at in (text.find("-"), text.find("_")) if at >= 0]
    begin = text[: min(ends) + 1] if ends else ""
    length = max(1, min(_LENGTHS[variation_number % len(_LENGTHS)], 96 - len(begin)))
    rest = "".join(random_generator.choices(_LETTERS, k=length))
    # `Z` marks a text without letters before its first separator, because no secret starts with this letter.
    return begin + rest if begin else "Z" + rest[: 95 if text else 0]


def _random_times(
    start: int | None, end: int | None, random_generator: random.Random
) -> tuple[int | None, int | None]:
    begin = random_generator.randrange(10**18, 2 * 10**18)
    if start is None or end is None:
        return start and begin, end and begin
    sign = (end > start) - (end < start)
    return begin, begin + sign * random_generator.choice((1, 999_999, random_generator.randrange(1, 10**12)))


def _random_counts_with_same_signs(
    token_counts: tuple[int, ...], random_generator: random.Random
) -> tuple[int, ...] | None:
    wanted = signs_of_counts_and_sums(token_counts)
    for _ in range(_TRIES):
        largest = random_generator.choice((10, 1000, 10**5, 10**7))
        i, o, r, w, t, s = (
            0 if count == 0 else random_generator.randrange(1, largest) for count in token_counts
        )
        if token_counts[2] + token_counts[3] == token_counts[0] and token_counts[0]:
            i = r + w
        if token_counts[4] == token_counts[1] and token_counts[1]:
            t = o
        if token_counts[5]:
            s = random_generator.choice(
                (s, i + o, i + o + r + w, i + o + r + w + t, i + o + t)
            ) + random_generator.choice((0, 0, 0, t, 7))
        found = (i, o, r, w, t, s)
        if max(found) <= 10**8 and has_signs_of_counts_and_sums(found, wanted):
            return found
    return None


assert set(TEXTS.values()).isdisjoint(range(FIRST_TEXT))


class NotObserved(Exception):
    """
    Raised if a rule uses attributes in a way that does not show which values it reads, such as listing them.
    """


def _raise_not_observed(*_: object) -> NoReturn:
    raise NotObserved


class SpanNotes(NamedTuple):
    """
    Names of attributes: those that rules read, those that they read more than once, and those that they read
    or test for presence.
    """

    read: set[str]
    often: set[str]
    asked: set[str]


class ObservedAttributes(dict[str, Any]):
    """
    Attributes that note which values rules read, and which names rules test for presence.

    Code that bypasses the methods of dict sees an empty dict, so its result differs from the result with
    plain attributes. Then the span's kind is not learned. It is also not learned if code iterates over the
    names. The exception is the module `shapes`, whose results do not depend on names that no rule reads.
    """

    def __init__(self, attributes: Attributes, notes: SpanNotes) -> None:
        super().__init__()
        self._attributes = attributes
        self._notes = notes
        self._once: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._note_read_of_name(name)
        return self._attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        self._note_read_of_name(name)
        return self._attributes.get(name, default)

    def _note_read_of_name(self, name: str) -> None:
        notes = self._notes
        notes.read.add(name)
        notes.asked.add(name)
        (notes.often if name in self._once else self._once).add(name)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            self._notes.asked.add(name)
        return name in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes_if_called_by_shapes_module())

    def __len__(self) -> int:
        return len(self._attributes_if_called_by_shapes_module())

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return self._attributes_if_called_by_shapes_module().keys()

    def _attributes_if_called_by_shapes_module(self) -> Attributes:
        if sys._getframe(2).f_globals is not vars(shapes):
            raise NotObserved
        return self._attributes

    __eq__ = __ne__ = __or__ = __ror__ = __ior__ = __setitem__ = __delitem__ = _raise_not_observed
    values = items = copy = __reversed__ = pop = popitem = setdefault = update = clear = _raise_not_observed  # type: ignore[assignment]
    __hash__ = None


# Attributes whose numbers no rule compares with token counts.
_APART: Final = frozenset({*semconv.HTTP_STATUS, *FIELD_NAMES["cost"], *FIELD_NAMES["error"], "server.port"})
_FIGURE: Final = re.compile(r"\s*[-+]?[\d.]+(?:[eE][-+]?\d+)?\s*|\s*[\[{].*", re.DOTALL)


class LearningResult(NamedTuple):
    """
    The result of learning: the span attribute names that rules read (`reads`), those that they read or test
    for presence (`asked`), the resource attribute names that they read, and the kind if one was found.
    """

    reads: set[str]
    asked: set[str]
    of_resource: set[str]
    kind: LearnedKind | None


class ReadOtherwise(NamedTuple):
    """
    A shape (set of attribute names) of which the span memory reads spans otherwise than the rules of the
    normaliser do, with the differing fields.
    """

    source: str
    scope: str
    fields: tuple[str, ...]


def learn_span_kind(
    span: Span,
    varying_texts: tuple[str, ...],
    resource_texts: tuple[str, ...],
    token_counts: tuple[int, ...],
    names_read_by_rules: set[str],
    tag_only_names: Set[str],
    options: ReadOptions,
    random_generator: random.Random,
) -> Generator[None, None, LearningResult]:
    """
    Learn how to read a kind of span, in short steps: the rules read variants of the span, with values that
    `random_generator` draws. `names_read_by_rules` are the attribute names that the rules read for other kinds of the
    same shape. `tag_only_names` are the names of attributes that only become tags.

    No kind is learned if a rule reads an attribute in `tag_only_names` for another purpose as well. If the
    rules read names that are not in `names_read_by_rules`, only the names are returned, because the variants
    had arbitrary values under them.
    """
    known, names_read_by_rules, asked, of_resource = (
        len(names_read_by_rules),
        set(names_read_by_rules),
        set[str](),
        set[str](),
    )
    found: list[ReadSpan] = []
    varying: list[VaryingValues] = []
    varied: list[Span] = []
    for other, slots in vary_span(
        span,
        varying_texts,
        resource_texts,
        token_counts,
        names_read_by_rules,
        tag_only_names,
        random_generator,
    ):
        notes = SpanNotes(names_read_by_rules, set(), asked)
        read = _read_span_and_note_names(other, notes, of_resource, options)
        if len(names_read_by_rules) > known or read is None or not notes.often.isdisjoint(tag_only_names):
            return LearningResult(names_read_by_rules, asked, of_resource, None)
        if _has_token_counts(span) and _has_number_read_by_rules_outside_counts(
            span, names_read_by_rules - tag_only_names
        ):
            return LearningResult(names_read_by_rules, asked, of_resource, None)
        found.append(read)
        varying.append(slots)
        varied.append(other)
        yield
    form = derive_common_span_form(found, varying) if len(found) > LEAST else None
    if form is None or not _is_form_confirmed_by_read_spans(form, found, varying):
        return LearningResult(names_read_by_rules, asked, of_resource, None)
    yield
    alone = build_unrelated_span_template(form, varied, varying, options)
    return LearningResult(names_read_by_rules, asked, of_resource, LearnedKind(form, alone))


def names_read_only_for_tags(span: Span, options: ReadOptions) -> set[str]:
    """Return the names of a span's attributes that rules read once, to copy the text to a tag."""
    notes = SpanNotes(set(), set(), set())
    if _read_span_and_note_names(span, notes, set(), options) is None:
        return set()
    return {
        name for name in notes.read - notes.often if can_attribute_become_tag(name, options.keep_attributes)
    }


def _read_span_and_note_names(
    span: Span, name_notes: SpanNotes, resource_names_read: set[str], options: ReadOptions
) -> ReadSpan | None:
    """
    Read a span and note the attribute names that rules read. Return None if a rule hides which names it
    reads, or if the span cannot be read without other spans.
    """
    observed = msgspec.structs.replace(
        span,
        attributes=ObservedAttributes(span.attributes, name_notes),
        resource=Resource(
            ObservedAttributes(span.resource.attributes, SpanNotes(resource_names_read, set(), set()))
        ),
    )
    try:
        read = read_span_if_independent(observed, options)
    except NotObserved:
        return None
    plain = read_span_if_independent(span, options)
    if read is None or plain is None:
        return None
    return plain if _has_equal_values(read, plain) else None


def _has_equal_values(one: ReadSpan, other: ReadSpan) -> bool:
    own_leaves = values_by_path(one)
    return (
        own_leaves is not None
        and own_leaves == values_by_path(other)
        and (one.key, one.parent) == (other.key, other.parent)
    )


def _is_form_confirmed_by_read_spans(
    form: SpanForm, read_spans: Sequence[ReadSpan], varying_values: Sequence[VaryingValues]
) -> bool:
    return all(
        _has_equal_values(form.build_read_span(slots.all_values, slots.counts), read)
        for slots, read in zip(varying_values, read_spans, strict=True)
    )


def differing_fields(
    kind: LearnedKind, row: tuple[Any, ...], span: Span, options: ReadOptions
) -> tuple[str, ...]:
    """
    Return the names of the fields for which the rules and a learned kind of span give different values.
    Return nothing if both agree.
    """
    values = row[FIRST_PLACE:]
    varying = VaryingValues._make([*values[:5], values[5:], row[2]])
    read, by_form = (
        read_span_if_independent(span, options),
        kind.form.build_read_span(varying.all_values, varying.counts),
    )
    if read is None:
        return ("read",)
    if not _has_equal_values(by_form, read):
        one, other = values_by_path(read) or {}, values_by_path(by_form) or {}
        paths = {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}
        return tuple(sorted([f"{kind} {name}" for kind, name in paths])) or ("ids",)
    is_same = kind.alone is None or has_same_outcome_as_rules(kind, span, varying, options, row[ID_PLACE])
    return () if is_same else ("booked",)


def _has_token_counts(span: Span) -> bool:
    return any(0 < varying_value_slot_or_zero(name) <= len(COUNTS) for name in span.attributes)


def _has_number_read_by_rules_outside_counts(span: Span, names_read_by_rules: set[str]) -> bool:
    for name in names_read_by_rules - _APART:
        value = span.attributes.get(name)
        if varying_value_slot_or_zero(name) or value is None or type(value) is bool:
            continue
        if type(value) is not str or _FIGURE.fullmatch(value):
            return type(value) is not list
    return False
