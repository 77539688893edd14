"""
Reader of YAML as plain mappings, lists and texts. Aliases, tags and several documents are rejected.

Every scalar is text, so a team named `on`, `1e3` or `2026-11-01` keeps its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import yaml

from gateway.core.faults import DefinitionFaults, Fault, InvalidDefinition, Path


class PlainText(str):
    """A text that YAML, without quotes, could read as a number or as true or false."""

    __slots__ = ()


YamlNode: TypeAlias = "str | list[YamlNode] | dict[str, YamlNode] | None"
# path in a document -> line and column, both from 1. A value in a mapping has the place of its key.
Places: TypeAlias = "dict[Path, tuple[int, int]]"
MAX_ITEMS = 20_000  # maximum items of a list at the top of a text
# Maximum keys and values of a text for each of MAX_ITEMS. It protects memory, because a key needs only two bytes of
# text. Objects have fewer, and files.max_objects raises it. allocation.max_definition_bytes implies it for definitions.
NODES_AN_ITEM = 25
# Maximum levels of nested mappings and lists. Protects readers that call themselves; no valid text has half of them.
MAX_DEPTH = 24
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = ("", "~", "null", "Null", "NULL")


def read_yaml(
    text: bytes,
    faults: DefinitionFaults,
    places: Places | None = None,
    *,
    marks_unquoted_values: bool = False,
    max_items: int = MAX_ITEMS,
) -> YamlNode:
    """
    Parse YAML. Repeated keys are faults. With `marks_unquoted_values`, values without quotes are PlainText. Raises
    InvalidDefinition if the text is not readable, or if it is a list of more than `max_items` items, or if it has more
    than NODES_AN_ITEM times as many keys and values.
    """
    plain = PlainText if marks_unquoted_values else str
    try:
        events = yaml.parse(text.decode("utf-8-sig"), Loader=_LOADER)
        return _build_document(events, faults, {} if places is None else places, plain, max_items=max_items)
    except UnicodeDecodeError as error:
        raise _unreadable_yaml(f"the text must be UTF-8, but byte {error.start} is not") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        raise _unreadable_yaml(f"this is not YAML: {_describe_error(error)}", place=place) from None


def _build_document(
    events: Iterator[yaml.Event],
    faults: DefinitionFaults,
    places: Places,
    plain: type[str],
    *,
    max_items: int,
) -> YamlNode:
    root: list[YamlNode] = []
    count, max_nodes = 0, NODES_AN_ITEM * max_items
    # mappings and lists that are not complete yet, from the root down
    open_nodes: list[tuple[list[YamlNode] | dict[str, YamlNode], Path]] = []
    keys: list[str | None] = []  # for each open node: the key whose value comes next, or None
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent) and root:
            raise _unreadable_yaml("only one YAML document is allowed", event)
        if isinstance(event, yaml.AliasEvent):
            raise _unreadable_yaml(
                f"aliases such as *{event.anchor} are not allowed; write the value in full", event
            )
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            open_nodes.pop()
            keys.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        if count > max_nodes:
            raise _unreadable_yaml(f"the text may have at most {max_nodes:,} keys and values", event)
        _refuse_anchors_and_tags(event)
        is_key = bool(open_nodes) and isinstance(open_nodes[-1][0], dict) and keys[-1] is None
        if is_key:
            if not isinstance(event, yaml.ScalarEvent):
                raise _unreadable_yaml("a key must be text", event)
            parent, path = open_nodes[-1]
            assert isinstance(parent, dict)
            if event.value in parent:
                faults.add_fault(
                    f"{_shorten_key(event.value)} appears twice here", event.value, (*path, event.value)
                )
            keys[-1] = event.value
            places[*path, event.value] = _event_place(event)
            continue
        node = _new_node(event, plain)
        path = _add_node(node, root, open_nodes, keys)
        places.setdefault(path, _event_place(event))
        if len(open_nodes) == 1 and isinstance(open_nodes[0][0], list) and len(open_nodes[0][0]) > max_items:
            raise _unreadable_yaml(f"the list may have at most {max_items:,} items", event)
        if isinstance(node, dict | list):
            if len(open_nodes) == MAX_DEPTH:
                raise _unreadable_yaml(f"lists and mappings may be nested at most {MAX_DEPTH} deep", event)
            open_nodes.append((node, path))
            keys.append(None)
    return root[0] if root else None


def _add_node(
    node: YamlNode,
    root: list[YamlNode],
    open_nodes: list[tuple[list[YamlNode] | dict[str, YamlNode], Path]],
    keys: list[str | None],
) -> Path:
    if not open_nodes:
        root.append(node)
        return ()
    parent, path = open_nodes[-1]
    if isinstance(parent, list):
        parent.append(node)
        return (*path, len(parent) - 1)
    key = keys[-1]
    assert key is not None
    parent[key] = node
    keys[-1] = None
    return (*path, key)


def _event_place(event: yaml.Event) -> tuple[int, int]:
    mark = event.start_mark
    return (1, 1) if mark is None else (mark.line + 1, mark.column + 1)


def _new_node(event: yaml.NodeEvent, plain: type[str]) -> YamlNode:
    if isinstance(event, yaml.MappingStartEvent):
        return {}
    if isinstance(event, yaml.SequenceStartEvent):
        return []
    assert isinstance(event, yaml.ScalarEvent)
    is_plain = not event.style
    return None if is_plain and event.value in _NULLS else (plain if is_plain else str)(event.value)


def _refuse_anchors_and_tags(event: yaml.NodeEvent) -> None:
    tag = event.tag if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) else None
    if event.anchor is not None:
        raise _unreadable_yaml(
            f"anchors such as &{event.anchor} are not allowed; write the value in full", event
        )
    if tag is not None:
        raise _unreadable_yaml(f"YAML tags such as {tag} are not allowed", event)


def _unreadable_yaml(
    error: str, event: yaml.Event | None = None, *, place: tuple[int, int] = (1, 1)
) -> InvalidDefinition:
    if event is None:
        return InvalidDefinition([Fault(error, "", [])], place)
    line, column = _event_place(event)
    return InvalidDefinition([Fault(f"{error} (line {line})", "", [])], (line, column))


def _describe_error(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem} (line {mark.line + 1}, column {mark.column + 1})"
    return str(error).partition("\n")[0]


def _shorten_key(key: str) -> str:
    return key if len(key) <= 64 else f"{key[:64]}..."
