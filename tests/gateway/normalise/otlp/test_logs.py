"""
Log records in general: the event of the conventions, records that are not calls, and properties of any input.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.outcome import IMPLAUSIBLE, NOT_AI, UNRECOGNISED_AI, ReadOptions
from spool.identity import dedup_key_of_parts
from spool.record import Inference
from tests.gateway.normalise.otlp.items import NOW, log, picked, read_logs

DETAILS = "gen_ai.client.inference.operation.details"
TRACE, SPAN = "ab" * 16, "cd" * 8
CALL = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-4o",
    "gen_ai.response.model": "gpt-4o-2024-11-20",
    "gen_ai.response.id": "chatcmpl-9J3uIL87gldCFtiIbyaOvTeYBRA3l",
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 64,
}


def details(changes: dict[str, Any] | None = None, **how: Any) -> Inference:
    attributes = {name: value for name, value in (CALL | (changes or {})).items() if value is not None}
    (record,) = read_logs(log(attributes, **({"event_name": DETAILS} | how))).records
    assert isinstance(record, Inference)
    return record


def test_the_event_of_the_conventions_is_a_call() -> None:
    """
    The log event of the conventions is a call. It repeats the span of the call, so both have the response id
    as dedup key.
    """
    record = details(trace_id=TRACE, span_id=SPAN)
    assert {
        "source": "otel", "provider": "openai", "operation": "chat", "request_model": "gpt-4o",
        "response_model": "gpt-4o-2024-11-20", "input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 64,
        "trace_id": TRACE, "start_time": NOW, "end_time": NOW, "status": "ok",
    } == picked(
        record, "source", "provider", "operation", "request_model", "response_model", "input_tokens", "output_tokens",
        "cache_read_tokens", "trace_id", "start_time", "end_time", "status",
    )  # fmt: skip
    assert dedup_key_of_parts(2, CALL["gen_ai.response.id"]) == record.id


def test_without_a_response_id_the_span_is_the_identity() -> None:
    """
    Without a response id, the span's ids are the dedup key. This holds only for this event, because other
    events have the ids of an enclosing span.
    """
    assert (
        dedup_key_of_parts(4, TRACE, SPAN)
        == details({"gen_ai.response.id": None}, trace_id=TRACE, span_id=SPAN).id
    )


def test_without_any_id_a_record_is_never_a_duplicate() -> None:
    """Two events without any id are two records, and the accounting counts them as unidentified."""
    nameless = {name: value for name, value in CALL.items() if name != "gen_ai.response.id"}
    first, second = read_logs(*(log(nameless, event_name=DETAILS),) * 2).identities
    assert first.certain is False
    assert second.certain is False
    assert first.id != second.id


@pytest.mark.parametrize("how", [{"event_name": DETAILS}, {"event_name": "", "body": DETAILS}])
def test_event_name_is_read_from_field_or_body(how: dict[str, Any]) -> None:
    """The event's name is in the field eventName, or in the body for senders before OTLP 1.5."""
    assert details() == details(**how)


def test_the_attribute_names_the_event_before_the_field() -> None:
    """The attribute `event.name` has priority over the field, because the sender's own code wrote it."""
    named = {"event.name": DETAILS}
    assert details().input_tokens == details(named, event_name="event src/lib.rs:3").input_tokens


@pytest.mark.parametrize(
    ("operation", "canonical"),
    [
        ("embeddings", "embeddings"),
        ("generate_content", "generate_content"),
        (None, "chat"),
        ("acompletion", "chat"),
    ],
)
def test_operations(operation: str | None, canonical: str) -> None:
    """The operation of an event has its canonical name. An event without an operation is a chat."""
    assert canonical == details({"gen_ai.operation.name": operation}).operation


@pytest.mark.parametrize("operation", ["invoke_agent", "execute_tool", "create_agent", "plan", "retrieval"])
def test_events_of_other_operations_are_no_calls(operation: str) -> None:
    """Events of other operations are no calls. For example, an agent's event sums up the calls below it."""
    attributes = CALL | {"gen_ai.operation.name": operation}
    assert {NOT_AI: 1} == read_logs(log(attributes, event_name=DETAILS)).ignored


