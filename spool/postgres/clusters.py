"""Clusters where several processes change them; the others are told of each change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeVar

from spool.clusters import Cluster, TooManyClusters
from spool.log.partial_reports import Expectation
from spool.postgres.database import Connection, Database
from spool.postgres.registry.bearers import check_bearers
from spool.postgres.registry.store import lock_head, note_changes
from spool.postgres.transactions import PostgresConnection, PostgresTransactions
from spool.registry.shared import following
from spool.sql.clusters import CLUSTER, CLUSTERS, DELETE, PUT, SqlClusters, read

T = TypeVar("T")
_COUNT = "SELECT count(*) FROM {schema}.clusters"


class PostgresClusters(SqlClusters):
    """See `spool.clusters.ClusterRows`."""

    def __init__(self, database: Database) -> None:
        super().__init__(PostgresTransactions(database))
        self._database = database
        self._known: dict[str, Cluster] = {}  # as this process last read or wrote them

    async def load(self) -> Sequence[Cluster]:
        found = await super().load()
        self._known = {cluster.id: cluster for cluster in found}
        return found

    async def write(
        self, cluster: Cluster, *, expects: Collection[Expectation] = (), most: int | None = None
    ) -> None:
        """Write a cluster and keep the changes that another process made to its row since it was read here."""
        known = self._known.get(cluster.id)

        def work(on: Connection) -> Cluster:
            connection = self._begin(on)
            check_bearers(on, self._database.sql, expects, now=self._database.now())
            row = connection.one(f"{CLUSTERS} WHERE id = :id", id=cluster.id)
            if row is None and most is not None and connection.one(_COUNT)[0] >= most:
                raise TooManyClusters
            merged = cluster if row is None or known is None else _merged(known, cluster, read(row))
            connection.run(PUT, **CLUSTER.values(merged))
            note_changes(on, self._database, [(following.CLUSTERS, cluster.id)])
            return merged

        self._known[cluster.id] = await self._commit(work)

    async def delete(self, id: str) -> None:
        def work(on: Connection) -> None:
            self._begin(on).run(DELETE, id=id)
            note_changes(on, self._database, [(following.CLUSTERS, id)])

        await self._commit(work)
        self._known.pop(id, None)

    def _begin(self, connection: Connection) -> PostgresConnection:
        lock_head(connection, self._database)
        self._database.check_standby(connection)
        return PostgresConnection(connection, self._database.sql)

    async def _commit(self, work: Callable[[Connection], T]) -> T:
        return await self._database.transaction(work, needs_standby=lambda _: self._database.needs_standby)


def _merged(known: Cluster, changed: Cluster, kept: Cluster) -> Cluster:
    """The row that is kept, with what was changed of the one that was known."""
    pairs = ((name, getattr(changed, name), getattr(known, name)) for name in CLUSTER.names)
    return replace(kept, **{name: value for name, value, before in pairs if value != before})
