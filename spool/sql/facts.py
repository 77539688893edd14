"""Small values by name, such as the time since which unit-cost totals are complete."""

from __future__ import annotations

from collections.abc import Sequence

from spool.sql.columns import insert_sql, upsert_sql
from spool.sql.connection import SqlConnection

FACT = "SELECT value FROM {schema}.facts WHERE name = :name"
ADD_FACT = f"{insert_sql('facts', ('name', 'value'))} ON CONFLICT (name) DO NOTHING"
KEEP_FACT = upsert_sql("facts", ("name", "value"), "name")
_FORGET = "DELETE FROM {schema}.facts WHERE name IN :names"


def read_fact(connection: SqlConnection, name: str) -> bytes | None:
    row = connection.first_row(FACT, name=name)
    return row[0] if row else None


def add_fact(connection: SqlConnection, name: str, value: bytes) -> None:
    """Store a value, unless the name has one."""
    connection.run(ADD_FACT, name=name, value=value)


def store_fact(connection: SqlConnection, name: str, value: bytes) -> None:
    connection.run(KEEP_FACT, name=name, value=value)


def delete_facts(connection: SqlConnection, names: Sequence[str]) -> None:
    connection.run(_FORGET, names=names)
