"""
Storage of clusters. All rows are in memory, and a change is on disk before the caller gets the result.

This module knows no protocol and no policy. The gateway decides who may report or change a cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Protocol

from spool.clock import Clock
from spool.errors import Invalid, NotThere, SpoolFull
from spool.log.partial_reports import Expectation
from spool.registry.audit import AuditedChange, Auditor
from spool.registry.keys import check_labels
from spool.registry.operators import Actor
from spool.shares import may_add

MAX_CLUSTERS = 1000
MAX_TEXT = 256
MAX_CHECKS = 100
MAX_ERROR = 1000
MAX_CONFIG_BYTES = 16 * 1024
FULL_RETRY_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheck:
    """One check that the cluster's agent ran."""

    name: str
    passing: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCluster:
    """
    Report of a cluster about itself. Account, region and name identify it.

    Empty and None values do not change the stored values. So a report with only the identity updates
    `last_seen`. `device` is the enrolled device that reports for the cluster.
    """

    account: str
    region: str
    name: str
    # state in the agent's words: init_started, init_ok, init_failed, pod_started or pod_stopping
    state: str = ""
    chart_version: str = ""
    agent_version: str = ""
    validator_version: str = ""
    k8s_version: str = ""
    provider_id: str = ""
    release_name: str = ""
    namespace: str = ""
    device: str = ""
    checks: tuple[ClusterCheck, ...] | None = None

    @property
    def id(self) -> str:
        return cluster_id(self.account, self.region, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """
    One cluster: its last report, and the settings of operators. The row is never modified; a change creates
    a new row.
    """

    id: str
    account: str
    region: str
    name: str
    state: str = ""
    chart_version: str = ""
    agent_version: str = ""
    validator_version: str = ""
    k8s_version: str = ""
    provider_id: str = ""
    release_name: str = ""
    namespace: str = ""
    device: str = ""
    checks: tuple[ClusterCheck, ...] = ()
    first_seen: float
    last_seen: float
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)  # configuration of the agent, a JSON object
    updated_at: float | None = None  # time of the last change by an operator; `updated_by` names the operator
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """Change by an operator. None leaves a field unchanged. A label with the value None is removed."""

    display_name: str | None = None
    labels: Mapping[str, str | None] | None = None
    enabled: bool | None = None
    config: Mapping[str, Any] | None = None


class TooManyClusters(SpoolFull):
    """The maximum number of clusters is reached."""

    def __init__(self) -> None:
        message = (
            "the limit clusters.max is reached, for all keys or for the share of this key. An operator "
            "can raise the limit"
        )
        super().__init__(message, retry_after_s=FULL_RETRY_S)


class ClusterRows(Protocol):
    """The rows in the storage of an engine."""

    async def load(self) -> Sequence[Cluster]: ...

    async def write(
        self, cluster: Cluster, *, expects: Collection[Expectation] = (), most: int | None = None
    ) -> None:
        """
        Replace the row with the same id, or add it.

        If other processes share the rows, raises KeyEnded if `expects` fail. Raises TooManyClusters if the
        cluster is new and `most` clusters exist already.
        """
        ...

    async def delete(self, id: str) -> None: ...


