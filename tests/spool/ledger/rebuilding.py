"""A rebuild that never ends, for tests of what happens meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spool.errors import TotalsIncomplete
from spool.ledger.ledger import Ledger
from spool.ledger.sums import END_OF_TIME


async def set_rebuild_end(ledger: Ledger, record_number: int) -> None:
    await ledger._change_rows(lambda rows: rows.set_state(rebuilding=record_number, rebuilding_from=1))


@asynccontextmanager
async def rebuild_without_end(ledger: Ledger) -> AsyncIterator[None]:
    """Let a rebuild run that needs records which do not exist."""
    await set_rebuild_end(ledger, END_OF_TIME)
    try:
        yield
    finally:
        await set_rebuild_end(ledger, 0)


async def are_totals_complete(ledger: Ledger) -> bool:
    try:
        ledger.require_caught_up()
        await ledger._read_totals(lambda _: None)
    except TotalsIncomplete:
        return False
    return True
