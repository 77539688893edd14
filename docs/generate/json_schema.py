from __future__ import annotations

import inspect
from decimal import Decimal
from typing import Any

import orjson

from gateway.configuration.sections import Config
from gateway.configuration.settings_in_effect import ConfigurationKey, configuration_keys
from gateway.configuration.values import QUANTITY, UNITS, format_quantity
from spool.settings import Duration, Size

_SCALARS: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    Decimal: {"type": ["number", "string"]},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}


def text() -> str:
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Tollhouse", **_table(Config)}
    return orjson.dumps(schema, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _table(section: type[Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": " ".join(inspect.cleandoc(section.__doc__ or "").split()),
        "additionalProperties": False,
        "properties": {key.name: _key(key) for key in configuration_keys(section)},
    }


def _key(key: ConfigurationKey) -> dict[str, Any]:
    one = _table(key.kind) if key.is_section else _scalar(key)
    if key.container is tuple:
        schema: dict[str, Any] = {"type": "array", "items": one}
    elif key.container is dict:
        schema = {"type": "object", "additionalProperties": one}
    else:
        schema = one
    if key.setting.words:
        schema["description"] = "; at the limit: ".join(
            part for part in (key.setting.words, key.setting.edge) if part
        )
    if not key.is_section and key.default not in (None, "", (), {}):
        schema["default"] = _default(key)
    return schema


def _scalar(key: ConfigurationKey) -> dict[str, Any]:
    if key.kind in UNITS:
        units = "|".join(unit for unit in UNITS[key.kind] if unit)
        pattern = QUANTITY.replace("[A-Za-z]*", f"(?i:{units})?")
        return {
            "type": ["string", "number"],
            "minimum": key.setting.least or 0,
            "pattern": f"^{_plain(pattern)}$",
        }
    schema = dict(_SCALARS.get(key.kind, {"type": "string"}))
    if key.setting.choices:
        schema["enum"] = list(key.setting.choices)
    if key.setting.least is not None:
        schema["minimum"] = key.setting.least
    return schema


def _plain(pattern: str) -> str:
    """Remove (?i:...), which ECMAScript patterns in editors do not support."""
    begin, _, rest = pattern.partition("(?i:")
    units, _, end = rest.partition(")")
    letters = "".join(f"[{each.lower()}{each.upper()}]" if each.isalpha() else each for each in units)
    return f"{begin}(?:{letters}){end}"


def _default(key: ConfigurationKey) -> Any:
    if key.kind in (Size, Duration):
        return format_quantity(key.kind, key.default)
    if isinstance(key.default, tuple):
        return list(key.default)
    return key.default if isinstance(key.default, (bool, int)) else str(key.default)
