"""The operations on clusters for key holders: list, read and update."""

from __future__ import annotations

from functools import partial

from gateway.api.lists.clusters import (
    CLUSTERS,
    ClusterChanges,
    ClusterItem,
    OneCluster,
    cluster_rows,
    one_cluster,
)
from gateway.http.address import READ, WRITE, key_call
from gateway.http.answers import JSON
from gateway.http.holders.receivers import TopicServices
from gateway.http.requests import KeyRequest, Result

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
