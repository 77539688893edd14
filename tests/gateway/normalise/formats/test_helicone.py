"""Helicone's webhook: what its copies of the bodies tell, in the shapes of the providers."""

from __future__ import annotations

import json
from typing import Any

from tests.gateway.normalise.formats.payloads import one

GEMINI: dict[str, Any] = {
    "responseId": "Zm9vYmFyYmF6cXV4",
    "modelVersion": "gemini-2.5-pro",
    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "thoughtsTokenCount": 30},
}


def hook(body: Any, **fields: Any) -> dict[str, Any]:
    return {"request_id": "r-1", "request_body": "{}", "response_body": body, **fields}


def test_geminis_answer_names_its_model_in_a_place_of_its_own() -> None:
    """Its request names none: the model is in the address."""
    record = one(None, hook(json.dumps(GEMINI), provider="GOOGLE"))
    assert (None, "gemini-2.5-pro", "gcp.gemini") == (record.request_model, record.response_model, record.provider)
    assert (100, 40, 30) == (record.input_tokens, record.output_tokens, record.reasoning_tokens)
    assert "gcp.gen_ai" == one(None, hook(GEMINI)).provider


def test_the_webhooks_own_figures_go_before_those_of_the_body() -> None:
    """They may be text and floats; the details still come from the body."""
    usage = {"input_tokens": 10, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 3}}
    figures = {"promptTokens": "12", "completionTokens": 7.0, "cost": "0.010"}
    record = one(None, hook({"model": "gpt-5", "usage": usage}, metadata=figures))
    assert (12, 7, 3, "0.01") == (record.input_tokens, record.output_tokens, record.reasoning_tokens, record.cost)
