"""
Parser of definitions. It turns YAML into dimensions, or reports every fault with its place.
docs/money/allocation.md describes the language.

Each level inherits the source from the level above, unless it has its own source: a condition from its rule,
and a rule from its dimension. Transforms belong to a source, so a condition or rule with its own source does
not inherit transforms.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from gateway.core.faults import DefinitionFaults, Fault, InvalidDefinition, Path
from gateway.money.allocation.definition import (
    BEGINS_WITH,
    CONTAINS,
    ENDS_WITH,
    EQUALS,
    LOWER,
    NORMALIZE,
    PREFIX,
    SPLIT,
    TRIM,
    UPPER,
    AllocationDefinition,
    AllOf,
    AnyOf,
    Condition,
    Dimension,
    ElementRule,
    GroupBy,
    HasValue,
    NoneOf,
    Rule,
    SourceDimensions,
    Transform,
    ValueCondition,
)
from gateway.money.allocation.evaluation import MAX_VALUE, PLACE
from spool.ledger.dimensions import TAG
from spool.ledger.work import TAGS
from spool.record import Inference

if TYPE_CHECKING:
    from gateway.core.yaml_text import YamlNode

__all__ = [
    "AllocationDefinition",
    "Dimension",
    "Fault",
    "InvalidDefinition",
    "Limits",
    "join_definitions",
    "parse_definition",
]

MAX_KEY = 64  # maximum characters of a defined dimension's key
MAX_SOURCES = 10
MAX_TRANSFORMS = 10
MAX_INDEX = 99  # largest index that the function Split accepts

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_SOURCE_FIELDS = ("Source", "Sources", "CoalesceSources", "Transforms")
_DIMENSION_FIELDS = ("Name", "Type", *_SOURCE_FIELDS, "DefaultValue", "Rules")
_GROUP_FIELDS = ("Type", "Name", *_SOURCE_FIELDS, "Conditions")
_GROUP_BY_FIELDS = ("Type", *_SOURCE_FIELDS, "Format", "Conditions")
_NESTED: Mapping[str, type[AllOf | AnyOf | NoneOf]] = {"And": AllOf, "Or": AnyOf, "Not": NoneOf}
_COMPARISONS = (EQUALS, BEGINS_WITH, CONTAINS, ENDS_WITH)
_OPERATORS = (*_COMPARISONS, "HasValue", *_NESTED)
_TRANSFORMS = (NORMALIZE, LOWER, UPPER, TRIM, SPLIT)
_RECORD_FIELDS = frozenset(inference_field.name for inference_field in msgspec.structs.fields(Inference))
_NO_ALLOCATION = (
    "Type Allocation would split a cost among elements, but here each cost has exactly one element "
    "per dimension; write Type: Grouping"
)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """
    Limits for the definition of an installation's own dimensions. `max_rules` counts the rules of all
    dimensions.
    """

    max_bytes: int = 128 << 10
    max_dimensions: int = 100
    max_rules: int = 2000


def parse_definition(
    text: bytes, known_names: Collection[str], limits: Limits | None = None
) -> AllocationDefinition:
    """
    Parse a definition. `known_names` are the dimensions of the totals, which rules may name. Raises InvalidDefinition.
    """
    limits = limits or Limits()
    faults = DefinitionFaults()
    if len(text) > limits.max_bytes:
        limit_text = f"{limits.max_bytes} bytes (allocation.max_definition_bytes)"
        faults.add_fault(f"a definition may have at most {limit_text}, but this one has {len(text)}", "", ())
        faults.raise_if_any()
    # imported late, because it loads the YAML library, which most processes never need
    from gateway.core.yaml_text import read_yaml

    root = read_yaml(text, faults)
    definition = _DefinitionParser(faults, known_names, limits).parse_root(root)
    faults.raise_if_any()
    return definition


def join_definitions(
    definitions: Mapping[str, AllocationDefinition], limits: Limits | None = None
) -> AllocationDefinition:
    """
    Join the definitions of all namespaces in order. Raises InvalidDefinition if two of them define
    the same dimension.

    "" is the default namespace. The limit on dimensions applies to all namespaces together.
    """
    limits = limits or Limits()
    owners: dict[str, str] = {}
    faults = DefinitionFaults()
    for namespace, definition in definitions.items():
        for dimension in definition.dimensions:
            owner = owners.setdefault(dimension.id, namespace)
            if owner != namespace:
                key = dimension.id.removeprefix(PREFIX)
                owner_text = f"the namespace {owner}" if owner else "the default namespace"
                error = f"the dimension {key} belongs to {owner_text}; choose another key"
                faults.add_fault(error, key, ("Dimensions", key))
    _check_count(sum(len(definition.dimensions) for definition in definitions.values()), limits, faults)
    faults.raise_if_any()
    dimensions = [dimension for definition in definitions.values() for dimension in definition.dimensions]
    return AllocationDefinition(tuple(dimensions), owners)


def _check_count(count: int, limits: Limits, faults: DefinitionFaults) -> None:
    limit = limits.max_dimensions
    if count > limit:
        error = (
            f"at most {limit} dimensions are allowed (allocation.max_dimensions), but with this definition "
            f"there are {count}"
        )
        faults.add_fault(error, str(count), ("Dimensions",))


class _DefinitionParser:
    """
    Parses a definition and collects its faults. After a fault, it continues with a placeholder for the faulty part.
    """

    def __init__(self, faults: DefinitionFaults, known_names: Collection[str], limits: Limits) -> None:
        self._faults = faults
        self._limits = limits
        self._sources = {name.lower(): name for name in known_names if not name.startswith((TAG, PREFIX))}
        self._tags = {name.removeprefix(TAG): name for name in known_names if name.startswith(TAG)}
        # ids of the dimensions that are defined above the current dimension
        self._earlier: dict[str, str] = {}
        self._later: set[str] = set()
        self._rules = 0

    def parse_root(self, root: YamlNode) -> AllocationDefinition:
        if not isinstance(root, dict):
            self._faults.add_fault("a definition must be a mapping with the key Dimensions", root, ())
            return AllocationDefinition()
        self._check_fields(root, ("Dimensions",), ())
        path: Path = ("Dimensions",)
        nodes = root.get("Dimensions")
        if not isinstance(nodes, dict):
            error = "Dimensions must be a mapping from the key of a dimension to its fields"
            self._faults.add_fault(error, nodes, path)
            return AllocationDefinition()
        _check_count(len(nodes), self._limits, self._faults)
        self._later = {f"{PREFIX}{key}" for key in nodes}
        dimensions = []
        names: dict[str, str] = {}
        for key, node in list(nodes.items())[: self._limits.max_dimensions]:
            self._later.discard(f"{PREFIX}{key}")
            dimension = self._parse_dimension(key, node, (*path, key))
            first_key = names.setdefault(dimension.name, key)
            if first_key != key:
                self._faults.add_fault(
                    f"the dimension {first_key} already has this name", dimension.name, (*path, key, "Name")
                )
            dimensions.append(dimension)
            self._earlier[dimension.id] = dimension.id
        if self._rules > self._limits.max_rules:
            limit = self._limits.max_rules
            error = (
                f"a definition may have at most {limit} rules (allocation.max_rules), but this one has "
                f"{self._rules}"
            )
            self._faults.add_fault(error, str(self._rules), path)
        return AllocationDefinition(tuple(dimensions))

    def _parse_dimension(self, key: str, node: YamlNode, path: Path) -> Dimension:
        if not _KEY.fullmatch(key) or len(key) > MAX_KEY:
            error = (
                f"a dimension's key must have 1 to {MAX_KEY} letters, digits, _ and -, and begin with "
                "a letter"
            )
            self._faults.add_fault(error, key, path)
        fields = self._parse_mapping(node, _DIMENSION_FIELDS, path)
        type_ = self._parse_text(fields, "Type", path) or "Grouping"
        if type_ != "Grouping":
            error = _NO_ALLOCATION if type_ == "Allocation" else "Type must be Grouping"
            self._faults.add_fault(error, type_, (*path, "Type"))
        source = self._parse_source(fields, None, path)
        nodes = self._parse_list(fields, "Rules", path)
        self._rules += len(nodes)
        rules = [
            self._parse_rule(rule_node, source, (*path, "Rules", index))
            for index, rule_node in enumerate(nodes)
        ]
        return Dimension(
            id=f"{PREFIX}{key}",
            name=self._parse_text(fields, "Name", path) or key,
            rules=tuple(rule for rule in rules if rule is not None),
            default=self._parse_text(fields, "DefaultValue", path),
        )

    def _parse_rule(self, node: YamlNode, inherited: SourceDimensions | None, path: Path) -> Rule | None:
        type_ = node.get("Type") if isinstance(node, dict) else None
        if type_ == "Group":
            fields = self._parse_mapping(node, _GROUP_FIELDS, path)
            source = self._parse_source(fields, inherited, path)
            name = self._parse_text(fields, "Name", path, required=True)
            return ElementRule(name, AnyOf(self._parse_conditions(fields, "Conditions", source, path)))
        if type_ == "GroupBy":
            return self._parse_group_by(self._parse_mapping(node, _GROUP_BY_FIELDS, path), inherited, path)
        if isinstance(node, dict):
            self._faults.add_fault("Type must be Group or GroupBy", type_, (*path, "Type"))
        else:
            self._faults.add_fault("a rule must be a mapping with the key Type", node, path)
        return None

    def _parse_group_by(
        self, fields: Mapping[str, YamlNode], inherited: SourceDimensions | None, path: Path
    ) -> Rule | None:
        source = self._parse_source(fields, inherited, path)
        condition = None
        if "Conditions" in fields:
            condition = AnyOf(self._parse_conditions(fields, "Conditions", source, path))
        if source is None:
            self._faults.add_fault("GroupBy needs a Source, in the rule or in its dimension", None, path)
            return None
        form = self._parse_text(fields, "Format", path)
        count = 1 if source.first else len(source.names)
        places = [int(match[1]) for match in PLACE.finditer(form)]
        if form and (not places or max(places) >= count):
            error = "Format must name a source: {0}" + (f", up to {{{count - 1}}}" if count > 1 else "")
            self._faults.add_fault(error, form, (*path, "Format"))
        if count > 1 and not form:
            error = (
                "GroupBy with several Sources needs CoalesceSources: true (the first known value) or "
                "Format (to join the values)"
            )
            self._faults.add_fault(error, None, path)
        return GroupBy(source, form, condition)

    # -- conditions ------------------------------------------------------------------------------------------

    def _parse_conditions(
        self, fields: Mapping[str, YamlNode], field: str, source: SourceDimensions | None, path: Path
    ) -> tuple[Condition, ...]:
        nodes = self._parse_list(fields, field, path)
        conditions = [
            self._parse_condition(node, source, (*path, field, index)) for index, node in enumerate(nodes)
        ]
        return tuple(condition for condition in conditions if condition is not None)

    def _parse_condition(
        self, node: YamlNode, inherited: SourceDimensions | None, path: Path
    ) -> Condition | None:
        if not isinstance(node, dict):
            self._faults.add_fault(
                f"a condition must be a mapping with one of {', '.join(_OPERATORS)}", node, path
            )
            return None
        operators = [name for name in node if name in _OPERATORS]
        if len(operators) != 1:
            self._check_fields(node, (*_OPERATORS, *_SOURCE_FIELDS), path)
            error = f"a condition must have exactly one of {', '.join(_OPERATORS)}"
            self._faults.add_fault(error, ", ".join(operators), path)
            return None
        [operator] = operators
        fields = self._parse_mapping(node, (operator, *_SOURCE_FIELDS), path)
        source = self._parse_source(fields, inherited, path)
        if operator in _NESTED:
            return _NESTED[operator](self._parse_conditions(fields, operator, source, path))
        if source is None:
            error = f"{operator} needs a Source, in the condition, in its rule or in its dimension"
            self._faults.add_fault(error, None, path)
            return None
        if operator == "HasValue":
            return HasValue(source, self._parse_flag(fields, operator, path))
        named = self._values_with_paths(fields, operator, path)
        values = tuple(self._parse_value(value, value_path) for value, value_path in named)
        return ValueCondition(source, operator, values) if values else None

    # -- sources ---------------------------------------------------------------------------------------------

    def _parse_source(
        self, fields: Mapping[str, YamlNode], inherited: SourceDimensions | None, path: Path
    ) -> SourceDimensions | None:
        transforms = None
        if "Transforms" in fields:
            nodes = self._parse_list(fields, "Transforms", path, max_items=MAX_TRANSFORMS)
            parsed = [
                self._parse_transform(node, (*path, "Transforms", index)) for index, node in enumerate(nodes)
            ]
            transforms = tuple(transform for transform in parsed if transform is not None)
        if "Source" in fields and "Sources" in fields:
            self._faults.add_fault("use either Source or Sources, not both", None, (*path, "Sources"))
        field = next((name for name in ("Source", "Sources") if name in fields), None)
        if field is None:
            if "CoalesceSources" in fields:
                self._faults.add_fault(
                    "CoalesceSources is only allowed with Sources", None, (*path, "CoalesceSources")
                )
            if inherited is None:
                if transforms is not None:
                    self._faults.add_fault("Transforms needs a Source", None, (*path, "Transforms"))
                return None
            return inherited if transforms is None else replace(inherited, transforms=transforms)
        named = self._values_with_paths(
            fields, field, path, max_items=1 if field == "Source" else MAX_SOURCES
        )
        names = [self._parse_source_name(node, name_path) for node, name_path in named]
        first = "CoalesceSources" in fields and self._parse_flag(fields, "CoalesceSources", path)
        return SourceDimensions(tuple(name for name in names if name), first, transforms or ())

    def _parse_source_name(self, node: YamlNode, path: Path) -> str:
        """
        Return the id of the dimension that a source names: one of the totals, or an earlier one of the
        definition. Return "" if it is unknown.
        """
        text = self._parse_value(node, path)
        if not text:
            return ""
        if text.startswith(PREFIX):
            if text not in self._earlier:
                is_later = text in self._later or path[:2] == ("Dimensions", text.removeprefix(PREFIX))
                error = (
                    "a rule can read only dimensions above its own; move that dimension up"
                    if is_later
                    else (f"this definition has no dimension {text.removeprefix(PREFIX)}")
                )
                self._faults.add_fault(error, text, path)
                return ""
            return text
        if text[: len(TAG)].lower() == TAG:
            tag = text[len(TAG) :]
            if tag not in self._tags:
                self._faults.add_fault(
                    f"the totals do not have the tag {tag}; add it to ledger.tags", text, path
                )
            return self._tags.get(tag, "")
        if text.lower() not in self._sources:
            self._faults.add_fault(self._unknown_source(text), text, path)
        return self._sources.get(text.lower(), "")

    def _unknown_source(self, text: str) -> str:
        known = [*self._sources.values(), *self._tags.values(), *self._earlier]
        if text in TAGS:
            problem = f"{text} is a unit of work, of which there are too many for rules"
            return f"{problem}; add the tag {text} to ledger.tags, and use tag:{text}"
        if text in _RECORD_FIELDS:
            problem = f"{text} is a field of records, but not a dimension of the totals"
            return f"{problem}; copy it into a tag of ledger.tags with [[attribution]]"
        near = difflib.get_close_matches(text, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f": {', '.join(known)}"
        return f"there is no such source{hint}"

    def _parse_transform(self, node: YamlNode, path: Path) -> Transform | None:
        fields = self._parse_mapping(node, ("Type", "Delimiter", "Index"), path)
        type_ = fields.get("Type")
        if not isinstance(type_, str) or type_ not in _TRANSFORMS:
            if fields:
                self._faults.add_fault(
                    f"Type must be one of {', '.join(_TRANSFORMS)}", type_, (*path, "Type")
                )
            return None
        if type_ != SPLIT:
            for field in ("Delimiter", "Index"):
                if field in fields:
                    self._faults.add_fault(
                        f"{field} is only allowed with {SPLIT}", fields[field], (*path, field)
                    )
            return Transform(type_)
        delimiter = fields.get("Delimiter")
        if not isinstance(delimiter, str) or not delimiter:
            self._faults.add_fault(f"{SPLIT} needs a Delimiter, such as '-'", delimiter, (*path, "Delimiter"))
            return None
        index = fields.get("Index", "0")
        if not isinstance(index, str) or not re.fullmatch("[0-9]{1,2}", index):
            error = f"Index must be the position of the part, from 0 to {MAX_INDEX}"
            self._faults.add_fault(error, index, (*path, "Index"))
            return None
        return Transform(SPLIT, delimiter, int(index))

    # -- values ----------------------------------------------------------------------------------------------

    def _parse_mapping(self, node: YamlNode, allowed: Sequence[str], path: Path) -> Mapping[str, YamlNode]:
        if not isinstance(node, dict):
            self._faults.add_fault(f"this must be a mapping with the keys {', '.join(allowed)}", node, path)
            return {}
        self._check_fields(node, allowed, path)
        return node

    def _check_fields(self, fields: Mapping[str, YamlNode], allowed: Sequence[str], path: Path) -> None:
        for name in fields:
            if name not in allowed:
                near = difflib.get_close_matches(name, allowed, n=1)
                hint = f"did you mean {near[0]}?" if near else f"allowed keys: {', '.join(allowed)}"
                self._faults.add_fault(f"this key is not allowed here; {hint}", name, (*path, name))

    def _parse_list(
        self, fields: Mapping[str, YamlNode], field: str, path: Path, *, max_items: int = 0
    ) -> list[YamlNode]:
        node = fields.get(field)
        if not isinstance(node, list) or not node:
            self._faults.add_fault(f"{field} must be a list with at least one item", node, (*path, field))
            return []
        if max_items and len(node) > max_items:
            self._faults.add_fault(
                f"{field} may have at most {max_items} items", str(len(node)), (*path, field)
            )
            return node[:max_items]
        return node

    def _values_with_paths(
        self, fields: Mapping[str, YamlNode], field: str, path: Path, *, max_items: int = 0
    ) -> Sequence[tuple[YamlNode, Path]]:
        node = fields[field]
        if not isinstance(node, list) or max_items == 1:
            return [(node, (*path, field))]
        nodes = self._parse_list(fields, field, path, max_items=max_items)
        return [(node, (*path, field, index)) for index, node in enumerate(nodes)]

    def _parse_text(
        self, fields: Mapping[str, YamlNode], field: str, path: Path, *, required: bool = False
    ) -> str:
        if field not in fields and not required:
            return ""
        return self._parse_value(fields.get(field), (*path, field))

    def _parse_value(self, node: YamlNode, path: Path) -> str:
        if not isinstance(node, str) or not node.strip():
            self._faults.add_fault("this must be a text that is not empty", node, path)
            return ""
        if len(node) > MAX_VALUE:
            self._faults.add_fault(f"this may have at most {MAX_VALUE} characters", node, path)
        if not node.isprintable():
            self._faults.add_fault("this must be printable text without line breaks", node, path)
        return node

    def _parse_flag(self, fields: Mapping[str, YamlNode], field: str, path: Path) -> bool:
        node = fields.get(field)
        word = node.lower() if isinstance(node, str) else ""
        if word not in ("true", "false"):
            self._faults.add_fault(f"{field} must be true or false", node, (*path, field))
        return word == "true"
