"""Detects code that iterates over many ledger rows on the event loop, which blocks every request."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence

import pytest

from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow

FEW_ROWS = 300  # maximum number of rows to read on the event loop, which takes some milliseconds


class WatchedRows(list[CostRow]):
    """Rows that record the lines that iterate over them on the event loop's thread."""

    loop: threading.Thread
    readers: list[str]

    def __iter__(self) -> Iterator[CostRow]:
        if threading.current_thread() is self.loop:
            caller = sys._getframe(1)
            self.readers.append(f"{caller.f_code.co_filename}:{caller.f_lineno}")
        return super().__iter__()


def watch_rows(monkeypatch: pytest.MonkeyPatch, few: int = FEW_ROWS) -> list[str]:
    """Return a list that collects each line that iterates over more than `few` rows on this thread."""
    readers: list[str] = []
    loop = threading.current_thread()
    costs_of = Ledger.costs_of_queries

    def watched(rows: Sequence[CostRow]) -> Sequence[CostRow]:
        if len(rows) <= few:
            return rows
        found = WatchedRows(rows)
        found.loop, found.readers = loop, readers
        return found

    async def noted(ledger: Ledger, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        return list(map(watched, await costs_of(ledger, queries)))

    monkeypatch.setattr(Ledger, "costs_of_queries", noted)
    return readers
