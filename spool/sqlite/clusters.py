"""Clusters in the spool's own file, in transactions of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields

import msgspec

from spool.clusters import Cluster, ClusterCheck
from spool.errors import SpoolUnavailable
from spool.log.partial_reports import Expectation
from spool.sqlite.database import Database

_COLUMNS = tuple(each.name for each in fields(Cluster))
_PUT = f"INSERT OR REPLACE INTO clusters ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_ALL = f"SELECT {', '.join(_COLUMNS)} FROM clusters"
_DELETE = "DELETE FROM clusters WHERE id = ?"
_JSON = {"checks": tuple[ClusterCheck, ...], "labels": dict[str, str], "config": dict[str, object]}


class SqliteClusters:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> Sequence[Cluster]:
        def read(connection: sqlite3.Connection) -> list[Cluster]:
            return [_cluster(row) for row in connection.execute(_ALL)]

        return await self._database.read(read)

    async def write(self, cluster: Cluster, *, expects: Collection[Expectation] = (), most: int | None = None) -> None:
        await self._change(lambda connection: connection.execute(_PUT, _row(cluster)))

    async def delete(self, id: str) -> None:
        await self._change(lambda connection: connection.execute(_DELETE, (id,)))

    async def _change(self, work: Callable[[sqlite3.Connection], object]) -> None:
        try:
            await self._database.transaction(work)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"clusters cannot be written: {error}") from error


def _row(cluster: Cluster) -> list[object]:
    values = {name: getattr(cluster, name) for name in _COLUMNS}
    values.update({name: msgspec.json.encode(values[name]).decode() for name in _JSON})
    return list(values.values())


def _cluster(row: Sequence[object]) -> Cluster:
    values: dict[str, object] = dict(zip(_COLUMNS, row, strict=True))
    values.update({name: msgspec.json.decode(str(values[name]), type=kind) for name, kind in _JSON.items()})
    values["enabled"] = bool(values["enabled"])
    return msgspec.convert(values, Cluster)
