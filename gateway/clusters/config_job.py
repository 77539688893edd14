"""
One round of the job that brings the configuration of a cluster's agent into the cluster.

The job asks for what is set, writes it into one ConfigMap, restarts one workload, and says what runs. It knows no
HTTP: `ConfigSource` and `ConfigTarget` are what it works with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from gateway.clusters.agent_config import NONE, version_of

SAME, WRITTEN, DRIFT = "same", "written", "drift"
_LONGEST = 200


class JobProblem(Exception):
    """What kept the job from its work, in words for a log and for the list of clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenConfig:
    """What is set for the cluster; no version for nothing."""

    version: str | None
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundConfig:
    """
    What is in the cluster: the text in the ConfigMap, the version that this job wrote there last, and the one with
    which the workload was started (`started` is None, too, if there is none to restart).
    """

    text: str
    written: str | None
    started: str | None
    has_workload: bool

    @property
    def content(self) -> str | None:
        """Return the version of what stands in the ConfigMap; of text that is no object, one that nobody has set."""
        try:
            found = json.loads(self.text or "{}")
        except ValueError:
            found = None
        if isinstance(found, dict):
            return version_of(found)
        return sha256(self.text.encode()).hexdigest()[:16]

    @property
    def is_own(self) -> bool:
        """False if somebody else changed the ConfigMap."""
        return self.content == self.written

    @property
    def running(self) -> str | None:
        """Return the version that the agent runs."""
        return self.started if self.has_workload and self.is_own else self.content


class ConfigSource(Protocol):
    """Where the configuration is set."""

    def ask(self, *, applied: str, failed: str = "") -> GivenConfig:
        """Say what runs, or why it does not, and get what is set."""
        ...


class ConfigTarget(Protocol):
    """The ConfigMap and the workload. JobProblem if the cluster refuses."""

    def read(self) -> FoundConfig: ...

    def write(self, given: GivenConfig) -> None: ...

    def restart(self, version: str | None) -> None: ...


def run_round(source: ConfigSource, target: ConfigTarget, *, restores: bool) -> tuple[str, str | None]:
    """
    Bring the cluster to what is set: what was done, and the version that runs now.

    What somebody else changed in the ConfigMap is told, and stays until something else is set; `restores` puts it
    back. JobProblem after it was told, too.
    """
    found = target.read()
    given = source.ask(applied=found.running or NONE)
    if given.version == found.running:
        return SAME, found.running
    if not found.is_own and found.written == given.version and not restores:
        return DRIFT, found.running
    try:
        if found.content != given.version:
            target.write(given)
        if found.has_workload:
            target.restart(given.version)
    except JobProblem as problem:
        source.ask(applied=found.running or NONE, failed=_line(str(problem)))
        raise
    source.ask(applied=given.version or NONE)
    return WRITTEN, given.version


def _line(text: str) -> str:
    """The text as one line that a report may have."""
    return "".join(letter if letter.isprintable() else " " for letter in text)[:_LONGEST]
