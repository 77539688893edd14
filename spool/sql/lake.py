from __future__ import annotations

import secrets
from collections.abc import Sequence

from spool.deliveries.values import LakeDelivery
from spool.sql.columns import RowColumns, insert_sql, select_sql
from spool.sql.connection import SqlConnection, SqlTransactions

_LOG = ""  # route under which the log's own editions are stored
LANDING = RowColumns(LakeDelivery)
_LANDINGS = select_sql("lake_files", LANDING.names)
_NEWEST = "SELECT edition, first FROM {schema}.lake_editions WHERE route = :route ORDER BY first DESC"
_UP_TO = (
    "SELECT edition FROM {schema}.lake_editions WHERE route = :route AND first <= :first ORDER BY first DESC"
)
_ADD = """
    INSERT INTO {schema}.lake_editions (route, first, edition) VALUES (:route, :first, :edition)
    ON CONFLICT (route, first) DO NOTHING"""
_ADD_TO_ROUTES = """
    INSERT INTO {schema}.lake_editions (route, first, edition)
    SELECT name, next, CAST(:edition AS text) FROM {schema}.routes
     WHERE name IN (SELECT route FROM {schema}.lake_editions)
    ON CONFLICT (route, first) DO UPDATE SET edition = excluded.edition"""
# Each restore begins an edition. An edition that was replaced before its first delivery was never used, so it
# gets a number below all others.
_KEEP_UNUSED = """
    UPDATE {schema}.lake_editions
       SET first = (SELECT min(other.first) - 1 FROM {schema}.lake_editions AS other
                     WHERE other.route = lake_editions.route)
     WHERE EXISTS (SELECT 1 FROM {schema}.routes
                    WHERE name = lake_editions.route AND next = lake_editions.first)"""
_LANDS = "SELECT 1 FROM {schema}.lake_editions WHERE route = :route LIMIT 1"
_INSERT = insert_sql("lake_files", LANDING.names)
_FORGET = "DELETE FROM {schema}.lake_files WHERE route = :route"
_ROUTES = "SELECT route, count(*) FROM {schema}.lake_files GROUP BY route ORDER BY route"


class SqlLakeDeliveries:
    def __init__(self, transactions: SqlTransactions) -> None:
        self._transactions = transactions

    async def find_or_begin_log_editions(self, route: str, first_number: int) -> Sequence[str]:
        def read_editions(connection: SqlConnection) -> list[str]:
            return [edition for (edition,) in connection.all(_UP_TO, route=route, first=first_number)]

        return await self._transactions.read(read_editions) or await self._transactions.transaction(
            lambda connection: _begin_log_edition(connection, route)
        )

    async def begin_log_edition(self) -> str:
        edition = new_log_edition_id()

        def add_edition(connection: SqlConnection) -> None:
            newest = connection.first_row(_NEWEST, route=_LOG)
            next_number = 0 if newest is None else newest[1] + 1
            connection.run(_ADD, route=_LOG, first=next_number, edition=edition)
            connection.run(_KEEP_UNUSED)
            connection.run(_ADD_TO_ROUTES, edition=edition)

        await self._transactions.transaction(add_edition)
        return edition

    async def lake_delivery_before(self, route: str, first_number: int) -> LakeDelivery | None:
        statement = f"{_LANDINGS} WHERE route = :route AND first < :first ORDER BY first DESC LIMIT 1"
        row = await self._transactions.read(
            lambda connection: connection.first_row(statement, route=route, first=first_number)
        )
        return None if row is None else LANDING.read_row(row)

    async def lake_deliveries_after(
        self, route: str, *, after_number: int, max_deliveries: int
    ) -> Sequence[LakeDelivery]:
        statement = f"{_LANDINGS} WHERE route = :route AND first > :after ORDER BY first LIMIT :most"
        rows = await self._transactions.read(
            lambda connection: connection.all(statement, route=route, after=after_number, most=max_deliveries)
        )
        return [LANDING.read_row(row) for row in rows]

    async def landed_counts_by_route(self) -> Sequence[tuple[str, int]]:
        rows = await self._transactions.read(lambda connection: connection.all(_ROUTES))
        return [(route, int(count)) for route, count in rows]


def new_log_edition_id() -> str:
    """Return a new edition: a random id of eight hex digits."""
    return secrets.token_hex(4)


def _begin_log_edition(connection: SqlConnection, route: str) -> list[str]:
    connection.run(_ADD, route=_LOG, first=0, edition=new_log_edition_id())
    edition, _ = connection.first_row(_NEWEST, route=_LOG)
    connection.run(_ADD, route=route, first=0, edition=edition)
    return [
        edition_name
        for (edition_name,) in connection.all(_NEWEST.replace(", first FROM", " FROM"), route=route)
    ]


def is_lake_route(connection: SqlConnection, route: str) -> bool:
    return connection.first_row(_LANDS, route=route) is not None


def insert_lake_delivery(connection: SqlConnection, delivery: LakeDelivery) -> None:
    connection.run(_INSERT, **LANDING.stored_values(delivery))


def delete_lake_deliveries(connection: SqlConnection, route: str) -> None:
    connection.run(_FORGET, route=route)
