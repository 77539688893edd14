"""
Reads the configuration from the file, then the environment (`TOLLHOUSE_SECTION__KEY`), then command options.
Reports all problems at once.

Sizes ("64MiB") become bytes and durations ("10s") become seconds here.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from exporters.problems import problems_of_choice
from gateway.configuration.problems import config_problems as problems_of
from gateway.configuration.problems import missing_settings
from gateway.configuration.sections import WORKS_COUNCIL, Config, setting_types
from gateway.configuration.values import ConfigError, format_quantity, parse_quantity
from spool.settings import Duration, Setting, Size


def load_config(
    path: Path | None = None, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Config:
    """
    Return the configuration. The environment overrides the file, and `flags` overrides both. `flags` has
    dotted names, and None means not given.

    Raises ConfigError with all problems. Relative paths are relative to the file.
    """
    problems: list[str] = []
    tree = _read_toml(path)
    _overlay_environment_and_flags(tree, env, flags, problems)
    for name, value in _works_council_defaults(tree).items():
        _set_nested(tree, name.split("."), value, name, problems)
    config: Config = _parse_section(Config, tree, "", (path.parent if path else Path()).absolute(), problems)
    problems += [*problems_of(config), *missing_settings(config, tree)]
    if problems:
        raise ConfigError(problems)
    return config


def _overlay_environment_and_flags(
    tree: dict[str, Any], env: Mapping[str, str] | None, flags: Mapping[str, Any] | None, problems: list[str]
) -> None:
    for name, names, text in _setting_variables(env):
        _set_nested(tree, names, text, name, problems)
    for name, value in (flags or {}).items():
        if value is not None:
            _set_nested(tree, name.split("."), value, name, problems)


def _works_council_defaults(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the unset settings that have another default because of `privacy.works_council`."""
    sections = {name: section for name, section in tree.items() if isinstance(section, dict)}
    if _convert_scalar(bool, sections.get("privacy", {}).get("works_council", False), Path()) is not True:
        return {}
    changed = {}
    for name, value in WORKS_COUNCIL.items():
        section, _, setting = name.partition(".")
        # a section of the wrong type is reported when the section is read
        is_bad = section in tree and section not in sections
        if not is_bad and setting not in sections.get(section, {}):
            changed[name] = value
    return changed


FILE, ENVIRONMENT, FLAG = "file", "environment", "flag"


def setting_origins(
    path: Path | None = None, *, env: Mapping[str, str] | None = None, flags: Mapping[str, Any] | None = None
) -> Mapping[str, str]:
    """
    Return the source of each setting that is set, under a name such as `spool.hold` or `destinations`. If
    several sources set it, return the source that applies. Raises ConfigError for a file that cannot be read.
    """
    origins_by_name: dict[str, str] = {}
    tree = _read_toml(path)
    for section, value in tree.items():
        origins_by_name[section] = FILE
        origins_by_name.update(
            {f"{section}.{name}": FILE for name in value} if isinstance(value, dict) else {}
        )
    for _, names, _ in _setting_variables(env):
        origins_by_name |= dict.fromkeys((names[0], ".".join(names[:2])), ENVIRONMENT)
    origins_by_name |= {name: FLAG for name, value in (flags or {}).items() if value is not None}
    _overlay_environment_and_flags(tree, env, flags, [])
    council = origins_by_name.get("privacy.works_council", "")
    return origins_by_name | dict.fromkeys(_works_council_defaults(tree), council)


def _read_toml(path: Path | None) -> dict[str, Any]:
    try:
        return {} if path is None else tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror}"]) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError([f"{path}: {error}"]) from error


def _setting_variables(env: Mapping[str, str] | None) -> Iterator[tuple[str, list[str], str]]:
    for name, text in sorted((os.environ if env is None else env).items()):
        # A variable without a section is not a setting, for example TOLLHOUSE_KEY of `tollhouse send`.
        if name.startswith(ENV_PREFIX) and ("__" in name or name == "TOLLHOUSE_DATA_DIR"):
            yield name, name.removeprefix(ENV_PREFIX).lower().split("__"), text


ENV_PREFIX = "TOLLHOUSE_"


