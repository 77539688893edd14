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

_PAIR = r"""['"]?\b%s['"]?\s*[=:]\s*(?:'([^']*)'|"([^"]*)"|(\d+(?:\.\d+)?)\b)"""


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
        inner = _struct_in(field.type)
        if inner is None:
            if (pair := re.search(_PAIR % re.escape(field.encode_name), written)) is not None:
                found[field.name] = next(part for part in pair.groups() if part is not None)
        elif (begin := re.search(r"\b%s['\"]?\s*[=:]\s*(?=[\w{])" % re.escape(field.encode_name), written)) is not None:
            found[field.name] = _fields(_bracketed(written, begin.end()), inner)
    return type(**found)


def _bracketed(written: str, begin: int) -> str:
    """What stands between the bracket that opens next and the one that closes it; empty when none opens there."""
    opening = re.compile(r"\w*[({]").match(written, begin)
    if opening is None:
        return ""
    depth = 0
    for bracket in re.compile(r"[(){}]").finditer(written, begin):
        depth += 1 if bracket[0] in "({" else -1
        if depth == 0:
            return written[opening.end() : bracket.start()]
    return written[opening.end() :]


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    options = getattr(annotation, "__args__", (annotation,))
    return next((one for one in options if isinstance(one, type) and issubclass(one, msgspec.Struct)), None)
