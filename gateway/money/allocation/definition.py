"""Definitions as values: dimensions, each with the rules that give its elements, in order; and rules in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

PREFIX = "User:Defined:"  # before the key of a dimension: so it is named in queries and by rules
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
    """A change to a value before conditions read it. Only SPLIT uses `delimiter` and `index`."""

    type: str
    delimiter: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """
    The dimensions whose values a condition reads: names of ledger dimensions, or ids of earlier defined dimensions.

    If `first` is set, only the first dimension with a known value counts.
    """

    names: tuple[str, ...]
    first: bool = False
    transforms: tuple[Transform, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueCondition:
    """Passes if a source value equals, begins with, contains or ends with one of `values`, as `operator` says."""

    source: Source
    operator: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HasValue:
    """Passes if the source has a known value, or, if `wanted` is false, none."""

    source: Source
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
class Group:
    """What passes one of the conditions is the element `name`."""

    name: str
    condition: AnyOf


@dataclass(frozen=True, slots=True)
class GroupBy:
    """What passes is the element that its source names; several sources are joined by `form`, {0} is the first."""

    source: Source
    form: str = ""
    condition: AnyOf | None = None


Rule: TypeAlias = "Group | GroupBy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """The first rule that matches gives the element, else `default`; "" is unknown."""

    id: str  # with PREFIX
    name: str
    rules: tuple[Rule, ...]
    default: str = ""

    @property
    def sources(self) -> Sequence[str]:
        """Every dimension that its rules look at, each once."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in _sources_of_rule(rule)))


@dataclass(frozen=True, slots=True)
class Definition:
    """`owners` has the namespace of each dimension by its id, where several are joined; without one it is ""."""

    dimensions: Sequence[Dimension] = ()
    owners: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal_values(self) -> Iterator[str]:
        """Yield every whole value that a condition looks for."""
        for dimension in self.dimensions:
            for rule in dimension.rules:
                if rule.condition is not None:
                    yield from _equal_values(rule.condition)

    def of_namespace(self, namespace: str) -> Definition:
        """The dimensions that belong to a namespace."""
        return Definition([each for each in self.dimensions if self._owner(each) == namespace])

    def of_other_namespaces(self, namespace: str) -> Mapping[str, Definition]:
        """Return the dimensions that belong to other namespaces, by namespace."""
        names = dict.fromkeys(self._owner(each) for each in self.dimensions)
        return {name: self.of_namespace(name) for name in names if name != namespace}

    def _owner(self, dimension: Dimension) -> str:
        return self.owners.get(dimension.id, "")


def _equal_values(condition: Condition) -> Iterator[str]:
    if isinstance(condition, ValueCondition):
        yield from condition.values if condition.operator == EQUALS else ()
    elif not isinstance(condition, HasValue):
        for each in condition.conditions:
            yield from _equal_values(each)


def _sources_of_rule(rule: Rule) -> Iterator[str]:
    if isinstance(rule, GroupBy):
        yield from rule.source.names
    if rule.condition is not None:
        yield from _sources_of(rule.condition)


def _sources_of(condition: Condition) -> Iterator[str]:
    if isinstance(condition, ValueCondition | HasValue):
        yield from condition.source.names
        return
    for each in condition.conditions:
        yield from _sources_of(each)


def rule_text(rule: Rule) -> str:
    """Describe the element that a rule gives, and when."""
    if not isinstance(rule, GroupBy):
        return f"{_quoted(rule.name)} if {condition_text(rule.condition)}"
    given = _joined(rule.source) if rule.form else f"the value of {_source_text(rule.source)}"
    element = f"{_quoted(rule.form)} of {given}" if rule.form else given
    return element if rule.condition is None else f"{element} if {condition_text(rule.condition)}"


def condition_text(condition: Condition) -> str:
    """A condition that consists of others is put into parentheses inside another."""
    match condition:
        case ValueCondition():
            values = " or ".join(map(_quoted, condition.values))
            return f"{_source_text(condition.source)} {_VERBS[condition.operator]} {values}"
        case HasValue():
            return f"{_source_text(condition.source)} is {'known' if condition.wanted else 'unknown'}"
        case AllOf():
            return _all_text(condition.conditions, " and ")
        case AnyOf():
            return _all_text(condition.conditions, " or ")
        case NoneOf():
            return f"not ({_all_text(condition.conditions, ' or ')})"


def _all_text(conditions: Sequence[Condition], word: str) -> str:
    if len(conditions) == 1:
        return condition_text(conditions[0])
    return word.join(map(_part_text, conditions))


def _part_text(condition: Condition) -> str:
    """Write several conditions within others in brackets."""
    text = condition_text(condition)
    is_several = isinstance(condition, AllOf | AnyOf) and len(condition.conditions) > 1
    return f"({text})" if is_several else text


def _source_text(source: Source) -> str:
    names = f"the first known of {', '.join(source.names)}" if source.first else " or ".join(source.names)
    return names + _changed(source.transforms)


def _joined(source: Source) -> str:
    if source.first:
        return _source_text(source)
    return ", ".join(source.names) + _changed(source.transforms)


def _changed(transforms: Sequence[Transform]) -> str:
    words = [
        f"{each.type} at {_quoted(each.delimiter)}, part {each.index}" if each.type == SPLIT else each.type
        for each in transforms
    ]
    return f" ({'; '.join(words)})" if words else ""


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
