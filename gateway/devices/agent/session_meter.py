"""The cost of one session on this machine: the totals, and the records that are still open."""

from __future__ import annotations

from datetime import timedelta

from spool import money
from spool.errors import TotalsIncomplete
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, next_full_hour
from spool.ledger.sums import AHEAD_S
from spool.ledger.verdicts import counted_amounts
from spool.ledger.work import SESSION
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, Correction, Inference, Record, UsageMetric

LOOK_BACK = timedelta(days=90)


async def sum_session_cost(session: str, ledger: Ledger, record_log: RecordLog, now: float) -> int | None:
    """
    Return the cost of a session in money units, including records that may still change. Return None while
    the totals are counted again.
    """
    until = next_full_hour(now) + timedelta(seconds=AHEAD_S)
    query = CostQuery(
        since=(until - LOOK_BACK).replace(hour=0),
        until=until,
        granularity=TOTAL,
        include={SESSION: (ledger.digests.digest_of_id(SESSION, session),)},
        measures=("cost",),
    )
    while True:
        closed_below = record_log.lowest_open_number(AI_TELEMETRY)
        try:
            await ledger.require_complete_totals(record_log)
            rows = await ledger.costs(query)
        except TotalsIncomplete:
            return None
        last = record_log.next_number(AI_TELEMETRY) - 1
        entries = await record_log.read(AI_TELEMETRY, closed_below, last, includes_open_records=True)
        # records closed meanwhile would be in both sums or in neither, so repeat
        if record_log.lowest_open_number(AI_TELEMETRY) == closed_below:
            closed = sum(money.text_to_units(row.cost) for row in rows)
            records = (record for entry in entries for record in entry.records if record is not None)
            return closed + sum(_cost_if_of_session(record, session) for record in records)


def _cost_if_of_session(record: Record, session: str) -> int:
    if isinstance(record, Correction):
        # only the later report named the session, so its whole cost counts
        if record.before.session != session:
            return _cost_if_of_session(record.after, session)
        return counted_amounts(record).spend or 0
    if not isinstance(record, Inference | UsageMetric) or record.session != session:
        return 0
    return counted_amounts(record).spend or 0
