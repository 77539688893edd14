"""The work that an engine needs for queries, as a number that does not depend on the load of the machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from spool.ledger.ledger import Ledger
from spool.ledger.ledger_rows import LedgerRows
from spool.postgres.ledger import PostgresLedgerRows
from spool.sqlite.ledger import SqliteLedgerRows

STEP = 10  # instructions of SQLite's machine between two counts
TUPLES = """
    SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables
    WHERE schemaname = current_schema() OR relname LIKE 'ledger%%'"""


async def work_of(ledger: Ledger, ask: Callable[[], Awaitable[Any]]) -> int:
    """Return the instructions or rows that an engine needs for a query."""
    count = 0
    read = ledger._store.read

    async def counted(work: Callable[[LedgerRows], Any]) -> Any:
        def within(ledger_rows: LedgerRows) -> Any:
            nonlocal count
            if isinstance(ledger_rows, PostgresLedgerRows):
                [before] = ledger_rows._connection.execute(TUPLES).fetchone() or (0,)
                found = work(ledger_rows)
                [after] = ledger_rows._connection.execute(TUPLES).fetchone() or (0,)
                count += int((after or 0) - (before or 0))
                return found
            assert isinstance(ledger_rows, SqliteLedgerRows)

            def step() -> int:
                nonlocal count
                count += 1
                return 0

            ledger_rows._connection.set_progress_handler(step, STEP)
            try:
                return work(ledger_rows)
            finally:
                ledger_rows._connection.set_progress_handler(None, 0)

        return await read(within)

    ledger._store.read = counted  # type: ignore[method-assign]
    try:
        await ask()
    finally:
        ledger._store.read = read  # type: ignore[method-assign]
    return count
