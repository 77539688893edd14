from __future__ import annotations

import pytest

from gateway.normalise.outcome import MERGED, NOT_AI
from spool.record import Inference
from tests.gateway.normalise.otlp.items import NOW, SECOND, log, picked, point, read_logs, read_points
from tests.gateway.normalise.outcomes import usage_metrics

COMMON = {
    "conversation.id": "conv-1",
    "model": "gpt-5.1-codex",
    "user.account_id": "acct-1",
    "user.email": "a@b.c",
}
# This is the event as Codex 0.169 sends it: the event name is a source location, there is no body, and
# counts are text.
COMPLETED = COMMON | {
    "event.name": "codex.sse_event",
    "event.kind": "response.completed",
    "input_token_count": "11250",
    "output_token_count": "820",
    "cached_token_count": "9984",
    "cache_write_token_count": "0",
    "reasoning_token_count": "512",
    "tool_token_count": "12070",
    "ttft_ms": "410",
}
PLACE = "event otel/src/events/session_telemetry.rs:1153"
FAILED = COMMON | {
    "event.name": "codex.api_request",
    "attempt": "1",
    "duration_ms": "812",
    "error.message": "secret",
}


def completed(**changes: object) -> Inference:
    (record,) = read_logs(log(COMPLETED | changes, event_name=PLACE, scope="codex_otel.log_only")).records
    assert isinstance(record, Inference)
    return record


def test_counts_may_be_texts_or_integers() -> None:
    """Counts may be text or integers. Older releases mix both in one record and have no cache writes."""
    mixed = completed(output_token_count=820, reasoning_token_count=512, cache_write_token_count=None)
    assert mixed.output_tokens == 820
    assert mixed.reasoning_tokens == 512
    assert mixed.cache_write_tokens is None


def test_the_duration_of_an_sse_event_is_not_the_calls() -> None:
    """
    The duration of an SSE event is that of the last stream event, so start and end of the call are equal.
    """
    record = completed(duration_ms="3")
    assert record.start_time == NOW
    assert record.end_time == NOW


@pytest.mark.parametrize("status", ["429", 500])
def test_a_refused_attempt_is_an_error_record(status: object) -> None:
    """Retries are separate requests, each with its own status and duration."""
    (record,) = read_logs(log(FAILED | {"http.response.status_code": status})).records
    assert {"status": "error", "error_type": str(status), "input_tokens": None, "cost": None} == picked(
        record, "status", "error_type", "input_tokens", "cost"
    )
    assert NOW - 812_000_000 == record.start_time


@pytest.mark.parametrize("status", ["200", None, "399"])
def test_other_requests_are_no_calls(status: object) -> None:
    """A request that did not fail is no call, because the event of its response reports it."""
    assert {NOT_AI: 1} == read_logs(log(FAILED | {"http.response.status_code": status})).ignored


def test_one_call_resent_has_one_identity() -> None:
    """Without a response id, session, time and tokens are the dedup key."""
    other = log(COMPLETED, event_name=PLACE, time=NOW + SECOND)
    first, again, later = read_logs(log(COMPLETED, event_name=PLACE), log(COMPLETED), other).identities
    assert first == again
    assert first != later
    assert first.certain is True


@pytest.mark.parametrize("name", ["codex.conversation_starts", "codex.tool_result", "codex.user_prompt"])
def test_other_events_are_no_calls(name: str) -> None:
    """Other events of Codex are no calls, although every record of Codex names the model."""
    assert {NOT_AI: 1} == read_logs(log(COMMON | {"event.name": name, "tool_token_count": "5"})).ignored


def test_turn_counters_by_type() -> None:
    """
    Counters of a turn have their `token_type`. The type for the total repeats the other types, so it
    does not count.
    """
    types = ("input", "cached_input", "cache_write_input", "output", "reasoning_output", "total")
    outcome = read_points(
        *(point("codex.turn.token_usage", 7.0, {"model": "gpt-5.1", "token_type": kind}) for kind in types)
    )
    assert ["input", "cache_read", "cache_write", "output", "reasoning"] == [
        r.token_type for r in usage_metrics(outcome)
    ]
    assert {MERGED: 1} == outcome.ignored


def test_the_cost_counter_is_in_millionths() -> None:
    outcome = read_points(point("codex.turn.cost_microusd", 2712.5, {"model": "gpt-5.1"}))
    assert [("0.0027125", "USD", None)] == [(r.value, r.unit, r.token_type) for r in usage_metrics(outcome)]
