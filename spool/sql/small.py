"""
Small tables, declared next to their protocols and opened on demand.

Tables in memory, or stored differently, are fields of `Storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SmallTable(Generic[Rows]):
    """`words`: name in errors. `kept_by`: module of `spool.sql`, and class."""

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """`over` returns transactions whose errors have a table's words."""

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def open_table(self, table: SmallTable[Rows]) -> Rows:
        """Each method has its own transaction."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
