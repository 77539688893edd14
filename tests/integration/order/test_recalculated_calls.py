"""A recalculation between the reports of calls. The calls cost as much as if it had come last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.prices import PriceOverride
from gateway.intake.prices import PriceBook
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.record import Correction, Inference, Record
from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import HOLD_S, Request, records_of
from tests.rounds import part
from tests.spool.contract.examples import NOON
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import MEMORY, Ledgers
from tests.spool.ledger_log import FakeClock, FakeLog

RUN = "00000001-0000-4000-8000-000000000000"
EVER: Any = {"since": datetime(2020, 1, 1, tzinfo=UTC), "until": datetime(2030, 1, 1, tzinfo=UTC)}
CALLS = 10
# a model that no list has, at 2.00 a call of 1,000 tokens
BOOK = PriceBook.load().with_override(
    PriceOverride(model="own-model", input=Decimal(2000), output=Decimal(0))
)


def spans_of(*, cached: int | None = None, run: str = "") -> Request:
    """Return the spans of all calls, as one of their reporters sends them."""
    said = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "own-model",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        **({} if cached is None else {"gen_ai.usage.cache_read.input_tokens": cached}),
        **({"tollhouse.run": run} if run else {}),
    }
    spans = [span(number, {**said, "gen_ai.response.id": f"msg_{number}"}) for number in range(1, CALLS + 1)]
    return Request("otlp/traces", json.dumps(traces(*spans)).encode())


LATE_TOKENS = (spans_of(), spans_of(cached=50))
LATE_RUN = (spans_of(), spans_of(run=RUN))


async def records_closed(requests: Sequence[Request], directory: Path) -> list[Record]:
    records = await records_of(requests, directory, pause=HOLD_S + 1.0)
    for record in records:
        if isinstance(record, Correction):
            assert record.corrects_number is not None
            assert record.corrects == records[record.corrects_number - 1].id  # record numbers begin at 1
    return records


@pytest.mark.parametrize("rebuilds", part([False, True], every=2))
@pytest.mark.parametrize("has_price", [False, True])
@pytest.mark.parametrize("requests", [LATE_TOKENS, LATE_RUN], ids=["late tokens", "late run"])
async def test_late_reports_after_a_recalculation(
    requests: Sequence[Request], has_price: bool, rebuilds: bool, tmp_path: Path
) -> None:
    """
    Each call costs 2.00 once, in the run that a later report states. `has_price` is whether the price was also set for
    new reports.
    """
    records = await records_closed(requests, tmp_path)
    early = [record for record in records if isinstance(record, Inference)]
    assert [CALLS] * 2 == [len(early), len(records) - len(early)]
    ledger, log = await Ledgers(MEMORY, tmp_path, None).open(clock=FakeClock(NOON)), FakeLog()
    log.add(early, at=NOON)
    await ledger.catch_up(log)
    repriced = await ledger.reprice(log, BOOK, since=EVER["since"])
    assert repriced.after == "20"
    late = records[CALLS:]
    for record in late:
        assert isinstance(record, Correction)
        if has_price:
            BOOK.price_record(record.after)
    log.add(late, at=NOON)
    await ledger.catch_up(log)
    if rebuilds:
        await ledger.rebuild(log)
        await ledger.catch_up(log)
    by = CostQuery(**EVER, granularity=TOTAL, group_by=("run", "cost_source"))
    rows = {
        row.group: (row.calls, Decimal(row.cost))
        for row in await ledger.costs(by)
        if row.calls or row.cost != "0"
    }
    run = as_shown("run", RUN) if requests is LATE_RUN else None
    assert {(run, "estimated"): (CALLS, Decimal(20))} == rows
    await ledger.close()
