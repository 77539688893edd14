"""Helicone's webhook: values from its copies of request and response bodies."""

from __future__ import annotations

import json
from typing import Any

from gateway.normalise.outcome import NOT_AI
from spool.identity import dedup_key_of_parts
from tests.gateway.normalise.formats.payloads import one, read

GEMINI: dict[str, Any] = {
    "responseId": "Zm9vYmFyYmF6cXV4",
    "modelVersion": "gemini-2.5-pro",
    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 30},
}


def hook(body: Any, **fields: Any) -> dict[str, Any]:
    return {"request_id": "r-1", "request_body": "{}", "response_body": body, **fields}


def test_geminis_answer_names_its_model_in_a_place_of_its_own() -> None:
    """Gemini's model is read from the answer, because its request names the model only in the address."""
    record = one(None, hook(json.dumps(GEMINI), provider="GOOGLE"))
    assert record.request_model is None
    assert record.response_model == "gemini-2.5-pro"
    assert record.provider == "gcp.gemini"
    assert record.input_tokens == 100
    assert record.output_tokens == 40
    assert record.reasoning_tokens == 30
    assert "gcp.gen_ai" == one(None, hook(GEMINI)).provider


def test_a_webhook_whose_bodies_are_cut_is_a_call_of_which_only_the_id_is_known() -> None:
    """
    Helicone cuts bodies at 10 KB, so they are not valid JSON. Such a webhook is still a call, with only its
    id known. A webhook with a readable body without a model is not a call.
    """
    cut = '{"model": "gpt-5", "messages": [{"role": "user", "content": "CANA'
    record = one(None, {"request_id": "r-1", "user_id": "u", "request_body": cut, "response_body": cut})
    assert record.request_id == "r-1"
    assert record.user == "u"
    assert record.request_model is None
    assert record.input_tokens is None
    assert dedup_key_of_parts(5, "helicone", "r-1") == record.id
    assert {NOT_AI: 1} == dict(read(None, hook("{}")).ignored)


def test_the_webhooks_own_figures_go_before_those_of_the_body() -> None:
    """The webhook's own counts have priority and may be text or floats. Details are read from the body."""
    usage = {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}}
    figures = {"promptTokens": "12", "completionTokens": 7.0, "cost": "0.010"}
    record = one(None, hook({"model": "gpt-5", "usage": usage}, metadata=figures))
    assert record.input_tokens == 12
    assert record.output_tokens == 7
    assert record.reasoning_tokens == 3
    assert record.cost == "0.01"
