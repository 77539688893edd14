"""
API and operator calls for clusters: list, read and update them, and manage their files of container metrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.clusters import agent_config
from gateway.clusters.agent_config import check_agent_config, hash_config
from gateway.clusters.clusters import Clusters
from gateway.core.fields import build_answer, one_field_answer
from gateway.http.address import READ, WRITE, key_call
from gateway.http.answers import JSON
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort, StoredRows
from gateway.http.requests import Result
from gateway.normalise.cluster_reports import STATES as REPORTED_STATES
from gateway.operations.answers import DeletedItem
from gateway.operations.clusters.container_metrics import ClusterReportServices
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.clusters import Cluster
from spool.container_files.values import KINDS, STATES, ClusterFiles, ContainerFile
from spool.errors import Invalid, NotThere
from spool.listing import SortField
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION
from spool.registry.tables.cluster_configs import RunConfig
from spool.registry.tables.cluster_settings import ClusterChange

UNKNOWN = "unknown"
SILENCE = ("false", "true")


class ClusterChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes of a cluster. Omitted fields stay unchanged."""

    display_name: Annotated[str | None, words("The name that pages show.")] = None
    labels: Annotated[
        dict[str, str | None] | None, words("Labels to change, by name. Null removes a label.")
    ] = None
    enabled: Annotated[bool | None, words("Whether the cluster is enabled.")] = None
    config: Annotated[
        dict[str, Any] | None,
        words("The configuration of the cluster's agent. It replaces the whole previous one."),
    ] = None

    def to_cluster_change(self) -> ClusterChange:
        """
        Convert the body to a change. Raises Invalid if the configuration has an unknown field or an invalid value.
        """
        if self.config is not None:
            check_agent_config(self.config)
        return ClusterChange(**msgspec.structs.asdict(self))


class CheckItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the check."), example("api_key_valid")]
    passing: Annotated[bool, words("Whether the check passed."), example(False)]
    error: Annotated[str, words("The error of the check, or empty."), example("401")]


class ClusterItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the cluster."), example("8958fb22e9e6e1b9bd147819")]
    account: Annotated[str, words("The cloud account of the cluster."), example("123456789012")]
    region: Annotated[str, words("The region of the cluster."), example("us-east-1")]
    name: Annotated[str, words("The name of the cluster."), example("prod")]
    display_name: Annotated[str, words("The name that pages show."), example("Production")]
    state: Annotated[str, words("The state of the cluster."), example("init_ok")]
    silent: Annotated[bool, words("Whether no report arrived recently."), example(False)]
    enabled: Annotated[bool, words("Whether the cluster is enabled."), example(True)]
    labels: Annotated[dict[str, str], words("Labels as name and value."), example({"team": "search"})]
    chart_version: Annotated[str, words("The version of the Helm chart."), example("1.2.12")]
    agent_version: Annotated[str, words("The version of the agent."), example("")]
    validator_version: Annotated[str, words("The version of the validator."), example("")]
    k8s_version: Annotated[str, words("The version of Kubernetes."), example("1.31")]
    provider_id: Annotated[str, words("The id of the cloud provider."), example("")]
    release_name: Annotated[str, words("The name of the Helm release."), example("")]
    namespace: Annotated[str, words("The Kubernetes namespace of the agent, or empty."), example("")]
    checks: Annotated[list[CheckItem], words("The results of the agent's checks.")]
    config: Annotated[dict[str, Any], words("The configuration of the agent."), example({})]
    config_version: Annotated[str | None, words("The version of the configuration."), example(None)]
    applied_version: Annotated[str | None, words("The version that the agent applied."), example(None)]
    config_state: Annotated[str, words("The state of the configuration."), example("none")]
    config_problem: Annotated[
        str, words("Why the agent could not apply the configuration, or empty."), example("")
    ]
    config_reported: Annotated[
        str | None, words("Since when the agent has reported this configuration, or null."), example(None)
    ]
    first_seen: Annotated[
        str, words("When the first report of the cluster arrived."), example("2026-11-27T01:44:42.617Z")
    ]
    last_seen: Annotated[
        str, words("When the last report of the cluster arrived."), example("2026-11-27T01:44:42.617Z")
    ]


class OneCluster(msgspec.Struct, kw_only=True):
    cluster: Annotated[ClusterItem, words("The cluster, with the fields below.")]


