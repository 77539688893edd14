"""The processing region of a call, in the log of every gateway that states it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import ReadOptions
from tests.gateway.normalise.formats.payloads import case, one, read

ANTHROPIC = {"input_tokens": 5, "output_tokens": 2}
GEOGRAPHY = {
    "id": "msg_0123456789abcdef0123",
    "model": "claude-x",
    "usage": {**ANTHROPIC, "inference_geo": "us"},
}


def bedrock(**fields: Any) -> dict[str, Any]:
    return {
        "schemaType": "ModelInvocationLog", "timestamp": "2026-01-15T13:45:59Z", "requestId": "r-1",
        "operation": "Converse", "modelId": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "input": {"inputTokenCount": 2}, "output": {"outputTokenCount": 3}, **fields,
    }  # fmt: skip


def litellm(**fields: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-0123456789abcdef0123", "litellm_call_id": "c", "call_type": "completion", "status": "success",
        "custom_llm_provider": "openai", "model": "gpt-4o", "prompt_tokens": 5, "completion_tokens": 2, **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("format", "payload", "region"),
    [
        ("bedrock", bedrock(region="us-east-1", inferenceRegion="us-west-2"), "us-east-1"),
        ("bedrock", bedrock(inferenceRegion="us-west-2"), "us-west-2"),
        ("bedrock", bedrock(region="us-east-1", modelId="global.anthropic.claude-sonnet-4-5-20250929-v1:0"), "global"),
        ("bedrock", bedrock(modelId="arn:aws:bedrock:eu-west-1:1:inference-profile/eu.meta.llama"), "eu-west-1"),
        ("bedrock", bedrock(region={"a": 1}), None),
        ("bedrock", bedrock(), None),
        ("litellm", litellm(api_base="https://eu.api.openai.com/v1"), "eu"),
        ("litellm", litellm(api_base="https://api.openai.com/v1"), None),
        ("litellm", litellm(cost_breakdown={"data_residency": "us", "vertex_location": None}), "us"),
        ("litellm", litellm(cost_breakdown={"vertex_location": "europe-west4"}), "europe-west4"),
        ("litellm", litellm(metadata={"usage_object": GEOGRAPHY["usage"]}), "us"),
        ("litellm", litellm(cost_breakdown="none", metadata="none"), None),
        (
            "litellm",
            litellm(custom_llm_provider="bedrock", model="bedrock/converse/global.anthropic.claude-sonnet-4-5-v1:0"),
            "global",
        ),
        ("openrouter", case("openrouter", "generation-stats"), "global"),
        ("vertex", case("vertex", "bigquery-row-thoughts"), "us-central1"),
        ("kong", case("kong", "http-log-bedrock-unpriced"), "us-west-2"),
        ("helicone", {"request_id": "r", "response_body": json.dumps(GEOGRAPHY)}, "us"),
        ("helicone", {"request_id": "r", "response_body": {**GEOGRAPHY, "usage": ANTHROPIC}}, None),
    ],
)  # fmt: skip
def test_the_region_of_a_call(format: str, payload: Any, region: str | None) -> None:
    """
    The region is read from the provider's answer, the log or the called address, and its reason names which.
    Without these, there is no region.
    """
    assert region == one(format, payload).region
    [why] = read(format, payload, options=ReadOptions(explain=True)).why or []
    assert (region is not None) == ("region" in why)


def test_vertex_by_its_address_alone() -> None:
    """A Vertex row's endpoint names its location. Without an endpoint, the row's metadata names it."""
    row = case("vertex", "bigquery-row-thoughts")
    assert "us-central1" == one("vertex", {**row, "metadata": None}).region
    assert "us-central1" == one("vertex", {**row, "endpoint": None}).region
    assert one("vertex", {**row, "endpoint": None, "metadata": None}).region is None


def test_portkey_and_agentgateway_by_the_address_that_was_called() -> None:
    """Portkey and agentgateway log the provider's host, which names the region."""
    line = case("agentgateway", "json-log-line")
    assert one("agentgateway", line).region is None
    called = {**line, "endpoint": "bedrock-runtime.us-east-1.amazonaws.com:443"}
    assert "us-east-1" == one("agentgateway", called).region
    hook = {
        "request": {"json": {"model": "claude-x"}, "url": "https://api.anthropic.com/v1/messages"},
        "response": {"json": GEOGRAPHY, "statusCode": 200}, "provider": "anthropic", "requestType": "chatComplete",
    }  # fmt: skip
    assert "us" == one("portkey", hook).region


def test_the_region_of_azures_gateway_is_no_region_of_the_call() -> None:
    """
    `Region` in Azure API Management's log is the location of the gateway, so it is not used. The deployment
    may be in another region.
    """
    rows = case("azure_apim", "llm-log-rows")
    records = read("azure_apim", [{**row, "Region": "East US"} for row in rows]).records
    assert records
    assert {None} == {getattr(record, "region", None) for record in records}
