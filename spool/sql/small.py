"""
Small tables that every engine stores alike. Each is declared next to its protocol and opened on demand.

A table held in memory, or stored differently by an engine, is a field of `Storage` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SmallTable(Generic[Rows]):
    """
    A small table's name in error messages (`words`), and the `spool.sql` module and class that
    implement it (`kept_by`).
    """

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """The small tables of one storage. `over` gives transactions with these words in their errors."""

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def of(self, table: SmallTable[Rows]) -> Rows:
        """Return the table for this storage. Each of its methods has its own transaction."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
