"""
The configuration of a cluster's agent as values of the agent's Helm chart (names of its release 1.2).

Knows what each name is called there, and which names the chart has no value for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
