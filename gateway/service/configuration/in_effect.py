"""
The settings in effect, for operators to read: what each is, who gave it, and what it does.

No secret is among them: of headers the names alone are shown, and of addresses no user, no path and no query.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway.service.configuration.quantities import written
from gateway.service.configuration.reader import ENVIRONMENT, FILE, FLAG
from gateway.service.configuration.sections import Config, settings_of, types_of
from spool.settings import Duration, Setting, Size

DEFAULT, CHANGED = "default", "configuration"
SOURCES = (DEFAULT, FILE, ENVIRONMENT, FLAG, CHANGED)
_SET = "set"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class SettingInEffect:
    """
    `value` is plain data, with sizes and durations as people write them. `source` is one of SOURCES;
    "configuration" is one that is not the default, where it is not known who gave it.
    """

    name: str
    value: object
    source: str
    words: str


def in_effect(config: Config, given: Mapping[str, str] | None = None) -> Iterator[SettingInEffect]:
    """Every setting by its name in the file. `given`: where those that are given come from, see `reader.origins`."""
    for name, field, kind, value in settings_of(config):
        setting: Setting = field.metadata["setting"]
        unknown = DEFAULT if value == _default(field) else CHANGED
        origin = unknown if given is None else given.get(name, DEFAULT)
        yield SettingInEffect(name=name, value=_plain(field, kind, value), source=origin, words=setting.words)


def _plain(field: Field[Any], kind: Any, value: Any) -> object:
    if not field.repr:  # a secret: see spool.settings.setting
        return dict.fromkeys(value, _SET) if isinstance(value, Mapping) else _SET if value else None
    if kind in (Size, Duration):
        return written(kind, value)
    return _describe(value)


def _describe(value: Any) -> object:
    if is_dataclass(value):
        kind: type = type(value)
        kinds = types_of(kind)
        given = [field for field in fields(value) if getattr(value, field.name) != _default(field)]
        return {field.name: _plain(field, kinds[field.name], getattr(value, field.name)) for field in given}
    if isinstance(value, Mapping):
        return {name: _describe(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_describe(each) for each in value]
    if isinstance(value, Path | Decimal):
        return str(value)
    return _ADDRESS.sub(_host, value) if isinstance(value, str) else value


def _host(found: re.Match[str]) -> str:
    """An address without what may be a secret in it."""
    try:
        parts = urlsplit(found[0])
    except ValueError:
        return "(an address)"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + ("/..." if parts.path.strip("/") or parts.query else "")


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()
