"""The family of a name: all variants of a model's name, or of a provider's name, count as one in costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.intake.rate_cards.names import BUILT_IN
from spool.ledger.dimensions import MODEL_FAMILY, PROVIDER_FAMILY
from spool.ledger.sums import OTHER
from spool.providers import PROVIDERS

_VALUES = {each.name: each.value for each in BUILT_IN}
MODEL, PROVIDER = _VALUES[MODEL_FAMILY], _VALUES[PROVIDER_FAMILY]


@pytest.mark.parametrize(
    ("spellings", "family"),
    [
        (
            (
                "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
                "anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex_ai/claude-sonnet-4-5@20250929",
                "claude-sonnet-4-5-20250929", "bedrock/us-east-1/anthropic.claude-sonnet-4-5-20250929-v1:0",
                "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0",
                "claude-sonnet-4-5@default", "Claude-Sonnet-4-5",
            ),
            "claude-sonnet-4-5",
        ),
        (("gpt-4o-2024-08-06", "azure/gpt-4o", "openai/gpt-4o-2024-08-06", "gpt-4o"), "gpt-4o"),
        (("models/gemini-2.5-pro", "publishers/google/models/gemini-2.5-pro", "gemini-2.5-pro"), "gemini-2.5-pro"),
        (("gpt-4o-mini",), "gpt-4o-mini"),
        ((OTHER,), OTHER),
        (("",), ""),
        (("-latest", ), "-latest"),
        (("models/",), "models/"),
    ],
)  # fmt: skip
def test_spellings_of_a_model_are_one(spellings: tuple[str, ...], family: str) -> None:
    """Region, seller, path, date and alias are removed. If nothing remains, the family is the name itself."""
    assert {family} == {MODEL((each,)) for each in spellings}


@pytest.mark.parametrize(
    ("spellings", "family"),
    [
        (("google", "gcp.gemini", "vertex", "gcp.vertex_ai", "gcp.gen_ai", "Google AI Studio"), "Google"),
        (("mistral", "mistral_ai"), "Mistral AI"),
        (("azure", "azure.ai.inference", "azure_openai"), "Microsoft"),
        (("openai",), "OpenAI"),
        (("together-ai", "togetherai"), "together"),
        (("our_own", "Our-Own"), "our-own"),
        (("",), ""),
        ((OTHER,), OTHER),
    ],
)
def test_spellings_of_a_provider_are_one(spellings: tuple[str, ...], family: str) -> None:
    """Names on bills belong to the same family. An unknown provider is its own family."""
    assert {family} == {PROVIDER((each,)) for each in spellings}


def test_every_known_provider_has_a_family() -> None:
    """A provider's name in records and all variants of that name have the same family."""
    for each in PROVIDERS:
        assert 1 == len({PROVIDER((name,)) for name in (each.name, *each.spellings)}), each.name


@given(st.text(max_size=40))
def test_any_name_has_a_family(name: str) -> None:
    """Every name that is not empty has a family, and no name raises an error."""
    assert bool(name) == bool(MODEL((name,)))
    assert bool(name) == bool(PROVIDER((name,)))
