"""The keys of each section of the configuration, with their words, types and defaults."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exporters.destinations.catalogue import TYPES
from exporters.notifications.catalogue import TYPES as CHANNEL_TYPES
from spool.record import TOPICS
from spool.registry.scopes import SCOPES, USE_CASES
from spool.settings import Setting

# Words that another table in the code holds: a setting that takes one of its names does not repeat them.
_ELSEWHERE: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("DestinationSettings", "type"): tuple(TYPES),
    ("NotifySettings", "type"): tuple(CHANNEL_TYPES),
    ("DestinationSettings", "topics"): TOPICS,
    ("UpstreamKey", "scopes"): tuple(sorted(SCOPES)),
    ("UpstreamKey", "use_cases"): tuple(USE_CASES),
}


@dataclass(frozen=True, kw_only=True)
class ConfigurationKey:
    """`kind` is what one value is, without None; of a list or a table, what is in it."""

    name: str
    kind: Any
    container: type | None  # tuple: a list of `kind`; dict: a table of `kind`
    default: Any
    setting: Setting

    @property
    def is_section(self) -> bool:
        return dataclasses.is_dataclass(self.kind)


def keys(section: type[Any]) -> list[ConfigurationKey]:
    """The keys of one section, in the order of its fields."""
    hints = typing.get_type_hints(section, include_extras=True)
    defaults = section()
    return [
        _key(section, field, hints[field.name], getattr(defaults, field.name)) for field in _fields(section)
    ]


def _fields(section: type[Any]) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(section)


def _key(section: type[Any], field: dataclasses.Field[Any], kind: Any, default: Any) -> ConfigurationKey:
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
