"""
Definitions as values: dimensions with ordered rules that give their elements. The module also describes
rules in words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

PREFIX = "User:Defined:"  # prefix of the ids of defined dimensions, in queries and in rules
NORMALIZE, LOWER, UPPER, TRIM, SPLIT = "Normalize", "Lower", "Upper", "Trim", "Split"
EQUALS, BEGINS_WITH, CONTAINS, ENDS_WITH = "Equals", "BeginsWith", "Contains", "EndsWith"
_VERBS: Mapping[str, str] = {
    EQUALS: "is",
    BEGINS_WITH: "begins with",
    CONTAINS: "contains",
    ENDS_WITH: "ends with",
}


@dataclass(frozen=True, slots=True)
class Transform:
    type: str
    delimiter: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class SourceDimensions:
    """
    The dimensions that a condition or a rule reads: names of dimensions of the totals, or ids of
    earlier defined dimensions.

    If `first` is set, only the first dimension that has a known value counts.
    """

    names: tuple[str, ...]
    first: bool = False
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """
    A condition on a source value. It passes if the value has the relation `operator` (equals, begins with,
    contains or ends with) to one of `values`.
    """

    source: SourceDimensions
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HasValue:
    """
    A condition that passes if the source has a known value. If `wanted` is False, it passes if the source has
    no known value.
    """

    source: SourceDimensions
    wanted: bool


@dataclass(frozen=True, slots=True)
class AllOf:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class NoneOf:
    conditions: tuple[Condition, ...]


Condition: TypeAlias = "ValueCondition | HasValue | AllOf | AnyOf | NoneOf"


@dataclass(frozen=True, slots=True)
class ElementRule:
    """A rule that gives the element `name` if one of its conditions passes."""

    name: str
    condition: AnyOf


@dataclass(frozen=True, slots=True)
class GroupBy:
    """
    A rule of a dimension that uses the value of its source as the call's element. `form` joins several
    values. In it, {0} is the first value.
    """

    source: SourceDimensions
    form: str = ""
    condition: AnyOf | None = None


Rule: TypeAlias = "ElementRule | GroupBy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """
    A defined dimension. The first matching rule gives the element. If no rule matches, the element is
    `default`. The element "" is unknown.
    """

    id: str  # id of the dimension, which starts with PREFIX
    name: str
    rules: tuple[Rule, ...]
    default: str = ""

    @property
    def sources(self) -> Sequence[str]:
        return tuple(dict.fromkeys(name for rule in self.rules for name in _rule_sources(rule)))


@dataclass(frozen=True, slots=True)
class AllocationDefinition:
    """
    Defined dimensions. If several definitions are joined, `owners` maps the id of a dimension to its namespace.
    """

    dimensions: Sequence[Dimension] = ()
    owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def exact_match_values(self) -> Iterator[str]:
        for dimension in self.dimensions:
            for rule in dimension.rules:
                if rule.condition is not None:
                    yield from _exact_match_values(rule.condition)

    def part_in_namespace(self, namespace: str) -> AllocationDefinition:
        return AllocationDefinition(
            [dimension for dimension in self.dimensions if self._owner_namespace(dimension) == namespace]
        )

    def parts_in_other_namespaces(self, namespace: str) -> Mapping[str, AllocationDefinition]:
        names = dict.fromkeys(self._owner_namespace(dimension) for dimension in self.dimensions)
        return {name: self.part_in_namespace(name) for name in names if name != namespace}

    def _owner_namespace(self, dimension: Dimension) -> str:
        return self.owners.get(dimension.id, "")


def _exact_match_values(condition: Condition) -> Iterator[str]:
    if isinstance(condition, ValueCondition):
        yield from condition.values if condition.operator == EQUALS else ()
    elif not isinstance(condition, HasValue):
        for subcondition in condition.conditions:
            yield from _exact_match_values(subcondition)


def _rule_sources(rule: Rule) -> Iterator[str]:
    if isinstance(rule, GroupBy):
        yield from rule.source.names
    if rule.condition is not None:
        yield from _condition_sources(rule.condition)


def _condition_sources(condition: Condition) -> Iterator[str]:
    if isinstance(condition, ValueCondition | HasValue):
        yield from condition.source.names
        return
    for subcondition in condition.conditions:
        yield from _condition_sources(subcondition)


def allocation_rule_text(rule: Rule) -> str:
    if not isinstance(rule, GroupBy):
        return f"{_quote(rule.name)} if {condition_text(rule.condition)}"
    source_text = _source_list_text(rule.source) if rule.form else f"the value of {_source_text(rule.source)}"
    element = f"{_quote(rule.form)} of {source_text}" if rule.form else source_text
    return element if rule.condition is None else f"{element} if {condition_text(rule.condition)}"


def condition_text(condition: Condition) -> str:
    match condition:
        case ValueCondition():
            values = " or ".join(map(_quote, condition.values))
            return f"{_source_text(condition.source)} {_VERBS[condition.operator]} {values}"
        case HasValue():
            return f"{_source_text(condition.source)} is {'known' if condition.wanted else 'unknown'}"
        case AllOf():
            return _join_condition_texts(condition.conditions, " and ")
        case AnyOf():
            return _join_condition_texts(condition.conditions, " or ")
        case NoneOf():
            return f"not ({_join_condition_texts(condition.conditions, ' or ')})"


def _join_condition_texts(conditions: Sequence[Condition], joining_word: str) -> str:
    if len(conditions) == 1:
        return condition_text(conditions[0])
    return joining_word.join(map(_bracketed_condition_text, conditions))


def _bracketed_condition_text(condition: Condition) -> str:
    text = condition_text(condition)
    is_several = isinstance(condition, AllOf | AnyOf) and len(condition.conditions) > 1
    return f"({text})" if is_several else text


def _source_text(source: SourceDimensions) -> str:
    names = f"the first known of {', '.join(source.names)}" if source.first else " or ".join(source.names)
    return names + _transforms_text(source.transforms)


def _source_list_text(source: SourceDimensions) -> str:
    if source.first:
        return _source_text(source)
    return ", ".join(source.names) + _transforms_text(source.transforms)


def _transforms_text(transforms: Sequence[Transform]) -> str:
    descriptions = [
        f"{transform.type} at {_quote(transform.delimiter)}, part {transform.index}"
        if transform.type == SPLIT
        else transform.type
        for transform in transforms
    ]
    return f" ({'; '.join(descriptions)})" if descriptions else ""


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
