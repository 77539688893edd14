"""Lines for services beside calls: each has its own kind, and none is a token or paid capacity."""

from __future__ import annotations

import pytest

from gateway.bills.statements import cloud_meters
from gateway.bills.statements.sources import azure
from gateway.bills.statements.sources.google import _line_kind as google_kind


@pytest.mark.parametrize(
    ("meter", "model"),
    [
        ("Provisioned Managed Global Unit", None),
        ("Provisioned Managed Data Zone Unit", None),
        ("gpt image 1 img outp glbl Tokens", "gpt-image-1"),
        ("gpt-image-1.5 img inp glbl", "gpt-image-1.5"),
        ("gpt image 1 mini img cchd inp glbl Tokens", "gpt-image-1-mini"),
        ("gpt rt aud 0828 img Inp glbl Tokens", "gpt-rt-0828"),
    ],
)
def test_an_azure_meter_names_its_model(meter: str, model: str | None) -> None:
    """Capacity is of no model, so that it is compared with the capacity of a contract."""
    assert model == azure.parse_model(meter)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("USE1-Guardrail-ContentPolicyUnitsConsumed", "guardrails"),
        ("USE1-Cohere.rerank-v3-Search-Units", "rerank"),
        ("USE1-TitanText-Customization-Training", "training"),
        ("gpt 4o mini 0718 ft Training tokens", "training"),
        ("gpt 4o mini ft Hosting Unit", "hosting"),
        ("Gemini 2.5 Flash Tuning", "training"),
        ("gpt 4o 0806 Inp glbl", None),
        ("Provisioned Managed Global Unit", None),
    ],
)
def test_a_service_has_its_own_kind(name: str, kind: str | None) -> None:
    """Words of the meter name the service, in the reports of each cloud."""
    assert kind == cloud_meters.service_kind(cloud_meters.split_words(name))
    if kind is not None:
        assert kind == cloud_meters.non_token_kind("Count", cloud_meters.split_words(name))
        assert kind == google_kind(cloud_meters.split_words(name), "hour")
