"""For bytes that no client sends, the memory returns the rules' result or leaves the request to the rules."""

from __future__ import annotations

import random

from gateway.core.errors import BadPayload
from gateway.normalise.memory.pace import AT_ONCE
from gateway.normalise.memory.spans import SpanMemory
from gateway.normalise.outcome import ReadOptions
from spool.packed.native import NativeModule
from tests.bench.load.payloads import numbered, protobuf_spans
from tests.bench.load.traces import captured_spans, tree_spans
from tests.packed.memory.both_ways import by_rules, run
from tests.rounds import IS_LONG

ROUNDS = 100_000 if IS_LONG else 2500


def _broken(body: bytes, chance: random.Random) -> bytes:
    broken = bytearray(body)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(broken))
        what = chance.randrange(5)
        if what == 0:
            broken[at] = chance.randrange(256)
        elif what == 1:
            broken[at] ^= 1 << chance.randrange(8)
        elif what == 2:
            del broken[at : at + chance.choice((1, 2, 30))]
        elif what == 3:
            broken[at:at] = chance.randbytes(chance.choice((1, 2, 11)))
        else:
            broken[at:at] = chance.choice((b"\xff" * 10, b"\x0b", b"\x0a\x00", b"\x80\x80\x00", b"\x00"))
        broken = broken or bytearray(b"\x0a")
    return bytes(broken)


def test_broken_requests_are_read_as_the_rules_read_them(native: NativeModule) -> None:
    """
    Flipped bits, removed and inserted bytes never cause another result or a crash, even for known kinds of spans.
    """
    chance, memory = random.Random(11), SpanMemory(native, AT_ONCE)
    small = [body for body in captured_spans() if len(body) < 6000][:20]
    bodies = [protobuf_spans(1), protobuf_spans(2), tree_spans(7), *small]
    for number in range(30):
        for body in bodies:
            run(memory.normalise_if_known(numbered(body, number), ReadOptions()))
    taken = 0
    for number in range(ROUNDS):
        body = _broken(numbered(chance.choice(bodies), number), chance)
        found = run(memory.normalise_if_known(body, ReadOptions()))
        try:
            expected = by_rules(body, ReadOptions())
        except BadPayload:
            assert found is None
            continue
        assert found is None or found == expected
        taken += found is not None
    assert taken > ROUNDS / 10
    assert 0 == memory.compared["different"]
