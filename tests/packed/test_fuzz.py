"""
Fuzz tests of the compiled module with hostile packed bytes. It reads or refuses them, and never differs
from the rules.

`make test-native` runs all targets for ten seconds, `make proofs` for an hour. A failed test shows the seed of
its round, and `TOLLHOUSE_SEED` replays it.
"""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import pytest

from exporters.otlp.spans import PackedSpans, SpanEncoder
from spool.errors import EntryUnreadable
from spool.ledger.sums import MAX_TOKENS, HourlySums
from spool.log.entries import codec
from spool.packed.native import NativeModule
from spool.packed.sums import PackedSums
from spool.record import NS, Inference
from tests.faults.scenarios import SEED
from tests.packed.both_ways import TAGS, Both, packed_as
from tests.packed.test_packed_readers import CALLS, NOW, varied
from tests.rounds import IS_LONG
from tests.spool.digests import DIGESTS

SECONDS = 900.0 if IS_LONG else 2.5  # duration in seconds for each of the four targets
AT_LEAST = 20  # minimum number of rounds on a busy machine
NUMBERS = (0, 1, 127, 128, 65535, 2**31, 2**32 - 1)
# These are msgpack lengths beyond the input, nested containers, unused types and other tags.
HOSTILE = [
    b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
    b"\xdc\x00\x21", b"\xdc\xff\xff", b"\x91" * 100, b"\x81\xa0" * 50, b"\xc1", b"\xc9\xff\xff\xff\xff\x00",
    b"\xcf" + b"\xff" * 8, b"\xd3" + b"\x80" + b"\x00" * 7, b"\xcb" + b"\x7f\xf8" + b"\x00" * 6, b"\xa2\xff\xfe",
    b"\xc0",
]  # fmt: skip

pytestmark = pytest.mark.timeout(int(SECONDS) * 2 + 600)


def seeds() -> Iterator[int]:
    """Yield seeds of rounds until the time has passed, or only the seed to replay."""
    if SEED:
        yield int(SEED)
        return
    end, number = time.monotonic() + SECONDS, 0
    while number < AT_LEAST or time.monotonic() < end:
        yield random.getrandbits(64) if IS_LONG else number
        number += 1


def tried(native: NativeModule, target: Callable[[random.Random], None]) -> None:
    """Run a target round by round. Assert that the module never panics."""
    for seed in seeds():
        try:
            target(random.Random(seed))
            assert native.faults == 0
        except BaseException:
            print(f"TOLLHOUSE_SEED={seed}")
            raise


