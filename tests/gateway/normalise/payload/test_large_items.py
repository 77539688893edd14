"""Items of a megabyte and more: values of a plausible form are read, and other values take no memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from gateway.normalise.formats.vertex import VertexEvent
from gateway.normalise.payload import large_items
from gateway.normalise.reading.values import decode_object
from tests.gateway.normalise.formats.payloads import Case, case, cases, one, read, told
from tests.gateway.normalise.formats.test_properties import _is_lines

LONG = "x" * large_items.LARGE
ENVELOPES = frozenset(
    {"data", "records", "result", "batch", "RootSpan", "resourceSpans", "logEvents", "awslogs"}
)


def padded(item: Any) -> Any:
    """Add a megabyte of text to an item."""
    return item | {"padding": LONG} if isinstance(item, dict) and not item.keys() & ENVELOPES else item


@pytest.mark.parametrize("found", cases(), ids=lambda found: f"{found.format}/{found.name}")
def test_what_is_read_of_a_large_item_is_what_is_read_of_a_small_one(found: Case) -> None:
    """A large item gives the same records as a small one. The test adds a megabyte of text to each item."""
    if _is_lines(found.body):
        body = b"\n".join(json.dumps(padded(json.loads(line))).encode() for line in found.body.splitlines())
    else:
        payload = json.loads(found.body)
        body = json.dumps(
            [padded(item) for item in payload] if isinstance(payload, list) else padded(payload)
        ).encode()
    small, large = read(found.format, found.body), read(found.format, body)
    assert told(small) == told(large)


@pytest.mark.parametrize(
    "noise", [b"[" + b"[]," * 500_000 + b"1]", b'{"a":[' + b"1," * 700_000 + b"1]}"], ids=["list", "map"]
)
@pytest.mark.parametrize("field", ["logging_time", "model", "full_response", "full_request", "otel_log"])
def test_value_of_an_impossible_form_is_not_decoded(field: str, noise: bytes) -> None:
    """
    A value of an impossible form in a field is not decoded, because a list of lists would take thirty
    times its size.
    """
    raw = b'{"api_method": "generateContent", "%b": %b}' % (field.encode(), noise)
    tracemalloc.start()
    event = decode_object(raw, VertexEvent)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "generateContent" == event.api_method
    assert peak < 2 * len(raw)


def test_large_columns_of_text_are_read_and_what_is_large_in_them_is_not() -> None:
    """
    A large column of text is read: here the answer has megabytes of text and its counts at the end. Labels
    beyond any plausible size are dropped.
    """
    row = case("vertex", "bigquery-row-thoughts")
    answer = {"candidates": [LONG], "modelVersion": [0] * 200_000} | {
        "usageMetadata": row["full_response"]["usageMetadata"]
    }
    labels = {"labels": {str(n): "x" * 100 for n in range(10_000)}}
    record = one(None, row | {"full_response": json.dumps(answer), "full_request": labels})
    assert record.input_tokens == 2152
    assert record.response_model is None
    assert record.tags == {}
