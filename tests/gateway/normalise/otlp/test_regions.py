"""
The provider's processing region in spans and log events. The region of the sending resource is never used.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.normalise.outcome import ReadOptions
from spool.record import Inference
from tests.gateway.normalise.otlp.items import log, read_logs
from tests.gateway.normalise.otlp.payloads import normalised, only, span, traces

CALL = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 5}
BEDROCK = {**CALL, "gen_ai.provider.name": "aws.bedrock"}
PROFILE = {"gen_ai.request.model": "global.anthropic.claude-x"}
EVENT = "gen_ai.client.inference.operation.details"
USAGE = {"input_tokens": 5, "output_tokens": 2, "inference_geo": "us"}


@pytest.mark.parametrize(
    ("provider", "attributes", "region"),
    [
        ("aws.bedrock", {"aws.region": "us-east-1"}, "us-east-1"),
        ("aws.bedrock", {"cloud.region": "eu-west-1"}, "eu-west-1"),
        ("aws.bedrock", {"aws.region": "us-east-1", **PROFILE}, "global"),
        ("aws.bedrock", PROFILE, "global"),
        ("aws.bedrock", {"server.address": "bedrock-runtime.us-west-2.amazonaws.com"}, "us-west-2"),
        ("gcp.vertex_ai", {"server.address": "us-central1-aiplatform.googleapis.com"}, "us-central1"),
        ("openai", {"gen_ai.openai.api_base": "https://eu.api.openai.com/v1/"}, "eu"),
        ("openai", {"server.address": "api.openai.com"}, None),
        # this attribute states the location of the caller, not of the provider
        ("openai", {"cloud.region": "us-east-1"}, None),
        ("anthropic", {"aws.region": "us-east-1"}, None),
        ("openai", {}, None),
        # A region of another cloud is not the provider's region, nor is a region that a collector copied
        # from the resource.
        ("azure.ai.openai", {"aws.region": "us-east-1"}, None),
        ("azure.ai.openai", {"cloud.region": "us-east-1"}, None),
        ("azure.ai.openai", {"cloud.region": "East US 2"}, "eastus2"),
        ("azure.ai.openai", {"cloud.region": "eastus2", "cloud.provider": "azure"}, "eastus2"),
        ("azure.ai.openai", {"cloud.region": "eastus2", "cloud.provider": "gcp"}, None),
        ("aws.bedrock", {"cloud.region": "europe-west4"}, None),
        ("aws.bedrock", {"aws.region": "unknown", "cloud.region": "eu-west-1"}, "eu-west-1"),
        ("gcp.vertex_ai", {"cloud.region": "europe-west4"}, "europe-west4"),
        ("gcp.vertex_ai", {"cloud.region": "us-east-1"}, None),
        ("gcp.gemini", {"cloud.region": "europe-west4"}, None),
        # The address that the client called takes precedence over a region attribute.
        (
            "aws.bedrock",
            {"cloud.region": "eu-west-1", "server.address": "bedrock-runtime.us-west-2.amazonaws.com"},
            "us-west-2",
        ),
        ("aws.bedrock", {"aws.region": "eu-west-1", "server.address": "llm-proxy.internal"}, "eu-west-1"),
        (
            "openai",
            {"server.address": "llm-proxy.internal", "llm.openai.api_base": "https://eu.api.openai.com"},
            "eu",
        ),
    ],
)
def test_where_the_provider_processed_a_call(
    provider: str, attributes: dict[str, Any], region: str | None
) -> None:
    """
    The region is read from an attribute of the provider's own cloud, or from the called address, with a reason.
    """
    call = {**CALL, "gen_ai.provider.name": provider, **attributes}
    explained = ReadOptions(explain=True)
    spans = normalised(traces(span(1, call)), options=explained)
    for outcome in (spans, read_logs(log(call, event_name=EVENT), options=explained)):
        [record], [why] = outcome.records, outcome.why or []
        assert isinstance(record, Inference)
        assert region == record.region
        assert (region is not None) == ("region" in why)
        assert (region == "global") == (why.get("region") == "derived from the model name")


def test_the_region_of_a_resource_is_the_senders() -> None:
    """The region of a resource belongs to the sender, which may run in another region than the provider."""
    resource = {"cloud.region": "us-east-1", "aws.region": "us-east-1"}
    assert only(traces(span(1, BEDROCK), resource=resource)).region is None


def test_the_region_of_a_twin_is_that_of_the_call() -> None:
    """If the cloud SDK's span below reports the same call, its region is the region of the call."""
    spans = (span(1, BEDROCK), span(2, {**BEDROCK, "aws.region": "us-east-1"}, parent=1))
    assert "us-east-1" == only(traces(*spans)).region


@pytest.mark.parametrize(
    ("stated", "region"), [("us", "us"), ("not_available", None), (["us"], None), (None, None)]
)
def test_answer_read_for_its_counts_gives_the_region(stated: Any, region: str | None) -> None:
    """
    An answer that is read for its counts also gives the region, such as `inference_geo` in Anthropic's usage.
    The answer may be inside an attribute, or in the AI SDK's metadata.
    """
    usage = {**USAGE, "inference_geo": stated}
    answer = {"id": "msg_0123456789abcdef0123", "model": "claude-x", "usage": usage}
    chat = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "claude-x",
        "output.value": json.dumps(answer),
    }
    assert region == only(traces(span(1, chat))).region
    sdk = {
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.model.id": "claude-x",
        "ai.usage.promptTokens": 5,
    }
    sdk["ai.response.providerMetadata"] = json.dumps({"anthropic": {"usage": usage}})
    assert region == only(traces(span(1, sdk), scope="ai")).region
