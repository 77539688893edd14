"""Gemini CLI and its descendant Qwen Code: events and counters."""

from __future__ import annotations

from collections.abc import Mapping
from time import process_time
from typing import Any

import pytest

from gateway.normalise.otlp.model import LogRecord
from gateway.normalise.outcome import IMPLAUSIBLE, MERGED, NOT_AI
from spool.identity import dedup_key_of_parts
from spool.record import Inference
from tests.gateway.normalise.otlp.items import NOW, SECOND, log, picked, point, read_logs, read_points
from tests.gateway.normalise.outcomes import usage_metrics
from tests.rounds import reduced

DETAILS = "gen_ai.client.inference.operation.details"
STAMP = "2026-03-02T09:00:00.000Z"
WHO = {
    "session.id": "session-1",
    "installation.id": "inst-1",
    "user.email": "a@b.c",
    "auth_type": "gemini-api-key",
}
RESPONSE = WHO | {
    "event.name": "gemini_cli.api_response",
    "event.timestamp": STAMP,
    "model": "gemini-2.5-pro",
    "duration_ms": 2000,
    "input_token_count": 1700,
    "output_token_count": 50,
    "cached_content_token_count": 1000,
    "thoughts_token_count": 500,
    "tool_token_count": 20,
    "total_token_count": 2270,
    "status_code": 200,
}
TWIN = WHO | {
    "event.name": DETAILS,
    "event.timestamp": STAMP,
    "gen_ai.operation.name": "generate_content",
    "gen_ai.provider.name": "gcp.vertex_ai",
    "gen_ai.request.model": "gemini-2.5-pro",
    "gen_ai.response.model": "gemini-2.5-pro-002",
    "gen_ai.response.id": "resp-0123456789abcdef",
    "gen_ai.usage.input_tokens": 1700,
    "gen_ai.usage.output_tokens": 50,
}
START = WHO | {
    "event.name": DETAILS,
    "event.timestamp": STAMP,
    "gen_ai.operation.name": "generate_content",
    "gen_ai.provider.name": "gcp.vertex_ai",
    "gen_ai.request.model": "gemini-2.5-pro",
}


def gemini(attributes: Mapping[str, Any], *, time: int = NOW) -> LogRecord:
    return log(dict(attributes), scope="gemini-cli", resource={"service.name": "gemini-cli"}, time=time)


def call(*records: LogRecord) -> Inference:
    (record,) = read_logs(*records).records
    assert isinstance(record, Inference)
    return record


def test_twins_a_millisecond_apart_are_one_call() -> None:
    """
    Two records of one call a millisecond apart are one call. In version 0.61.0, both have the same
    event.timestamp but different record times.
    """
    outcome = read_logs(gemini(RESPONSE), gemini(TWIN, time=NOW + 1_000_000))
    assert len(outcome.records) == 1
    assert outcome.ignored == {MERGED: 1}
    assert {
        "request_id": "resp-0123456789abcdef",
        "provider": "gcp.vertex_ai",
        "request_model": "gemini-2.5-pro",
        "response_model": "gemini-2.5-pro-002",
        "operation": "generate_content",
        "input_tokens": 1720,
        "output_tokens": 550,
        "cache_read_tokens": 1000,
        "reasoning_tokens": 500,
        "start_time": NOW - 2 * SECOND,
    } == picked(
        outcome.records[0], "request_id", "provider", "request_model", "response_model", "operation", "input_tokens",
        "output_tokens", "cache_read_tokens", "reasoning_tokens", "start_time",
    )  # fmt: skip
    assert dedup_key_of_parts(2, "resp-0123456789abcdef") == outcome.records[0].id


def test_the_twin_may_come_first() -> None:
    """The two records of a call may arrive in either order."""
    assert call(gemini(RESPONSE), gemini(TWIN)) == call(gemini(TWIN), gemini(RESPONSE))


