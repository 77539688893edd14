"""
The settings in effect, for operators: value, source and help. Also the keys of each section with help, type
and default.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from exporters.destinations.catalogue import TYPES
from exporters.notifications.catalogue import TYPES as CHANNEL_TYPES
from gateway.configuration.reader import ENVIRONMENT, FILE, FLAG
from gateway.configuration.sections import Config, all_settings, setting_types
from gateway.configuration.values import format_quantity
from spool.record import TOPICS
from spool.registry.scopes import SCOPES, USE_CASES
from spool.settings import Duration, Setting, Size

DEFAULT, CHANGED = "default", "configuration"
SOURCES = (FILE, ENVIRONMENT, FLAG, CHANGED, DEFAULT)
_SET = "set"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://\S*", re.IGNORECASE)

# (section class, setting) -> allowed words, for settings whose words are defined elsewhere in the code.
_ELSEWHERE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("DestinationSettings", "type"): tuple(TYPES),
    ("NotifySettings", "type"): tuple(CHANNEL_TYPES),
    ("DestinationSettings", "topics"): TOPICS,
    ("UpstreamKey", "scopes"): tuple(sorted(SCOPES)),
    ("UpstreamKey", "use_cases"): tuple(USE_CASES),
}


@dataclass(frozen=True, kw_only=True)
class SettingInEffect:
    """
    A setting in effect. `value` is plain data, with sizes and durations as people write them. `source` is one
    of SOURCES. The source "configuration" means that the value is not the default, but its exact source is
    unknown.
    """

    name: str
    value: object
    source: str
    words: str


def settings_in_effect(config: Config, given: Mapping[str, str] | None = None) -> Iterator[SettingInEffect]:
    """
    Yield every setting under its name in the file. `given` has the source of each setting that is
    set; see `setting_origins`.
    """
    for name, field, kind, value in all_settings(config):
        setting: Setting = field.metadata["setting"]
        unknown = DEFAULT if value == _field_default(field) else CHANGED
        origin = unknown if given is None else given.get(name, DEFAULT)
        yield SettingInEffect(
            name=name, value=_shown_value(field, kind, value), source=origin, words=setting.words
        )


def _shown_value(field: Field[Any], kind: Any, value: Any) -> object:
    if not field.repr:  # a field without `repr` has a secret, so it is not shown; see spool.settings.setting
        return dict.fromkeys(value, _SET) if isinstance(value, Mapping) else _SET if value else None
    if kind in (Size, Duration):
        return format_quantity(kind, value)
    return _describe_value(value)


def _describe_value(value: Any) -> object:
    if is_dataclass(value):
        kind: type = type(value)
        kinds = setting_types(kind)
        stated_fields = [
            field for field in fields(value) if getattr(value, field.name) != _field_default(field)
        ]
        return {
            field.name: _shown_value(field, kinds[field.name], getattr(value, field.name))
            for field in stated_fields
        }
    if isinstance(value, Mapping):
        return {name: _describe_value(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [_describe_value(item) for item in value]
    if isinstance(value, Path | Decimal):
        return str(value)
    return _ADDRESS.sub(_shorten_address, value) if isinstance(value, str) else value


def _shorten_address(match: re.Match[str]) -> str:
    try:
        parts = urlsplit(match[0])
    except ValueError:
        return "(an address)"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + ("/..." if parts.path.strip("/") or parts.query else "")


def _field_default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


@dataclass(frozen=True, kw_only=True)
class ConfigurationKey:
    """
    A key of the configuration. `kind` is the type of one value without None. For a list or a table, it is an
    item's type.
    """

    name: str
    kind: Any
    container: type | None  # tuple means a list of `kind`, and dict means a table of `kind`
    default: Any
    setting: Setting

    @property
    def is_section(self) -> bool:
        return dataclasses.is_dataclass(self.kind)


def configuration_keys(section: type[Any]) -> list[ConfigurationKey]:
    hints = typing.get_type_hints(section, include_extras=True)
    defaults = section()
    return [
        _configuration_key(section, field, hints[field.name], getattr(defaults, field.name))
        for field in dataclasses.fields(section)
    ]


def _configuration_key(
    section: type[Any], field: dataclasses.Field[Any], kind: Any, default: Any
) -> ConfigurationKey:
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    origin = typing.get_origin(kind)
    container: type | None = None
    if origin is tuple:
        container, kind = tuple, typing.get_args(kind)[0]
    elif origin is Mapping:
        container, kind = dict, typing.get_args(kind)[1]
    setting: Setting = field.metadata["setting"]
    choices = _ELSEWHERE.get((section.__name__, field.name), setting.choices)
    setting = dataclasses.replace(setting, choices=choices)
    return ConfigurationKey(name=field.name, kind=kind, container=container, default=default, setting=setting)
