"""The operations on clusters for key holders: list, read and update."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from gateway.clusters import agent_config
from gateway.clusters.agent_config import check_config, version_of
from gateway.clusters.clusters import Clusters
from gateway.http.address import READ, WRITE, key_call
from gateway.http.answers import JSON
from gateway.http.holders.receivers import TopicServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import KeyRequest, Result
from gateway.normalise.cluster_reports import STATES
from spool.clusters import Cluster, ClusterChange
from spool.errors import NotThere
from spool.record import moment
from spool.registry.tables.cluster_configs import RunConfig

UNKNOWN = "unknown"
SILENCE = ("false", "true")


class ClusterChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is, and a label that is null is removed; `config` is replaced."""

    display_name: str | None = None
    labels: dict[str, str | None] | None = None
    enabled: bool | None = None
    config: dict[str, Any] | None = None

    def change(self) -> ClusterChange:
        """Invalid if the configuration is none that an agent takes."""
        if self.config is not None:
            check_config(self.config)
        return ClusterChange(**msgspec.structs.asdict(self))


class CheckItem(msgspec.Struct, kw_only=True):
    name: str
    passing: bool
    error: str


class ClusterItem(msgspec.Struct, kw_only=True):
    """A cluster as it is answered; times are RFC 3339."""

    id: str
    account: str
    region: str
    name: str
    display_name: str
    state: str
    silent: bool
    enabled: bool
    labels: dict[str, str]
    chart_version: str
    agent_version: str
    validator_version: str
    k8s_version: str
    provider_id: str
    release_name: str
    namespace: str
    checks: list[CheckItem]
    config: dict[str, Any]
    config_version: str | None
    applied_version: str | None
    config_state: str
    config_problem: str
    config_reported: str | None
    first_seen: str
    last_seen: str


class OneCluster(msgspec.Struct, kw_only=True):
    cluster: ClusterItem


class SeenCluster(msgspec.Struct, frozen=True):
    """A cluster, and what follows from the time of the question."""

    cluster: Cluster
    silent: bool
    last_seen: float
    run: RunConfig | None = None

    @property
    def config_state(self) -> str:
        return agent_config.state_of(version_of(self.cluster.config), self.run)

    @property
    def state(self) -> str:
        return self.cluster.state or UNKNOWN


def describe(seen: SeenCluster) -> dict[str, object]:
    cluster = seen.cluster
    known: dict[str, object] = {name: getattr(cluster, name, None) for name in ClusterItem.__struct_fields__}
    return {
        **known,
        "state": seen.state,
        "silent": seen.silent,
        "checks": [
            {"name": each.name, "passing": each.passing, "error": each.error} for each in cluster.checks
        ],
        "config_version": version_of(cluster.config),
        "applied_version": None if seen.run is None else seen.run.applied,
        "config_state": seen.config_state,
        "config_problem": "" if seen.run is None else seen.run.failed,
        "config_reported": None if seen.run is None else moment(seen.run.since),
        "first_seen": moment(cluster.first_seen),
        "last_seen": moment(seen.last_seen),
    }


CLUSTERS: List[SeenCluster] = List(
    root="clusters",
    show=describe,
    identity=Sort(value=lambda row: row.cluster.id),
    sorts={
        "name": Sort(value=lambda row: row.cluster.name),
        "last_seen": Sort(value=lambda row: row.last_seen),
    },
    default_sort=("name", "asc"),
    filters={
        "state": Filter(values=lambda row: (row.state,), valid_values=(*STATES, UNKNOWN)),
        "config_state": Filter(values=lambda row: (row.config_state,), valid_values=agent_config.STATES),
        "silent": Filter(values=lambda row: (SILENCE[row.silent],), valid_values=SILENCE),
        "account": Filter(values=lambda row: (row.cluster.account,)),
        "region": Filter(values=lambda row: (row.cluster.region,)),
        "agent_version": Filter(values=lambda row: (row.cluster.agent_version,)),
    },
)


def cluster_rows(clusters: Clusters) -> MemoryRows[SeenCluster]:
    return MemoryRows([_seen(clusters, cluster) for cluster in clusters.table.all()])


def one_cluster(clusters: Clusters, id: str) -> dict[str, object]:
    """The answer with one cluster; NotThere if there is none with this id."""
    cluster = clusters.table.find(id)
    if cluster is None:
        raise NotThere(f"there is no cluster {id!r}")
    return {"cluster": describe(_seen(clusters, cluster))}


def _seen(clusters: Clusters, cluster: Cluster) -> SeenCluster:
    return SeenCluster(
        cluster, clusters.is_silent(cluster), clusters.last_seen(cluster), clusters.run_config(cluster)
    )


_call = partial(key_call, endpoint="clusters")
_ALL = "/v2/container/clusters"
_ONE = _ALL + "/{id}"


@_call(
    "GET", _ALL, "container:get-clusters", "List clusters", lists=CLUSTERS, item=ClusterItem, refusals=READ
)
async def get_clusters(request: KeyRequest[TopicServices, None]) -> Result:
    return await request.list(CLUSTERS, cluster_rows(request.services.clusters))


@_call(
    "GET",
    _ONE,
    "container:get-clusters",
    "Read a cluster",
    gives={JSON: OneCluster},
    refusals=(*READ, 404),
)
async def get_cluster(request: KeyRequest[TopicServices, None]) -> Result:
    return one_cluster(request.services.clusters, request.word("id"))


@_call(
    "PATCH",
    _ONE,
    "container:update-cluster",
    "Update a cluster",
    gives={JSON: OneCluster},
    refusals=(*WRITE, 404),
)
async def update_cluster(request: KeyRequest[TopicServices, ClusterChanges]) -> Result:
    clusters = request.services.clusters
    id = request.word("id")
    await clusters.table.change(id, request.body.change(), request.actor)
    return one_cluster(clusters, id)
