"""
The small tables that every engine keeps alike: each is named next to its protocol and opened when it is asked for.

A table that processes hold in memory, or that an engine keeps otherwise, has a field of `Storage` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

Rows = TypeVar("Rows")


@dataclass(frozen=True)
class SmallTable(Generic[Rows]):
    """`words` name what it keeps in an error; `kept_by` is the module of `spool.sql` and the class there."""

    words: str
    kept_by: tuple[str, str]


class SmallTables:
    """`over` gives transactions whose errors have such words."""

    def __init__(self, over: Callable[[str], object]) -> None:
        self._over = over

    def of(self, table: SmallTable[Rows]) -> Rows:
        """Return the table over this storage: it is read and written through transactions of its own."""
        module, name = table.kept_by
        opened: Callable[[Any], object] = getattr(import_module(f"spool.sql.{module}"), name)
        return cast("Rows", opened(self._over(table.words)))
