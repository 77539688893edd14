"""
The Kubernetes clusters that report container metrics, all in memory. A change is on disk before it returns.

The gateway decides who may report or change a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

from spool.clock import Clock
from spool.errors import NotThere, SpoolFull, SpoolUnavailable
from spool.log.partial_reports import ExpectedVersion
from spool.registry.operators import Actor
from spool.registry.tables.cluster_settings import (
    MAX_TEXT,
    SET_FIELDS,
    ClusterChange,
    ClusterName,
    ClusterSettingsTable,
    check_cluster_name,
    cluster_id,
)
from spool.shares import is_within_share

MAX_CLUSTERS = 1000
MAX_CHECKS = 100
MAX_ERROR = 1000
FULL_RETRY_S = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheck:
    name: str
    passing: bool
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedCluster:
    """
    One report about a cluster by its agent. Account, region and name identify the cluster.

    An empty or None field leaves the stored value, so a report of only the identity updates `last_seen`.
    """

    account: str
    region: str
    name: str
    # the agent's word: init_started, init_ok, init_failed, pod_started or pod_stopping
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
    A cluster: its last report, and its settings from the registry. It is immutable, so a change replaces it.
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
    config: Mapping[str, Any] = field(default_factory=dict)
    updated_at: float | None = None
    updated_by: str = ""

    @property
    def identity(self) -> ClusterName:
        return self.account, self.region, self.name


# fields of a cluster that come from settings, which a `ConfiguredCluster` has
FROM_SETTINGS = (*SET_FIELDS, "updated_at", "updated_by")


class TooManyClusters(SpoolFull):
    def __init__(self) -> None:
        message = (
            "the limit clusters.max is reached, for all keys or for the share of this key. An operator "
            "can raise the limit"
        )
        super().__init__(message, retry_after_s=FULL_RETRY_S)


class ClusterRows(Protocol):
    async def load(self) -> Sequence[Cluster]: ...

    async def write(
        self,
        cluster: Cluster,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        """
        Add or replace the row of a cluster.

        If other processes write the rows as well, raises KeyEnded if `expected_versions` fail, and TooManyClusters for
        a new cluster beyond `max_rows`.
        """
        ...

    async def delete(self, id: str) -> None: ...


class ClusterTable:
    """The clusters that have reported, at most `max`. `settings` is None while the registry is damaged."""

    def __init__(self, cluster_rows: ClusterRows, clock: Clock) -> None:
        self._rows = cluster_rows
        self._clock = clock
        self._clusters: dict[str, Cluster] = {}
        # the key that first reported each cluster, for clusters that are new since the start
        self._brought: dict[str, str] = {}
        # lock held from reading a row until its replacement is written
        self._writing = asyncio.Lock()
        self.max = MAX_CLUSTERS
        self.settings: ClusterSettingsTable | None = None
        self._version = 0

    @classmethod
    async def open(cls, cluster_rows: ClusterRows, *, clock: Clock) -> ClusterTable:
        table = cls(cluster_rows, clock)
        table._clusters = {cluster.id: cluster for cluster in await cluster_rows.load()}
        return table

    @property
    def version(self) -> int:
        """A number that grows with every change of a cluster or of its settings."""
        return self._version + (0 if self.settings is None else self.settings.version)

    def all(self) -> list[Cluster]:
        return [self._with_operator_settings(cluster) for cluster in self._clusters.values()]

    def find(self, id: str) -> Cluster | None:
        reported = self._clusters.get(id)
        return None if reported is None else self._with_operator_settings(reported)

    def find_by_name(self, account: str, region: str, name: str) -> Cluster | None:
        return self.find(cluster_id(account, region, name))

    def _with_operator_settings(self, reported: Cluster) -> Cluster:
        found = None if self.settings is None else self.settings.find(reported.id)
        if found is None:
            return reported
        return replace(reported, **{name: getattr(found, name) for name in FROM_SETTINGS})

    def __len__(self) -> int:
        return len(self._clusters)

    async def store_report(
        self,
        cluster: ReportedCluster,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        key: str | None = None,
    ) -> None:
        """
        Store an agent's report of its cluster. Long texts are cut. Raises Invalid for an invalid account,
        region or name.

        Raises KeyEnded if the key has ended, and TooManyClusters for a new cluster beyond `max` or beyond the
        part of `max` that `key` may use.
        """
        check_cluster_name((cluster.account, cluster.region, cluster.name))
        async with self._writing:
            now = self._clock.now()
            known = self._clusters.get(cluster.id)
            if known is None:
                if len(self._clusters) >= self.max or not self._is_key_within_cluster_share(key):
                    raise TooManyClusters
                known = Cluster(
                    id=cluster.id,
                    account=cluster.account,
                    region=cluster.region,
                    name=cluster.name,
                    first_seen=now,
                    last_seen=now,
                )
            reported = replace(known, last_seen=now, **_shortened_reported_fields(cluster))
            await self._rows.write(reported, expected_versions=expected_versions, max_rows=self.max)
            if key is not None and cluster.id not in self._clusters:
                self._brought[cluster.id] = key
            self._remember_cluster(reported)

    async def change(self, id: str, change: ClusterChange, actor: Actor) -> Cluster:
        """
        Change a cluster's settings. Raises NotThere, Invalid, or SpoolUnavailable while the registry is
        damaged.
        """
        async with self._writing:
            known = self._require_cluster(id)
            await self._require_settings().change(known.identity, change, actor=actor)
            return self._with_operator_settings(known)

    async def delete(self, id: str, actor: Actor) -> None:
        """
        Delete a cluster and its settings. If the cluster reports later, it is added as a new one.

        Raises NotThere, Managed if a file manages its settings, or SpoolUnavailable.
        """
        async with self._writing:
            known = self._require_cluster(id)
            await self._require_settings().delete(known.identity, actor=actor)
            await self._rows.delete(id)
            del self._clusters[id]
            self._brought.pop(id, None)
            self._version += 1

    async def read_changes_of_other_processes(self) -> None:
        """Read the clusters that other processes have written or deleted."""
        async with self._writing:
            stored = {cluster.id: cluster for cluster in await self._rows.load()}
            if stored != self._clusters:
                self._clusters = stored
                self._version += 1

    def first_reporting_keys(self) -> Iterator[str]:
        """Yield, for each cluster added since the start, the key that first reported it."""
        return (key for id, key in self._brought.items() if id in self._clusters)

    def _is_key_within_cluster_share(self, key: str | None) -> bool:
        if key is None:
            return True
        return is_within_share(
            sum(cluster_key == key for cluster_key in self.first_reporting_keys()),
            len(self._clusters),
            1,
            self.max,
        )

    def _require_cluster(self, id: str) -> Cluster:
        known = self._clusters.get(id)
        if known is None:
            raise NotThere(f"there is no cluster {id!r}")
        return known

    def _require_settings(self) -> ClusterSettingsTable:
        if self.settings is None:
            raise SpoolUnavailable("the registry is damaged, so settings of clusters cannot be changed")
        return self.settings

    def _remember_cluster(self, cluster: Cluster) -> None:
        self._clusters[cluster.id] = cluster
        self._version += 1


_FACTS = tuple(
    attribute.name
    for attribute in fields(ReportedCluster)
    if attribute.name not in ("account", "region", "name", "checks")
)


def _shortened_reported_fields(cluster: ReportedCluster) -> dict[str, Any]:
    changed_fields: dict[str, Any] = {
        name: text[:MAX_TEXT] for name in _FACTS if (text := getattr(cluster, name))
    }
    if cluster.checks is not None:
        changed_fields["checks"] = tuple(
            replace(check, name=check.name[:MAX_TEXT], error=check.error[:MAX_ERROR])
            for check in cluster.checks[:MAX_CHECKS]
        )
    return changed_fields
