"""
Langfuse's SDKs with only address and key changed: version 2 sends ingestion batches, later versions OTLP.

The public key is arbitrary, and the secret key is a Tollhouse key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, without
from tests.documents import connect_page

pytestmark = pytest.mark.clients

NAMES = ("chat", "stream", "silent_stream", "responses", "tools", "failures", "retry")
# version 2 does not wrap embeddings, so it sends nothing for them
RUNS = [*(("langfuse_v2", name) for name in NAMES), *(("langfuse", name) for name in (*NAMES, "embeddings"))]


def run(stand: Stand, client: str, name: str) -> list[dict[str, Any]]:
    stand.run(
        client,
        f"with_{client}.py",
        name,
        **connect_page("langfuse").environment(url=stand.url, key=stand.key),
    )
    return stand.records()


def told(client: str, name: str, calls: list[Call]) -> list[Call]:
    """Langfuse reports one model name, the response's if available, and no response id."""
    if name == "retry":  # the retry of the library stays within one generation of Langfuse, so it is one call
        calls = [call for call in calls if call.status == "ok"]
    kept = [replace(call, request_model=call.response_model or call.request_model) for call in calls]
    kept = [without("response_model", "request_id")(call) for call in kept]
    if client == "langfuse_v2":
        kept = [without("operation")(call) for call in kept]
        # the second call of this run streams the Responses API, and Langfuse does not read the usage of that
        # stream
        if name == "responses":
            tokens = [field for field in Call.__dataclass_fields__ if field.endswith("_tokens")]
            kept[1] = without(*tokens)(kept[1])
    return kept


@pytest.mark.parametrize(("client", "name"), RUNS)
def test_openai_wrapper_reports_each_call_once(stand: Stand, client: str, name: str) -> None:
    """Each call has one record, with Langfuse's own id instead of the response id."""
    records = run(stand, client, name)
    calls = stand.calls()
    assert calls
    assert_same(told(client, name, calls), ({**one, "request_id": None} for one in records))
    stand.keep(client, name, told(client, name, calls))
    assert {one["source"] for one in records} == {"langfuse"}
    assert len(calls) - (name == "retry") == len(records)


@pytest.mark.parametrize("client", ["langfuse_v2", "langfuse"])
def test_generations_by_hand(stand: Stand, client: str) -> None:
    """
    Figures and names are those that the program wrote. A generation that ends in a later request is one
    record. Other spans are no records.
    """
    records = run(stand, client, "by_hand")
    fields = (
        "request_model",
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "reasoning_tokens",
        "cost",
    )
    expected = {
        ("gpt-4o", 3000, 700, 1000, 250, "0.0145", "ok"),
        ("gpt-4o-mini", 310, 42, None, None, None, "ok"),
        ("gpt-4o", None, None, None, None, None, "error"),
    }
    assert expected == {tuple(one[field] for field in (*fields, "status")) for one in records}
    assert 3 == len(records)
    assert {("ada", "basket-7", "gold")} == {
        (one["user"], one["session"], one["tags"]["tier"]) for one in records
    }
