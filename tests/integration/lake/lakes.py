"""A storage on disk, a data lake as its destination, and queries of the lake."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from exporters.destinations.catalogue import build_routes
from exporters.forwarder import RouteForwarder
from exporters.lake.exporter import LakeContext
from exporters.settings import DestinationSettings, UpstreamSettings
from gateway.operations.list import declared_tables
from spool.clock import Clock, SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import RouteState
from spool.engines import open_storage
from spool.identity import RecordIdentity
from spool.installation import FILE, public_id, store_secret
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, Record
from spool.settings import SpoolSettings, StorageSettings
from spool.storage import Storage, StorageOptions
from tests.waiting import until

ROUTE = f"lake/{AI_TELEMETRY}"
FOLDER: dict[str, Any] = {"name": "lake", "type": "file", "linger": 0.0, "batch_records": 10}


@dataclass
class House:
    storage: Storage
    clock: Clock
    directory: Path

    async def add(self, records: Sequence[Record]) -> None:
        identities = [RecordIdentity(record.id) for record in records]
        await self.storage.log.append_submission(
            Submission(
                topic=AI_TELEMETRY, received=len(records), records=list(records), identities=identities
            )
        )

    async def state(self, route: str = ROUTE) -> RouteState:
        return next(state for state in await self.storage.deliveries.route_states() if state.name == route)

    async def terms(self) -> dict[str, int]:
        return {term: n for term, n in (await self.storage.log.books()).routes[ROUTE].items() if n}

    def context(self) -> LakeContext:
        assert self.storage.registry is not None
        return LakeContext(
            directory=self.directory / "lake",
            landings=self.storage.small.open_table(LANDINGS),
            installation=public_id(self.storage.secret),
            books=self.storage.log.books,
            routes=self.storage.deliveries.route_states,
            verdicts=self.storage.registry.statements,
        )

    @asynccontextmanager
    async def forwarding(self, **settings: Any) -> AsyncIterator[RouteForwarder]:
        destination = DestinationSettings(**{**FOLDER, **settings})
        routes = build_routes(UpstreamSettings(), [destination], clock=self.clock, lake=self.context())
        leases = self.storage.leases
        forwarder = RouteForwarder(
            self.storage.deliveries, self.storage.log, self.clock, routes, leases=leases
        )
        await forwarder.start()
        try:
            yield forwarder
        finally:
            await forwarder.stop()

    async def until_all_is_sent(self) -> None:
        async def is_sent() -> bool:
            return not any(state.queued for state in await self.storage.deliveries.route_states())

        await until(is_sent, "all is sent")

    async def until(self, route: str = ROUTE, **wanted: object) -> RouteState:
        """Wait until the route's state has these values."""

        async def reached() -> RouteState | None:
            state = await self.state(route)
            return state if all(getattr(state, name) == value for name, value in wanted.items()) else None

        state = await until(reached, f"{route} with {wanted}")
        assert state is not None
        return state


@asynccontextmanager
async def opened(
    directory: Path, clock: Clock | None = None, *, engine: StorageSettings | None = None
) -> AsyncIterator[House]:
    clock = clock or SystemClock()
    chosen = engine or StorageSettings()
    options = StorageOptions(
        declared=declared_tables(),
        directory=directory,
        settings=SpoolSettings(hold=0),
        clock=clock,
        storage=chosen,
    )
    storage = await open_storage(options, engine=chosen.engine)
    try:
        yield House(storage, clock, directory)
    finally:
        await storage.close()


def configured(directory: Path, *, spool: str = "", **fields: object) -> Path:
    """Write a configuration with one destination, by default the folder `lake`; return its path."""
    folder = {} if "type" in fields else {"type": "file", "path": directory / "lake"}
    said: dict[str, object] = {"name": "lake", **folder, **fields}
    lines = [f"{name} = {json.dumps(value, default=str)}" for name, value in said.items()]
    file = directory / "tollhouse.toml"
    file.write_text(
        "\n".join([f'data_dir = "{directory}/data"', "[spool]", spool, "[[destinations]]", *lines, ""])
    )
    return file


def begin_copy(data: Path, original: Storage) -> None:
    """Create a data directory with another installation's identity, as in its backup."""
    data.mkdir()
    store_secret(data / FILE, original.secret)


def query(lake: Path, text: str) -> list[tuple[Any, ...]]:
    """Run a query on the table `lake`; return its rows."""
    connection = duckdb.connect()
    files = f"{lake}/ai_telemetry/v1/*/*.parquet"
    connection.execute(
        f"CREATE VIEW lake AS SELECT * FROM read_parquet('{files}', hive_partitioning = true, union_by_name = true)"
    )
    found: list[tuple[Any, ...]] = connection.execute(text).fetchall()
    return found
