"""
The configuration that a cluster's agent is given: which names it has, and its version.

A name of the organization's own begins with `x_` and holds anything. What is given is carried to the cluster, and
applied there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import Any

from spool.errors import Invalid

OWN = "x_"
LOG_LEVELS = ("debug", "info", "warn", "error")
_DURATION = re.compile(r"[1-9]\d{0,5}(ms|s|m|h)", re.ASCII)
_MOST_PATTERNS, _LONGEST = 500, 256


def check_config(config: Mapping[str, Any]) -> None:
    """Invalid for a name that is unknown, with the nearest one, and for a value that its name does not take."""
    for name, value in config.items():
        if not name.startswith(OWN):
            _check(name, value, FIELDS, "config")


def version_of(config: Mapping[str, Any]) -> str | None:
    """The same for the same configuration; None for an empty one."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16] if config else None


def _check(name: str, value: object, fields: Mapping[str, Callable[[str, object], None]], where: str) -> None:
    if name not in fields:
        near = get_close_matches(name, fields, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise Invalid(
            f"{where} has no {name}: {hint}it has {', '.join(fields)}, and names of your own that begin with {OWN}"
        )
    fields[name](f"{where}.{name}", value)


def _duration(where: str, value: object) -> None:
    if not (isinstance(value, str) and _DURATION.fullmatch(value)):
        raise Invalid(f'{where} is a duration such as "60s" or "10m"')


def _patterns(where: str, value: object) -> None:
    is_list = isinstance(value, list) and len(value) <= _MOST_PATTERNS
    if not is_list or not all(isinstance(each, str) and 0 < len(each) <= _LONGEST for each in _items(value)):
        raise Invalid(f"{where} is a list of at most {_MOST_PATTERNS} texts of at most {_LONGEST} characters")


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _level(where: str, value: object) -> None:
    if value not in LOG_LEVELS:
        raise Invalid(f"{where} is one of {', '.join(LOG_LEVELS)}")


def _object(*names: str) -> Callable[[str, object], None]:
    def check(where: str, value: object) -> None:
        if not isinstance(value, dict):
            raise Invalid(f"{where} is an object with {', '.join(names)}")
        for name, inner in value.items():
            _check(name, inner, dict.fromkeys(names, _patterns), where)

    return check


FIELDS: Mapping[str, Callable[[str, object], None]] = {
    "scrape_interval": _duration,
    "upload_interval": _duration,
    "metrics": _object("include", "exclude"),
    "labels": _object("pods", "namespaces"),
    "namespaces": _object("exclude"),
    "log_level": _level,
}
