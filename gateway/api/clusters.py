"""The operations on clusters for key holders: list, read and update."""

from __future__ import annotations

from gateway.api.lists.clusters import CLUSTERS, ClusterChanges, cluster_rows, one_cluster
from gateway.http.holders.receivers import TopicServices
from gateway.http.requests import KeyRequest, Result


async def get_clusters(request: KeyRequest[TopicServices, None]) -> Result:
    return await request.list(CLUSTERS, cluster_rows(request.services.clusters))


async def get_cluster(request: KeyRequest[TopicServices, None]) -> Result:
    return one_cluster(request.services.clusters, request.word("id"))


async def update_cluster(request: KeyRequest[TopicServices, ClusterChanges]) -> Result:
    clusters = request.services.clusters
    id = request.word("id")
    await clusters.table.change(id, request.body.change(), request.actor)
    return one_cluster(clusters, id)
