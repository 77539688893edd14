"""Regions of calls from a stated value, the called address, or the model's id."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.normalise.reading.regions import (
    MAX_ADDRESS,
    MAX_NAME,
    normal_region_name,
    region_of_address,
    region_of_call,
)


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ("us-east-1", "us-east-1"),
        ("US", "us"),
        ("East US 2", "eastus2"),
        ("data_zone", "data_zone"),
        ("not_available", None),
        ("-", None),
        ("", None),
        (None, None),
        (True, None),
        ({"region": "us"}, None),
        ("a sentence that somebody wrote!", None),
        ("1-east", None),
        ("a" * MAX_NAME, "a" * MAX_NAME),
        ("a" * (MAX_NAME + 1), None),
    ],
)
def test_stated_regions(stated: Any, found: str | None) -> None:
    """Only names of regions are accepted, so free text never enters a record."""
    assert found == normal_region_name(stated)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("bedrock-runtime.us-west-2.amazonaws.com", "us-west-2"),
        ("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/model/x/converse", "us-gov-west-1"),
        ("bedrock-mantle.eu-central-1.api.aws:443", "eu-central-1"),
        ("https://vpce-0a1-b2.bedrock-runtime.us-east-1.vpce.amazonaws.com", "us-east-1"),
        (
            "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/us-central1/x",
            "us-central1",
        ),
        ("us-central1-aiplatform.googleapis.com", "us-central1"),
        (
            "https://aiplatform.googleapis.com/v1/projects/p/locations/global/publishers/google/models/m",
            "global",
        ),
        ("aiplatform.googleapis.com", "global"),
        (
            "https://us-central1-aiplatform.googleapis.com/v1/projects/p/locations/-/endpoints/x",
            "us-central1",
        ),
        ("aiplatform.eu.rep.googleapis.com", "eu"),
        ("https://eastus2.api.cognitive.microsoft.com/openai/", "eastus2"),
        ("https://mine.eastus2.models.ai.azure.com", "eastus2"),
        ("https://EU.api.openai.com/v1/", "eu"),
        ("https://user:word@us.api.openai.com/v1?key=x", "us"),
        ("eu-west-1.api.x.ai", "eu-west-1"),
        ("https://ca-api.together.ai/v1", "ca"),
        ("https://eu.openrouter.ai/api/v1", "eu"),
        ("https://api.openai.com/v1", None),
        ("https://mine.openai.azure.com", None),
        ("https://api.anthropic.com", None),
        ("gateway.us-east-1.example.com", None),
        ("https://example.com/bedrock-runtime.us-west-2.amazonaws.com", None),
        ("bedrock-runtime.us-west-2.amazonaws.com.example.com", None),
        ("192.0.2.1:443", None),
        ("https://" + "a" * MAX_ADDRESS, None),
        (7, None),
    ],
)
def test_addresses_of_providers(address: Any, found: str | None) -> None:
    """Only hosts of a provider that puts regions into its addresses count, not similar hosts."""
    assert found == region_of_address(address)


def test_which_of_several_counts() -> None:
    """
    If several regions are known, a global profile counts first, because it has the global price. Then the
    order is the stated region, the address, and the ARN.
    """
    arn = "arn:aws:bedrock:eu-west-1:123456789012:inference-profile/"
    host = "bedrock-runtime.us-west-2.amazonaws.com"
    assert "global" == region_of_call(
        "us-east-1", address=host, model="global.anthropic.claude-sonnet-4-5-v1:0"
    )
    assert "global" == region_of_call("us-east-1", model=arn + "global.anthropic.claude-sonnet-4-5-v1:0")
    assert "us-east-1" == region_of_call(
        None, "not_available", "us-east-1", address=host, model="us.anthropic.claude-x"
    )
    assert "us-west-2" == region_of_call(None, address=host, model=arn + "us.anthropic.claude-x")
    assert "eu-west-1" == region_of_call(model=arn + "us.anthropic.claude-x")
    assert (
        region_of_call(model="arn:aws:bedrock:-:123456789012:inference-profile/us.anthropic.claude-x") is None
    )
    assert region_of_call(model="global.thinker") is None
    assert region_of_call(model=["arn:aws:bedrock:eu-west-1:1:x"]) is None


def test_reading_a_long_address_takes_linear_time() -> None:
    """
    Reading a long address takes time in proportion to its length only, so a sender cannot slow the gateway down.
    """
    began = time.process_time()
    for size in (64, 256, MAX_ADDRESS - 8):
        for part in ("a.", "a-", "a@", "bedrock-", "x.models.ai."):
            region_of_address((part * size)[:size])
            region_of_address(f"https://{(part * size)[: size - 9]}!")
    assert time.process_time() - began < 1
