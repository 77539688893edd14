"""
Small tables, declared next to their protocols and opened on demand.

Tables that are in memory or stored differently are fields of `Storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SmallTable(Generic[Rows]):
    """A small table. `words`: its name in errors. `kept_by`: module of `spool.sql`, and class."""

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """The small tables. `over` returns transactions of which the errors name a table by its words."""

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def open_table(self, table: SmallTable[Rows]) -> Rows:
        """Return a table. Each of its methods has its own transaction."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
