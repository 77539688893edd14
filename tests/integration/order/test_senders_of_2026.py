"""Senders that tell the same calls in two ways: in any order their counters are shadows, and alone they count."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from tests.gateway.normalise.otlp.items import SECOND
from tests.gateway.normalise.otlp.payloads import in_json, span, traces
from tests.integration.order.cases import CASES
from tests.integration.order.running import Request, Row, told_in_memory, told_on_disk


def otlp(signal: str, name: str) -> Request:
    return Request(f"otlp/{signal}", (CASES / f"otlp/{name}.json").read_bytes())


def kongs_log() -> Request:
    """Of the service and the minute of which the metering events tell."""
    (entry, *_) = json.loads((CASES / "gateway/kong/http-log-batch-priced-and-cache-hit.json").read_text())
    entry["started_at"], entry["service"] = STARTED * 1000, entry["service"] | {"name": "openai-chat"}
    entry["consumer"] = {"username": "alice"}
    return Request("kong", json.dumps([entry]).encode())


def opencodes_spans() -> Request:
    """Of the session of which the counters tell."""
    call = {
        "openinference.span.kind": "LLM", "llm.model_name": "claude-sonnet-5", "session.id": "ses_01",
        "llm.token_count.prompt": 900, "llm.token_count.completion": 120, "llm.token_count.total": 19_800,
        "llm.token_count.prompt_details.cache_read": 18_000, "llm.token_count.prompt_details.cache_write": 700,
        "llm.token_count.completion_details.reasoning": 80,
    }  # fmt: skip
    told = span(1, call, name="opencode.llm", start=STARTED * SECOND)
    return Request(
        "otlp/traces", in_json(traces(told, scope="com.opencode", resource={"service.name": "opencode"}))
    )


STARTED = 1_795_168_800
# What tells the calls, and what counts them beside.
PAIRS = {
    "pi": (otlp("traces", "pi/extension_turns"), otlp("metrics", "pi/counters")),
    "realtime": (
        otlp("traces", "otel_genai/realtime_inference"), otlp("metrics", "otel_genai/inference_usage_by_modality"),
    ),
    "kong": (kongs_log(), Request("openmeter", (CASES / "gateway/openmeter/kong-llm-requests.json").read_bytes())),
    "opencode": (opencodes_spans(), otlp("metrics", "opencode/counters_with_chosen_prefix")),
}  # fmt: skip


def counted(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["kind"] == "usage_metric" and not row["shadow"]]


@pytest.mark.parametrize("sender", PAIRS)
def test_counters_beside_calls_are_shadows(sender: str) -> None:
    """Whichever came first, each told twice, with a stop between."""
    both = PAIRS[sender]
    alone, _ = told_in_memory([both[1]])
    assert counted(alone) == alone
    for order in permutations(both):
        for rows, _ in (told_in_memory(order * 2), told_on_disk(order * 2, [True])):
            assert [] == counted(rows)
            assert len(alone) == len([row for row in rows if row["kind"] == "usage_metric"])
            assert [row for row in rows if row["kind"] == "inference"]