def test_an_event_without_operation_needs_a_model_and_usage() -> None:
    """
    An event without an operation is a call only with a model and usage, because a log record with only a
    model may be any text about a model.
    """
    assert {NOT_AI: 1} == read_logs(log({"gen_ai.request.model": "gpt-4o"}, event_name=DETAILS)).ignored


def test_a_failed_call_is_an_error_record() -> None:
    """`error.type` marks and names the error."""
    record = details({"error.type": "RateLimitError", "gen_ai.usage.input_tokens": None})
    assert record.status == "error"
    assert record.error_type == "RateLimitError"
    assert record.input_tokens is None


@pytest.mark.parametrize("reasons", [["error"], ["error", "error"], '["error"]', "error"])
def test_an_answer_that_ended_in_error_alone_is_a_failure(reasons: Any) -> None:
    """
    An answer whose only reason is an error is a failed call. If one reason is good, there is an answer. The
    same rule holds for spans.
    """
    unanswered = {
        "gen_ai.response.finish_reasons": reasons,
        "gen_ai.response.id": None,
        "gen_ai.usage.output_tokens": None,
    }
    record = details(unanswered)
    assert record.status == "error"
    assert record.error_type == "_OTHER"
    assert "ok" == details({**unanswered, "gen_ai.response.finish_reasons": ["error", "stop"]}).status
    assert "ok" == details({"gen_ai.response.finish_reasons": reasons}).status


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gen_ai.usage.cost": 0.0}, None),
        ({"gen_ai.usage.cost": 0.0, "error.type": "500"}, "0"),
        ({"gen_ai.usage.cost": 0.0, "gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 0,
          "gen_ai.usage.cache_read.input_tokens": None}, "0"),
        ({"gen_ai.usage.cost": 0.5}, "0.5"),
    ],
)  # fmt: skip
def test_a_cost_of_zero_is_unknown_where_its_sender_knows_no_price(
    changes: dict[str, Any], expected: str
) -> None:
    """
    OpenLIT writes 0 for a model without a price, in events and in spans. For other senders, 0 is a cost.
    """
    assert expected == details(changes, resource={"telemetry.sdk.name": "openlit"}).cost
    assert "0" == details({"gen_ai.usage.cost": 0.0}).cost


@pytest.mark.parametrize(
    ("total", "expected"),
    [(1280, (1200, 80)), (1295, (1200, 95)), (1165, (1070, 95)), (999, (1200, 95)), (None, (1200, 95))],
)
def test_a_total_decides_between_two_sets_of_counts(total: int | None, expected: tuple[int, int]) -> None:
    """
    An event may state its sums under old and new names. If the total matches neither, the new names count.
    """
    record = details({
        "gen_ai.usage.input_tokens": 1200, "gen_ai.usage.prompt_tokens": 1070,
        "gen_ai.usage.output_tokens": 95, "gen_ai.usage.completion_tokens": 80,
        "gen_ai.usage.cache_read.input_tokens": 64, "gen_ai.usage.total_tokens": total,
    })  # fmt: skip
    assert expected == (record.input_tokens, record.output_tokens)


def test_copilot_chat_is_githubs_unless_it_says_otherwise() -> None:
    """
    Copilot Chat's provider is GitHub, unless the event names another one because the user has their own key.
    """
    copilot = {
        "scope": "copilot-chat",
        "resource": {"service.name": "copilot-chat", "session.id": "window-1"},
    }
    records = [
        details({"gen_ai.provider.name": None, "gen_ai.conversation.id": "chat-1"}, **copilot),
        details({"gen_ai.provider.name": "anthropic"}, **copilot),
    ]
    assert [("copilot_chat", "github", "chat-1"), ("copilot_chat", "anthropic", "window-1")] == [
        (record.source, record.provider, record.session) for record in records
    ]


