"""
One round of the job that applies an agent's configuration in its cluster.

The job fetches the wanted configuration, writes it into one ConfigMap, restarts one workload, and reports the
running version. It knows no HTTP and works with `ConfigSource` and `ConfigTarget`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from gateway.clusters.agent_config import NONE, hash_config

SAME, WRITTEN, DRIFT = "same", "written", "drift"
_LONGEST = 200


class JobProblem(Exception):
    """
    Raised if the job that applies a cluster agent's configuration failed. The message is the reason, for the
    log and the list of clusters.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """The wanted configuration of a cluster. `version` is None if no configuration is set."""

    version: str | None
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """
    The configuration found in the cluster.

    `text` is the content of the ConfigMap, and `written` is the version that this job last wrote into it.
    `started` is the version with which the workload was started. It is None if unknown, or if no workload has
    to be restarted.
    """

    text: str
    written: str | None
    started: str | None
    has_workload: bool

    @property
    def content_version(self) -> str | None:
        """
        Return the version of the ConfigMap's content. Invalid content gets a version that differs from
        every wanted one.
        """
        try:
            config = json.loads(self.text or "{}")
        except ValueError:
            config = None
        if isinstance(config, dict):
            return hash_config(config)
        return sha256(self.text.encode()).hexdigest()[:16]

    @property
    def is_unchanged_by_others(self) -> bool:
        """Return False if another program or person changed the ConfigMap."""
        return self.content_version == self.written

    @property
    def running_version(self) -> str | None:
        return self.started if self.has_workload and self.is_unchanged_by_others else self.content_version


class ConfigSource(Protocol):
    """The server that has a cluster's wanted configuration."""

    def report_version_and_fetch_config(
        self, *, running_version: str, failure_reason: str = ""
    ) -> GivenConfig:
        """
        Report the running version, or why the wanted version cannot run. Return the wanted configuration.
        """
        ...


class ConfigTarget(Protocol):
    """
    The ConfigMap and the workload to which a configuration is applied. Raises JobProblem if the cluster refuses.
    """

    def read_config(self) -> FoundConfig: ...

    def write_config(self, given: GivenConfig) -> None: ...

    def restart_workload(self, config_version: str | None) -> None: ...


def apply_wanted_config(
    source: ConfigSource, target: ConfigTarget, *, restores: bool
) -> tuple[str, str | None]:
    """
    Apply the wanted configuration. Return the action, and the version that now runs.

    If another program or person changed the ConfigMap, the job reports the change. The change stays until the
    wanted version changes, unless `restores` is set. A JobProblem is reported and then raised.
    """
    in_cluster = target.read_config()
    wanted_config = source.report_version_and_fetch_config(running_version=in_cluster.running_version or NONE)
    if wanted_config.version == in_cluster.running_version:
        return SAME, in_cluster.running_version
    if not in_cluster.is_unchanged_by_others and in_cluster.written == wanted_config.version and not restores:
        return DRIFT, in_cluster.running_version
    try:
        if in_cluster.content_version != wanted_config.version:
            target.write_config(wanted_config)
        if in_cluster.has_workload:
            target.restart_workload(wanted_config.version)
    except JobProblem as problem:
        source.report_version_and_fetch_config(
            running_version=in_cluster.running_version or NONE,
            failure_reason=_one_printable_line(str(problem)),
        )
        raise
    source.report_version_and_fetch_config(running_version=wanted_config.version or NONE)
    return WRITTEN, wanted_config.version


def _one_printable_line(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)[:_LONGEST]
