"""AISIX's object store and Snowflake's views: repeated rows, and rows that report different things."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.normalise.outcome import UNRECOGNISED_AI, ReadOutcome
from spool.record import Inference
from tests.gateway.normalise.formats.payloads import one, read
from tests.gateway.normalise.outcomes import inferences

LINE = {
    "schema_version": "1.0", "request_id": "q1", "occurred_at": "2026-11-20T10:00:02Z", "requested_model": "fast",
    "attempt_index": 0, "upstream_latency_ms": 1800, "status_code": 200,
}  # fmt: skip


def identities(outcome: ReadOutcome) -> list[bytes]:
    return [identity.id for identity in outcome.identities]


@pytest.mark.parametrize("response_id", ["", "msg_01AbCdEfGhIjKlMnOpQr"])
def test_repeated_aisix_line_is_the_same_call(response_id: str) -> None:
    """
    After a restart, AISIX writes the same lines again under another object key. They are the same calls.
    """
    line = {**LINE, "provider_request_id": response_id, "prompt_tokens": 5}
    first, again = identities(read(None, line)), identities(read(None, {**line, "cost_usd": 0.1}))
    assert first == again


def test_attempts_of_one_request_are_calls_of_their_own() -> None:
    """
    Attempts of one request are separate calls, although they share the request id and a cached answer has
    no response id.
    """
    lines = [LINE, {**LINE, "attempt_index": 1}, {**LINE, "request_id": "q2", "cache_status": "hit"}]
    assert 3 == len({known for line in lines for known in identities(read(None, line))})


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"prompt_tokens": 12, "cache_read_tokens": 900}, (912, 900, None)),
        ({"prompt_tokens": 12, "cache_creation_tokens": 5, "cache_read_tokens": 0}, (17, 0, 5)),
        ({"prompt_tokens": 500, "cached_prompt_tokens": 400}, (500, 400, None)),
    ],
)
def test_aisix_counts_anthropics_cache_outside_the_prompt(
    counts: dict[str, int], expected: tuple[int | None, ...]
) -> None:
    """
    AISIX writes each provider's own prompt count: OpenAI's includes cached tokens, and Anthropic's does not.
    """
    record = one(None, {**LINE, **counts})
    assert expected == (record.input_tokens, record.cache_read_tokens, record.cache_write_tokens)


@pytest.mark.parametrize(("kind", "model", "expected"), [
    ("openai", "deepseek-chat", "deepseek"),
    ("openai", "own-model", "openai"),
    ("anthropic", "claude-sonnet-5", "anthropic"),
    ("azure", "gpt-6-sol", "azure.ai.openai"),
])  # fmt: skip
def test_many_providers_are_of_openais_kind(kind: str, model: str, expected: str) -> None:
    """
    Many providers have the kind "openai" in AISIX. If the model's name identifies the provider, that
    provider is used.
    """
    assert expected == one(None, {**LINE, "provider_kind": kind, "provider_model_version": model}).provider


ROW: dict[str, Any] = {
    "REQUEST_ID": "r-1",
    "GATEWAY_NAME": "G",
    "START_TIME": "2026-11-20 02:00:00.000 -0800",
}


def test_a_row_of_snowflakes_gateway_is_a_call_for_each_model() -> None:
    """
    A row of Snowflake's gateway has one call per model. Reading the view again gives the same calls. Credits
    are not a cost.
    """
    details = {"a": {"input_tokens": 10, "output_tokens": 1}, "b": {"input_tokens": 20}, "c": {}}
    row = {**ROW, "OPERATION_DETAILS": details, "CREDITS": 0.5}
    outcome = read(None, row)
    assert [("a", 10, None), ("b", 20, None)] == [
        (call.request_model, call.input_tokens, call.cost) for call in inferences(outcome)
    ]
    assert identities(outcome) == identities(read(None, {**row, "CREDITS": 0.6}))


def test_a_bad_count_of_one_model_leaves_the_others() -> None:
    """A row has a separate call for each model, so a bad count of one model does not affect the others."""
    details = {"a": {"input_tokens": -10}, "b": {"input_tokens": 20}}
    outcome = read(None, {**ROW, "OPERATION_DETAILS": details})
    assert len(outcome.records) == 1
    assert len(outcome.rejects) == 1


@pytest.mark.parametrize("as_text", [False, True])
def test_the_kinds_of_snowflakes_rest_api_are_apart(as_text: bool) -> None:
    """
    Snowflake's REST API counts each kind of tokens separately, so the input gets its cached parts added. The
    counts may be an object or its JSON text.
    """
    kinds: Any = {"input": 100, "cache_read_input": 1000, "cache_write_input": 200, "output": 200}
    if as_text:
        kinds = str(kinds).replace("'", '"')
    record = one(None, {"REQUEST_ID": "r-2", "MODEL_NAME": "claude-sonnet-5", "TOKENS_GRANULAR": kinds})
    assert isinstance(record, Inference)
    assert record.provider == "snowflake"
    assert record.input_tokens == 1300
    assert record.cache_read_tokens == 1000
    assert record.cache_write_tokens == 200
    assert record.output_tokens == 200


def test_rows_of_snowflakes_functions_are_calls_of_their_query() -> None:
    """Rows of Snowflake's functions give one call per query and hour. A repeated row is the same call."""
    row = {
        "START_TIME": "2026-11-20 10:00:00Z", "FUNCTION_NAME": "AI_COMPLETE", "MODEL_NAME": "claude-sonnet-5",
        "QUERY_ID": "01b2", "TOKENS": 1500, "TOKEN_CREDITS": 0.003, "TOKENS_GRANULAR": {"input": 1300, "output": 200},
    }  # fmt: skip
    record = one(None, row)
    assert record.request_id == "01b2"
    assert record.input_tokens == 1300
    assert record.output_tokens == 200
    assert record.tags["credits"] == "0.003"
    assert record.cost is None
    known, again, later = (
        identities(read(None, each)) for each in (row, row, row | {"START_TIME": "2026-11-20 11:00Z"})
    )
    assert known == again != later


@pytest.mark.parametrize(
    "said",
    [
        {
            "AGENT_NAME": "helper",
            "PARENT_REQUEST_ID": "r0",
            "MODEL_NAME": "m",
            "TOKENS_GRANULAR": {"input": 5},
        },
        {"TOKENS_GRANULAR": {"claude-sonnet-5": {"input": 1300, "output": 200}}, "CREDITS": 0.003},
    ],
    ids=["an agent", "Cortex Code"],
)
def test_rows_of_snowflake_that_hold_sums_are_shown(said: dict[str, Any]) -> None:
    """
    Rows of Snowflake that sum up requests are shown as unrecognized, because each request may have a row
    in another view.
    """
    outcome = read(
        "snowflake", {"REQUEST_ID": "r1", "START_TIME": "2026-11-20 10:00:00Z", "TOKENS": 1500, **said}
    )
    assert outcome.records == []
    assert dict(outcome.ignored) == {UNRECOGNISED_AI: 1}
    assert "TOKENS" in outcome.unrecognised[0]