def test_openlit_passes_anthropics_input_on_without_the_cache() -> None:
    """
    OpenLIT passes on Anthropic's and Bedrock's input, which excludes the cache, in its events as in its spans.
    """
    openlit = {"resource": {"telemetry.sdk.name": "openlit"}}
    assert [164, 100] == [
        details({"gen_ai.provider.name": provider}, **openlit).input_tokens
        for provider in ("anthropic", "openai")
    ]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gen_ai.usage.cache_read.input_tokens": 300}, 400),
        ({"gen_ai.usage.cache_read.input_tokens": 300, "gen_ai.usage.total_tokens": 420}, 400),
        ({"gen_ai.usage.total_tokens": 120}, 100),
        ({"gen_ai.usage.total_tokens": 184}, 164),
    ],
)
def test_the_input_holds_the_cache(changes: dict[str, int], expected: int) -> None:
    """The input includes the cache, unless a total, or a cache above the input, shows that it does not."""
    assert expected == details(changes).input_tokens


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.choice", "gen_ai.evaluation.result",
        "copilot_chat.agent.turn", "copilot_chat.session.start",
    ],
)  # fmt: skip
def test_messages_choices_evaluations_and_turns_are_no_calls(name: str) -> None:
    """
    Messages, choices, evaluations and turns are no calls. For example, a turn of an agent repeats the tokens
    of its calls.
    """
    assert {NOT_AI: 1} == read_logs(log(CALL, event_name=name)).ignored


def test_a_plain_log_line_is_no_call() -> None:
    """A plain log line, without a word about models or tokens, is ignored."""
    line = log({"http.route": "/login", "auth.method": "password", "log.iostream": "stdout"}, body="started")
    assert (outcome := read_logs(line)).ignored == {NOT_AI: 1}
    assert outcome.unrecognised == []


def test_what_looks_like_ai_is_shown_by_its_names_alone() -> None:
    """The operator sees the names of an unread record and never a value."""
    outcome = read_logs(
        log({"llm.model_name": "canary", "output_tokens": 5, "user": "canary"}, body="my_llm_event")
    )
    assert {UNRECOGNISED_AI: 1} == outcome.ignored
    assert [("llm.model_name", "output_tokens", "user")] == outcome.unrecognised


