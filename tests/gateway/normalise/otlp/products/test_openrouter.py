"""OpenRouter's broadcast: which one of a request's spans is the call."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.normalise.otlp.payloads import normalised, only, span, traces

CALL = "gen-1790605442-FDh36zGvkqZaDM6tk5Rd"
USAGE = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
NAMED: dict[str, Any] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "openai/gpt-4o",
    "gen_ai.response.id": CALL,
}


def test_openrouters_call_may_have_a_name_of_its_users() -> None:
    """
    Users may rename the call with `trace.generation_name`. The other spans of a request name no model, or
    repeat the call.
    """
    payload = traces(
        span(1, {"gen_ai.operation.name": "chat", "trace.name": "Order Processing"}, name="Order Processing"),
        span(2, {**USAGE, **NAMED}, name="Extract Order Details", parent=1),
        span(3, {**USAGE, **NAMED, "gen_ai.response.id": f"{CALL}:generation"}, name="generation", parent=2),
        span(
            4,
            {**NAMED, "gen_ai.response.id": f"{CALL}:attempt-0"},
            name="provider attempt 1: OpenAI",
            parent=2,
        ),
        scope="openrouter",
    )
    record = only(payload)
    assert record.source == "openrouter"
    assert record.request_id == CALL
    assert record.operation == "chat"


def test_a_call_is_one_whatever_it_did() -> None:
    """
    Any operation of the call's span counts as a call, even operations that are no calls for other products.
    """
    images = NAMED | {"gen_ai.operation.name": "image_generation", "gen_ai.usage.total_cost": 0.04}
    record = only(traces(span(1, images, name="LLM Generation"), scope="openrouter"))
    assert record.operation == "image_generation"
    assert record.cost == "0.04"


def test_a_failed_call_of_another_name_counts_too() -> None:
    """
    A failed call with another name counts as well. If a client disconnects, there is no usage, but the
    requested model is known.
    """
    failed = span(1, NAMED, name="Extract Order Details", status={"code": 2})
    record = only(traces(failed, scope="openrouter"))
    assert record.status == "error"
    assert record.input_tokens is None


@pytest.mark.parametrize(
    "name", ["openrouter-connection-test", "generation", "provider attempt 2: Amazon Bedrock"]
)
def test_what_repeats_or_tries_out_is_no_call(name: str) -> None:
    """
    A span without attributes is no call. Examples are spans that repeat the call, and the connection test
    of a destination.
    """
    outcome = normalised(traces(span(1, {}, name=name), scope="openrouter"))
    assert outcome.records == []
    assert outcome.ignored.total() == 1
