"""The calls of the operator API for clusters and their files of container metrics."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.clusters.calls.published import CLUSTERS, ClusterChanges, cluster_rows, one_cluster
from gateway.http.holders.operators import SenderServices
from gateway.http.lists import Filter, List, Sort, StoredRows
from gateway.http.operator.address import call
from gateway.http.operator.requests import OperatorRequest, RequestBody
from gateway.http.requests import Result
from spool.container_files.values import KINDS, STATES, ClusterFiles, ContainerFile
from spool.errors import Invalid
from spool.listing import SortField
from spool.record import moment
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION


@call("GET", "/clusters", VIEW_OPERATION, "List clusters", lists=CLUSTERS)
async def list_clusters(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list(CLUSTERS, cluster_rows(request.services.require_clusters()))


@call("GET", "/clusters/{id}", VIEW_OPERATION, "Show a cluster")
async def show_cluster(request: OperatorRequest[SenderServices, None]) -> Result:
    return one_cluster(request.services.require_clusters(), request.word("id"))


@call("PATCH", "/clusters/{id}", OPERATE_SPOOL, "Name, label, enable or configure a cluster")
async def change_cluster(request: OperatorRequest[SenderServices, ClusterChanges]) -> Result:
    clusters = request.services.require_clusters()
    id = request.word("id")
    await clusters.table.change(id, request.body.change(), request.actor)
    return one_cluster(clusters, id)


@call(
    "DELETE",
    "/clusters/{id}",
    OPERATE_SPOOL,
    "Forget a cluster until it reports again",
    required=("confirm",),
)
async def delete_cluster(request: OperatorRequest[SenderServices, None]) -> Result:
    clusters = request.services.require_clusters()
    id = request.word("id")
    if request.http.query.get("confirm") != id:
        raise Invalid("confirm must be the cluster's id")
    await clusters.table.delete(id, request.actor)
    return {"deleted": id}


class Discard(RequestBody):
    """`confirm` is the reference of the file, once more."""

    confirm: str


def describe_file(file: ContainerFile) -> dict[str, object]:
    """Show a file without its bytes and without an address to which they could be sent."""
    return {
        "id": file.id,
        "kind": file.kind,
        "reference": file.reference,
        "state": file.state,
        "account": file.account,
        "region": file.region,
        "cluster": file.cluster,
        "api_key": file.key,
        "shipper": file.shipper,
        "agent_version": file.agent_version,
        "size": file.size,
        "sha256": file.sha256 or None,
        "kept": file.kept,
        "asked_again": file.asked,
        "announced": moment(file.announced_at),
        "uploaded": None if file.uploaded_at is None else moment(file.uploaded_at),
        "problem": file.problem,
    }


def describe_cluster_files(files: ClusterFiles) -> Mapping[str, object]:
    place = files.identity
    return {
        "account": place.account,
        "region": place.region,
        "cluster": place.name,
        "waiting": files.waiting,
        "bytes": files.bytes,
        "newest": None if files.newest is None else moment(files.newest),
    }


CONTAINER_FILES: List[ContainerFile] = List(
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


@call(
    "GET",
    "/container-metrics",
    VIEW_OPERATION,
    "The books of container metrics, and what waits of each cluster",
)
async def show_container_metrics(request: OperatorRequest[SenderServices, None]) -> Result:
    """Recounted from the rows, with what the limits leave."""
    files = request.services.require_container_files()
    books, settings = await files.verify(), files.settings
    return {
        "container_metrics": {
            "kinds": {kind: dict(terms) for kind, terms in books.terms.items()},
            "balanced": not books.imbalances,
            "imbalances": list(books.imbalances),
            "bytes": files.sums.size,
            "max_bytes": settings.max_bytes,
            "files": files.sums.known,
            "max_files": settings.max_files,
            "clusters": [describe_cluster_files(each) for each in await files.stats()],
        }
    }


@call("GET", "/container-files", VIEW_OPERATION, "List files of container metrics", lists=CONTAINER_FILES)
async def list_container_files(request: OperatorRequest[SenderServices, None]) -> Result:
    return await request.list(CONTAINER_FILES, StoredRows(request.services.require_container_files().page))


@call("POST", "/container-files/{id}/discard", OPERATE_SPOOL, "Give up a file that waits for the upstream")
async def discard_container_file(request: OperatorRequest[SenderServices, Discard]) -> Result:
    files = request.services.require_container_files()
    id = request.word("id")
    file = await files.find(id)
    if request.body.confirm != file.reference:
        raise Invalid("confirm must be the reference of the file")
    told = {"kind": file.kind, "reference": file.reference, "cluster": file.cluster}
    async with request.audited("container_file.discard", id, told):
        done = await files.discard(id)
    return {"container_file": describe_file(done)}