class SeenCluster(msgspec.Struct, frozen=True):
    """A cluster with the fields that depend on the time of the request."""

    cluster: Cluster
    silent: bool
    last_seen: float
    run: RunConfig | None = None

    @property
    def config_state(self) -> str:
        return agent_config.config_state(hash_config(self.cluster.config), self.run)

    @property
    def state(self) -> str:
        return self.cluster.state or UNKNOWN


def describe_cluster(seen_cluster: SeenCluster) -> dict[str, object]:
    cluster = seen_cluster.cluster
    fields: dict[str, object] = {name: getattr(cluster, name, None) for name in ClusterItem.__struct_fields__}
    return {
        **fields,
        "state": seen_cluster.state,
        "silent": seen_cluster.silent,
        "checks": [
            {"name": check.name, "passing": check.passing, "error": check.error} for check in cluster.checks
        ],
        "config_version": hash_config(cluster.config),
        "applied_version": None if seen_cluster.run is None else seen_cluster.run.applied,
        "config_state": seen_cluster.config_state,
        "config_problem": "" if seen_cluster.run is None else seen_cluster.run.failed,
        "config_reported": None if seen_cluster.run is None else utc_iso(seen_cluster.run.since),
        "first_seen": utc_iso(cluster.first_seen),
        "last_seen": utc_iso(seen_cluster.last_seen),
    }


CLUSTERS: ListDefinition[SeenCluster] = ListDefinition(
    root="clusters",
    show=describe_cluster,
    identity=Sort(value=lambda row: row.cluster.id),
    sorts={
        "name": Sort(value=lambda row: row.cluster.name),
        "last_seen": Sort(value=lambda row: row.last_seen),
    },
    default_sort=("name", "asc"),
    filters={
        "state": Filter(values=lambda row: (row.state,), valid_values=(*REPORTED_STATES, UNKNOWN)),
        "config_state": Filter(values=lambda row: (row.config_state,), valid_values=agent_config.STATES),
        "silent": Filter(values=lambda row: (SILENCE[row.silent],), valid_values=SILENCE),
        "account": Filter(values=lambda row: (row.cluster.account,)),
        "region": Filter(values=lambda row: (row.cluster.region,)),
        "agent_version": Filter(values=lambda row: (row.cluster.agent_version,)),
    },
)


def cluster_rows(clusters: Clusters) -> MemoryRows[SeenCluster]:
    return MemoryRows([_cluster_with_state(clusters, cluster) for cluster in clusters.table.all()])


def describe_cluster_by_id(clusters: Clusters, id: str) -> dict[str, object]:
    """Return the answer with one cluster. Raises NotThere if no cluster has this id."""
    cluster = clusters.table.find(id)
    if cluster is None:
        raise NotThere(f"there is no cluster {id!r}")
    return {"cluster": describe_cluster(_cluster_with_state(clusters, cluster))}


def _cluster_with_state(clusters: Clusters, cluster: Cluster) -> SeenCluster:
    return SeenCluster(
        cluster,
        clusters.is_offline(cluster),
        clusters.last_data_at(cluster),
        clusters.running_config(cluster),
    )


_call = partial(key_call, endpoint="clusters")
_ALL = "/v2/container/clusters"
_ONE = _ALL + "/{id}"


class ContainerFilesOfCluster(msgspec.Struct, kw_only=True):
    account: Annotated[str, words("The cloud account of the cluster."), example("123456789012")]
    region: Annotated[str, words("The region of the cluster."), example("us-east-1")]
    cluster: Annotated[str, words("The name of the cluster."), example("prod")]
    waiting: Annotated[int, words("The number of files that wait."), example(3)]
    bytes: Annotated[int, words("The size of the cluster's files in bytes."), example(9)]
    newest: Annotated[
        str | None, words("When the newest file arrived, or null."), example("2026-11-27T01:44:43.419Z")
    ]


class ContainerFileCounts(msgspec.Struct, kw_only=True):
    kinds: Annotated[
        dict[str, Any],
        words("The numbers of files by kind and by what happened to them."),
        example(
            {
                "file": {"uploaded": 1, "references": 1, "announced": 0},
                "remote-write": {"uploaded": 1, "references": 1},
                "status": {"uploaded": 1, "references": 1},
            }
        ),
    ]
    balanced: Annotated[bool, words("Whether all counts add up."), example(True)]
    imbalances: Annotated[list[str], words("The counts that do not add up."), example([])]
    bytes: Annotated[int, words("The size of all stored files, in bytes."), example(9)]
    max_bytes: Annotated[int, words("The maximum size of all stored files, in bytes."), example(8589934592)]
    files: Annotated[int, words("The number of stored files."), example(3)]
    max_files: Annotated[int, words("The maximum number of stored files."), example(100000)]
    clusters: Annotated[list[ContainerFilesOfCluster], words("The waiting files by cluster.")]


class ContainerFileItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the file."), example("6b418417b6cd3dfc4c587cba1d978548")]
    kind: Annotated[str, words("The kind of the file."), example("file")]
    reference: Annotated[str, words("The name of the file."), example("metrics-1042.json.br")]
    state: Annotated[str, words("The state of the file."), example("uploaded")]
    account: Annotated[str, words("The cloud account of the cluster."), example("123456789012")]
    region: Annotated[str, words("The region of the cluster."), example("us-east-1")]
    cluster: Annotated[str, words("The name of the cluster."), example("prod")]
    api_key: Annotated[str, words("The name of the key that sent the file."), example("automation")]
    shipper: Annotated[str, words("The agent that sends the file."), example("shipper-7")]
    agent_version: Annotated[str, words("The version of the agent."), example("")]
    size: Annotated[int, words("The size of the file in bytes."), example(8)]
    sha256: Annotated[
        str | None,
        words("The SHA-256 digest of the file; null before it arrives."),
        example("6aa351535fa146ea22f9dfd10a701011dec9315207626e789c96a062ac791055"),
    ]
    kept: Annotated[bool, words("Whether the content of the file is still stored."), example(True)]
    asked_again: Annotated[
        bool,
        words("Whether the file is requested again, by the cost service or after damage."),
        example(False),
    ]
    announced: Annotated[
        str, words("When the agent announced the file."), example("2026-11-27T01:44:42.886Z")
    ]
    uploaded: Annotated[
        str | None, words("When the file arrived, or null."), example("2026-11-27T01:44:43.120Z")
    ]
    problem: Annotated[str | None, words("The problem with the file, or null."), example(None)]


@_call(
    "GET", _ALL, "container:get-clusters", "List clusters", lists=CLUSTERS, item=ClusterItem, refusals=READ
)
async def get_clusters(request: KeyRequest[ClusterReportServices, None]) -> Result:
    return await request.list_page(CLUSTERS, cluster_rows(request.services.clusters))


@_call(
    "GET", _ONE, "container:get-clusters", "Read a cluster", gives={JSON: OneCluster}, refusals=(*READ, 404)
)
async def get_cluster(request: KeyRequest[ClusterReportServices, None]) -> Result:
    return describe_cluster_by_id(request.services.clusters, request.path_parameter("id"))


@_call(
    "PATCH",
    _ONE,
    "container:update-cluster",
    "Update a cluster",
    gives={JSON: OneCluster},
    refusals=(*WRITE, 404),
)
async def update_cluster(request: KeyRequest[ClusterReportServices, ClusterChanges]) -> Result:
    clusters = request.services.clusters
    id = request.path_parameter("id")
    await clusters.table.change(id, request.body.to_cluster_change(), request.actor)
    return describe_cluster_by_id(clusters, id)


async def _names_of_clusters(request: OperatorRequest[SenderServices, None]) -> Iterator[SearchableObject]:
    clusters = request.services.require_clusters().table.all()
    return (SearchableObject(cluster.id, (cluster.name, cluster.display_name)) for cluster in clusters)


