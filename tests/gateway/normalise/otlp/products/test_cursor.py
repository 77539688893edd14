"""Cursor's export: its calls and counters, and content that is never stored."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import NOT_AI, ReadOptions
from spool.record import Inference, UsageMetric
from tests.gateway.normalise.otlp.items import log, point, read_logs, read_points

CURSOR = {
    "service.name": "cursor",
    "cursor.user.id": 99,
    "cursor.surface": "cli",
    "cursor.entrypoint": "sdk_py",
}
USAGE = {
    "cursor.api.request.input_tokens": 40, "cursor.api.request.output_tokens": 310,
    "cursor.api.request.cache_read_tokens": 18_000, "cursor.api.request.cache_creation_tokens": 900,
}  # fmt: skip
REQUEST = {
    "cursor.event.id": "a1",
    "cursor.usage_event.id": "ue-7",
    "cursor.model.name": "claude-sonnet-5",
    **USAGE,
}


def only(attributes: dict[str, Any], **how: Any) -> Inference:
    outcome = read_logs(log(attributes, resource=CURSOR, scope="cursor.telemetry", **how))
    (record,) = outcome.records
    assert isinstance(record, Inference)
    return record


@pytest.mark.parametrize(
    "how",
    [
        {"event_name": "cursor.api.request"},
        {"body": "api_request"},
        {"body": "api_request", "event_name": "cursor.api.request"},
    ],
)
def test_request_is_a_call_wherever_its_name_is_stated(how: dict[str, str]) -> None:
    """A request is a call wherever its name is stated. The stated input excludes cached tokens."""
    record = only(REQUEST, **how)
    assert record.request_id == "a1"
    assert record.input_tokens == 18_940
    assert record.output_tokens == 310
    assert record.cache_read_tokens == 18_000
    assert record.cache_write_tokens == 900
    assert record.user == "99"
    assert record.tags == {"service": "cursor", "surface": "cli", "entrypoint": "sdk_py"}


@pytest.mark.parametrize(
    ("body", "more", "cost", "status"),
    [
        ("api_request", {"cursor.api.billable": False}, "0", "ok"),
        ("api_request", {"cursor.api.billable": True}, None, "ok"),
        ("api_error", {}, None, "error"),
        (
            "api_correction_not_billed_errored",
            {"cursor.api.correction.kind": "not_billed_errored"},
            "0",
            "ok",
        ),
    ],
)
def test_what_is_not_billed_costs_nothing(
    body: str, more: dict[str, Any], cost: str | None, status: str
) -> None:
    """A request that Cursor does not bill costs nothing. A later correction may make a whole request free."""
    record = only({**REQUEST, **more}, body=body)
    assert record.cost == cost
    assert record.status == status


@pytest.mark.parametrize("model", ["Auto", "Thinking", "Pro", "Premium"])
def test_a_group_of_models_has_no_provider(model: str) -> None:
    """
    If a request names a group of models, it has no provider, because the export does not name the
    model that answered.
    """
    assert None is only({**REQUEST, "cursor.model.name": model}, body="api_request").provider


def test_content_is_never_stored() -> None:
    """If a team opts in, the export contains conversations. Tollhouse never stores them."""
    planted = {
        "cursor.conversation.message": "PLANTED",
        "cursor.conversation.title": "PLANTED",
        "prompt": "PLANTED",
    }
    events = [
        log(
            {"event.name": f"cursor.{name}", "cursor.event.id": "a9", **planted},
            resource=CURSOR,
            body="PLANTED",
        )
        for name in ("conversation.message", "hook.execution_complete", "grok_bot.turn", "cloud_agent.setup")
    ]
    outcome = read_logs(
        *events, log({"event.name": "cursor.api.request", **REQUEST, **planted}, resource=CURSOR)
    )
    assert {NOT_AI: 4} == dict(outcome.ignored)
    assert "PLANTED" not in str((outcome.records, outcome.unrecognised, outcome.rejects))


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize(("counted", "shadow"), [((), True), (("cursor",), False), (("claude_code",), True)])
def test_counters_repeat_the_events_unless_it_is_said(
    counted: tuple[str, ...], shadow: bool, cumulative: bool
) -> None:
    """
    Cursor's counters count as repeats unless a setting says otherwise. They name no call, and events may
    arrive days later, so the order does not show whether calls are reported.
    """
    points = [
        point(
            "cursor.token.usage", 5, {"cursor.token.type": "input"}, resource=CURSOR, cumulative=cumulative
        ),
        point("cursor.cost.usage", 0.5, {"cursor.model.name": "m"}, resource=CURSOR, cumulative=cumulative),
    ]
    outcome = read_points(*points, options=ReadOptions(counted=frozenset(counted)))
    found = [one for one in outcome.records if isinstance(one, UsageMetric)]
    found += [one.template for one in outcome.points]
    assert [(shadow, "input_uncached", None), (shadow, None, "m")] == [
        (one.shadow, one.token_type, one.model) for one in found
    ]
