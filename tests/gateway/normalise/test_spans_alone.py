"""
Reading of single spans, which depends only on the span, its resource and its scope. Relations between spans
are resolved later.
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from gateway.normalise.otlp.decoding import protobuf_decoder
from gateway.normalise.otlp.model import Span
from gateway.normalise.otlp.spans.reader import SpanReader, read_span_if_independent
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload import body_limits
from tests.bench.load.payloads import protobuf_spans
from tests.gateway.normalise.otlp.trace_requests import trace_requests
from tests.rounds import part

CALLS = 2000
OPTIONS = ReadOptions(keep_attributes=frozenset({"http.route", "server.address"}), host_id=True)


def _outcome(spans: list[tuple[int, Span]], *, alone: bool) -> ReadOutcome:
    outcome = ReadOutcome(keep_tags=OPTIONS.keep_tags)
    reader = SpanReader(outcome, OPTIONS)
    for place, span in spans:
        read = read_span_if_independent(span, OPTIONS) if alone else None
        if read is None:
            reader.read_item(place, span)
        else:
            reader.set_current_resource_and_scope(span.resource, span.scope)
            reader.add_read_span(place, read)
    for _ in reader.add_items_that_waited():
        pass
    return outcome


@pytest.mark.parametrize("number", part(range(len(trace_requests())), every=3))
def test_a_span_is_read_the_same_alone(number: int) -> None:
    """
    Spans that were first read separately, in any order, give the same outcome as spans that are read together.
    """
    pieces = protobuf_decoder.traces(trace_requests()[number])
    spans = [item for piece in pieces for item in piece.items]
    expected = _outcome(spans, alone=False)
    assert expected == _outcome(spans, alone=True)
    random.Random(number).shuffle(spans)
    assert _outcome(spans, alone=False) == _outcome(spans, alone=True)


def test_calls_are_booked_in_short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every time check says that the slice is over, a slice has only a few calls."""
    monkeypatch.setattr(body_limits, "SLICE_S", -1.0)
    outcome = ReadOutcome()
    reader = SpanReader(outcome, OPTIONS)
    spans = [item for piece in protobuf_decoder.traces(protobuf_spans(CALLS)) for item in piece.items]
    for place, span in spans:
        reader.read_item(place, span)
    booked = [0, *(len(outcome.records) for _ in reader.add_items_that_waited()), len(outcome.records)]
    assert CALLS == booked[-1]
    assert max(after - before for before, after in pairwise(booked)) <= 16
