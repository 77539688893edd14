"""The fields that decide who may see a record equal the values under which the ledger counts it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.operations.records.published import KeptRecord
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.periods import named_span
from spool.ledger.queries import CostQuery
from spool.record import NS, Correction, Record, UsageMetric
from spool.sqlite.in_memory import new_in_memory_ledger
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call

COUNTER: dict[str, Any] = {
    "id": b"\1" * 16, "source": "claude_code", "name": "claude_code.cost.usage", "value": "2", "model": "m",
    "start_time": BEGIN * NS, "team": "t" * 300, "tags": {"service": "s", "other": "o"},
}  # fmt: skip


@pytest.mark.parametrize(
    "record",
    [
        call(
            team="t" * 300,
            user="\ud800",
            response_model="answered",
            tags={"service": "s", "other": "o"},
            region="eu",
        ),
        call(provider=None, status="error", cost=None, estimated_cost=None, cost_source="none"),
        UsageMetric(**COUNTER, unit="USD"),
        UsageMetric(**{**COUNTER, "value": 5, "name": "claude_code.token.usage"}, token_type="input"),
        Correction(
            id=b"c" * 16,
            source="kong",
            corrects=b"",
            reason="late_usage",
            known_at=1,
            start_time=BEGIN * NS,
            before=call(team="t", sender_key="k"),
            after=call(team="t", sender_key="k", output_tokens=11),
        ),
    ],
    ids=["a call", "one that failed", "a counter of money", "a counter of tokens", "a correction"],
)
async def test_a_record_has_the_values_that_it_is_counted_under(record: Record) -> None:
    """
    A record has the values under which the ledger counts it, in every dimension. This includes shortened
    values and values that a counter does not state.
    """
    log, clock = FakeLog(), FakeClock(BEGIN + 3600)
    log.add([record])
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    await ledger.catch_up(log)
    since, until = named_span("last_7d", clock.now())
    known = ledger.dimensions()
    [row] = await ledger.costs(CostQuery(since=since, until=until, granularity=TOTAL, group_by=known))
    kept = KeptRecord("ai-telemetry", 1, BEGIN, False, record)
    assert {name: value or "" for name, value in zip(known, row.group, strict=True)} == {
        name: kept.dimension_value_in_totals(name) for name in known
    }
