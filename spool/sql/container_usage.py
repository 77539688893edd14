"""Usage of containers."""

from __future__ import annotations

from collections.abc import Sequence

from spool.container_files.usage import OPEN, UsageDay, UsageDocument
from spool.container_files.values import ClusterIdentity
from spool.sql.columns import Columns
from spool.sql.connection import SqlConnection, SqlTransactions
from spool.sql.statements import select, upsert

_DAY, _DOCUMENT = Columns(UsageDay), Columns(UsageDocument)
_TABLE = "container_usage"
_KEY = ("account", "region", "cluster", "day")
_ONE = (
    f"{select(_TABLE, _DOCUMENT.names)}"
    " WHERE account = :account AND region = :region AND cluster = :cluster AND day = :day"
)
_DAYS = f"{select(_TABLE, _DAY.names)} WHERE day >= :since ORDER BY day, account, region, cluster"
_PUT = upsert(_TABLE, _DOCUMENT.names, *_KEY)
_TRIM = f"DELETE FROM {{schema}}.container_usage WHERE day > {OPEN} AND day < :before"


class SqlContainerUsage:
    """See `spool.container_files.usage.ContainerUsage`."""

    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None:
        place = {"account": identity.account, "region": identity.region, "cluster": identity.name}

        def work(connection: SqlConnection) -> UsageDocument | None:
            found = connection.all(_ONE, **place, day=day)
            return _DOCUMENT.read(found[0]) if found else None

        return await self._transactions.read(work)

    async def days(self, since: int) -> Sequence[UsageDay]:
        def work(connection: SqlConnection) -> list[UsageDay]:
            return [_DAY.read(row) for row in connection.all(_DAYS, since=since)]

        return await self._transactions.read(work)

    async def keep(self, documents: Sequence[UsageDocument]) -> None:
        ordered = sorted(documents, key=lambda each: (each.identity, each.day))
        rows = [_DOCUMENT.values(each) for each in ordered]
        await self._transactions.transaction(lambda connection: connection.run_each(_PUT, rows))

    async def trim(self, before: int) -> None:
        await self._transactions.transaction(lambda connection: connection.run(_TRIM, before=before))
