"""Clusters without a disk."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from spool.clusters import Cluster
from spool.log.partial_reports import Expectation


class MemoryClusters:
    def __init__(self) -> None:
        self._clusters: dict[str, Cluster] = {}

    async def load(self) -> Sequence[Cluster]:
        return list(self._clusters.values())

    async def write(self, cluster: Cluster, *, expects: Collection[Expectation] = (), most: int | None = None) -> None:
        self._clusters[cluster.id] = cluster

    async def delete(self, id: str) -> None:
        self._clusters.pop(id, None)
