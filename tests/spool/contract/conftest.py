"""
Every engine under one suite: whatever a test here claims, it claims for each of them.

Behind a pooler the first test of each file runs always, and all of them in `make soak` or with `-k
pgbouncer`. Cases of a test marked `rule` break rules that are checked before an engine is asked: all of
them run on SQLite, the first on each engine, and all on each engine in long rounds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

import spool.sqlite
from gateway.http.resources.list import declared_tables
from spool import engines
from spool.postgres.database import Database
from spool.postgres.leases import PostgresLeases
from spool.postgres.migrations import migrate
from spool.postgres.registry.store import PostgresRegistry
from spool.postgres.storage import PostgresSpool
from spool.postgres.storage import open_spool as open_postgres
from spool.registry.registry import DeclaredTable, Registry
from spool.registry.registry_rows import RegistryStore
from spool.settings import LOCAL, SpoolSettings, StorageSettings
from spool.sqlite.registry import SqliteRegistry
from spool.storage import Storage, StorageOptions
from tests.exporters.spools import Spooled
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.contract.examples import NOON, Observed
from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed
from tests.spool.ledger.engines import ENGINES, POOLED, POSTGRES, SQLITE, Ledgers, schemas_of
from tests.spool.postgres_cluster import Schema
from tests.spool.postgres_cluster import patience as patience

Spool = spool.sqlite.SqliteSpool | PostgresSpool
Opener = Callable[..., Awaitable[Spool]]
RegistryOpener = Callable[..., Awaitable[Registry]]
SECRET = b"i" * 32
ALL_DECLARED = declared_tables()
EVERY_ENGINE = [*ENGINES, POOLED]
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the cases that the docstring of this module names."""
    left_out = {
        *(() if "pgbouncer" in config.option.keyword else behind_pooler_again(items)),
        *(() if IS_LONG else rules_again(items)),
    }
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def behind_pooler_again(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of what runs behind a pooler, every test of a file but the first."""
    seen: set[Path] = set()
    for item in items:
        if item.path.is_relative_to(HERE) and POOLED in item.name:
            if item.path in seen:
                yield item
            seen.add(item.path)


def rules_again(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """Of each test of rules, every case of an engine but SQLite and but the first."""
    seen: set[tuple[str, str]] = set()
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("rule"):
            place = item.nodeid.partition("[")[0]
            [engine] = [value for value in item.callspec.params.values() if value in EVERY_ENGINE]
            if (place, engine) in seen and engine != SQLITE:
                yield item
            seen.add((place, engine))


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(NOON)


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest_asyncio.fixture(params=EVERY_ENGINE)
async def open_spool(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock, observed: Observed
) -> AsyncIterator[Opener]:
    """Opens a fresh spool with some settings; records are closed at once unless a test says otherwise."""
    new_schema = schemas_of(request.param, request) if request.param in (POSTGRES, POOLED) else None
    opened: list[Spool] = []
    async with AsyncExitStack() as stack:

        async def opener(**changes: Any) -> Spool:
            settings = SpoolSettings(**{"hold": 0, **changes})
            one: Spool
            if new_schema is not None:
                one = await open_node(stack, new_schema(), settings, clock, observed)
            else:
                directory = tmp_path / f"data-{len(opened)}"
                one = await spool.sqlite.open_spool(
                    directory, settings=settings, clock=clock, observer=observed
                )
            opened.append(one)
            stack.push_async_callback(one.close)
            return one

        yield opener


async def open_node(
    stack: AsyncExitStack, schema: Schema, settings: SpoolSettings, clock: MovedClock, observed: Observed
) -> PostgresSpool:
    """A node on a schema; the stack closes what the node does not."""
    database = schema.database(clock=clock)
    stack.push_async_callback(database.close)
    await migrate(database)
    leases = PostgresLeases(database, clock, name="one", version="0")
    stack.push_async_callback(leases.close)
    return await open_postgres(
        database,
        settings=settings,
        clock=clock,
        secret=SECRET,
        leases=leases,
        observer=observed,
        durability=LOCAL,
    )


@pytest_asyncio.fixture(params=EVERY_ENGINE)
async def open_registry(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock
) -> AsyncIterator[RegistryOpener]:
    """Opens the registry of one storage, again after a close too."""
    opened: list[Registry] = []
    async with AsyncExitStack() as stack:
        is_postgres = request.param in (POSTGRES, POOLED)
        if is_postgres:
            database = await stack.enter_async_context(migrated(schemas_of(request.param, request)()))

        async def opener(
            *, secret: bytes = SECRET, declared: Iterable[type[DeclaredTable]] = ALL_DECLARED
        ) -> Registry:
            if is_postgres:
                store: RegistryStore = PostgresRegistry(database)
            else:
                store = await SqliteRegistry.open(tmp_path)
            opened.append(await Registry.open(store, secret=secret, clock=clock, declared=declared))
            return opened[-1]

        yield opener
        for registry in opened:
            await registry.close()


@asynccontextmanager
async def migrated(schema: Schema) -> AsyncIterator[Database]:
    """A database whose schema is made."""
    database = schema.database()
    try:
        await migrate(database)
        yield database
    finally:
        await database.close()


@pytest_asyncio.fixture
async def spooled(open_spool: Opener, clock: MovedClock) -> Spooled:
    """A log and its deliveries, whose records are closed at once."""
    opened = await open_spool()
    return Spooled(log=opened.log, deliveries=opened.deliveries, clock=clock)


@pytest_asyncio.fixture
async def storage(options: StorageOptions) -> AsyncIterator[Storage]:
    """All of a storage."""
    storage = await engines.open_storage(options, engine=options.storage.engine)
    yield storage
    await storage.close()


@pytest_asyncio.fixture(params=ENGINES)
async def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledgers]:
    """Behind the pooler where two of them write, for the rest in `make soak`: it reads much, and one writes."""
    ledgers = Ledgers.of(request.param, request, tmp_path)
    yield ledgers
    await ledgers.close()


@pytest.fixture(params=EVERY_ENGINE)
def options(request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock) -> StorageOptions:
    """How a whole storage of each engine is opened; `options.storage.engine` names it."""
    if request.param in (POSTGRES, POOLED):
        storage = schemas_of(request.param, request)().settings(tmp_path)
    else:
        storage = StorageSettings(engine=request.param)
    return StorageOptions(directory=tmp_path, settings=SpoolSettings(hold=0), clock=clock, storage=storage)