def test_the_record_of_a_start_is_no_call_and_no_twin() -> None:
    """
    Version 0.61.0 also writes an operation.details record when a request starts. This record is neither a
    call nor the second record of one.
    """
    outcome = read_logs(gemini(START), gemini(RESPONSE), gemini(TWIN))
    assert len(outcome.records) == 1
    assert outcome.ignored == {NOT_AI: 1, MERGED: 1}
    assert "resp-0123456789abcdef" == getattr(outcome.records[0], "request_id", None)


@pytest.mark.parametrize(
    "other",
    [{"event.timestamp": "2026-03-02T09:00:00.001Z"}, {"model": "gemini-2.5-flash"}, {"session.id": "s-2"}],
)
def test_another_call_is_no_twin(other: dict[str, str]) -> None:
    """
    Two records belong to one call only if timestamp, model and session are equal, because a collector mixes
    the laptops of a site.
    """
    assert None is call(gemini(RESPONSE | other), gemini(TWIN)).request_id


def test_a_twin_that_names_no_session_is_one_all_the_same() -> None:
    """
    A second record without a session still belongs to its call, if timestamp and model match. The session
    only separates laptops.
    """
    nameless = {name: value for name, value in TWIN.items() if name != "session.id"}
    assert "resp-0123456789abcdef" == call(gemini(RESPONSE), gemini(nameless)).request_id


def test_two_calls_of_one_instant_get_a_twin_each() -> None:
    """
    If two parallel calls end in the same millisecond, each gets one of the second records, so they do not
    share an id.
    """
    second = TWIN | {"gen_ai.response.id": "resp-fedcba9876543210"}
    outcome = read_logs(gemini(RESPONSE), gemini(RESPONSE), gemini(TWIN), gemini(second))
    assert 2 == len({identity.id for identity in outcome.identities})


def test_many_calls_of_one_instant_find_their_twins_at_once() -> None:
    """
    If a collector drops the timestamps, many calls of a day look equal, and only sessions distinguish them.
    Their second records are still found in one pass.
    """
    count = reduced(8_000, by=4)
    calls = [gemini(RESPONSE | {"event.timestamp": "", "session.id": f"s-{n}"}) for n in range(count)]
    others = [gemini(TWIN | {"event.timestamp": "", "session.id": f"other-{n}"}) for n in range(count)]
    started = process_time()
    read_logs(*calls)
    alone_s = process_time() - started
    started = process_time()
    outcome = read_logs(*others, *calls)
    assert process_time() - started < 10 * alone_s + 1
    assert len(outcome.records) == count
    assert outcome.ignored == {MERGED: count}
    assert {None} == {getattr(record, "request_id", None) for record in outcome.records}


def test_call_without_a_session_uses_any_matching_second_record() -> None:
    """A call without a session gets any matching second record. The remaining ones go to the next calls."""
    nameless = {name: value for name, value in RESPONSE.items() if name != "session.id"}
    second = TWIN | {"gen_ai.response.id": "resp-fedcba9876543210", "session.id": "s-2"}
    outcome = read_logs(gemini(TWIN), gemini(second), gemini(nameless), gemini(nameless), gemini(nameless))
    assert ["resp-0123456789abcdef", "resp-fedcba9876543210", None] == [
        getattr(record, "request_id", None) for record in outcome.records
    ]


def test_a_twin_alone_never_counts() -> None:
    """
    A second record without its call gives no record, because its call was in an earlier request and
    would count twice.
    """
    assert {MERGED: 1} == read_logs(gemini(TWIN)).ignored


@pytest.mark.parametrize(
    ("auth", "provider"),
    [("vertex-ai", "gcp.vertex_ai"), ("oauth-personal", "gcp.vertex_ai"), ("gemini-api-key", "gcp.gen_ai")],
)
def test_login_gives_the_provider_without_a_second_record(auth: str, provider: str) -> None:
    """
    Without a second record, the type of login gives the provider. Vertex and the personal login both
    use Google Cloud.
    """
    assert provider == call(gemini(RESPONSE | {"auth_type": auth})).provider


