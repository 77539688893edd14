"""The records of a log at the end of a plan, and the totals of a ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, record_to_json
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.integration.order.running import Row
from tests.spool.contract.examples import assert_books_balance, everything

# The records, and the ledger's number of calls, input tokens and output tokens.
Judged = tuple[list[Row], tuple[int, int, int]]
ALL = (datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC))


async def judge(record_log: RecordLog, clock: Any) -> Judged:
    """Return the records and totals. All records of the log must be closed."""
    await assert_books_balance(record_log)
    rows = [record_to_json(record) for record in await everything(record_log) if record is not None]
    assert record_log.lowest_open_number(AI_TELEMETRY) == record_log.next_number(AI_TELEMETRY)
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    await ledger.catch_up(record_log)
    (sums,) = await ledger.costs(CostQuery(since=ALL[0], until=ALL[1], granularity="total", group_by=()))
    return rows, (sums.calls, sums.input_tokens, sums.output_tokens)
