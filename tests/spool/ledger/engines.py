"""The ledger's rows on every engine, opened again over stored data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spool.clock import Clock
from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerStore
from spool.postgres.database import Connection, Database
from spool.postgres.ledger import PostgresLedger
from spool.postgres.migrations import Migration
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.ledger import SqliteLedger
from tests.spool.ledger_log import FakeClock, opened
from tests.spool.postgres_cluster import Schema

SQLITE, POSTGRES = ENGINES = ("sqlite", "postgres")
POOLED = "postgres behind pgbouncer"
MEMORY = "memory"  # SQLite without a file, for tests that check only rules

_EMPTY = """
    DELETE FROM {schema}.ledger_meters; DELETE FROM {schema}.ledger_work; DELETE FROM {schema}.ledger_work_units;
    DELETE FROM {schema}.ledger_work_names; DELETE FROM {schema}.ledger_work_unlisted;
    DELETE FROM {schema}.ledger_work_links; DELETE FROM {schema}.ledger_recalculations;
    DELETE FROM {schema}.ledger_price_lists; DELETE FROM {schema}.ledger_tag_lists;
    DELETE FROM {schema}.ledger_billed; DELETE FROM {schema}.ledger_billed_days;
    DELETE FROM {schema}.ledger_billed_sums; DELETE FROM {schema}.ledger_rollups; DELETE FROM {schema}.ledger_rolled;
    DELETE FROM {schema}.ledger_billed_rollups;
    DELETE FROM {schema}.ledger_hours; DELETE FROM {schema}.ledger_days; DELETE FROM {schema}.ledger_keys;
    DELETE FROM {schema}.ledger_periods; DELETE FROM {schema}.ledger_state;
    INSERT INTO {schema}.ledger_state VALUES ('reach', 1)"""


_TABLES = Migration(files=("ledger.sql",))


def schemas_of(engine: str, request: pytest.FixtureRequest) -> Callable[[], Schema]:
    """Return a function that creates schemas for one of the two PostgreSQL engines."""
    found: Callable[[], Schema] = request.getfixturevalue(
        "new_pooled_schema" if engine == POOLED else "new_schema"
    )
    return found


class Ledgers:
    """Ledgers of one engine. Each opens the data of the one before. A new `Ledgers` starts empty."""

    def __init__(self, engine: str, directory: Path, schema: Schema | None) -> None:
        self.engine = engine
        self._directory = directory
        self._schema = schema
        self._in_memory = new_in_memory_ledger()
        self._database: Database | None = None
        self._opened: list[Ledger] = []

    @classmethod
    def of(cls, engine: str, request: pytest.FixtureRequest, directory: Path) -> Ledgers:
        """Create ledgers, and start a server only for an engine that needs one."""
        return cls(engine, directory, schemas_of(engine, request)() if engine in (POSTGRES, POOLED) else None)

    async def open(self, *, clock: Clock | None = None, **options: Any) -> Ledger:
        clock = clock or FakeClock()
        self.store = await self._store(clock)
        self._opened.append(await Ledger(self.store, clock=clock, **options).load())
        self._opened[-1].books.open = opened
        return self._opened[-1]

    async def read_statistics(self) -> None:
        """Let PostgreSQL plan with current statistics, as it does some time after a load."""
        if self._database is not None:
            await self._database.read(lambda connection: connection.execute("ANALYZE"))

    async def close(self) -> None:
        """Close everything, so that a failed test leaves no thread."""
        for ledger in self._opened:
            await ledger.close()
        if self._database is not None:
            await self._database.close()

    async def _store(self, clock: Clock) -> LedgerStore:
        if self.engine == MEMORY:
            return self._in_memory
        if self.engine == SQLITE:
            return await SqliteLedger.open(self._directory, clock)
        if self._database is None:
            assert self._schema is not None
            self._database = database = self._schema.database()
            await database.transaction(lambda connection: _begin(database, connection))
        return PostgresLedger(self._database)


def _begin(database: Database, connection: Connection) -> None:
    """Create or empty only the ledger's tables, because the examples of a test share its schema."""
    if connection.execute("SELECT to_regnamespace(%s)", (database.schema,)).fetchone() == (None,):
        connection.execute(
            database.fill_in_table_names(f"CREATE SCHEMA {{schema}}; {_TABLES.read_statements()}")
        )
    else:
        connection.execute(database.fill_in_table_names(_EMPTY))
