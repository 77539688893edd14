"""
Python's own text form of a dict or of a model, as one old payload carries them inside JSON text.

Read as literals, never evaluated. Bounded: parsing Python costs far more than parsing JSON.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final, TypeVar

import msgspec

MAX_LITERAL: Final = 64 * 1024

Struct = TypeVar("Struct", bound=msgspec.Struct)

# What stands behind a name: text in quotes, a number, or the bracket of something that holds more.
_VALUE = r"""['"]?\s*[=:]\s*(?:'([^']*)'|"([^"]*)"|(\d+(?:\.\d+)?)\b|(\w*[({]))"""
_BRACKET = re.compile(r"[(){}]")


def of_dict(written: Any, type: type[Struct]) -> Struct:
    """`{'a': 1}` as a struct; where some value is no literal, its plain members all the same."""
    if not isinstance(written, str) or len(written) > MAX_LITERAL:
        return type()
    try:
        return msgspec.convert(ast.literal_eval(written), type)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return of_fields(written, type)


def of_fields(written: str, type: type[Struct]) -> Struct:
    """`Usage(a=1, b=Details(c=2))` as a struct: each wanted name that stands before a plain value."""
    return _fields(written[:MAX_LITERAL], type)


def _fields(written: str, type: type[Struct]) -> Struct:
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(type):
        value = re.search(rf"\b{re.escape(field.encode_name)}" + _VALUE, written)
        inner = _struct_in(field.type)
        if value is not None and value[4] is None:
            found[field.name] = next(part for part in value.groups() if part is not None)
        elif value is not None and inner is not None:
            found[field.name] = _fields(_bracketed(written, value.end()), inner)
    return type(**found)


def _bracketed(written: str, begin: int) -> str:
    """What stands between the bracket that opened before `begin` and the one that closes it."""
    depth = 1
    for bracket in _BRACKET.finditer(written, begin):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return written[begin : bracket.start()]
    return written[begin:]


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    options = getattr(annotation, "__args__", (annotation,))
    return next((one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
