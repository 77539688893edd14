"""Single Langfuse batches: merging, all forms of usage, dedup keys, and events that are not calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.core.errors import BadPayload
from gateway.normalise.formats.langfuse.merger import (
    complete_without_later_reports,
    count_incomplete_generations,
)
from gateway.normalise.outcome import IMPLAUSIBLE, MERGED, NOT_AI
from spool.identity import dedup_key_of_parts
from spool.record import Inference
from tests.gateway.normalise.formats.langfuse.events import batch, create, event, trace, update
from tests.gateway.normalise.formats.payloads import assert_balanced, one, read, read_batch


def whole(**more: Any) -> dict[str, Any]:
    return create(endTime="2026-11-20T07:15:07Z", **more)


def tokens(record: Inference) -> tuple[int | None, ...]:
    return (
        record.input_tokens,
        record.output_tokens,
        record.cache_read_tokens,
        record.cache_write_tokens,
        record.reasoning_tokens,
    )


def test_create_and_update_of_one_batch_are_one_call() -> None:
    """
    The create and update events of one batch are merged into one call. The trace gives the user, wherever it
    is in the batch.
    """
    outcome = read(None, batch(create(), update(), trace()))
    (record,) = outcome.records
    assert isinstance(record, Inference)
    assert record.request_model == "gpt-4o-mini"
    assert record.input_tokens == 10
    assert record.output_tokens == 4
    assert record.user == "u-1"
    assert record.session == "s-1"
    assert record.tags == {"env": "prod"}
    assert {MERGED: 1, NOT_AI: 1} == dict(outcome.ignored)


def test_later_values_that_are_not_null_win() -> None:
    """Of several events of a generation, later values replace earlier ones. A null value changes nothing."""
    record = one(None, batch(create(model="a"), update(model=None), update(model="gpt-4o", endTime=None)))
    assert record.request_model == "gpt-4o"
    assert record.input_tokens == 10
    assert record.end_time is not None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            {
                "usageDetails": {
                    "input": 21,
                    "output": 393,
                    "cache_read_input_tokens": 15093,
                    "cache_creation_input_tokens": 3674,
                }
            },
            (18788, 393, 15093, 3674, None),
        ),
        (
            {"usageDetails": {"input": 100, "output": 10, "total": 110, "input_cached_tokens": 60}},
            (100, 10, 60, None, None),
        ),
        (
            {"usageDetails": {"input": 40, "output": 10, "total": 110, "input_cached_tokens": 60}},
            (100, 10, 60, None, None),
        ),
        ({"usageDetails": {"input": 5, "output": 10, "output_reasoning_tokens": 7}}, (5, 17, None, None, 7)),
        (
            {
                "usageDetails": {
                    "prompt_tokens": 9,
                    "completion_tokens": 3,
                    "prompt_tokens_details": {"cached_tokens": 4},
                }
            },
            (9, 3, 4, None, None),
        ),
        ({"usageDetails": {"input": "12", "output": 3.0}}, (12, 3, None, None, None)),
        (
            {
                "usageDetails": {
                    "input": 5,
                    "output": 10,
                    "service_tier": "standard",
                    "seconds": 2.5,
                    "calls": {"a": "b"},
                }
            },
            (5, 10, None, None, None),
        ),
        (
            {
                "usageDetails": {
                    "input": 10,
                    "output": 4,
                    "total": 84,
                    "input_cache_read": 20,
                    "input_ephemeral_5m_input_tokens": 30,
                    "input_cache_creation_1h": 15,
                    "output_audio": 5,
                }
            },
            (75, 9, 20, 45, None),
        ),
        (
            {"usageDetails": {"input_tokens": 100, "output_tokens": 9, "cache_read_input_tokens": 60}},
            (160, 9, 60, None, None),
        ),
        (
            {
                "usageDetails": {
                    "input_tokens": 100,
                    "output_tokens": 9,
                    "total_tokens": 109,
                    "cache_read_input_tokens": 60,
                }
            },
            (100, 9, 60, None, None),
        ),
        ({"usageDetails": {"total": 12}, "usage": {"input": 7, "output": 5}}, (7, 5, None, None, None)),
        ({"usageDetails": {"input": None, "output": 0}}, (None, 0, None, None, None)),
        ({"usage": {"input": 3, "output": 1, "unit": "IMAGES"}}, (None, None, None, None, None)),
        ({"usage": {"input": 9, "output": 0, "unit": "TOKENS"}}, (9, 0, None, None, None)),
        ({"usage": {"promptTokens": 9, "completionTokens": 2}}, (9, 2, None, None, None)),
        ({"usage": {"prompt_tokens": 9, "completion_tokens": 2}}, (9, 2, None, None, None)),
        ({"usage": {"input": 900, "output": 20, "unit": "CHARACTERS"}}, (None, None, None, None, None)),
        (
            {"usageDetails": {"input": 1, "output": 2}, "usage": {"input": 7, "output": 8}},
            (1, 2, None, None, None),
        ),
    ],
)
def test_usage_in_every_shape(said: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    """Token buckets do not overlap, unless they have OpenAI's form or the total shows that they do."""
    assert expected == tokens(one(None, batch(whole(**said))))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"costDetails": {"input": 0.1, "total": 0.30000000000000004}}, "0.30000000000000004"),
        ({"costDetails": {"input": 6.3e-05, "output": 0.005895}}, "0.005958"),
        ({"usage": {"input": 1, "totalCost": 1.8e-07}}, "0.00000018"),
        ({"costDetails": {"total": 0}}, "0"),
        ({"usage": {"input": 1, "inputCost": 0.1, "outputCost": 0.2}}, "0.3"),
        ({"usage": {"input": 900, "unit": "CHARACTERS", "outputCost": 0.2}}, "0.2"),
        ({"costDetails": {}, "usage": {"totalCost": "0.5", "inputCost": 9}}, "0.5"),
        ({}, None),
    ],
)
def test_cost_in_every_shape(said: dict[str, Any], expected: str | None) -> None:
    """The cost is the stated total, or else the sum of its parts. Langfuse's values are not checked."""
    assert expected == one(None, batch(whole(**said))).cost