def test_error_gets_no_response_model_from_its_second_record() -> None:
    """
    An error gets only provider and id from its second record, not the response model, because no model answered.
    """
    error = WHO | {
        "event.name": "gemini_cli.api_error",
        "event.timestamp": STAMP,
        "model": "gemini-2.5-pro",
        "error": "quota of 50 exceeded",
        "error.type": "TerminalQuotaError",
        "status_code": 429,
        "duration_ms": 150,
    }
    record = call(gemini(error), gemini(TWIN))
    assert record.status == "error"
    assert record.error_type == "TerminalQuotaError"
    assert record.provider == "gcp.vertex_ai"
    assert record.response_model is None
    assert record.input_tokens is None


def test_a_bad_call_among_twins_is_rejected_alone() -> None:
    """
    A bad call among such pairs is rejected without affecting the others. The accounting also balances for
    items that wait until the end.
    """
    outcome = read_logs(gemini(RESPONSE | {"output_token_count": -5}), gemini(TWIN), gemini(RESPONSE))
    assert [reject.reason for reject in outcome.rejects] == [IMPLAUSIBLE]
    assert len(outcome.records) == 1


@pytest.mark.parametrize(
    "name", ["gemini_cli.chat_compression", "gemini_cli.api_request", "gemini_cli.tool_call"]
)
def test_other_events_are_no_calls(name: str) -> None:
    """
    Other events of Gemini CLI are no calls. For example, compression events state the tokens before and after.
    """
    assert {NOT_AI: 1} == read_logs(
        gemini(WHO | {"event.name": name, "tokens_before": 9, "model": "m"})
    ).ignored


def test_the_counters_twin_and_derived_figures_are_ignored() -> None:
    """
    Counters that repeat others are ignored: `gen_ai.client.token.usage` of the same scope repeats the tokens,
    and efficiency is a ratio.
    """
    attributes = {"gen_ai.token.type": "input", "gen_ai.request.model": "gemini-2.5-pro"}
    outcome = read_points(
        point("gen_ai.client.token.usage", 1700.0, attributes, scope="gemini-cli"),
        point("gemini_cli.token.efficiency", 0.4, {"model": "gemini-2.5-pro"}, scope="gemini-cli"),
    )
    assert outcome.ignored == {MERGED: 2}
    assert outcome.records == []


QWEN = {
    "event.name": "qwen-code.api_response",
    "session.id": "session-2",
    "installation.id": "inst-2",
    "model": "qwen3-coder-plus",
    "response_id": "chatcmpl-7f3a52d0b1c94e6f8a",
    "duration_ms": 1500,
    "input_token_count": 900,
    "output_token_count": 120,
    "cached_content_token_count": 600,
    "thoughts_token_count": 40,
    "total_token_count": 1020,
    "request_text": "the prompt",
    "response_text": "the answer",
}


def test_qwens_call_is_known_by_its_response() -> None:
    """A call of Qwen Code is identified by its response id, which a gateway in front of it also reports."""
    assert dedup_key_of_parts(2, "chatcmpl-7f3a52d0b1c94e6f8a") == call(log(QWEN, scope="qwen-code")).id


def test_qwens_total_shows_thoughts_outside() -> None:
    """
    Qwen's total shows whether the output excludes thinking tokens. A back end like Gemini counts them separately.
    """
    assert 160 == call(log(QWEN | {"total_token_count": 1060}, scope="qwen-code")).output_tokens


def test_a_qwen_error_is_an_error_record() -> None:
    """
    A Qwen error is an error record. If the model's name identifies a provider, the record has that provider.
    """
    attributes = {
        "event.name": "qwen-code.api_error", "model": "gpt-4.1", "status_code": 401, "session.id": "s",
    }  # fmt: skip
    record = call(log(attributes, scope="qwen-code"))
    assert record.status == "error"
    assert record.error_type == "401"
    assert record.provider == "openai"


def test_qwens_counter() -> None:
    """Qwen Code's counter has Gemini CLI's token types, but its output includes thinking tokens."""
    kinds = ("input", "output", "thought", "cache")
    outcome = read_points(
        *(point("qwen-code.token.usage", 5, {"type": kind, "model": "qwen3"}) for kind in kinds)
    )
    assert [("qwen_code", kind) for kind in ("input", "output", "reasoning", "cache_read")] == [
        (r.source, r.token_type) for r in usage_metrics(outcome)
    ]
