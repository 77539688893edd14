"""
Python's text form of a dict or a model. One old payload carries this text inside JSON text.

The text is tokenized, never evaluated. Only the outermost names are used, because callers may choose
the deeper names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gateway.normalise.payload.large_items import struct_in_annotation

MAX_LITERAL: Final = 64 * 1024

Struct = TypeVar("Struct", bound=msgspec.Struct)

_HEAD = re.compile(r"\s*[\w.]*[({]")
_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*+(?:'|\\?\Z)|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))"""
    r"""|(?P<open>[\w.]*[({\[])|(?P<close>[)}\]])|(?P<comma>,)|(?P<sign>[=:])"""
    r"""|(?P<word>[^\s,=:'"(){}\[\]]+)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"""\\(['"\\])""")
_NAME, _SIGN, _VALUE, _COMMA = range(4)  # tokens of a literal that the reader may expect next


class _LiteralMember(NamedTuple):
    name: str
    value: str
    has_members: bool = False


def read_python_literal(written: Any, type: type[Struct]) -> Struct:
    return _build_struct(written[:MAX_LITERAL], type) if isinstance(written, str) else type()


def _build_struct(written: str, type: type[Struct]) -> Struct:
    members = {member.name: member for member in _members_of_literal(written)}
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(type):
        member = members.get(field.encode_name)
        if member is None:
            continue
        if not member.has_members:
            values[field.name] = member.value
        elif (inner := struct_in_annotation(field.type)) is not None:
            values[field.name] = _build_struct(member.value, inner)
    return type(**values)


def _members_of_literal(written: str) -> Iterator[_LiteralMember]:
    head = _HEAD.match(written)
    depth, opened, stage, name = 0, 0, _NAME, ""
    for token in _TOKEN.finditer(written, head.end() if head else 0):
        kind = token.lastgroup
        if kind == "open":
            if depth == 0:
                opened = token.start()
            depth += 1
        elif kind == "close":
            depth -= 1
            if depth < 0:
                return
            if depth == 0 and stage == _VALUE:
                stage = _COMMA
                if token[0] != "]":
                    yield _LiteralMember(name, written[opened : token.end()], has_members=True)
        elif depth:
            continue
        elif kind == "comma":
            stage = _NAME
        elif kind == "sign":
            stage = _VALUE if stage == _SIGN else _COMMA
        elif stage == _NAME:
            stage, name = _SIGN, _remove_quotes(token[0])
        elif stage == _VALUE:
            stage = _COMMA
            if token[0] != "None":
                yield _LiteralMember(name, _remove_quotes(token[0]))


def _remove_quotes(token: str) -> str:
    return _ESCAPED.sub(r"\1", token[1:-1]) if token[0] in "'\"" else token
