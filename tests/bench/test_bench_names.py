"""
Cost of linked names of people: bytes on disk and in memory, time per span, and time of a link beside many others.

`TOLLHOUSE_PROOFS=1` links a million names; the default is a small round.
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.engines import POSTGRES, SQLITE
from spool.people import MAX_REMEMBERED, People, hash_address_with_key
from spool.postgres.database import Database
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryStore
from spool.registry.tables.persons import LinkedPerson, ReportedForms
from spool.sqlite.registry import SqliteRegistry
from tests.rounds import IS_LONG
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

pytestmark = pytest.mark.bench

NAMES = 1_000_000 if IS_LONG else 20_000
BATCH = 5000
CALLS = 20_000
BYTES_ON_DISK, BYTES_IN_MEMORY = 190, 28  # limits in bytes for one more name: on disk and in memory
EMPTY_BYTES = 1 << 20  # size in bytes of a table without names
MOST_RATIO = (
    20  # limit of the time of a link beside all names, as a multiple of the time beside few; measured: 1 to 2
)
ROOT = Actor("root", "local")
BELOW = b"b" * 32  # the key of a laptop, under which its calls arrive


def address(number: int) -> str:
    return f"person-{number}@example.com"


def names_of(people: People, number: int) -> tuple[str, ...]:
    return people.recorded_name_or_hash(address(number)), hash_address_with_key(BELOW, address(number))


@pytest.fixture(params=[SQLITE, POSTGRES])
async def database(request: pytest.FixtureRequest) -> AsyncIterator[Database | None]:
    if request.param == SQLITE:
        yield None
        return
    schema: Schema = request.getfixturevalue("new_schema")()
    async with migrated(schema) as database:
        yield database


async def opened(database: Database | None, directory: Path) -> Registry:
    store: RegistryStore = (
        await SqliteRegistry.open(directory) if database is None else PostgresRegistry(database)
    )
    return await Registry.open(store, secret=b"s" * 32, clock=SystemClock())


async def disk_bytes(database: Database | None, directory: Path) -> int:
    if database is None:
        return sum(path.stat().st_size for path in directory.iterdir())
    statement = database.fill_in_table_names("SELECT pg_total_relation_size('{schema}.documents')")
    [(size,)] = await database.control.read(lambda connection: connection.execute(statement).fetchall())
    return int(size)


async def link_ms(registry: Registry, first: int) -> float:
    """Return the median processor time of linking the names of one new person, in milliseconds."""
    times = []
    for number in range(first, first + 9):
        name, *hashes = names_of(registry.people, number)
        began = time.process_time()
        assert 0 == await registry.persons.link_address_forms(
            [ReportedForms(name, hashes)], sender="laptop", max_names=2 * NAMES, max_conflicts=9, actor=ROOT
        )
        times.append(1000 * (time.process_time() - began))
    return statistics.median(times)


async def test_a_million_names(database: Database | None, tmp_path: Path) -> None:
    registry = await opened(database, tmp_path)
    empty_bytes = await disk_bytes(database, tmp_path)
    few_ms = await link_ms(registry, NAMES)
    for begin in range(0, NAMES // 2, BATCH):
        numbers = range(begin, min(begin + BATCH, NAMES // 2))
        people = [LinkedPerson(names=names_of(registry.people, number)) for number in numbers]
        await registry.persons.link_names(people, max_names=2 * NAMES, actor=ROOT)
    many_ms = await link_ms(registry, 2 * NAMES)
    await registry.close()
    disk = (await disk_bytes(database, tmp_path) - empty_bytes) / NAMES
    gc.collect()
    tracemalloc.start()
    registry = await opened(database, tmp_path)
    gc.collect()
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    everybody = len(list(registry.people.persons.links))
    print(
        f"{NAMES} names: {disk:.0f} bytes a name on disk, {memory / NAMES:.1f} in memory; "
        f"a link {many_ms:.2f} ms, beside few names {few_ms:.2f} ms"
    )
    await registry.close()
    assert NAMES // 2 + 18 == everybody
    assert memory < EMPTY_BYTES + NAMES * BYTES_IN_MEMORY
    assert disk < BYTES_ON_DISK
    assert many_ms < MOST_RATIO * few_ms


def test_a_known_name() -> None:
    """The time per span is similar for addresses of people with frequent calls and of people who never recur."""
    people = People.for_installation(b"s" * 32)
    people.replace_links(names_of(people, number) for number in range(NAMES // 2))

    def span_us(addresses: list[str]) -> float:
        rounds = []
        for _ in range(5):
            began = time.thread_time()
            for each in addresses:
                people.text_for_record(each, 1)
            rounds.append(1e6 * (time.thread_time() - began) / len(addresses))
        return min(rounds)

    known = span_us([address(number % 1000) for number in range(CALLS)])
    new = span_us([address(number) for number in range(4 * MAX_REMEMBERED)])
    print(f"a known name {known:.2f} us a span, a name that never recurs {new:.2f} us")
    assert known < new
