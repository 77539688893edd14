"""The insight of lost calls in a whole server where `privacy.min_group` hides the costs of few people."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

from gateway.operations.money.insights import make_insight_updater
from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from tests.integration.conftest import Serve, Serving
from tests.waiting import until

BEAT = "/v1/ai-control-plane/heartbeat"


def text(name: str, value: str) -> dict[str, object]:
    return {"key": name, "value": {"stringValue": value}}


async def insight_of_losses(serving: Serving) -> str:
    await make_insight_updater(serving.app.services.operators).find_and_store_insights()
    registry = serving.app.services.storage.registry
    assert registry is not None
    found = await registry.insights.detector_insights()
    return next(each.description for each in found if str(each.finding).startswith("fleet_losing"))


async def test_the_insight_of_losses_hides_costs_of_small_groups(serve: Serve) -> None:
    """The numbers of calls and people stay, and the estimate returns when groups may be small again."""
    serving = await serve()
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT, INGEST))
    today = datetime.now(UTC).date()
    days = {(today - timedelta(days=1)).isoformat(): [30, 0, 0], today.isoformat(): [30, 4, 1]}
    claude = {"state": "reporting", "use": "losing", "slots": days}
    body = {"device_id": "laptop", "user": "ada", "assistants": {"claude-code": claude}}
    assert 200 == (await serving.send(BEAT, json.dumps(body).encode(), key=key)).status
    facts = {"event.name": "api_request", "model": "claude-opus-4-1", "cost_usd": "2.60", "request_id": "r1"}
    names = {**facts, "input_tokens": "10", "output_tokens": "5", "duration_ms": "1"}
    entry = {"timeUnixNano": str(time.time_ns()), "attributes": [text(*each) for each in names.items()]}
    resource = {"attributes": [text("service.name", "claude-code"), text("device.id", "laptop")]}
    logs = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [entry]}]}]}
    sent = await serving.send("/v1/logs", json.dumps(logs).encode(), key=key, content_type="application/json")
    assert 200 == sent.status, sent.body
    losses = serving.app.services.operators.senders.require_losses()

    async def are_stored() -> bool:
        return (await losses.losses_of_last_days()).calls == 1

    await until(are_stored, "the days of the laptop")
    storage = serving.app.services.storage
    await storage.ledger.catch_up(storage.log)
    losses._rates = None  # they are kept for ten minutes
    registry = storage.registry
    assert registry is not None
    numbers = "At least 1 call of 1 person is missing in the last 7 days"
    assert f"{numbers}, about $0.40." in await insight_of_losses(serving)
    registry.set_min_group_size(3)
    assert f"{numbers}." in await insight_of_losses(serving)
    assert "$" not in await insight_of_losses(serving)
    registry.set_min_group_size(0)
    assert "about $0.40." in await insight_of_losses(serving)