class ClusterTable:
    """
    All clusters of one storage. `max` limits their number. `auditor` adds the audit row before each change.
    """

    def __init__(self, rows: ClusterRows, clock: Clock) -> None:
        self._rows = rows
        self._clock = clock
        self._clusters: dict[str, Cluster] = {}
        # clusters that are new since this process started: id -> key that first reported the cluster
        self._brought: dict[str, str] = {}
        # lock that is held from reading a row until its replacement is written
        self._writing = asyncio.Lock()
        self.max = MAX_CLUSTERS
        self.auditor: Auditor | None = None
        self.version = 0  # increases with every change of a cluster

    @classmethod
    async def open(cls, rows: ClusterRows, *, clock: Clock) -> ClusterTable:
        table = cls(rows, clock)
        table._clusters = {cluster.id: cluster for cluster in await rows.load()}
        return table

    def all(self) -> list[Cluster]:
        return list(self._clusters.values())

    def find(self, id: str) -> Cluster | None:
        return self._clusters.get(id)

    def named(self, account: str, region: str, name: str) -> Cluster | None:
        return self._clusters.get(cluster_id(account, region, name))

    def __len__(self) -> int:
        return len(self._clusters)

    async def report(
        self, cluster: ReportedCluster, *, expects: Collection[Expectation] = (), key: str | None = None
    ) -> None:
        """
        Store the report of a cluster. It is on disk when this returns.

        Raises Invalid if its name is missing, or if its name, account or region is too long. Longer texts in
        other fields are cut. Raises KeyEnded if the sending key has ended. Raises SpoolFull if the cluster is
        new and would exceed `max` or the share of `key`.
        """
        if not cluster.name or max(map(len, (cluster.account, cluster.region, cluster.name))) > MAX_TEXT:
            raise Invalid(
                f"a cluster needs a name. Its name, account and region have at most {MAX_TEXT} "
                "characters each"
            )
        async with self._writing:
            now = self._clock.now()
            known = self._clusters.get(cluster.id)
            if known is None:
                if len(self._clusters) >= self.max or not self._may_bring(key):
                    raise TooManyClusters
                known = Cluster(
                    id=cluster.id,
                    account=cluster.account,
                    region=cluster.region,
                    name=cluster.name,
                    first_seen=now,
                    last_seen=now,
                )
            reported = replace(known, last_seen=now, **_news(cluster))
            await self._rows.write(reported, expects=expects, most=self.max)
            if key is not None and cluster.id not in self._clusters:
                self._brought[cluster.id] = key
            self._take(reported)

    async def change(self, id: str, change: ClusterChange, actor: Actor) -> Cluster:
        """
        Change the operators' fields. Raises NotThere if there is no such cluster, Invalid if a value
        is not allowed.
        """
        async with self._writing:
            known = self._known(id)
            changes = _check_change(change, known)
            if changes == _describe(known, changes):
                # an unchanged row is written as well, because the result must be durable
                await self._rows.write(known, expects=actor.expects)
                return known
            await self._audit("cluster.update", known, actor, _describe(known, changes), changes)
            changed = replace(known, updated_at=self._clock.now(), updated_by=actor.name, **changes)
            await self._rows.write(changed, expects=actor.expects)
            self._take(changed)
            return self._clusters[id]

    async def delete(self, id: str, actor: Actor) -> None:
        """
        Delete a cluster. If it reports again, it is stored as a new cluster. Raises NotThere if there is
        no such cluster.
        """
        async with self._writing:
            known = self._known(id)
            await self._audit("cluster.delete", known, actor, _describe(known, _OURS), None)
            await self._rows.delete(id)
            del self._clusters[id]
            self._brought.pop(id, None)
            self.version += 1

    async def follow(self) -> None:
        """Update memory with rows that other processes wrote or deleted."""
        async with self._writing:
            stored = {cluster.id: cluster for cluster in await self._rows.load()}
            if stored != self._clusters:
                self._clusters = stored
                self.version += 1

    def brought(self) -> Iterator[str]:
        """Yield, for each cluster that is new since the start, the key that first reported it."""
        return (key for id, key in self._brought.items() if id in self._clusters)

    def _may_bring(self, key: str | None) -> bool:
        if key is None:
            return True
        return may_add(
            sum(cluster_key == key for cluster_key in self.brought()), len(self._clusters), 1, self.max
        )

    def _known(self, id: str) -> Cluster:
        known = self._clusters.get(id)
        if known is None:
            raise NotThere(f"there is no cluster {id!r}")
        return known

    async def _audit(
        self,
        action: str,
        cluster: Cluster,
        actor: Actor,
        before: dict[str, Any],
        after: dict[str, Any] | None,
    ) -> None:
        if self.auditor is not None:
            target = f"{cluster.name} ({cluster.id})"
            await self.auditor(
                [AuditedChange(actor=actor, action=action, target=target, before=before, after=after)]
            )

    def _take(self, cluster: Cluster) -> None:
        self._clusters[cluster.id] = cluster
        self.version += 1


def cluster_id(account: str, region: str, name: str) -> str:
    """Return the id of a cluster. Every installation computes the same id."""
    return sha256(json.dumps([account, region, name]).encode()).hexdigest()[:24]


_FACTS = tuple(
    attribute.name
    for attribute in fields(ReportedCluster)
    if attribute.name not in ("account", "region", "name", "checks")
)


def _news(cluster: ReportedCluster) -> dict[str, Any]:
    """Return the fields that a report changes, cut to the stored lengths."""
    changed_fields: dict[str, Any] = {
        name: text[:MAX_TEXT] for name in _FACTS if (text := getattr(cluster, name))
    }
    if cluster.checks is not None:
        changed_fields["checks"] = tuple(
            replace(check, name=check.name[:MAX_TEXT], error=check.error[:MAX_ERROR])
            for check in cluster.checks[:MAX_CHECKS]
        )
    return changed_fields


_OURS = tuple(attribute.name for attribute in fields(ClusterChange))


def _describe(cluster: Cluster, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(cluster, name) for name in names}


def _check_change(change: ClusterChange, cluster: Cluster) -> dict[str, Any]:
    """Return the changed fields in stored form. Raises Invalid with the rule that a value breaks."""
    changes = {name: value for name in _OURS if (value := getattr(change, name)) is not None}
    name = changes.get("display_name", "")
    if len(name) > MAX_TEXT or not name.isprintable():
        raise Invalid(f"display_name must have at most {MAX_TEXT} characters and no control characters")
    if change.labels is not None:
        merged = {**cluster.labels, **change.labels}
        changes["labels"] = check_labels({name: text for name, text in merged.items() if text is not None})
    if change.config is not None and len(json.dumps(change.config).encode()) > MAX_CONFIG_BYTES:
        raise Invalid(f"config must have at most {MAX_CONFIG_BYTES} bytes as JSON")
    return changes
