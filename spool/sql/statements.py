"""Statements about whole rows, from the names of their columns."""

from __future__ import annotations

from collections.abc import Sequence


def select(table: str, names: Sequence[str]) -> str:
    """The statement that reads every row; a condition may follow."""
    return f"SELECT {', '.join(names)} FROM {{schema}}.{table}"


def insert(table: str, names: Sequence[str]) -> str:
    """The statement that adds a row."""
    values = ", ".join(f":{name}" for name in names)
    return f"INSERT INTO {{schema}}.{table} ({', '.join(names)}) VALUES ({values})"


def upsert(table: str, names: Sequence[str], *key: str) -> str:
    """The statement that adds a row, or replaces the one with its key."""
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    return f"{insert(table, names)} ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changed}"


def update(table: str, names: Sequence[str], *key: str) -> str:
    """The statement that writes these columns of the row with a key."""
    changed = ", ".join(f"{name} = :{name}" for name in names)
    equal = " AND ".join(f"{name} = :{name}" for name in key)
    return f"UPDATE {{schema}}.{table} SET {changed} WHERE {equal}"
