"""
The memory reads requests with many spans as it reads small ones. Requests beyond its limits go to the rules.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest

from gateway.http.turns import LARGE
from gateway.normalise.memory import spans
from gateway.normalise.memory.pace import AT_ONCE
from gateway.normalise.memory.spans import SpanMemory
from gateway.normalise.outcome import ReadOptions
from spool.packed.native import NativeModule
from tests.bench.load.payloads import numbered, protobuf_spans
from tests.bench.load.traces import tree_spans
from tests.packed.memory.both_ways import by_rules, run
from tests.packed.memory.varied import varied

MANY = 1200


def learned(native: NativeModule, *bodies: bytes) -> SpanMemory:
    """Return a memory that has learned the spans of these bodies."""
    memory = SpanMemory(native, AT_ONCE)
    for number in range(20):
        for body in bodies:
            run(memory.normalise_if_known(numbered(body, number), ReadOptions()))
    memory.spans.clear()
    return memory


@pytest.mark.parametrize("make", [protobuf_spans, tree_spans])
def test_a_large_request_is_by_the_memory(make: object, native: NativeModule) -> None:
    """
    The memory's result equals the rules', even for a request that the rules would not read on the event loop.
    """
    assert callable(make)
    memory = learned(native, make(98))
    body = numbered(make(MANY), 99)
    assert len(body) > LARGE
    assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
    assert memory.spans["reading"] > 0.95 * sum(memory.spans.values())
    assert 0 == memory.compared["different"]


def test_what_it_knows_and_what_not_meet_in_one_large_request(native: NativeModule) -> None:
    """
    A request has known spans of the benchmark around spans that the memory has never seen. Both kinds
    are read right.
    """
    memory = learned(native, protobuf_spans(98))
    others = b"".join(islice(varied(random.Random(5)), 5))
    body = numbered(protobuf_spans(MANY), 7) + others + numbered(protobuf_spans(MANY), 8)
    assert by_rules(body, ReadOptions()) == run(memory.normalise_if_known(body, ReadOptions()))
    assert memory.spans["reading"] > MANY


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_request(more: int, native: NativeModule, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of more bytes than the memory's limit goes to the rules."""
    memory = learned(native, protobuf_spans(98))
    body = numbered(protobuf_spans(98), 99)
    monkeypatch.setattr(spans, "LARGEST", len(body) - more)
    assert (run(memory.normalise_if_known(body, ReadOptions())) is None) == bool(more)
    assert bool(memory.spans["reading"]) != bool(more)


@pytest.mark.parametrize("more", [0, 1])
def test_the_most_items_of_a_request(
    more: int, native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A request of more items than the memory's limit goes to the rules. Items are its spans, resource and scope.
    """
    memory = learned(native, protobuf_spans(98))
    monkeypatch.setattr(spans, "MOST_ITEMS", 100 - more)
    assert (run(memory.normalise_if_known(numbered(protobuf_spans(98), 99), ReadOptions())) is None) == bool(
        more
    )
