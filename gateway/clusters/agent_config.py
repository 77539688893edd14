"""
The configuration that a cluster's agent is given: which names it has, its version, and its values for a Helm chart.

A name of the organization's own begins with `x_` and holds anything. What is given is carried to the cluster,
and applied there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from hashlib import sha256
from typing import Any

from spool.errors import Invalid
from spool.registry.tables.cluster_configs import RunConfig

OWN = "x_"
NONE, PENDING, APPLIED, DRIFTED, FAILED = "none", "pending", "applied", "drifted", "failed"
STATES = (NONE, PENDING, APPLIED, DRIFTED, FAILED)
_VERSION = re.compile(r"[0-9a-f]{16}", re.ASCII)
_LONGEST_FAILURE = 200
LOG_LEVELS = ("debug", "info", "warn", "error")
_DURATION = re.compile(r"[1-9]\d{0,5}(ms|s|m|h)", re.ASCII)
_MOST_PATTERNS, _LONGEST = 500, 256


def check_config(config: Mapping[str, Any]) -> None:
    """Invalid for an unknown name, with the nearest one, and for a value that its name does not take."""
    for name, value in config.items():
        if not name.startswith(OWN):
            _check(name, value, FIELDS, "config")


def version_of(config: Mapping[str, Any]) -> str | None:
    """The same for the same configuration; None for an empty one."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16] if config else None


def reported_version(text: str) -> str | None:
    """The version that an agent says it runs; None for the word none. Invalid for anything else."""
    if text == NONE:
        return None
    if not _VERSION.fullmatch(text):
        raise Invalid("applied is a version as this address answers it, or none")
    return text


def reported_failure(text: str) -> str:
    """Why an agent could not apply a version. Invalid if it is too long, or no line of text."""
    if len(text) > _LONGEST_FAILURE or not text.isprintable():
        raise Invalid(f"failed has at most {_LONGEST_FAILURE} printable characters")
    return text


def state_of(wanted: str | None, run: RunConfig | None) -> str:
    """
    Return the state of the version that is set. An agent that applied it and went on to another one has
    drifted; one that has not come to it yet, or says nothing, is pending.
    """
    if run is None:
        return NONE if wanted is None else PENDING
    if run.applied == wanted:
        return NONE if wanted is None else APPLIED
    if run.failed and run.asked == wanted:
        return FAILED
    return DRIFTED if run.reached == wanted else PENDING


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


# -- values of the agent's Helm chart ------------------------------------------------------------------------


_LABELS = "insightsController.labels"
# What a name sets: a path in the values for each.
_PATHS: Mapping[str, tuple[str, ...]] = {
    "scrape_interval": ("prometheusConfig.globalScrapeInterval",),
    "upload_interval": ("aggregator.cloudzero.sendInterval",),
    "log_level": ("aggregator.logging.level", "insightsController.server.logging.level"),
}
_KINDS = ("pods", "namespaces")


def values_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a configuration sets; what the chart has no value for is left out."""
    values: dict[str, Any] = {}
    for name, paths in _PATHS.items():
        for path in paths if name in config else ():
            _put(values, path, config[name])
    if "labels" in config:
        _put_labels(values, config["labels"])
    return values


def without_value(config: Mapping[str, Any]) -> list[str]:
    """Return the names of a configuration that the chart has no value for."""
    return sorted(name for name in config if name not in _PATHS and name != "labels")


def _put_labels(values: dict[str, Any], labels: Mapping[str, list[str]]) -> None:
    """The chart has one list of patterns for all kinds, and a switch for each kind."""
    patterns = {pattern: None for kind in _KINDS for pattern in labels.get(kind, ())}
    _put(values, f"{_LABELS}.enabled", bool(patterns))
    if patterns:
        _put(values, f"{_LABELS}.patterns", list(patterns))
    for kind in _KINDS:
        _put(values, f"{_LABELS}.resources.{kind}", bool(labels.get(kind)))


def _put(values: dict[str, Any], path: str, value: object) -> None:
    *outer, last = path.split(".")
    inner = values
    for name in outer:
        inner = inner.setdefault(name, {})
    inner[last] = value
