"""What a body of very many items costs: its records are packed on the way, and no slice of it is long."""

from __future__ import annotations

import json

import pytest

from gateway.errors import BadPayload, Refusal
from gateway.normalise import any_format
from gateway.normalise.formats.engine import driver
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


def test_a_body_of_unreadable_items_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is told by its place, which takes memory: a body of millions of them is refused as a whole."""
    monkeypatch.setattr(driver, "MAX_REJECTS", 10)
    assert 10 == len(read("kong", [1] * 10).rejects)
    with pytest.raises(BadPayload, match="more than 10 items"):
        read("kong", [1] * 11)


def test_a_body_of_too_many_items_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nulls pack to nothing, and each is work."""
    monkeypatch.setattr(driver, "MAX_ITEMS", 10)
    assert 10 == read("kong", [None] * 10).received
    with pytest.raises(Refusal, match="more than 10 items") as refused:
        read("kong", [None] * 11)
    assert 413 == refused.value.status
