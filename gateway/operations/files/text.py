"""
YAML of objects: written in one form only, and read with the place of each value.

The declared types decide what a text means, so `yes` and `1e3` stay texts. They are quoted, so that other programs
read them as texts as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    AnyType,
    BoolType,
    DictType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from gateway.core.faults import DefinitionFaults, Path
from gateway.core.yaml_text import PlainText, YamlNode

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*")
_NOT_TEXTS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
_INTEGER = re.compile(r"[+-]?\d{1,18}")
_JSON_SCALAR = re.compile(r"true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)


def format_objects(objects: Sequence[Mapping[str, Any]]) -> str:
    """Write a list of objects as YAML. Equal objects always give the same text."""
    return "".join(f"{line}\n" for one in objects for line in _yaml_list_item_lines(one))


def format_fields(fields: Mapping[str, Any]) -> str:
    return "".join(f"{line}\n" for line in _member_lines(fields))


def _yaml_list_item_lines(value: Any) -> Iterator[str]:
    lines = _block_lines(value)
    yield f"- {next(lines)}"
    yield from (f"  {line}" for line in lines)


def _member_lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name, value in fields.items():
        if isinstance(value, dict | list) and value:
            yield f"{_quote_if_needed(name)}:"
            yield from (f"  {line}" for line in _block_lines(value))
        else:
            yield f"{_quote_if_needed(name)}: {_format_scalar(value)}"


def _block_lines(value: Any) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield from _member_lines(value)
    elif isinstance(value, list) and value:
        for item in value:
            yield from _yaml_list_item_lines(item)
    else:
        yield _format_scalar(value)


def _format_scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quote_if_needed(value)
    return str(value)


def _quote_if_needed(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _NOT_TEXTS:
        return text
    return f'"{"".join(map(_escape_yaml_character, text))}"'


def _escape_yaml_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def convert_fields(
    node: YamlNode, kind: type, faults: DefinitionFaults, path: Path = (), *, known_names: Sequence[str]
) -> Mapping[str, Any]:
    """
    Convert the texts of an object to the types of its fields.

    Adds a fault for each unknown field and each wrong value.
    """
    if not isinstance(node, dict):
        faults.add_fault("this must be an object with fields", node, path)
        return {}
    fields = {field.name: field.type for field in inspect_struct_type(kind).fields}
    return {
        name: _convert_node(value, fields[name], faults, (*path, name)) if name in fields else value
        for name, value in node.items()
        if _check_known_field(name, known_names, faults, path)
    }


def without_defaults(value: Any, kind: Type) -> Any:
    if isinstance(kind, Metadata):
        return without_defaults(value, kind.type)
    if isinstance(kind, UnionType):
        inner = next((each for each in kind.types if isinstance(each, StructType)), None)
        return value if inner is None or value is None else without_defaults(value, inner)
    if isinstance(kind, ListType | VarTupleType):
        return [without_defaults(item, kind.item_type) for item in value]
    if isinstance(kind, DictType):
        return {name: without_defaults(item, kind.value_type) for name, item in value.items()}
    if not isinstance(kind, StructType):
        return value
    defaults = json_defaults(kind.cls)
    return {
        field.name: without_defaults(value[field.name], field.type)
        for field in kind.fields
        if field.name in value and (field.name not in defaults or defaults[field.name] != value[field.name])
    }


def json_defaults(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    found = {}
    for field in msgspec.structs.fields(kind):
        if field.default_factory is not NODEFAULT:
            found[field.name] = to_json_form(field.default_factory())
        elif field.default is not NODEFAULT:
            found[field.name] = to_json_form(field.default)
    return found


def to_json_form(value: Any) -> Any:
    """Return a value in the form of JSON, with lists in place of tuples."""
    if isinstance(value, tuple | list):
        return [to_json_form(item) for item in value]
    built = value if isinstance(value, dict) else msgspec.to_builtins(value)
    return {name: to_json_form(item) for name, item in built.items()} if isinstance(built, dict) else built


@cache
def inspect_struct_type(kind: type) -> StructType:
    found = type_info(kind)
    assert isinstance(found, StructType)
    return found


def _check_known_field(name: str, known_names: Sequence[str], faults: DefinitionFaults, path: Path) -> bool:
    if name in known_names:
        return True
    faults.add_fault(f"unknown field {name[:60]!r}{suggestion(name, known_names)}", name, (*path, name))
    return False


def suggestion(typed_name: str, known_names: Sequence[str]) -> str:
    """Return a hint with the known word that resembles a wrong one most, or ""."""
    found = get_close_matches(typed_name, known_names, 1, 0.6)
    return f'; did you mean "{found[0]}"?' if found else ""


def _convert_node(node: YamlNode, kind: Type, faults: DefinitionFaults, path: Path) -> Any:
    if isinstance(kind, Metadata):
        return _convert_node(node, kind.type, faults, path)
    if isinstance(kind, UnionType):
        return _convert_union(node, kind, faults, path)
    if isinstance(kind, AnyType):
        return _convert_untyped(node)
    if isinstance(kind, ListType | VarTupleType):
        if isinstance(node, list):
            return [_convert_node(item, kind.item_type, faults, (*path, i)) for i, item in enumerate(node)]
        return _add_type_fault("a list", node, faults, path)
    if isinstance(kind, DictType | StructType):
        if not isinstance(node, dict):
            return _add_type_fault("an object with fields", node, faults, path)
        if isinstance(kind, DictType):
            return {
                name: _convert_node(item, kind.value_type, faults, (*path, name))
                for name, item in node.items()
            }
        return convert_fields(node, kind.cls, faults, path, known_names=[field.name for field in kind.fields])
    if not isinstance(node, str):
        return (
            None
            if isinstance(kind, NoneType) and node is None
            else _add_type_fault(_type_words(kind), node, faults, path)
        )
    return _convert_text(node, kind, faults, path)


def _convert_untyped(node: YamlNode) -> Any:
    """
    Return a value of any type. An unquoted text that JSON reads as a number, true or false is that value.
    """
    if isinstance(node, dict):
        return {name: _convert_untyped(item) for name, item in node.items()}
    if isinstance(node, list):
        return [_convert_untyped(item) for item in node]
    if isinstance(node, PlainText) and _JSON_SCALAR.fullmatch(node):
        with suppress(msgspec.DecodeError):  # keep a number beyond all limits as a text
            return msgspec.json.decode(node.encode())
    return None if node is None else str(node)


def _convert_union(node: YamlNode, kind: UnionType, faults: DefinitionFaults, path: Path) -> Any:
    kinds = [each for each in kind.types if not isinstance(each, NoneType)]
    if node is None and len(kinds) < len(kind.types):
        return None
    texts = [each for each in kinds if isinstance(each, StrType)]
    return _convert_node(node, (texts or kinds)[0], faults, path)


def _convert_text(text: str, kind: Type, faults: DefinitionFaults, path: Path) -> Any:
    if isinstance(kind, BoolType):
        return (
            text == "true"
            if text in ("true", "false")
            else _add_type_fault("true or false", text, faults, path)
        )
    if isinstance(kind, IntType):
        return (
            int(text) if _INTEGER.fullmatch(text) else _add_type_fault("a whole number", text, faults, path)
        )
    if isinstance(kind, FloatType):
        try:
            return float(text)
        except ValueError:
            return _add_type_fault("a number", text, faults, path)
    if isinstance(kind, LiteralType) and text not in kind.values:
        known = [str(value) for value in kind.values]
        return _add_type_fault(f"one of {', '.join(known)}", text, faults, path, suggestion(text, known))
    return str(text)


def _type_words(kind: Type) -> str:
    words = {BoolType: "true or false", IntType: "a whole number", FloatType: "a number", NoneType: "null"}
    return words.get(type(kind), "a text")


def _add_type_fault(
    expected: str, node: YamlNode, faults: DefinitionFaults, path: Path, hint: str = ""
) -> None:
    shown = f", not {node[:60]!r}" if isinstance(node, str) else ""
    faults.add_fault(f"{path[-1] if path else 'this'} must be {expected}{shown}{hint}", node, path)
