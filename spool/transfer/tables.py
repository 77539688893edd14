"""What an engine keeps as tables of plain values, as the SQLite engine has them: how one gives it to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class KeptTable:
    """Rows as they are stored. They are read while they are asked for, once."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]


class KeptTables(Protocol):
    """Everything that a storage keeps while nobody has it open."""

    secret: bytes

    def table(self, name: str) -> KeptTable:
        """A table by its name, of the registry and the ledger by `registry.NAME` and `ledger.NAME`."""
        ...