def mutated(packed: bytes, chance: random.Random) -> bytes:
    """Change, delete, repeat, insert or cut a few bytes."""
    found = bytearray(packed)
    for _ in range(chance.randrange(1, 5)):
        at = chance.randrange(len(found) + 1)
        match chance.randrange(6):
            case 0:
                found[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del found[at : at + chance.randrange(1, 30)]
            case 2:
                found[at:at] = chance.choice(HOSTILE)
            case 3:
                found[at : at + 5] = chance.choice(HOSTILE)
            case 4:
                found[at:at] = found[chance.randrange(len(found) + 1) :][: chance.randrange(1, 60)]
            case _:
                del found[at + chance.randrange(200) :]
    return bytes(found)


def some(chance: random.Random) -> list[Inference]:
    calls = chance.choices(CALLS, k=chance.randrange(1, 6))
    return [call if chance.random() < 0.3 else varied(call, chance.getrandbits(32)) for call in calls]


def count_of(packed: bytes) -> int:
    """Return the number of records that the header of the bytes states."""
    first = packed[0] if packed else 0xC1
    return first & 0x0F if first & 0xF0 == 0x90 else int.from_bytes(packed[1:3])


@pytest.mark.proof
def test_walker(native: NativeModule) -> None:
    """The walker finds the same records as the rule, and none if the rule finds damage."""

    def target(chance: random.Random) -> None:
        packed = mutated(codec.encode_records(some(chance)), chance)
        try:
            raws: Sequence[bytes] | None = [bytes(raw) for raw in codec.split_records(packed)]
        except EntryUnreadable:
            raws = None
        for count in (count_of(packed), chance.choice(NUMBERS)):
            walked = native.record_positions(packed, count)
            if walked is None:
                continue
            at = array("I", walked.offsets)
            assert raws == [packed[begin:end] for begin, end in pairwise(at)]
            assert all(0 <= place < count for place in walked.odd)

    tried(native, target)


@pytest.mark.proof
def test_spans_and_sums(native: NativeModule) -> None:
    """
    Changed bytes that are still valid records give the rules' spans and sums, even if the module has
    learned earlier records.
    """
    both = Both(native)

    def target(chance: random.Random) -> None:
        packed = mutated(codec.encode_records(some(chance)), chance)
        try:
            raws = codec.split_records(packed)
        except EntryUnreadable:
            return
        if raws:
            both.compare(packed, at=chance.uniform(0, 2 * NOW))

    tried(native, target)


@pytest.mark.proof
def test_offsets_that_fit_nothing(native: NativeModule) -> None:
    """
    The encoder and the sums check every offset that they receive, and leave records with an invalid
    offset to Python.
    """
    spans = PackedSpans(native, SpanEncoder())._writer
    learned = codec.encode_records(CALLS)
    walked = native.record_positions(learned, len(CALLS))
    assert walked is not None
    assert spans.learn(learned, walked.offsets, 0, b"combination")

    def target(chance: random.Random) -> None:
        packed = (
            mutated(learned, chance) if chance.random() < 0.9 else chance.randbytes(chance.randrange(200))
        )
        offsets = array("I", walked.offsets)
        for _ in range(chance.randrange(1, 6)):
            offsets[chance.randrange(len(offsets))] = chance.choice(
                (*NUMBERS, chance.randrange(len(packed) + 2))
            )
        given = offsets.tobytes()[: chance.randrange(4 * len(offsets) + 1)] + chance.randbytes(
            chance.randrange(4)
        )
        begin = chance.randrange(len(offsets) + 3)
        end = begin + chance.randrange(len(offsets) + 3)
        _, sent, shadows, at = spans.encode(packed, given, begin, end, chance.getrandbits(63))
        assert begin <= at <= end
        assert sent + shadows == at - begin
        rows = PackedSums(native, HourlySums(TAGS, unit_hasher=DIGESTS))._rows
        assert begin <= rows.add(packed, given, begin, end, 1, (NOW // 3600, NOW * NS)) <= end
        rows.take()
        spans.learn(packed, given, chance.randrange(len(offsets) + 3), chance.randbytes(9))

    tried(native, target)


def amount(chance: random.Random) -> str:
    """Return a text that is an amount, almost one, or none."""
    digits = "".join(chance.choices("0123456789", k=chance.randrange(1, 40)))
    point = chance.randrange(len(digits) + 1)
    text = digits[:point] + chance.choice((".", "", "..", ",")) + digits[point:]
    if chance.random() < 0.2:
        text = chance.choice("+- _") + text
    if chance.random() < 0.2:
        text += chance.choice(("e9", "E-30", "e999999", "%", " ", "\x00", "٣", "nan", "inf"))
    return text


@pytest.mark.proof
def test_decimal_text_and_counts(native: NativeModule) -> None:
    """Money is added up to the last digit. A text that is no amount is refused, as by the rule."""
    both = Both(native)
    counts = (0, 1, MAX_TOKENS, MAX_TOKENS + 1, 2**63 - 1)

    def target(chance: random.Random) -> None:
        calls = [
            Inference(
                id=bytes(16),
                source="s",
                cost=amount(chance) if chance.random() < 0.8 else None,
                estimated_cost=amount(chance) if chance.random() < 0.8 else None,
                input_tokens=chance.choice(counts),
                start_time=chance.choice((None, NOW * NS)),
            )
            for _ in range(chance.randrange(1, 6))
        ]
        both.compare(packed_as(calls))

    tried(native, target)
