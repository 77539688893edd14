"""Storage engines for the ledger of a benchmark: files, or a separate PostgreSQL."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from spool.clock import SystemClock
from spool.ledger.ledger import Ledger
from spool.postgres.database import Database
from spool.postgres.ledger import PostgresLedger
from spool.sqlite.ledger import open_ledger
from tests.bench.server.meters import cpu_seconds
from tests.spool.postgres_cluster import Server, folder, storage_table

SCHEMA = "bench"
POSTGRES = {"shared_buffers": "512MB", "max_wal_size": "4GB"}


class Engine:
    """Storage of a ledger in SQLite files."""

    def settings(self, place: Path) -> str:
        return ""

    def prepare(self, command: Sequence[str]) -> None:
        """Prepare the storage of a ledger. `command` initialises the storage."""

    @asynccontextmanager
    async def ledger(self, data: Path) -> AsyncIterator[Ledger]:
        ledger = await open_ledger(data, clock=SystemClock())
        try:
            yield ledger
        finally:
            await ledger.close()

    def cpu_s(self) -> float:
        """Return the processor time of helper processes such as the database."""
        return 0.0

    def size(self, data: Path) -> int:
        return (data / "ledger.sqlite").stat().st_size


class Postgres(Engine):
    """A running PostgreSQL server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def settings(self, place: Path) -> str:
        storage = storage_table(place, dsn=self._server.dsn, schema=SCHEMA)
        return f'{storage}[spool]\nmax_bytes = "4GiB"\n'

    def prepare(self, command: Sequence[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    @asynccontextmanager
    async def ledger(self, data: Path) -> AsyncIterator[Ledger]:
        database = Database(self._server.dsn, schema=SCHEMA)
        try:
            yield await Ledger(PostgresLedger(database), clock=SystemClock()).load()
        finally:
            await database.close()

    def cpu_s(self) -> float:
        return cpu_seconds(self._server._postmaster())

    def size(self, data: Path) -> int:
        tables = f"pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = '{SCHEMA}'"
        named = f"FROM {tables} AND c.relkind = 'r' AND c.relname LIKE 'ledger%'"
        [(size,)] = self._server.execute(f"SELECT sum(pg_total_relation_size(c.oid))::bigint {named}")
        return int(str(size))


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Yield a server that flushes, and stop it at the end."""
    with folder() as place:
        server = Server(place / "primary", POSTGRES)
        server.initialise()
        server.start()
        try:
            yield Postgres(server)
        finally:
            server.stop()
