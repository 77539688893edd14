"""The calls of the operator API for clusters: list, show, change and delete them."""

from __future__ import annotations

from gateway.api.lists.clusters import CLUSTERS, ClusterChanges, cluster_rows, one_cluster
from gateway.http.holders.senders import SenderServices
from gateway.http.requests import Result
from gateway.operator.address import call
from gateway.operator.requests import OperatorRequest
from spool.errors import Invalid
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
