"""The calls of a large request are added to its outcome in short slices."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gateway.normalise.otlp.decoding import protobuf_decoder
from gateway.normalise.otlp.spans.reader import SpanReader
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload import body_limits
from tests.bench.load.payloads import protobuf_spans

CALLS = 2000


def test_calls_are_booked_in_short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every time check says that the slice is over, a slice has only a few calls."""
    monkeypatch.setattr(body_limits, "SLICE_S", -1.0)
    outcome = ReadOutcome()
    reader = SpanReader(outcome, ReadOptions())
    spans = [item for piece in protobuf_decoder.traces(protobuf_spans(CALLS)) for item in piece.items]
    for place, span in spans:
        reader.read_item(place, span)
    booked = [0, *(len(outcome.records) for _ in reader.add_items_that_waited()), len(outcome.records)]
    assert CALLS == booked[-1]
    assert max(after - before for before, after in pairwise(booked)) <= 16
