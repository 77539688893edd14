"""Clusters, in transactions of their own; other processes are told of each change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import msgspec

from spool.clusters import Cluster, ClusterCheck, TooManyClusters
from spool.log.partial_reports import Expectation
from spool.postgres.database import Connection, Database
from spool.postgres.registry.bearers import check_bearers
from spool.postgres.registry.store import lock_head, note_changes
from spool.registry.shared.following import CLUSTERS

T = TypeVar("T")
_NAMES = tuple(each.name for each in fields(Cluster))
_ALL = f"SELECT {', '.join(_NAMES)} FROM {{schema}}.clusters ORDER BY id"
_PUT = f"""
    INSERT INTO {{schema}}.clusters ({", ".join(_NAMES)}) VALUES ({", ".join(f"%({name})s" for name in _NAMES)})
        ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _NAMES if name != "id")}"""
_ONE = f"SELECT {', '.join(_NAMES)} FROM {{schema}}.clusters WHERE id = %s"
_COUNT = "SELECT count(*) FROM {schema}.clusters"
_DELETE = "DELETE FROM {schema}.clusters WHERE id = %s"
_JSON = {"checks": tuple[ClusterCheck, ...], "labels": dict[str, str], "config": dict[str, object]}


class PostgresClusters:
    """See `spool.clusters.ClusterRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, Cluster] = {}  # as this process last read or wrote them

    async def load(self) -> Sequence[Cluster]:
        sql = self._database.sql
        found = await self._database.read(lambda connection: connection.execute(sql(_ALL)).fetchall())
        self._known = {cluster.id: cluster for cluster in map(_cluster, found)}
        return list(self._known.values())

    async def write(self, cluster: Cluster, *, expects: Collection[Expectation] = (), most: int | None = None) -> None:
        """What another process changed of the row, and this one did not, stays."""
        sql, known = self._database.sql, self._known.get(cluster.id)

        def work(connection: Connection) -> Cluster:
            lock_head(connection, self._database)
            self._database.check_standby(connection)
            check_bearers(connection, sql, expects, now=self._database.now())
            row = connection.execute(sql(_ONE), (cluster.id,)).fetchone()
            if row is None and most is not None:
                [[count]] = connection.execute(sql(_COUNT)).fetchall()
                if count >= most:
                    raise TooManyClusters
            merged = cluster if row is None or known is None else _merged(known, cluster, _cluster(row))
            connection.execute(sql(_PUT), _row(merged))
            note_changes(connection, self._database, [(CLUSTERS, cluster.id)])
            return merged

        self._known[cluster.id] = await self._commit(work)

    async def delete(self, id: str) -> None:
        def work(connection: Connection) -> None:
            lock_head(connection, self._database)
            self._database.check_standby(connection)
            connection.execute(self._database.sql(_DELETE), (id,))
            note_changes(connection, self._database, [(CLUSTERS, id)])

        await self._commit(work)
        self._known.pop(id, None)

    async def _commit(self, work: Callable[[Connection], T]) -> T:
        return await self._database.transaction(work, needs_standby=lambda _: self._database.needs_standby)


def _merged(known: Cluster, changed: Cluster, kept: Cluster) -> Cluster:
    """The row that is kept, with what was changed of the one that was known."""
    changes = {name: getattr(changed, name) for name in _NAMES if getattr(changed, name) != getattr(known, name)}
    return replace(kept, **changes)


def _row(cluster: Cluster) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(cluster, name) for name in _NAMES}
    return {**values, **{name: msgspec.json.encode(values[name]).decode() for name in _JSON}}


def _cluster(row: Sequence[Any]) -> Cluster:
    values: dict[str, object] = dict(zip(_NAMES, row, strict=True))
    values.update({name: msgspec.json.decode(str(values[name]), type=kind) for name, kind in _JSON.items()})
    return msgspec.convert(values, Cluster)