def _set_nested(
    tree: dict[str, Any], names: list[str], value: Any, shown_name: str, problems: list[str]
) -> None:
    for name in names[:-1]:
        inner: Any = tree.setdefault(name, {})
        if not isinstance(inner, dict):
            problems.append(f"{shown_name} names a key within something that is not a section")
            return
        tree = inner
    tree[names[-1]] = value


def _parse_section(kind: type, tree: Any, prefix: str, base: Path, problems: list[str]) -> Any:
    """
    Read one dataclass from one table. A bad value is added to the problems, and the default is used instead.
    """
    if not isinstance(tree, dict):
        problems.append(f"{prefix or 'the file'} must be a table")
        return kind()
    hints = setting_types(kind)
    for unknown in sorted(set(tree) - set(hints)):
        name = _join_name(prefix, unknown)
        near = difflib.get_close_matches(unknown, hints, 1)
        problems.append(
            f"unknown key {name}" + (f"; did you mean {_join_name(prefix, near[0])}?" if near else "")
        )
    settings = {field.name: field.metadata["setting"] for field in dataclasses.fields(kind)}
    values = {}
    for name, value in tree.items():
        if name in hints:
            values[name] = _convert_value(hints[name], value, _join_name(prefix, name), base, problems)
            problems += _broken_rules(settings[name], hints[name], _join_name(prefix, name), values[name])
    if "data_dir" in hints:
        values.setdefault("data_dir", base / "tollhouse-data")
    return kind(**{name: value for name, value in values.items() if value is not _BAD})


def _broken_rules(setting: Setting, kind: Any, name: str, value: Any) -> Iterator[str]:
    if value is _BAD:
        return
    if setting.choices:
        yield from problems_of_choice(name, value, setting.choices)
    if setting.least is not None and value < setting.least:
        yield f"{name} must be at least {format_quantity(kind, setting.least)}"


def _join_name(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


_BAD = object()


def _convert_value(kind: Any, value: Any, name: str, base: Path, problems: list[str]) -> Any:
    """Convert a value to its type. A bad value is added to the problems, and the result is _BAD."""
    origin = typing.get_origin(kind)
    if origin in (types.UnionType, typing.Union):
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
        if value == "":
            return None
        origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _parse_section(typing.cast("type", kind), value, name, base, problems)
    if origin is tuple:
        return _convert_items(typing.get_args(kind)[0], value, name, base, problems)
    # this setting is a table, such as Mapping[str, ...]
    if origin is not None and origin is not typing.Annotated:
        if not isinstance(value, dict):
            problems.append(f"{name} must be a table")
            return _BAD
        inner = typing.get_args(kind)[1]
        return {
            key: _convert_value(inner, item, _join_name(name, key), base, problems)
            for key, item in value.items()
        }
    converted = _convert_scalar(kind, value, base)
    if converted is _BAD:
        problems.append(f"{name} must be {WORDS[kind]}")
    return converted


def _convert_items(kind: Any, value: Any, name: str, base: Path, problems: list[str]) -> Any:
    if isinstance(value, str):  # environment variables have only text, so convert it
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, list):
        problems.append(f"{name} must be a list")
        return _BAD
    return tuple(
        _convert_value(kind, item, f"{name}[{index}]", base, problems) for index, item in enumerate(value)
    )


WORDS: dict[Any, str] = {
    str: "text",
    bool: "true or false",
    int: "a whole number, 0 or more",
    Size: 'a size such as "64MiB"',
    Duration: 'a duration such as "10s", "5m" or "7d"',
    Path: "a path",
    Decimal: "a price as text or number",
}


def _convert_scalar(kind: Any, value: Any, base: Path) -> Any:
    if kind is bool:
        if isinstance(value, str):
            value = {"true": True, "1": True, "false": False, "0": False}.get(value.lower(), value)
        return value if isinstance(value, bool) else _BAD
    if isinstance(value, bool):
        return _BAD
    if kind in (Size, Duration):
        quantity = parse_quantity(kind, str(value))
        if quantity is None:
            return _BAD
        return int(quantity) if kind is Size else quantity
    if kind is int:
        text = str(value)
        return int(text) if text.isdecimal() and text.isascii() else _BAD
    if kind is Decimal:
        try:
            price = Decimal(str(value))
        except InvalidOperation:
            return _BAD
        return price if price.is_finite() and price >= 0 else _BAD
    if not isinstance(value, str):
        return _BAD
    return value if kind is str else base / Path(value).expanduser()
