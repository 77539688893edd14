"""
The configuration of a cluster's agent: its fields, its version, and its values for a Helm chart.

A field whose name begins with `x_` is free for your own use and may have any value. The configuration is sent
to the cluster and applied there.
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


def check_agent_config(config: Mapping[str, Any]) -> None:
    """
    Raise Invalid for an unknown field or an invalid value. For an unknown field, the message names the
    nearest known field.
    """
    for name, value in config.items():
        if not name.startswith(OWN):
            _check_field(name, value, FIELDS, "config")


def hash_config(config: Mapping[str, Any]) -> str | None:
    """
    Return the version of a configuration, or None if it is empty. Equal configurations have equal versions.
    """
    text = json.dumps(config, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16] if config else None


def parse_reported_version(text: str) -> str | None:
    """
    Return the version that an agent reports as running, or None if it reports the word `none`. Raises Invalid
    for any other text.
    """
    if text == NONE:
        return None
    if not _VERSION.fullmatch(text):
        raise Invalid("applied must be a version that this address returned, or none")
    return text


def check_reported_failure(text: str) -> str:
    """
    Return the reason why an agent could not apply a version. Raises Invalid if it is too long or not printable.
    """
    if len(text) > _LONGEST_FAILURE or not text.isprintable():
        raise Invalid(f"failed may have at most {_LONGEST_FAILURE} printable characters")
    return text


def config_state(wanted: str | None, run: RunConfig | None) -> str:
    """
    Return the state of the wanted version.

    If the agent applied it and later reports another version, the state is drifted. If the agent has not
    applied it yet, or reports nothing, the state is pending.
    """
    if run is None:
        return NONE if wanted is None else PENDING
    if run.applied == wanted:
        return NONE if wanted is None else APPLIED
    if run.failed and run.asked == wanted:
        return FAILED
    return DRIFTED if run.reached == wanted else PENDING


def _check_field(
    name: str, value: object, fields: Mapping[str, Callable[[str, object], None]], where: str
) -> None:
    if name not in fields:
        near = get_close_matches(name, fields, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise Invalid(
            f"{where} has no field {name}: {hint}its fields are {', '.join(fields)}, and names of "
            f"your own that begin with {OWN}"
        )
    fields[name](f"{where}.{name}", value)


def _check_duration(where: str, value: object) -> None:
    if not (isinstance(value, str) and _DURATION.fullmatch(value)):
        raise Invalid(f'{where} must be a duration such as "60s" or "10m"')


def _check_patterns(where: str, value: object) -> None:
    is_list = isinstance(value, list) and len(value) <= _MOST_PATTERNS
    if not is_list or not all(
        isinstance(pattern, str) and 0 < len(pattern) <= _LONGEST for pattern in _list_or_empty(value)
    ):
        raise Invalid(
            f"{where} must be a list of at most {_MOST_PATTERNS} texts of at most {_LONGEST} characters"
        )


def _list_or_empty(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _check_level(where: str, value: object) -> None:
    if value not in LOG_LEVELS:
        raise Invalid(f"{where} must be one of {', '.join(LOG_LEVELS)}")


def _object_checker(*names: str) -> Callable[[str, object], None]:
    def check_object(where: str, value: object) -> None:
        if not isinstance(value, dict):
            raise Invalid(f"{where} must be an object with the fields {', '.join(names)}")
        for name, inner in value.items():
            _check_field(name, inner, dict.fromkeys(names, _check_patterns), where)

    return check_object


FIELDS: Mapping[str, Callable[[str, object], None]] = {
    "scrape_interval": _check_duration,
    "upload_interval": _check_duration,
    "metrics": _object_checker("include", "exclude"),
    "labels": _object_checker("pods", "namespaces"),
    "namespaces": _object_checker("exclude"),
    "log_level": _check_level,
}


# -- values of the agent's Helm chart -------------------------------------------------------------------------


_LABELS = "insightsController.labels"
# The path of each field in the chart's values.
_PATHS: Mapping[str, tuple[str, ...]] = {
    "scrape_interval": ("prometheusConfig.globalScrapeInterval",),
    "upload_interval": ("aggregator.cloudzero.sendInterval",),
    "log_level": ("aggregator.logging.level", "insightsController.server.logging.level"),
}
_KINDS = ("pods", "namespaces")


def chart_values(config: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the values of the cluster agent's Helm chart for a configuration. Fields without a chart value are
    omitted.
    """
    values: dict[str, Any] = {}
    for name, paths in _PATHS.items():
        for path in paths if name in config else ():
            _set_at_path(values, path, config[name])
    if "labels" in config:
        _set_chart_values_of_labels(values, config["labels"])
    return values


def fields_without_value(config: Mapping[str, Any]) -> list[str]:
    return sorted(name for name in config if name not in _PATHS and name != "labels")


def _set_chart_values_of_labels(values: dict[str, Any], labels: Mapping[str, list[str]]) -> None:
    """
    Set the chart values for labels of pods and namespaces: one list of patterns, and a switch for each kind.
    """
    patterns = {pattern: None for kind in _KINDS for pattern in labels.get(kind, ())}
    _set_at_path(values, f"{_LABELS}.enabled", bool(patterns))
    if patterns:
        _set_at_path(values, f"{_LABELS}.patterns", list(patterns))
    for kind in _KINDS:
        _set_at_path(values, f"{_LABELS}.resources.{kind}", bool(labels.get(kind)))


def _set_at_path(values: dict[str, Any], path: str, value: object) -> None:
    *outer, last = path.split(".")
    inner = values
    for name in outer:
        inner = inner.setdefault(name, {})
    inner[last] = value