@operator_call(
    "GET",
    "/clusters",
    VIEW_OPERATION,
    "List clusters",
    lists=CLUSTERS,
    item=ClusterItem,
    names=_names_of_clusters,
)
async def list_clusters(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list_page(CLUSTERS, cluster_rows(request.services.require_clusters()))


@operator_call("GET", "/clusters/{id}", VIEW_OPERATION, "Show a cluster", answers=OneCluster)
async def show_cluster(request: OperatorRequest[SenderServices, None]) -> Result:
    return describe_cluster_by_id(request.services.require_clusters(), request.path_parameter("id"))


@operator_call(
    "PATCH", "/clusters/{id}", OPERATE_SPOOL, "Name, label, enable or configure a cluster", answers=OneCluster
)
async def change_cluster(request: OperatorRequest[SenderServices, ClusterChanges]) -> Result:
    clusters = request.services.require_clusters()
    id = request.path_parameter("id")
    await clusters.table.change(id, request.body.to_cluster_change(), request.actor)
    return describe_cluster_by_id(clusters, id)


@operator_call(
    "DELETE",
    "/clusters/{id}",
    OPERATE_SPOOL,
    "Delete a cluster until it reports again",
    required=("confirm",),
    answers=DeletedItem,
)
async def delete_cluster(request: OperatorRequest[SenderServices, None]) -> Result:
    clusters = request.services.require_clusters()
    id = request.path_parameter("id")
    if request.http.query.get("confirm") != id:
        raise Invalid("confirm must be the cluster's id")
    await clusters.table.delete(id, request.actor)
    return {"deleted": id}


class Discard(RequestBody):
    """A request to discard a file."""

    confirm: Annotated[str, words("The reference of the file, to confirm.")]


def describe_file(file: ContainerFile) -> dict[str, object]:
    """Describe a file without its bytes and without an upload address."""
    return build_answer(
        ContainerFileItem,
        file,
        api_key=file.key,
        sha256=file.sha256 or None,
        asked_again=file.asked,
        announced=utc_iso(file.announced_at),
        uploaded=None if file.uploaded_at is None else utc_iso(file.uploaded_at),
    )


def describe_cluster_files(files: ClusterFiles) -> Mapping[str, object]:
    identity = files.identity
    return {
        "account": identity.account,
        "region": identity.region,
        "cluster": identity.name,
        "waiting": files.waiting,
        "bytes": files.bytes,
        "newest": None if files.newest is None else utc_iso(files.newest),
    }


CONTAINER_FILES: ListDefinition[ContainerFile] = ListDefinition(
    root="container_files",
    show=describe_file,
    identity=Sort(field=SortField("id")),
    sorts={
        "announced": Sort(field=SortField("announced_at")),
        "uploaded": Sort(field=SortField("uploaded_at")),
        "size": Sort(field=SortField("size")),
        "state": Sort(field=SortField("state", words=STATES)),
    },
    default_sort=("announced", "desc"),
    filters={
        "kind": Filter(field="kind", valid_values=KINDS),
        "state": Filter(field="state", valid_values=STATES),
        "account": Filter(field="account"),
        "region": Filter(field="region"),
        "cluster": Filter(field="cluster"),
    },
)


@operator_call(
    "GET",
    "/container-metrics",
    VIEW_OPERATION,
    "Show the accounting of container metrics and the files that wait, by cluster",
    answers=one_field_answer(
        "OneContainerMetrics",
        container_metrics=Annotated[
            ContainerFileCounts, words("The container metrics, with the fields below.")
        ],
    ),
)
async def show_container_metrics(request: OperatorRequest[SenderServices, None]) -> Result:
    """Show the accounting of container files, recounted from their rows, and their limits."""
    files = request.services.require_container_files()
    books, settings = await files.recount_accounting(), files.settings
    return {
        "container_metrics": {
            "kinds": {kind: dict(terms) for kind, terms in books.terms.items()},
            "balanced": not books.imbalances,
            "imbalances": list(books.imbalances),
            "bytes": files.sums.total_bytes,
            "max_bytes": settings.max_bytes,
            "files": files.sums.row_count,
            "max_files": settings.max_files,
            "clusters": [
                describe_cluster_files(cluster_files) for cluster_files in await files.cluster_files()
            ],
        }
    }


@operator_call(
    "GET",
    "/container-files",
    VIEW_OPERATION,
    "List files of container metrics",
    lists=CONTAINER_FILES,
    item=ContainerFileItem,
)
async def list_container_files(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list_page(
        CONTAINER_FILES, StoredRows(request.services.require_container_files().page)
    )


@operator_call(
    "POST",
    "/container-files/{id}/discard",
    OPERATE_SPOOL,
    "Discard a file that waits for the upstream",
    answers=one_field_answer(
        "OneContainerFile",
        container_file=Annotated[ContainerFileItem, words("The container file, with the fields below.")],
    ),
)
async def discard_container_file(request: OperatorRequest[SenderServices, Discard]) -> Result:
    files = request.services.require_container_files()
    id = request.path_parameter("id")
    file = await files.find_file(id)
    if request.body.confirm != file.reference:
        raise Invalid("confirm must be the reference of the file")
    audited_fields = {"kind": file.kind, "reference": file.reference, "cluster": file.cluster}
    async with request.audited_change("container_file.discard", id, audited_fields):
        discarded = await files.discard_file(id)
    return {"container_file": describe_file(discarded)}
