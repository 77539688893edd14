"""
An index finds each page of a long list, so a page of a million rows costs the same as one of a thousand.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from spool.listing import ASCENDING, DESCENDING, ListQuery, Position, SortField
from spool.sql.lists import read_page
from spool.sqlite.directory import SPOOL
from spool.sqlite.migrations import migrate, read_migration_statements


class Planned:
    """A connection that asks SQLite for the query plan and returns no rows."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.plan = ""

    def all(self, statement: str, /, **values: object) -> list[tuple[Any, ...]]:
        text = statement.replace("{schema}.", "")
        found = self._connection.execute(f"EXPLAIN QUERY PLAN {text}", values)
        self.plan = "; ".join(row[-1] for row in found)
        return []

    def first_row(self, statement: str, /, **values: object) -> tuple[int, int]:
        return 0, 0


@pytest.mark.parametrize("order", [ASCENDING, DESCENDING])
@pytest.mark.parametrize("position", [None, Position(value=5.0, identity="a")])
def test_a_page_of_container_files_is_found_by_its_order(order: str, position: Position | None) -> None:
    """
    A page of container files is read in the order of an index: SQLite sorts nothing and reads only the rows
    of the page.
    """
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, read_migration_statements(SPOOL))
        planned: Any = Planned(connection)
        sort = SortField("announced_at")
        query = ListQuery(sort=sort, order=order, identity="id", limit=100, position=position)
        read_page(planned, "container_files", ("id", "cluster"), query, tuple)
    assert "INDEX container_files_order" in planned.plan
    assert "TEMP B-TREE" not in planned.plan
