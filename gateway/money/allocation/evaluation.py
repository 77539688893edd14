"""Evaluation of rules: the element for a combination of dimension values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.money.allocation.definition import (
    BEGINS_WITH,
    CONTAINS,
    ENDS_WITH,
    EQUALS,
    LOWER,
    NORMALIZE,
    SPLIT,
    TRIM,
    UPPER,
    AllocationDefinition,
    AllOf,
    AnyOf,
    Condition,
    Dimension,
    ElementRule,
    HasValue,
    NoneOf,
    SourceDimensions,
    Transform,
    ValueCondition,
)
from spool.people import SECOND_NAME, USER, People, is_hash_address_or_pseudonym

MAX_VALUE = 256  # maximum characters of an element; values in the totals have the same limit
MOST_REMEMBERED = 100_000  # maximum cached elements for all dimensions of a definition; they take 10 to 30 MB
_NOT_WORD = re.compile(r"[\W_]+")

SourceValues = Mapping[str, str]  # dimension -> its value; "" means that the value is unknown


def assign_element(dimension: Dimension, values: SourceValues) -> str:
    """
    Return the dimension's element (value) for a combination of source values, or "" if unknown. `values` must
    include all sources, including earlier defined dimensions.
    """
    for rule in dimension.rules:
        if rule.condition is not None and not matches_condition(rule.condition, values):
            continue
        if isinstance(rule, ElementRule):
            return rule.name
        source_values = _source_values(rule.source, values)
        if not rule.form:
            text = next((value for value in source_values if value), "")
        elif all(source_values):
            text = fill_form(rule.form, source_values)
        else:
            text = ""
        if text:
            return text[:MAX_VALUE]
    return dimension.default


def matches_condition(condition: Condition, values: SourceValues) -> bool:
    if isinstance(condition, AllOf):
        return all(matches_condition(subcondition, values) for subcondition in condition.conditions)
    if isinstance(condition, AnyOf):
        return any(matches_condition(subcondition, values) for subcondition in condition.conditions)
    if isinstance(condition, ValueCondition):
        holds = _HOLDS[condition.operator]
        return any(
            value and holds(value, condition.values) for value in _source_values(condition.source, values)
        )
    if isinstance(condition, HasValue):
        return any(_source_values(condition.source, values)) is condition.wanted
    return not any(matches_condition(subcondition, values) for subcondition in condition.conditions)


def apply_transforms(value: str, transforms: Sequence[Transform]) -> str:
    for transform in transforms:
        if transform.type == SPLIT:
            parts = value.split(transform.delimiter)
            value = parts[transform.index] if transform.index < len(parts) else ""
        else:
            value = _CHANGES[transform.type](value)
    return value


def fill_form(form: str, values: Sequence[str]) -> str:
    """Replace {0}, {1} and so on in `form` by the values. Braces inside a value are not replaced."""
    return PLACE.sub(lambda match: values[int(match[1])], form)


PLACE = re.compile(r"\{(\d{1,2})\}")


class _AllocationElementCaches:
    """A cache of the elements of all dimensions of a definition. It is cleared as a whole when it is full."""

    def __init__(self) -> None:
        self._all: list[dict[tuple[str, ...], str]] = []
        self._texts: dict[str, str] = {}
        self._count = 0

    def add_dimension_cache(self) -> dict[tuple[str, ...], str]:
        self._all.append({})
        return self._all[-1]

    def cache_element(
        self, elements: dict[tuple[str, ...], str], values: tuple[str, ...], element: str
    ) -> None:
        """
        Cache an element. Equal texts are stored only once, because the storage returns new strings for each row.
        """
        if self._count >= MOST_REMEMBERED:
            self._count = 0
            self._texts.clear()
            for cache in self._all:
                cache.clear()
        self._count += 1
        texts = self._texts
        elements[tuple([texts.setdefault(value, value) for value in values])] = texts.setdefault(
            element, element
        )


class DimensionEvaluator:
    """
    A defined dimension as a function of the dimensions of the totals. `sources` states the order of the arguments.
    """

    def __init__(
        self, dimension: Dimension, earlier: dict[str, Dimension], memory: _AllocationElementCaches
    ) -> None:
        self.dimension = dimension
        self._memory = memory
        # dimensions in evaluation order, with this dimension last
        self._needed = _dependencies(dimension, earlier)
        needed_ids = {needed.id for needed in self._needed}
        names = (name for needed in self._needed for name in needed.sources if name not in needed_ids)
        self.sources = tuple(dict.fromkeys(names))
        self._elements = memory.add_dimension_cache()

    def element_of_values(self, values: tuple[str, ...]) -> str:
        """
        Return the dimension's element (value) for these source values, cached per combination. The method is
        thread-safe. Two threads may compute the same element at the same time.
        """
        cached = self._elements.get(values)
        if cached is None:
            known_values = dict(zip(self.sources, values, strict=True))
            for needed in self._needed:
                known_values[needed.id] = assign_element(needed, known_values)
            cached = known_values[self.dimension.id]
            self._memory.cache_element(self._elements, values, cached)
        return cached


def build_dimension_evaluators(
    definition: AllocationDefinition, people: People | None = None
) -> Sequence[DimensionEvaluator]:
    """
    Return one decision per dimension, in order. An `Equals` condition also matches other names of the same person.
    """
    earlier: dict[str, Dimension] = {}
    memory, results = _AllocationElementCaches(), []
    for stated in definition.dimensions:
        dimension = stated if people is None else _match_people_in_rules(stated, people)
        results.append(DimensionEvaluator(dimension, earlier, memory))
        earlier[dimension.id] = dimension
    return results


def _match_people_in_rules(dimension: Dimension, people: People) -> Dimension:
    rules = [
        rule if rule.condition is None else replace(rule, condition=_match_people(rule.condition, people))
        for rule in dimension.rules
    ]
    return replace(dimension, rules=tuple(rules))


def _match_people(condition: Condition, people: People) -> Any:
    if isinstance(condition, AllOf | AnyOf | NoneOf):
        return replace(
            condition,
            conditions=tuple(_match_people(subcondition, people) for subcondition in condition.conditions),
        )
    if isinstance(condition, ValueCondition) and condition.operator == EQUALS:
        dimension = USER if USER in condition.source.names else ""
        values = people.expand_filter({dimension: condition.values})[dimension]
        is_person = dimension == USER and any(map(is_hash_address_or_pseudonym, values))
        source = _with_user_email_dimension(condition.source) if is_person else condition.source
        return replace(condition, source=source, values=values)
    return condition


def _with_user_email_dimension(source: SourceDimensions) -> SourceDimensions:
    return source if source.first else replace(source, names=(*source.names, SECOND_NAME))


def _dependencies(dimension: Dimension, earlier: dict[str, Dimension]) -> Sequence[Dimension]:
    needed = {dimension.id}
    for candidate in (dimension, *reversed(earlier.values())):
        if candidate.id in needed:
            needed.update(candidate.sources)
    return [*(candidate for candidate in earlier.values() if candidate.id in needed), dimension]


def _source_values(source: SourceDimensions, values: SourceValues) -> Sequence[str]:
    source_values = [
        apply_transforms(values[name], source.transforms) if values[name] else "" for name in source.names
    ]
    return [next((value for value in source_values if value), "")] if source.first else source_values


def _normalize_value(value: str) -> str:
    return _NOT_WORD.sub("-", value.lower()).strip("-")


_CHANGES: Mapping[str, Callable[[str], str]] = {
    NORMALIZE: _normalize_value,
    LOWER: str.lower,
    UPPER: str.upper,
    TRIM: str.strip,
}
_HOLDS: Mapping[str, Callable[[str, tuple[str, ...]], bool]] = {
    EQUALS: lambda value, expected: value in expected,
    BEGINS_WITH: str.startswith,
    CONTAINS: lambda value, expected: any(part in value for part in expected),
    ENDS_WITH: str.endswith,
}
