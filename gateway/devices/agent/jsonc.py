"""
Edits of JSON with comments as text. Unchanged parts stay byte for byte, including comments, order and indentation.

The module reads all text that editors accept: comments, trailing commas and any white space. If it is not
certain that an edit is right, it raises `NotEditable`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway.devices.agent.edits import MISSING, NotEditable

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"-?\d[\d.eE+-]*|true|false|null")
_DEEPEST = 100


@dataclass(slots=True)
class _JsonNode:
    """A value and its position in the text. `members` of an object are in the order of the text."""

    start: int
    end: int
    value: Any
    members: list[_Member] | None = None

    def last_member_named(self, name: str) -> _Member | None:
        """
        Return the member with this name. If the name is repeated, return the last member, as JSON parsers do.
        """
        return next((member for member in reversed(self.members or ()) if member.name == name), None)


@dataclass(slots=True)
class _Member:
    name: str
    start: int
    node: _JsonNode
    comma: int | None = None  # position of the comma after the member


def parse_settings(text: str) -> Any:
    root = _JsonReader(text).read_document()
    return {} if root is None else root.value


def get_value(text: str, path: Sequence[str]) -> Any:
    node = _JsonReader(text).read_document()
    for name in path:
        member = None if node is None else node.last_member_named(name)
        if member is None:
            return MISSING
        node = member.node
    return MISSING if node is None else node.value


def put_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at the path. Missing objects on the path are created."""
    newline = "\r\n" if "\r\n" in text else "\n"
    root = _JsonReader(text).read_document()
    if root is None:
        document = _format_value(_nest_value(path, value), "", "  ", newline)
        return (
            f"{text}{document}{newline}"
            if not text or text.endswith("\n")
            else f"{text}{newline}{document}{newline}"
        )
    node = root
    for depth, name in enumerate(path):
        if node.members is None:
            raise NotEditable(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        member = node.last_member_named(name)
        if member is None:
            return _with_member(text, root, node, name, _nest_value(path[depth + 1 :], value), newline)
        node = member.node
    unit, indent = _detect_indent_unit(text, root), _line_indent(text, node.start)
    return text[: node.start] + _format_value(value, indent, unit, newline) + text[node.end :]


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the member at the path, its line and its comma."""
    node = _JsonReader(text).read_document()
    for name in path[:-1]:
        member = None if node is None else node.last_member_named(name)
        node = member.node if member else None
    member = node.last_member_named(path[-1]) if node is not None else None
    if node is None or member is None or node.members is None:
        return text
    start, end = member.start, member.node.end if member.comma is None else member.comma + 1
    line = text.rfind("\n", 0, start) + 1
    rest = _line_end(text, end)
    if not text[line:start].strip() and not text[end:rest].strip() and rest < len(text):
        start, end = line, rest + (2 if text[rest : rest + 2] == "\r\n" else 1)
    index = node.members.index(member)
    text = text[:start] + text[end:]
    # the removed member was the last member, so the new last member must lose its comma
    if member.comma is None and index:
        comma = node.members[index - 1].comma
        if comma is not None:
            text = text[:comma] + text[comma + 1 :]
    return text


def _nest_value(path: Sequence[str], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _with_member(text: str, root: _JsonNode, node: _JsonNode, name: str, value: Any, newline: str) -> str:
    members = node.members or []
    unit = _detect_indent_unit(text, root)
    if not members:
        return _with_first_member(text, node, name, value, unit, newline)
    last = members[-1]
    spread = "\n" in text[node.start : members[0].start]
    if not spread:
        added = _format_member(name, value, "", "", "")
        if last.comma is not None:
            return f"{text[: last.comma + 1]} {added},{text[last.comma + 1 :]}"
        return f"{text[: last.node.end]}, {added}{text[last.node.end :]}"
    indent = _line_indent(text, members[0].start)
    added = newline + indent + _format_member(name, value, indent, unit, newline)
    if last.comma is not None:  # the last member has a comma, so the added member gets a comma as well
        at = _end_of_trailing_comment(text, last.comma + 1)
        return f"{text[:at]}{added},{text[at:]}"
    at = _end_of_trailing_comment(text, last.node.end)
    return f"{text[: last.node.end]},{text[last.node.end : at]}{added}{text[at:]}"


def _with_first_member(text: str, node: _JsonNode, name: str, value: Any, unit: str, newline: str) -> str:
    outer = _line_indent(text, node.start)
    indent = outer + unit
    inside = text[node.start + 1 : node.end - 1]
    content = inside.rstrip(" \t\r\n")
    added = newline + indent + _format_member(name, value, indent, unit, newline) + newline + outer
    return f"{text[: node.start + 1]}{content}{added}{text[node.end - 1 :]}"


def _format_member(name: str, value: Any, indent: str, unit: str, newline: str) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {_format_value(value, indent, unit, newline)}"


def _format_value(value: Any, indent: str, unit: str, newline: str) -> str:
    if not newline or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=unit).replace("\n", newline + indent)


def _detect_indent_unit(text: str, root: _JsonNode) -> str:
    for member in root.members or ():
        if indent := _line_indent(text, member.start):
            return indent
    return "  "


def _line_indent(text: str, position: int) -> str:
    line = text.rfind("\n", 0, position) + 1
    return text[line:position][: len(text[line:position]) - len(text[line:position].lstrip(" \t"))]


def _line_end(text: str, position: int) -> int:
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    return end - 1 if end > position and text[end - 1] == "\r" else end


def _end_of_trailing_comment(text: str, position: int) -> int:
    """Return the position after a comment that ends the line, because it belongs to the text before it."""
    end = _line_end(text, position)
    rest = text[position:end]
    stripped = rest.strip(" \t")
    is_comment = stripped.startswith("//") or (
        stripped.startswith("/*") and stripped.find("*/") == len(stripped) - 2
    )
    return position + len(rest.rstrip(" \t")) if is_comment and len(stripped) > 1 else position


class _JsonReader:
    """A parser that reads the text in one pass and records the position of every value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._depth = 0

    def read_document(self) -> _JsonNode | None:
        """Return the value, or None if the text has only white space and comments."""
        self._skip_space_and_comments()
        if self._at == len(self._text):
            return None
        node = self._read_node()
        self._skip_space_and_comments()
        if self._at != len(self._text):
            raise self._invalid_json_error()
        return node

    def _read_node(self) -> _JsonNode:
        mark = self._next_character()
        if mark in ("{", "["):
            self._depth += 1
            if self._depth > _DEEPEST:
                raise self._invalid_json_error()
            node = self._read_object() if mark == "{" else self._read_array()
            self._depth -= 1
            return node
        start = self._at
        return _JsonNode(start, *self._read_scalar(_STRING if mark == '"' else _SCALAR))

    def _read_object(self) -> _JsonNode:
        start, members = self._at, list[_Member]()
        self._at += 1
        while self._skip_space_and_comments() != "}":
            if members and members[-1].comma is None:
                raise self._invalid_json_error()
            at = self._at
            _, name = self._read_scalar(_STRING)
            if self._skip_space_and_comments() != ":":
                raise self._invalid_json_error()
            self._at += 1
            self._skip_space_and_comments()
            members.append(_Member(name, at, self._read_node()))
            members[-1].comma = self._skip_comma()
        self._at += 1
        return _JsonNode(start, self._at, {member.name: member.node.value for member in members}, members)

    def _read_array(self) -> _JsonNode:
        start, values, has_more = self._at, list[Any](), True
        self._at += 1
        while self._skip_space_and_comments() != "]":
            if not has_more:
                raise self._invalid_json_error()
            values.append(self._read_node().value)
            has_more = self._skip_comma() is not None
        self._at += 1
        return _JsonNode(start, self._at, values)

    def _skip_comma(self) -> int | None:
        if self._skip_space_and_comments() != ",":
            return None
        self._at += 1
        return self._at - 1

    def _read_scalar(self, pattern: re.Pattern[str]) -> tuple[int, Any]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._invalid_json_error()
        try:
            value = json.loads(match[0])
        except ValueError:
            raise self._invalid_json_error() from None
        self._at = match.end()
        return self._at, value

    def _skip_space_and_comments(self) -> str:
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            comment = _COMMENT.match(self._text, self._at)
            if comment is None:
                return self._next_character()
            self._at = comment.end()

    def _next_character(self) -> str:
        return self._text[self._at : self._at + 1]

    def _invalid_json_error(self) -> NotEditable:
        line = self._text.count("\n", 0, self._at) + 1
        return NotEditable(f"line {line} is not valid JSON; repair it first")
