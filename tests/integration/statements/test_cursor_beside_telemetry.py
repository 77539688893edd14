"""
Cursor reports each request three times: by events, by counters and by its Admin API. Each request counts
once, and Cursor's sales are not compared with another seller's bill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.statements.importing import ReportFile, read_reports
from spool import money
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.registry.operators import Actor
from spool.statements import DAY_S, day_start
from tests.gateway.normalise.otlp.payloads import attribute
from tests.integration.conftest import Serve, Serving

ADA = Actor("ada@example.com", "command")
MODEL = "claude-sonnet-5"
DAY = day_start(int(time.time())) - 5 * DAY_S
TOKENS = {"input": 40, "output": 310, "cache_read": 18000, "cache_creation": 900}
FEE = Decimal("0.48125")  # Cursor's fee in cents


def attributes(**said: Any) -> list[dict[str, Any]]:
    return [attribute(name.replace("__", "."), value) for name, value in said.items()]


def payload(signal: str, items: str, *given: Mapping[str, Any]) -> bytes:
    scope = {"scope": {"name": "cursor.telemetry"}, items: list(given)}
    resource = {"attributes": attributes(service__name="cursor")}
    return json.dumps({f"resource{signal}": [{"resource": resource, f"scope{signal}": [scope]}]}).encode()


def request_event(number: int) -> Mapping[str, Any]:
    tokens = {f"cursor.api.request.{kind}_tokens": count for kind, count in TOKENS.items()}
    said = {
        "cursor.event.id": f"e{number}",
        "cursor.usage_event.id": f"u{number}",
        "cursor.model.name": MODEL,
    }
    return {
        "timeUnixNano": str((DAY + 3600 + number) * 10**9),
        "body": {"stringValue": "api_request"},
        "attributes": attributes(**said, **tokens),
    }


def counters(requests: int) -> list[Mapping[str, Any]]:
    points = [
        {
            "timeUnixNano": str((DAY + 3660) * 10**9),
            "asInt": str(count * requests),
            "attributes": attributes(cursor__model__name=MODEL, cursor__token__type=kind),
        }
        for kind, count in TOKENS.items()
    ]
    cost = {
        "timeUnixNano": str((DAY + 3660) * 10**9),
        "asDouble": 0.02,
        "attributes": attributes(cursor__model__name=MODEL),
    }
    delta = {"aggregationTemporality": 1, "isMonotonic": True}
    return [
        {"name": "cursor.token.usage", "unit": "{token}", "sum": {**delta, "dataPoints": points}},
        {"name": "cursor.cost.usage", "unit": "USD", "sum": {**delta, "dataPoints": [cost]}},
    ]


def usage_events(requests: int, cents: Decimal) -> bytes:
    names = {"input": "inputTokens", "output": "outputTokens", "cache_read": "cacheReadTokens",
             "cache_creation": "cacheWriteTokens"}  # fmt: skip
    tokens = {names[kind]: count for kind, count in TOKENS.items()}
    events = [
        {
            "timestamp": str((DAY + 3600 + number) * 1000), "model": MODEL, "kind": "Usage-based",
            "isChargeable": True, "chargedCents": float(cents + FEE), "cursorTokenFee": float(FEE),
            "tokenUsage": {**tokens, "totalCents": float(cents)}, "userEmail": "ada@example.com",
        }
        for number in range(requests)
    ]  # fmt: skip
    return json.dumps({"usageEvents": events, "pagination": {"hasNextPage": False}}).encode()


def anthropic_costs(dollars: Decimal) -> bytes:
    edges = {f"{name}_at": f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"
             for name, at in (("starting", DAY), ("ending", DAY + DAY_S))}  # fmt: skip
    result = {"amount": f"{dollars * 100}", "currency": "USD", "cost_type": "tokens", "model": MODEL,
              "token_type": "output_tokens"}  # fmt: skip
    return json.dumps({"data": [{**edges, "results": [result]}], "has_more": False}).encode()


async def put(serving: Serving, content: bytes) -> None:
    file = ReportFile(name="report.json", content=content, read_at=time.time())
    registry = serving.app.services.storage.registry
    assert registry is not None
    for report in read_reports([file], source=None, account=None, max_unpacked_bytes=100):
        assert report.statement is not None
        await registry.statements.import_statement(report.statement, actor=ADA)


async def compared(serving: Serving) -> dict[str, Reconciliation]:
    reconciler = serving.app.services.operators.money.require_reconciler()
    return {each.provider: each for each in (await reconciler.reconcile(CalendarMonth.at(DAY))).providers}


async def cost_by_source(serving: Serving) -> dict[str, tuple[int, Decimal]]:
    storage = serving.app.services.storage
    await storage.ledger.catch_up(storage.log)
    since, until = (datetime.fromtimestamp(at, UTC) for at in (DAY, DAY + DAY_S))
    query = CostQuery(since=since, until=until, granularity=TOTAL, group_by=("source",))
    return {str(row.group[0]): (row.calls, Decimal(row.cost)) for row in await storage.ledger.costs(query)}


async def test_each_request_counts_once(serve: Serve) -> None:
    """
    Two requests are reported by events, counters and the bill, next to a call that Anthropic billed. Cursor's
    fee is the only difference, and it has no tokens.
    """
    serving = await serve()
    events = payload("Logs", "logRecords", *(request_event(number) for number in range(2)))
    assert 200 == (await serving.send("/v1/metrics", payload("Metrics", "metrics", *counters(2)))).status
    assert 200 == (await serving.send("/v1/logs", events)).status
    own = {"id": "msg_own_1", "model": MODEL, "custom_llm_provider": "anthropic", "startTime": DAY + 7200,
           "endTime": DAY + 7201, "prompt_tokens": 0, "completion_tokens": 1000, "status": "success"}  # fmt: skip
    assert 200 == (await serving.send("/v1/ai-telemetry/litellm", json.dumps(own).encode())).status

    before = await cost_by_source(serving)
    (cursor_calls, cursor_cost), (own_calls, own_cost) = before["cursor"], before["litellm"]
    assert cursor_calls == 2
    assert own_calls == 1
    # the cost per request in cents: each of the two requests has half of the cost
    await put(serving, usage_events(2, cursor_cost * 50))
    await put(serving, anthropic_costs(own_cost))
    assert before == await cost_by_source(serving)

    found = await compared(serving)
    assert {"anthropic", "cursor"} == set(found)
    assert found["anthropic"].total.difference == 0
    assert found["anthropic"].claims == []
    cursor = found["cursor"].total
    assert (2 * sum(TOKENS.values()),) * 3 == (
        cursor.billed_tokens, cursor.counted_tokens, cursor.captured_tokens,
    )  # fmt: skip
    assert cursor.billed_calls == 2
    assert cursor.counted_calls == 2
    assert [("not_tokens", 2 * FEE / 100)] == [
        (claim.cause, Decimal(money.units_to_text(claim.amount))) for claim in found["cursor"].claims
    ]
    assert 0 == cursor.unexplained
