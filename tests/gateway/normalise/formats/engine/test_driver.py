"""What a body of very many items costs: its records are packed on the way, and no slice of it is long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.errors import Refusal
from gateway.normalise import any_format
from gateway.normalise.options import Options
from gateway.normalise.outcome import PART
from gateway.normalise.payload import slices
from tests.gateway.normalise.formats.payloads import assert_balanced, read, run


def rows(count: int) -> bytes:
    return json.dumps([{"DeploymentName": "gpt-4o", "CorrelationId": f"call-{n}"} for n in range(count)]).encode()


def test_records_of_a_large_body_are_packed_on_the_way() -> None:
    """A part of them at a time is objects; all of them are counted."""
    outcome = read("azure_apim", rows(4 * PART))
    assert 4 * PART == outcome.count + len(outcome.records) == outcome.received
    assert len(outcome.records) < 2 * PART


def test_the_smallest_items_are_work_too() -> None:
    """However many fit into the bytes of a slice, the loop gets its turn."""
    count = 10_000
    (outcome, _), turns = run(any_format.normalise("kong", b"[" + b",".join([b"{}"] * count) + b"]", options=Options()))
    assert_balanced(outcome)
    assert turns >= count * slices.ITEM_BYTES // slices.SLICE_BYTES


@pytest.mark.parametrize("item", [1, None])
def test_a_body_of_too_many_items_is_given_up(item: Any) -> None:
    """Unreadable items are told by their place, which takes memory; nulls pack to nothing, and each is work."""
    options = Options(max_items=10)
    assert 10 == read("kong", [item] * 10, options=options).received
    with pytest.raises(Refusal, match=r"more than 10 items \(server.max_items\)") as refused:
        read("kong", [item] * 11, options=options)
    assert 413 == refused.value.status
