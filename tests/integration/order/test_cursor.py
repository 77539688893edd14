"""Cursor reports a request, its failure and its correction as events, in any order, and counters besides."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from tests.gateway.normalise.otlp.items import NOW, SECOND
from tests.gateway.normalise.otlp.payloads import attribute
from tests.integration.order.cases import FOUND
from tests.integration.order.running import Request, Row, told_in_every_order, told_in_memory, told_on_disk

COUNTERS = FOUND["cursor/counters_delta"]


def event(body: str, number: int, *, usage_event: str = "ue-7", **said: Any) -> Request:
    attributes = {"cursor.event.id": f"a{number}", "cursor.usage_event.id": usage_event, **said}
    record = {
        "timeUnixNano": str(NOW + SECOND),
        "body": {"stringValue": body},
        "attributes": [attribute(name, value) for name, value in attributes.items()],
    }
    resource = {"attributes": [attribute("service.name", "cursor")]}
    scopes = [{"scope": {"name": "cursor.telemetry"}, "logRecords": [record]}]
    return Request(
        "otlp/logs", json.dumps({"resourceLogs": [{"resource": resource, "scopeLogs": scopes}]}).encode()
    )


def request(number: int = 1, *, model: str = "claude-sonnet-5", **said: Any) -> Request:
    tokens = {"cursor.api.request.input_tokens": 40, "cursor.api.request.output_tokens": 310}
    return event("api_request", number, **{"cursor.model.name": model, **tokens, **said})


ERROR = event("api_error", 2, **{"cursor.model.name": "claude-sonnet-5"})
CORRECTION = event("api_correction_not_billed_errored", 3)


def only_in_every_order(*requests: Request) -> Row:
    """
    Return the only record, after checking that every order gives it, with each request sent twice and
    stops in between.
    """
    found = []
    for rows, conflicts in told_in_every_order(requests):
        (row,) = rows
        assert 0 == conflicts
        found.append({name: row[name] for name in row if name != "id"})
    assert all(row == found[0] for row in found)
    return found[0]


def test_a_failure_is_that_of_its_request() -> None:
    """
    A request and its failure are one call, because both name the same usage event. The tokens that were used stay.
    """
    row = only_in_every_order(request(), ERROR)
    assert row["request_id"] == "a1"
    assert row["status"] == "error"
    assert row["input_tokens"] == 40
    assert row["output_tokens"] == 310
    assert row["cost"] is None


def test_correction_of_an_open_record_removes_its_cost() -> None:
    """
    If a correction arrives while the record is open, it removes the cost. It does not change the status that other
    events reported.
    """
    row = only_in_every_order(request(), CORRECTION)
    assert row["status"] == "ok"
    assert row["input_tokens"] == 40
    assert row["cost"] == "0"
    assert row["cost_source"] == "reported"
    assert "error" == only_in_every_order(request(), CORRECTION, ERROR)["status"]


def test_a_later_correction_is_no_call_of_its_own() -> None:
    """
    If a correction arrives after the record was closed, the record stays. A correction record takes back the
    estimated cost once.
    """
    rows, _ = told_in_memory([request(), CORRECTION, CORRECTION], pauses=[60])
    correction, record = sorted(rows, key=lambda row: row["kind"])
    assert record["input_tokens"] == 40
    assert record["cost"] is None
    assert correction["reason"] == "not_billed"
    assert correction["cost"] == f"-{record['estimated_cost']}"
    assert correction["input_tokens"] == 0


def test_a_correction_holds_whatever_the_request_says() -> None:
    """A correction also takes back a cost that Cursor stated in the request, whichever of the two arrives first."""
    cost: dict[str, Any] = {"gen_ai.usage.cost": 0.5}
    costly = request(**cost)
    for told in ([costly, CORRECTION], [CORRECTION, costly]):
        rows, conflicts = told_in_memory(told, pauses=[60])
        assert f"{sum((Decimal(row['cost'] or 0) for row in rows), Decimal(0)):.0f}" == "0"
        assert conflicts == 0


@pytest.mark.parametrize(("first", "status", "cost"), [(ERROR, "error", None), (CORRECTION, "ok", "0")])
def test_late_request_still_adds_its_tokens(first: Request, status: str, cost: str | None) -> None:
    """
    If a failure or correction was stored without counts before its request, it still applies when the request
    arrives late and brings the tokens. This works as long as it is among the newest ids. A stop makes ids older.
    """
    told = [first, request(), request(), first]
    for rows, conflicts in (told_in_memory(told, pauses=[60]), told_on_disk(told, [True] * 3, [60, 0, 0])):
        (late,) = [row for row in rows if row["input_tokens"] is not None]
        assert len(rows) == 2
        assert conflicts == 0
        assert late["request_id"] == "a1"
        assert late["input_tokens"] == 40
        assert late["output_tokens"] == 310
    rows, _ = told_in_memory(told, pauses=[60])
    assert [(status, cost)] == [
        (row["status"], row["cost"]) for row in rows if row["input_tokens"] is not None
    ]


def test_a_request_is_known_for_as_long_as_cursor_repeats_it() -> None:
    """Cursor repeats unaccepted logs for seven days, so a repeat within that time is recognized."""
    rows, _ = told_in_memory([request(), request(), request()], pauses=[86_400, 5.9 * 86_400])
    assert [40] == [row["input_tokens"] for row in rows]


def test_requests_of_two_usage_events_are_two() -> None:
    """Each usage event has its own id, even if everything else is equal."""
    rows, _ = told_in_memory([request(1), request(4, usage_event="ue-8"), request(1)])
    assert [40, 40] == [row["input_tokens"] for row in rows]


def test_counters_never_count_in_addition_to_events() -> None:
    """
    Cursor's counters are always kept for reference: hours before the events, after them, and without them.
    """
    counters = [COUNTERS.request([piece]) for piece in COUNTERS.pieces]
    for told in ([*counters, request()], [request(), *counters], counters):
        rows, _ = told_in_memory(told, pauses=[7200])
        metrics = [row for row in rows if row["kind"] == "usage_metric"]
        assert 5 == len(metrics)
        assert all(row["shadow"] for row in metrics)


def test_a_group_of_models_has_no_price() -> None:
    """In Auto mode, Cursor chooses a model and does not name it, so the call has no price."""
    ((row,), _) = told_in_memory([request(model="Auto")])
    assert row["request_model"] == "Auto"
    assert row["estimated_cost"] is None
    assert row["cost"] is None
