"""
Small tables, declared next to their protocols and opened when needed.

Tables in memory, or stored in another way, are fields of `Storage`.
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
    The declaration of a small table. `words`: its name in errors. `kept_by`: module below `spool.sql`, and
    class in it, that reads and writes the table.
    """

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """
    Opens tables declared as `SmallTable`. `over`: returns an object that runs transactions. Errors contain
    the table's `words`.
    """

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def open_table(self, table: SmallTable[Rows]) -> Rows:
        """Return a table's object. Each of its methods runs in a transaction of its own."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
