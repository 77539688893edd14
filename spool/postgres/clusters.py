"""Clusters, in transactions of their own; other processes are told of each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import msgspec

from spool.clusters import Cluster, ClusterCheck
from spool.postgres.database import Connection, Database
from spool.postgres.registry.store import lock_head, note_changes
from spool.registry.shared.following import CLUSTERS

_NAMES = tuple(each.name for each in fields(Cluster))
_ALL = f"SELECT {', '.join(_NAMES)} FROM {{schema}}.clusters ORDER BY id"
_PUT = f"""
    INSERT INTO {{schema}}.clusters ({", ".join(_NAMES)}) VALUES ({", ".join(f"%({name})s" for name in _NAMES)})
        ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _NAMES if name != "id")}"""
_DELETE = "DELETE FROM {schema}.clusters WHERE id = %s"
_JSON = {"checks": tuple[ClusterCheck, ...], "labels": dict[str, str], "config": dict[str, object]}


class PostgresClusters:
    """See `spool.clusters.ClusterRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[Cluster]:
        sql = self._database.sql
        return await self._database.read(lambda connection: [_cluster(row) for row in connection.execute(sql(_ALL))])

    async def write(self, cluster: Cluster) -> None:
        await self._change(cluster.id, _PUT, _row(cluster))

    async def delete(self, id: str) -> None:
        await self._change(id, _DELETE, (id,))

    async def _change(self, id: str, statement: str, values: Sequence[object] | Mapping[str, object]) -> None:
        def work(connection: Connection) -> None:
            lock_head(connection, self._database)
            connection.execute(self._database.sql(statement), values)
            note_changes(connection, self._database, [(CLUSTERS, id)])

        await self._database.transaction(work)


def _row(cluster: Cluster) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(cluster, name) for name in _NAMES}
    return {**values, **{name: msgspec.json.encode(values[name]).decode() for name in _JSON}}


def _cluster(row: Sequence[Any]) -> Cluster:
    values: dict[str, object] = dict(zip(_NAMES, row, strict=True))
    values.update({name: msgspec.json.decode(str(values[name]), type=kind) for name, kind in _JSON.items()})
    return msgspec.convert(values, Cluster)
