"""
Edits of TOML as text. Unchanged parts stay byte for byte, including comments, order and spacing.

This module finds statements, and the standard library decodes the text before and after an edit. If an edit
would change more than the one key, it raises `NotEditable`.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.devices.agent.edits import MISSING, NotEditable

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*")
_QUOTES = ('"""', "'''", '"', "'")


@dataclass(frozen=True, slots=True)
class _TomlStatement:
    """
    A header or a key-value pair in TOML text, with its full path. `start`, `end` and `value`, the beginning
    of a pair's value, are positions in the text.
    """

    start: int
    end: int
    path: tuple[str, ...]
    value: int | None = None
    table: tuple[str, ...] = ()


def parse_settings(text: str) -> Any:
    try:
        return tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError as error:
        raise NotEditable(f"it is not valid TOML ({error}); repair it first") from None


def get_value(text: str, path: Sequence[str]) -> Any:
    node = parse_settings(text)
    for name in path:
        if not isinstance(node, dict) or name not in node:
            return MISSING
        node = node[name]
    return node


def put_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with the value at the path, as one inline pair."""
    expected = copy.deepcopy(parse_settings(text))
    table: Any = expected
    for name in path[:-1]:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            raise NotEditable(f"{name} is not a table")
        table = inner
    table[path[-1]] = value
    return _require_equal_toml(_with_value(text, tuple(path), format_value(value)), expected)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return the text without the key, and without a table that Tollhouse created and that is now empty."""
    expected = copy.deepcopy(parse_settings(text))
    tables = [expected]
    for name in path[:-1]:
        if not isinstance(tables[-1].get(name), dict):
            return text
        tables.append(tables[-1][name])
    if path[-1] not in tables[-1]:
        return text
    del tables[-1][path[-1]]
    return _require_equal_toml(_without_statements_below(text, tuple(path)), expected)


def format_value(value: Any) -> str:
    """Encode a value as TOML on one line."""
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_format_key(name)} = {format_value(item)}" for name, item in value.items())
            + " }"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(format_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _require_equal_toml(text: str, expected: Any) -> str:
    try:
        parsed: Any = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except tomllib.TOMLDecodeError:
        parsed = MISSING
    if parsed != expected:
        raise NotEditable(
            "Tollhouse cannot safely change a file that is written like this; change it by hand"
        )
    return text


def _with_value(text: str, path: tuple[str, ...], value: str) -> str:
    statements = list(_parse_statements(text))
    for statement in statements:
        if statement.path == path and statement.value is not None:
            return text[: statement.value] + value + text[statement.end :]
    # remove the tables below the key, because the inline value replaces them
    text = _without_statements_below(text, path)
    newline = "\r\n" if "\r\n" in text else "\n"
    pair = f"{_format_key(path[-1])} = {value}"
    for statement in _parse_statements(text):
        at = _end_of_line(text, statement.end)
        if statement.value is None and statement.path == path[:-1]:
            return f"{text[:at]}{newline}{pair}{text[at:]}"
        # The file writes this table's keys dotted, without a header, so the new key is dotted as well.
        if statement.value is not None and statement.path[:-1] == path[:-1] and not statement.table:
            dotted = ".".join(map(_format_key, path))
            return f"{text[:at]}{newline}{dotted} = {value}{text[at:]}"
    header = f"[{'.'.join(map(_format_key, path[:-1]))}]{newline}"
    if not text.removeprefix("\ufeff"):
        return f"{text}{header}{pair}{newline}"
    gap = newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}{header}{pair}{newline}"


def _without_statements_below(text: str, path: tuple[str, ...]) -> str:
    for statement in reversed(list(_parse_statements(text))):
        if statement.path[: len(path)] == path:
            start = text.rfind("\n", 0, statement.start) + 1
            end = _end_of_line(text, statement.end)
            end += 2 if text[end : end + 2] == "\r\n" else 1
            text = text[:start] + text[end:]
    return text


def _parse_statements(text: str) -> Iterator[_TomlStatement]:
    at = 1 if text.startswith("\ufeff") else 0
    table: tuple[str, ...] = ()
    while True:
        blank = _BLANK.match(text, at)
        at = blank.end() if blank else at
        if at >= len(text) or text[at] == "#":
            return
        if text[at] == "[":
            end = _end_of_line(text, at)
            header = _value_without_comment(text, at, end)
            if header.startswith("[["):
                table = (*_parse_key_path(header[2:-2]), "[]")
            else:
                table = _parse_key_path(header[1:-1])
            yield _TomlStatement(at, at + len(header), table)
        else:
            equals = _position_of_unquoted(text, at, "=")
            value = equals + 1 + len(text[equals + 1 :]) - len(text[equals + 1 :].lstrip(" \t"))
            end = _end_of_value(text, value)
            yield _TomlStatement(at, end, (*table, *_parse_key_path(text[at:equals])), value, table)
        at = _end_of_line(text, end)


def _parse_key_path(key: str) -> tuple[str, ...]:
    node: Any = tomllib.loads(f"{key.strip()} = 0")
    names = []
    while isinstance(node, dict):
        ((name, node),) = node.items()
        names.append(name)
    return tuple(names)


def _position_of_unquoted(text: str, position: int, character: str) -> int:
    while text[position] != character:
        position = _end_of_quoted_text(text, position) if text[position] in "\"'" else position + 1
    return position


def _value_without_comment(text: str, position: int, end: int) -> str:
    start = position
    while position < end and text[position] != "#":
        position = _end_of_quoted_text(text, position) if text[position] in "\"'" else position + 1
    return text[start:position].rstrip()


def _end_of_value(text: str, position: int) -> int:
    depth = 0
    while position < len(text):
        mark = text[position]
        if mark in "\"'":
            position = _end_of_quoted_text(text, position)
            continue
        if mark == "#":
            if not depth:
                break
            position = _end_of_line(text, position)
            continue
        if mark in "\r\n" and not depth:
            break
        depth += (mark in "[{") - (mark in "]}")
        position += 1
    return position - (len(text[:position]) - len(text[:position].rstrip(" \t")))


def _end_of_quoted_text(text: str, position: int) -> int:
    quote = next(mark for mark in _QUOTES if text.startswith(mark, position))
    position += len(quote)
    while not text.startswith(quote, position):
        position += 2 if text[position] == "\\" and quote[0] == '"' else 1
    position += len(quote)
    # If more than three quotes follow, the last three close the text, and the quotes before them belong to it.
    while len(quote) == 3 and text[position : position + 1] == quote[0]:
        position += 1
    return position


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    end = len(text) if end < 0 else end
    return end - 1 if end > position and text[end - 1] == "\r" else end


def _format_key(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