def test_a_rejection_names_the_place_and_no_value() -> None:
    """The message of a rejection names the place of the record, so that the sender finds it, and no value."""
    outcome = read_logs(
        log(CALL, event_name=DETAILS), log(CALL | {"gen_ai.usage.output_tokens": -77}, body=DETAILS)
    )
    assert [(1, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert "log record 1" in outcome.rejects[0].message
    assert "77" not in outcome.rejects[0].message


def test_a_record_without_a_time_has_none() -> None:
    """A record without a time stays without one. The time of receipt is never used as the time of a call."""
    record = details(time=None)
    assert record.start_time is None
    assert record.end_time is None


@pytest.mark.parametrize("duration", [-5, "nan", "soon", 1e300, None, 10**30])
def test_an_impossible_duration_leaves_start_and_end_one(duration: object) -> None:
    """
    If a duration is impossible, start and end are equal, because a start before 1970 would be worse than
    an unknown one.
    """
    record = details({"duration_ms": duration})
    assert record.start_time == NOW
    assert record.end_time == NOW


def test_explain_names_attributes_without_their_values() -> None:
    """`explain` names attributes, never their values."""
    outcome = read_logs(log(CALL, event_name=DETAILS), options=ReadOptions(explain=True))
    assert outcome.why is not None
    assert {
        "source": f"read from event {DETAILS}", "request_model": "gen_ai.request.model",
        "input_tokens": "gen_ai.usage.input_tokens", "cache_read_tokens": "gen_ai.usage.cache_read.input_tokens",
    }.items() <= outcome.why[0].items()  # fmt: skip


def test_why_says_when_a_part_was_added() -> None:
    """If a part was added to the attribute's value, the reason says so."""
    outcome = read_logs(
        log(CALL | {"gen_ai.usage.total_tokens": 184}, body=DETAILS), options=ReadOptions(explain=True)
    )
    assert outcome.why is not None
    assert outcome.why[0]["input_tokens"].startswith("gen_ai.usage.input_tokens + cache")
    assert "gen_ai.usage.output_tokens" == outcome.why[0]["output_tokens"]


def test_attributes_of_the_operators_choice_become_tags() -> None:
    """
    Attributes that `privacy.keep_attributes` names become tags. Values above a limit are dropped and counted.
    """
    options = ReadOptions(keep_attributes=frozenset({"build.number", "build.text"}))
    outcome = read_logs(
        log(CALL | {"build.number": 7, "build.text": "x" * 300}, body=DETAILS), options=options
    )
    assert getattr(outcome.records[0], "tags", None) == {"build.number": "7"}
    assert outcome.left_out == 1


def test_people_are_no_tags() -> None:
    """Names, addresses and ids of people in free metadata are dropped. Other metadata is kept."""
    metadata = '{"user_name": "Ada", "email": "ada@b.example", "userId": "u-1", "tier": "gold", "seats": 3}'
    record = details(
        {"metadata": metadata, "ai.telemetry.metadata.userName": "Ada", "user.email": "ada@b.example"}
    )
    assert {"tier": "gold", "seats": "3"} == record.tags


NAMES = st.sampled_from([
    DETAILS, "claude_code.api_request", "claude_code.api_error", "codex.sse_event", "codex.api_request",
    "gemini_cli.api_response", "gemini_cli.api_error", "qwen-code.api_response", "task.conversation_turn", "other",
])  # fmt: skip
ATTRIBUTES = st.sampled_from([
    "event.name", "event.kind", "event.timestamp", "event.sequence", "model", "provider", "request_id", "duration_ms",
    "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens", "cost_usd", "cost_usd_micros",
    "input_token_count", "output_token_count", "cached_token_count", "reasoning_token_count", "thoughts_token_count",
    "tool_token_count", "total_token_count", "cached_content_token_count", "tokensIn", "tokensOut", "cacheReadTokens",
    "totalCost", "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.id", "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens", "gen_ai.usage.cost", "error.type", "status_code", "http.response.status_code",
    "session.id", "user.id", "metadata", "tag.tags", "auth_type",
])  # fmt: skip
VALUES = st.one_of(
    st.integers(-5, 2000), st.integers(), st.floats(), st.booleans(), st.text(max_size=12), st.just("undefined"),
    st.just("response.completed"), st.just("chat"), st.sampled_from(["12", "1e3", "-3", "1.5", "NaN", "1e999"]),
    st.lists(st.text(max_size=3), max_size=2), st.just('{"tier": ["gold"]}'),
)  # fmt: skip
RECORDS = st.builds(
    lambda name, attributes, scope, time: log(
        attributes, event_name=name, scope=scope, time=time, resource={"service.name": "cline"}
    ),
    NAMES,
    st.dictionaries(ATTRIBUTES, VALUES, max_size=14),
    st.sampled_from(["", "gemini-cli", "copilot-chat", "com.anthropic.claude_code.events"]),
    st.one_of(st.none(), st.integers(1, NOW)),
)


@given(st.lists(RECORDS, max_size=6))
def test_any_record_is_accounted_without_negative_or_reversed_values(records: list[Any]) -> None:
    """
    For any record: no exception, balanced accounting (checked while reading), no negative count, and no start
    after the end.
    """
    for record in read_logs(*records).records:
        assert isinstance(record, Inference)
        counts = (record.input_tokens, record.output_tokens, record.cache_read_tokens, record.cache_write_tokens,
                  record.reasoning_tokens)  # fmt: skip
        assert all(count is None or (type(count) is int and count >= 0) for count in counts)
        assert record.cost is None or (not record.cost.startswith("-") and "e" not in record.cost.lower())
        assert (
            record.start_time is None or record.end_time is None or 0 <= record.start_time <= record.end_time
        )
        assert (record.status == "error") == (record.error_type is not None)
        if record.input_tokens is not None:
            assert record.input_tokens >= (record.cache_read_tokens or 0) + (record.cache_write_tokens or 0)
