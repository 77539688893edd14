from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from spool.clusters import FROM_SETTINGS, Cluster, ClusterCheck
from spool.log.partial_reports import ExpectedVersion
from spool.sql.columns import ColumnForm, RowColumns, select_sql, upsert_sql
from spool.sql.connection import SqlTransactions
from spool.turns.threads import prepare_types_for_msgspec


def _build_json_form(kind: Any) -> ColumnForm:
    decoder = msgspec.json.Decoder(kind)
    return ColumnForm(lambda value: msgspec.json.encode(value).decode(), decoder.decode)


CLUSTER = RowColumns(
    Cluster, forms={"checks": _build_json_form(tuple[ClusterCheck, ...])}, without=FROM_SETTINGS
)
CLUSTERS = select_sql("clusters", CLUSTER.names)
PUT = upsert_sql("clusters", CLUSTER.names, "id")
DELETE = "DELETE FROM {schema}.clusters WHERE id = :id"


prepare_types_for_msgspec(Cluster)


class SqlClusters:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def load(self) -> Sequence[Cluster]:
        rows = await self._transactions.read(lambda connection: connection.all(f"{CLUSTERS} ORDER BY id"))
        return [read_cluster(row) for row in rows]

    async def write(
        self,
        cluster: Cluster,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        values = CLUSTER.stored_values(cluster)
        await self._transactions.transaction(lambda connection: connection.run(PUT, **values))

    async def delete(self, id: str) -> None:
        await self._transactions.transaction(lambda connection: connection.run(DELETE, id=id))


def read_cluster(row: Sequence[Any]) -> Cluster:
    return msgspec.convert(CLUSTER.read_fields(row), Cluster)
