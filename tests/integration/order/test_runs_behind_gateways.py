"""A gateway reports a call of an agent's run again and does not know the run. The call counts once, in its run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from tests.gateway.normalise.otlp.payloads import span, traces
from tests.integration.order.running import HOLD_S, Request, records_of
from tests.integration.order.test_claude_code_behind_litellm import of_litellm
from tests.rounds import part
from tests.spool.contract.examples import NOON
from tests.spool.digests import as_shown
from tests.spool.ledger.engines import MEMORY, Ledgers
from tests.spool.ledger_log import FakeClock, FakeLog

A, B = (f"{number:08x}-0000-4000-8000-000000000000" for number in (1, 2))
CALL_ID = "7596bc95-42a8-4fd2-a00f-256df48f3c91"
EVER: Any = {"since": datetime(2020, 1, 1, tzinfo=UTC), "until": datetime(2030, 1, 1, tzinfo=UTC)}
LATE = HOLD_S + 1.0


def of_run(number: int, run: str, parent: str | None, cost: float) -> dict[str, Any]:
    """Return the span of a call that a run made."""
    said: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-sonnet-4-5",
        "gen_ai.response.id": f"msg_{number}",
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cost": cost,
        "anthropic.request.id": f"req_011CSHoEeqs5C35K2UUqR7F{number}",
        "session.id": "s",
        "tollhouse.run": run,
    }
    return span(number, said | ({"tollhouse.parent_run": parent} if parent else {}))


def request(*spans: dict[str, Any]) -> Request:
    return Request("otlp/traces", json.dumps(traces(*spans, scope="com.anthropic.sdk.python")).encode())


SPAN_OF_A, SPAN_OF_B = of_run(1, A, None, 0.02), of_run(2, B, A, 0.03)
AGAIN = of_litellm(
    id=CALL_ID,
    litellm_call_id=CALL_ID,
    session="",
    response_cost=0.03,
    hidden_params={"additional_headers": {"request-id": "req_011CSHoEeqs5C35K2UUqR7F2"}},
)


async def told(requests: Sequence[Request], pause: float, directory: Path) -> tuple[Any, ...]:
    """Return calls and cost by run, aggregated cost by run, and the calls in all."""
    directory.mkdir()
    records = await records_of(requests, directory, pause=pause)
    ledger, log = await Ledgers(MEMORY, directory, None).open(clock=FakeClock(NOON)), FakeLog()
    log.add(records, at=NOON)
    await ledger.catch_up(log)
    by_run = CostQuery(**EVER, granularity=TOTAL, group_by=("run",))
    own, aggregated, total = await ledger.costs_of_queries(
        [by_run, replace(by_run, aggregated=True), replace(by_run, group_by=())]
    )
    await ledger.close()
    return (
        {row.group[0]: (row.calls, Decimal(row.cost)) for row in own},
        {row.group[0]: Decimal(row.cost) for row in aggregated},
        [row.calls for row in total],
    )


@pytest.mark.parametrize("pause", part([0.0, LATE], every=2), ids=["in time", "late"])
@pytest.mark.parametrize("is_together", [True, False], ids=["together", "apart"])
async def test_the_run_of_a_call_stays(is_together: bool, pause: float, tmp_path: Path) -> None:
    """
    In any order, with restarts, and also if an earlier report was already closed, there are 2 calls, and the call
    of run B stays in run B.
    """
    apart = (request(SPAN_OF_A), request(SPAN_OF_B), AGAIN)
    requests = (request(SPAN_OF_A, SPAN_OF_B), AGAIN) if is_together else apart
    a, b = as_shown("run", A), as_shown("run", B)
    for number, order in enumerate(permutations(requests)):
        own, aggregated, total = await told(order, pause, tmp_path / str(number))
        assert {a: (1, Decimal("0.02")), b: (1, Decimal("0.03"))} == own
        assert {a: Decimal("0.05"), b: Decimal("0.03")} == aggregated
        assert total == [2]