def test_an_error_and_a_hit_in_the_gateways_cache() -> None:
    """
    A failed generation has no error type. LiteLLM marks a cache hit in the metadata, which is merged
    like other fields.
    """
    outcome = read(
        None,
        batch(
            whole(level="ERROR", statusMessage="CANARY"), whole(own_id="g-2", metadata={"cache_hit": True})
        ),
    )
    assert [("error", "_OTHER"), ("cached", None)] == [
        (record.status, record.error_type) for record in outcome.records if isinstance(record, Inference)
    ]


def test_an_id_that_litellm_wrote_holds_the_providers() -> None:
    """
    An id written by LiteLLM identifies the call in LiteLLM's other reports. Other ids are Langfuse's own.
    """
    written = "time-14-13-16-469836_"
    for response_id in ("chatcmpl-3803a9e9-aa68-4493", "31aec259-5224-4903-ad2a-91ade65c0987"):
        assert dedup_key_of_parts(2, response_id) == one(None, batch(whole(own_id=written + response_id))).id
    assert dedup_key_of_parts(5, "langfuse", "g-1") == one(None, batch(whole())).id


def test_what_is_no_generation_is_no_call() -> None:
    others = [
        event("span-create", id="s"),
        event("score-create", id="x", value=1),
        event("sdk-log", log="CANARY"),
    ]
    outcome = read(None, batch(*others, event("observation-create", id="o", type="SPAN"), None, {}))
    assert outcome.received == 6
    assert dict(outcome.ignored) == {NOT_AI: 6}


def test_the_older_observation_events_are_generations_too() -> None:
    """
    Events of older SDKs count if their type is a generation or an embedding. An agent's event is no call,
    because the agent only runs calls.
    """
    for type, calls in (
        ("GENERATION", 1),
        ("EMBEDDING", 1),
        ("AGENT", 0),
        ("TOOL", 0),
        ("CHAIN", 0),
        (None, 0),
    ):
        body = create()["body"] | {"type": type, "endTime": "2026-11-20T07:15:07Z"}
        assert calls == len(read(None, batch(event("observation-create", **body))).records)
    assert 1 == len(read(None, batch(event("embedding-create", **body))).records)
    assert 0 == len(read(None, batch(event("agent-create", **body))).records)


def test_a_bad_event_is_rejected_alone() -> None:
    """
    Only the bad event of a batch is rejected. All others are accepted, even those of the same generation.
    """
    outcome = read(None, batch(whole(), update(usageDetails={"input": -1}), whole(own_id="g-2"), "text"))
    assert 2 == len(outcome.records)
    assert [(1, IMPLAUSIBLE), (3, "malformed")] == [
        (reject.item, reject.reason) for reject in outcome.rejects
    ]


def test_a_batch_that_cannot_be_read_is_refused_whole() -> None:
    """If a batch is nested deeper than any parser accepts, it is refused as a whole."""
    deep = b'{"batch": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}"
    with pytest.raises(BadPayload):
        read("langfuse", deep)


@pytest.mark.parametrize(
    "body", [b"{}", b'{"batch": null}', b'{"batch": {}}', b'{"batch": "x"}', b'{"events": []}', b"1"]
)
def test_a_body_without_a_batch_is_refused_whole(body: bytes) -> None:
    """A body without a batch is refused, as Langfuse does. An empty batch is valid."""
    with pytest.raises(BadPayload):
        read("langfuse", body)
    assert 0 == read("langfuse", batch()).received


def test_lines_of_batches_and_of_events_are_read_too() -> None:
    """A file of Langfuse events may have a batch or an event per line, as shippers write them."""
    body = batch(whole()) + b"\n{}\n" + json.dumps(whole(own_id="g-2")).encode()
    outcome = read("langfuse", body)
    assert len(outcome.records) == 2
    assert dict(outcome.ignored) == {NOT_AI: 1}
    assert read("langfuse", b"[{}]").received == 1
    assert dict(read("langfuse", b"[{}]").ignored) == {NOT_AI: 1}


def test_partial_reports_wait_and_are_records_when_nothing_else_will_come() -> None:
    """If a file has a single batch, its partial reports become records at its end without being merged."""
    normalised = read_batch(None, batch(create(), update("g-2", model="gpt-4o"), trace()))
    outcome, reports = normalised
    assert count_incomplete_generations(reports) == 2
    assert len(outcome.records) == 0
    assert len(reports) == 3
    outcome = complete_without_later_reports(normalised)
    assert 2 == len(outcome.records)
    assert_balanced(outcome)
    assert ["u-1", None] == [record.user for record in outcome.records if isinstance(record, Inference)]


def test_a_trace_bounds_its_tags_and_names_no_secret() -> None:
    """
    The tag limit covers all trace events of a call together. If the user field contains a key, it is not used
    as the user.
    """
    events = [trace(tags=[f"tag-{number}-{place}" for place in range(20)]) for number in range(3)]
    outcome = read(None, batch(whole(), *events, trace(userId="sk-proj-0123456789abcdef", tags=None)))
    (record,) = outcome.records
    assert isinstance(record, Inference)
    assert record.user == "u-1"
    assert len(record.tags) == 32
    assert outcome.left_out == 29
