"""Regions in AWS bills, translated to the region names of calls."""

from __future__ import annotations

import pytest

from gateway.bills.statements.sources.aws import parse_region


@pytest.mark.parametrize(
    ("usage_type", "region"),
    [
        ("USE1-NovaLite-input-tokens", "us-east-1"),
        ("EU-NovaLite-input-tokens", "eu-west-1"),
        ("APN1-MP:APN1_cache_write_tokens_1h_standard-Units", "ap-northeast-1"),
        ("USW2-MP:USW2_InputTokenCount_Global-Units", "global"),
        (
            "XYZ9-NovaLite-input-tokens",
            "XYZ9",
        ),  # an abbreviation that is not in the table is returned unchanged
        ("NovaLite-input-tokens", None),
        ("", None),
    ],
)
def test_a_region_of_the_bill_is_one_of_calls(usage_type: str, region: str | None) -> None:
    """
    A region in a bill gets the name that calls use, so that a comparison shows `us-east-1` for both sides.
    """
    assert region == parse_region(usage_type)
