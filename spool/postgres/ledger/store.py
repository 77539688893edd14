"""The ledger's rows on a database that several gateways share: one of them changes sums at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spool.ledger.ledger_rows import LedgerRows
from spool.postgres.database import Connection, Database
from spool.postgres.ledger.ledger_rows import PostgresLedgerRows, lock

T = TypeVar("T")


class PostgresLedger:
    """See `spool.ledger.ledger_rows.LedgerStore`. The database stays open: others use it too."""

    shares_log = True

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        """
        Change sums without asking for a standby: sums and how far they reach are lost together, and are
        counted again from the log.
        """

        def within(connection: Connection) -> T:
            lock(connection, self._database)
            return work(PostgresLedgerRows(connection, self._database))

        return await self._database.transaction(within)

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return await self._database.snapshot(
            lambda connection: work(PostgresLedgerRows(connection, self._database))
        )

    async def close(self) -> None:
        """Whoever opened the database closes it."""
