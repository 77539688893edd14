"""
Records of every kind, as a sender of this release reports them: `tests/faults/earlier` has what earlier
releases kept of them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from spool.identity import Identity, of_event, of_point
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.log.protocols import Log
from spool.log.values import Submission
from spool.record import (
    AI_TELEMETRY,
    NS,
    TOPICS,
    BillingDrop,
    Inference,
    Record,
    UnitCostOperation,
    UsageEvent,
    UsageMetric,
)
from tests.spool.contract.examples import NOON, add, call, entries

LIMIT_S = 60.0
DAY = datetime.fromtimestamp(NOON, UTC)


async def write(log: Log) -> None:
    """
    A call with meters, one in another currency, a shadow, a counter, a late report of a call, a usage event, an
    operation of unit cost and a billing drop; a release without other currencies is not told of that call.
    """
    without_usage: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
    rich = call(
        2, cost="0.25", cost_source="reported", team="search", region="eu", tags={"stage": "prod"},
        cache_write_tokens=30, cache_write_1h_tokens=20, meters={"web_searches": 2, "input_audio_tokens": 40},
    )  # fmt: skip
    counter = UsageMetric(
        id=of_point(b"s" * 16, NOON, NOON + 1), source="otel", name="gen_ai.client.token.usage", token_type="input",
        value=7, start_time=NOON * NS, end_time=(NOON + 1) * NS,
    )  # fmt: skip
    first: list[tuple[Record, Identity]] = [
        call(1, team="search", **without_usage),
        rich,
        call(4, shadow=True),
        (counter, Identity(counter.id)),
    ]
    if "charges" in Inference.__struct_fields__:
        first.append(call(3, charges={"EUR": "2"}, cost_source="reported"))
    await add(log, *first)
    await _closed(log)
    await add(log, call(1, source="kong", cost="0.5", cost_source="reported", meters={"web_searches": 1}))
    for record in _of_other_topics():
        told = Submission(topic=record.topic, received=1, records=[record], identities=[Identity(record.id)])
        await log.append(told)
    await _closed(log)


def _of_other_topics() -> Sequence[Record]:
    return (
        UsageEvent(id=of_event("app", "1"), source="app", event_id="1", event_type="page", data={"n": 1}),
        UnitCostOperation(
            id=b"u" * 16, stream="calls", stream_type="allocation", operation="sum", value="0.1", granularity="HOURLY",
            start_time=NOON * NS, element_name="acme", dimensions={"region": ["eu"]},
        ),
        BillingDrop(
            id=b"b" * 16, connection_id="a", month="2026-09", operation="sum", rows=1,
            body=b'{"data":[{"time/usage_start":"2026-09-21T14:20:00Z","cost/cost":"1"}]}',
        ),
    )  # fmt: skip


async def _closed(log: Log) -> None:
    """Wait until nothing is open that was written."""
    async with asyncio.timeout(LIMIT_S):
        accepted = {name: terms.get("accepted", 0) for name, terms in (await log.books()).topics.items()}
        while any(log.closed_below(topic) <= accepted.get(topic, 0) for topic in TOPICS):  # noqa: ASYNC110 - time closes them
            await asyncio.sleep(0.01)


async def kinds(log: Log) -> Counter[str]:
    """The records of each kind that are kept."""
    found = [record for topic in TOPICS for entry in await entries(log, topic) for record in entry.records]
    return Counter(record.kind for record in found if record is not None)


async def spent(ledger: Ledger, log: Log) -> CostRow:
    """The sums of all calls, once the ledger has counted them."""
    async with asyncio.timeout(LIMIT_S):
        while (ledger.needs(AI_TELEMETRY) or 0) < log.closed_below(AI_TELEMETRY):  # noqa: ASYNC110 - the ledger tells nobody
            await asyncio.sleep(0.01)
    query = CostQuery(since=DAY - timedelta(days=1), until=DAY + timedelta(days=1), granularity="total")
    [row] = await ledger.costs(query)
    return row
