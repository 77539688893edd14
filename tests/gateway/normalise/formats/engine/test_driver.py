"""Bodies with very many items: records are packed during decoding, and no slice is long."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise import any_format
from gateway.normalise.formats.list import FORMAT_NAMES
from gateway.normalise.outcome import PART, ReadOptions
from gateway.normalise.payload import body_limits
from tests.gateway.normalise.formats.payloads import assert_balanced, read, run


def rows(count: int) -> bytes:
    return json.dumps(
        [{"DeploymentName": "gpt-4o", "CorrelationId": f"call-{n}"} for n in range(count)]
    ).encode()


def test_records_of_a_large_body_are_packed_on_the_way() -> None:
    """
    Records of a large body are packed while it is decoded, so only a part of them exists as objects at one
    time. All are counted.
    """
    outcome = read("azure_apim", rows(4 * PART))
    assert 4 * PART == outcome.count + len(outcome.records) == outcome.received
    assert len(outcome.records) < 2 * PART


def test_the_smallest_items_are_work_too() -> None:
    """However small the items of a body are, the event loop gets its turn after a number of items."""
    count = 10_000
    (outcome, _), turns = run(
        any_format.normalise_body("kong", b"[" + b",".join([b"{}"] * count) + b"]", options=ReadOptions())
    )
    assert_balanced(outcome)
    assert turns >= count * body_limits.ITEM_BYTES // body_limits.SLICE_BYTES


@pytest.mark.parametrize("item", [1, None])
def test_a_body_of_too_many_items_is_given_up(item: Any) -> None:
    """
    The limit on items counts unreadable items, because they need memory for their positions, and nulls,
    because they need time.
    """
    options = ReadOptions(max_items=10)
    assert 10 == read("kong", [item] * 10, options=options).received
    with pytest.raises(Refusal, match=r"more than 10 items \(server.max_items\)") as refused:
        read("kong", [item] * 11, options=options)
    assert 413 == refused.value.status


@pytest.mark.parametrize("format", FORMAT_NAMES)
def test_a_turn_on_the_way_is_no_item(format: str) -> None:
    """
    Thousands of blank lines, or of commas without items, are skipped in every format. They count as no item.
    """
    gaps = b"," * 10_000
    padding = b'"' + b"x" * (1 << 20) + b'"'
    bodies = [
        b"{}\n" + b" \n" * 10_000 + b"{}\n",
        b'{"records":[{"data":"e30="}%b],"n":%b}' % (gaps, padding),
        b'{"Spans":[{}%b],"TraceID":"t","n":%b}' % (gaps, padding),
        b'{"batch":[{}%b],"n":%b}' % (gaps, padding),
    ]
    for body in bodies:
        with suppress(BadPayload):
            outcome = read(format, body)
            assert outcome.received + len(outcome.rejects) <= 4
