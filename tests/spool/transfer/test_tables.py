"""Every table and column of an engine is copied. These tests find one that a copy forgets."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from spool.errors import NotAllowed
from spool.postgres.address import open_database
from spool.postgres.database import PostgresConnection
from spool.postgres.migrations import VERSION, migrate_schema
from spool.postgres.transfer.tables import OF_NODES, fetch_in_steps, tables_opener, tables_to_copy
from spool.sql import facts
from spool.sqlite.recovery import empty_database
from spool.sqlite.transfer import COUNTED, PREPARE, TABLES
from spool.transfer.tables import BYTES_AT_ONCE, portable_table_name
from tests.spool.postgres_cluster import Schema, first_state
from tests.spool.transfer.places import Places


async def test_every_table_of_a_schema_is_copied(new_schema: Callable[[], Schema], tmp_path: Path) -> None:
    """
    Exceptions are tables of running nodes and tables that every copy creates again. Partitions are copied
    with their table.
    """
    schema = new_schema()
    database = open_database(schema.settings(tmp_path))
    await migrate_schema(database)
    found = await database.read(partial(tables_to_copy, database))
    await database.close()
    made, _ = first_state(schema.name)
    assert made - {"commits_1", "entries_1", "amendments_1"} == {*found.values(), *OF_NODES}


@pytest.mark.parametrize("file", PREPARE)
async def test_a_schema_gives_every_table_of_a_file(file: str, places: Places) -> None:
    """A schema provides every column that a table of the file must have."""
    options = places.options["postgres"]
    assert options.storage.secret_file is not None
    options.storage.secret_file.write_bytes(b"s" * 32)
    database = open_database(options.storage)
    await migrate_schema(database)
    await database.close()
    with closing(
        empty_database() if not file else sqlite3.connect(":memory:", isolation_level=None)
    ) as fresh:
        if file:
            PREPARE[file](fresh)
        needed = {
            name: {
                column
                for column, needs, default in fresh.execute(
                    'SELECT name, "notnull" OR pk, dflt_value IS NOT NULL FROM pragma_table_info(?)', (name,)
                )
                if needs and not default
            }
            for name, _ in fresh.execute(TABLES).fetchall()
            if name not in COUNTED
        }
    opened = await tables_opener(options)
    with opened() as given:
        for name, columns in needed.items():
            assert set() == columns - set(given.table(portable_table_name(file, name)).columns), name


async def test_a_schema_of_a_later_release_is_no_source(places: Places) -> None:
    options = places.options["postgres"]
    database = open_database(options.storage)
    await migrate_schema(database)
    later = str(VERSION + 1).encode()
    await database.run(
        lambda on: facts.store_fact(PostgresConnection(on, database.fill_in_table_names), "version", later)
    )
    await database.close()
    with pytest.raises(NotAllowed, match=f"has version {VERSION + 1}"):
        await tables_opener(options)


class Rows:
    """A cursor over rows that notes how many bytes it returned at once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = list(sizes)
        self.given: list[int] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def fetchmany(self, most: int) -> list[tuple[bytes, int]]:
        sizes, self._sizes = self._sizes[:most], self._sizes[most:]
        self.given.append(sum(sizes))
        return [(bytes(size), size) for size in sizes]


def test_large_rows_are_fetched_a_few_at_a_time() -> None:
    """After a large row, few rows are fetched at a time. Small rows need few round trips."""
    small = Rows([100] * 10_000)
    assert 10_000 == len(list(fetch_in_steps(small)))
    assert len(small.given) < 60
    large = Rows([100] * 4 + [1 << 20] + [100] * 3 + [1 << 20] * 40)
    assert 48 == len(list(fetch_in_steps(large)))
    assert max(large.given) <= BYTES_AT_ONCE
