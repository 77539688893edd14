"""The ledger without a disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from spool.ledger.ledger_rows import LedgerRows
from spool.memory.tables import MemoryTables
from spool.sqlite.ledger.ledger_rows import SqliteLedgerRows, prepare

T = TypeVar("T")


class MemoryLedger:
    """See `spool.ledger.ledger_rows.LedgerStore`."""

    shares_log = False

    def __init__(self) -> None:
        self._tables = MemoryTables(prepare)

    async def change(self, work: Callable[[LedgerRows], T]) -> T:
        return self._tables.change(lambda _: work(self._rows()))

    async def read(self, work: Callable[[LedgerRows], T]) -> T:
        return work(self._rows())

    async def close(self) -> None:
        """Do nothing: the counted sums stay for the next opening."""

    def _rows(self) -> LedgerRows:
        return SqliteLedgerRows(self._tables.connection)
