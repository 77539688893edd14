"""
Fixtures that run every test of this suite with each storage engine.

Behind a pooler, all tests but the first of each folder are proofs. A test marked `rule` checks code above the
engines, so it runs once, in memory. If a whole module is marked `rule`, its tests marked `every_engine` still
run on each engine, because they check rows. On PostgreSQL, a test marked `one_engine` is a proof, because at least
two other tests execute each of its statements there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import spool.sqlite.spool
from gateway.operations.list import declared_tables
from spool import engines
from spool.log.protocols import RecordLog
from spool.postgres.database import Database
from spool.postgres.leases import PostgresLeases
from spool.postgres.migrations import migrate_schema
from spool.postgres.registry.store import PostgresRegistry
from spool.postgres.storage import PostgresSpool
from spool.postgres.storage import open_spool as open_postgres
from spool.registry.registry import DeclaredTable, Registry
from spool.registry.registry_rows import RegistryStore
from spool.settings import LOCAL, SpoolSettings, StorageSettings
from spool.sqlite import in_memory
from spool.sqlite.registry import SqliteRegistry
from spool.storage import Storage, StorageOptions
from tests.exporters.spools import Spooled
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON, Observed
from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed
from tests.spool.ledger.engines import ENGINES, MEMORY, POOLED, POSTGRES, Ledgers, schemas_of
from tests.spool.postgres_cluster import Schema
from tests.spool.postgres_cluster import patience as patience

Spool = spool.sqlite.spool.SqliteSpool | PostgresSpool
Opener = Callable[..., Awaitable[Spool]]
RegistryOpener = Callable[..., Awaitable[Registry]]
SECRET = b"i" * 32
ALL_DECLARED = declared_tables()
EVERY_ENGINE = [*ENGINES, POOLED]
WITHOUT_FILE = pytest.param(MEMORY, id="sqlite in memory")
# Engines by fixture name. The ledger runs behind the pooler only in tests where two processes write, because
# among servers only one writes the ledger and the others read it.
ENGINES_OF = {
    "open_spool": EVERY_ENGINE,
    "open_registry": EVERY_ENGINE,
    "ledgers": ENGINES,
    "options": EVERY_ENGINE,
}
HERE = Path(__file__).parent


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with the engines of its fixtures, unless it names engines itself."""
    marks = [mark.name for mark in metafunc.definition.iter_markers()]
    is_rule = "rule" in marks and "every_engine" not in marks
    named = {name for mark in metafunc.definition.iter_markers("parametrize") for name in mark.args[:1]}
    for fixture, each in ENGINES_OF.items():
        if fixture in metafunc.fixturenames and fixture not in named:
            metafunc.parametrize(fixture, [WITHOUT_FILE] if is_rule else each, indirect=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Mark tests of `one_engine` on PostgreSQL as proofs, and tests behind a pooler, except for the first of each folder.
    """
    folders: set[Path] = set()
    for item in items:
        if item.path.is_relative_to(HERE) and POSTGRES in item.name:
            if item.get_closest_marker("one_engine") or (POOLED in item.name and item.path.parent in folders):
                item.add_marker(pytest.mark.proof)
            elif POOLED in item.name and item.get_closest_marker("proof") is None:
                folders.add(item.path.parent)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(NOON)


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def open_spool(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock, observed: Observed
) -> AsyncIterator[Opener]:
    """
    Return a function that opens a fresh spool with changed settings. Records close at once unless a
    test sets `hold`.
    """
    new_schema = schemas_of(request.param, request) if request.param in (POSTGRES, POOLED) else None
    opened: list[Spool] = []
    async with AsyncExitStack() as stack:

        async def opener(**changes: Any) -> Spool:
            settings = SpoolSettings(**{"hold": 0, **changes})
            one: Spool
            if new_schema is not None:
                one = await open_node(stack, new_schema(), settings, clock, observed)
            elif request.param == MEMORY:
                one = await in_memory.open_spool(settings=settings, clock=clock, observer=observed)
            else:
                directory = tmp_path / f"data-{len(opened)}"
                one = await spool.sqlite.spool.open_spool(
                    directory, settings=settings, clock=clock, observer=observed
                )
            opened.append(one)
            stack.push_async_callback(one.close)
            return one

        yield opener


@pytest.fixture
async def log(open_spool: Opener) -> RecordLog:
    return (await open_spool()).log


async def open_node(
    stack: AsyncExitStack, schema: Schema, settings: SpoolSettings, clock: MovedClock, observed: Observed
) -> PostgresSpool:
    """Open a node on a schema. The stack closes everything that the node does not close."""
    database = schema.database(clock=clock)
    stack.push_async_callback(database.close)
    await migrate_schema(database)
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


@pytest.fixture
async def open_registry(
    request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock
) -> AsyncIterator[RegistryOpener]:
    """Return a function that opens the registry of one storage, also again after a close."""
    opened: list[Registry] = []
    async with AsyncExitStack() as stack:
        is_postgres = request.param in (POSTGRES, POOLED)
        without_file = in_memory.new_in_memory_registry()
        if is_postgres:
            database = await stack.enter_async_context(migrated(schemas_of(request.param, request)()))

        async def opener(
            *, secret: bytes = SECRET, declared: Iterable[type[DeclaredTable]] = ALL_DECLARED
        ) -> Registry:
            if is_postgres:
                store: RegistryStore = PostgresRegistry(database)
            elif request.param == MEMORY:
                store = without_file
            else:
                store = await SqliteRegistry.open(tmp_path)
            opened.append(await Registry.open(store, secret=secret, clock=clock, declared=declared))
            return opened[-1]

        yield opener
        for registry in opened:
            await registry.close()


@pytest.fixture
async def registry(open_registry: RegistryOpener) -> Registry:
    return await open_registry()


@asynccontextmanager
async def migrated(schema: Schema) -> AsyncIterator[Database]:
    database = schema.database()
    try:
        await migrate_schema(database)
        yield database
    finally:
        await database.close()


@pytest.fixture
async def spooled(open_spool: Opener, clock: MovedClock) -> Spooled:
    """A log and its deliveries. Records close at once."""
    opened = await open_spool()
    return Spooled(log=opened.log, deliveries=opened.deliveries, clock=clock)


@pytest.fixture
async def storage(options: StorageOptions) -> AsyncIterator[Storage]:
    storage = await engines.open_storage(options, engine=options.storage.engine)
    yield storage
    await storage.close()


@pytest.fixture
async def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledgers]:
    ledgers = Ledgers.of(request.param, request, tmp_path)
    yield ledgers
    await ledgers.close()


@pytest.fixture
def options(request: pytest.FixtureRequest, tmp_path: Path, clock: MovedClock) -> StorageOptions:
    """Options that open the whole storage of each engine. `options.storage.engine` names it."""
    if request.param in (POSTGRES, POOLED):
        storage = schemas_of(request.param, request)().settings(tmp_path)
    else:
        storage = StorageSettings(engine=request.param)
    return StorageOptions(directory=tmp_path, settings=SpoolSettings(hold=0), clock=clock, storage=storage)
