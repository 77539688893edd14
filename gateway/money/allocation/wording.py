"""Rules of a definition in words, one line each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from gateway.money.allocation.definition import (
    BEGINS_WITH,
    CONTAINS,
    ENDS_WITH,
    EQUALS,
    SPLIT,
    AllOf,
    AnyOf,
    Condition,
    GroupBy,
    HasValue,
    NoneOf,
    Rule,
    Source,
    Transform,
    ValueCondition,
)

_VERBS: Mapping[str, str] = {
    EQUALS: "is",
    BEGINS_WITH: "begins with",
    CONTAINS: "contains",
    ENDS_WITH: "ends with",
}


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
