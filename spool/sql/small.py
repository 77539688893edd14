"""
Small tables that every engine stores in the same way. Each is declared next to its protocol and opened on demand.

If a table is held in memory, or engines store it differently, it is a field of `Storage` instead.
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
    A small table. `words` is its name in error messages. `kept_by` is the `spool.sql` module and the class
    that implement it.
    """

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """
    The small tables of one storage. `over` is called with a table's words, and returns transactions whose
    errors use these words.
    """

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def open_table(self, table: SmallTable[Rows]) -> Rows:
        """Return the table of this storage. Each method of the table has its own transaction."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
