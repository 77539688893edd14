"""
Readers of packed bytes return the same records, upstream bytes and sums as Python's rules.

The compiled module leaves records that it does not support to Python, without a visible difference.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.errors import EntryUnreadable
from spool.ledger.sums import MAX_TOKENS, HourlySums
from spool.log.entries import codec
from spool.log.entries.cache import CachedEntry
from spool.log.planning.corrections import late_report_correction
from spool.meters import METERS
from spool.packed.native import NativeModule
from spool.packed.records import packed_records
from spool.packed.sums import PackedSums
from spool.record import NS, Inference, Record, UsageMetric
from tests.bench.load.payloads import numbered, protobuf_spans
from tests.bench.test_bench_encode import records as bench_records
from tests.gateway.normalise.otlp.payloads import normalised
from tests.gateway.normalise.otlp.test_span_cases import cases
from tests.packed.both_ways import FIRST, TAGS, Both, entry_of, packed_as
from tests.rounds import IS_LONG
from tests.spool.digests import DIGESTS
from tests.spool.ledger_log import call

NOW = 1_790_000_000
LEAST_ITEMS = 30  # a record of the first version has this number of fields

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["a", "a-b", "x" * 127, "x" * 128, "ü" * 70, "x" * 300]
)
few = st.sampled_from(["openai", "gpt-4o", "ok", "error", "reported", "tags"])
hexes = st.sampled_from(
    ["5b8aa5a2d2c872e8321cf37308d69df2", "0" * 32, "a" * 32, "A" * 32, "a" * 31, "a" * 16, "0" * 16, "0" * 15 + "1",
     "g" * 16, "a" * 30 + "ü", "٣" * 32, ""]
)  # fmt: skip
response_ids = texts | st.sampled_from(
    [
        "chatcmpl-" + "x" * 24,
        "chatcmpl-" + "x" * 16,
        "chatcmpl-12",
        "msg_" + "y" * 15,
        "x" * 40,
        "a-" + "ü" * 16,
    ]
)
counts = st.integers(0, 5000) | st.sampled_from(
    [0, 127, 128, 16383, 16384, 100_000, 100_001, 512_000, 512_001, MAX_TOKENS, MAX_TOKENS + 1, 2**63 - 1,
     2**63, 2**64 - 1, -1]
)  # fmt: skip
times = st.integers(NOW * NS - 8 * 3600 * NS, NOW * NS + 4 * 3600 * NS) | st.sampled_from(
    [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, NOW * NS]
)
money = st.decimals(0, 10**6, places=12).map(lambda value: f"{value:f}") | st.sampled_from(
    ["0", "0.00", "-1.5", "10000000", "10000000.000000000000000000000000001", "9999999.9", "12345678901.5",
     "99999999.123", "0." + "1" * 27, "0." + "1" * 40, "0." + "9" * 33, ".5", "5.", "00001.5", "0." + "0" * 27 + "1"]
)  # fmt: skip
tags = st.dictionaries(
    st.sampled_from(
        ["service", "env", "processing", "speed", "service_tier", "repository", "naïve", "", "x" * 200]
    ),
    st.sampled_from(["", "prod", "batch", "fast", "flex", "shop", "ü" * 300]),
    max_size=5,
)
meters = st.dictionaries(st.sampled_from([*METERS][:3]), st.integers(0, 9) | st.just("1.5"), max_size=2)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "id": st.binary(min_size=16, max_size=16) | st.binary(max_size=20),
    "source": few | texts,
    "request_id": st.none() | response_ids,
    "trace_id": st.none() | hexes,
    "span_id": st.none() | hexes,
    "start_time": st.none() | times,
    "end_time": st.none() | times,
    "provider": st.none() | few,
    "operation": st.none() | few,
    "request_model": st.none() | few,
    "response_model": st.none() | few | texts,
    "input_tokens": st.none() | counts,
    "output_tokens": st.none() | counts,
    "cache_read_tokens": st.none() | counts,
    "cache_write_tokens": st.none() | counts,
    "reasoning_tokens": st.none() | counts,
    "cost": st.none() | money,
    "estimated_cost": st.none() | money,
    "cost_source": few,
    "price_book": st.none() | few,
    "status": few,
    "error_type": st.none() | few,
    "user": st.none() | texts,
    "team": st.none() | few,
    "session": st.none() | texts,
    "api_key": st.none() | few,
    "device": st.none() | few,
    "tags": tags,
    "shadow": st.sampled_from([False, False, False, True]),
    "also": st.none() | st.binary(min_size=16, max_size=16),
    "cache_write_1h_tokens": st.none() | counts,
    "region": st.none() | few,
    "counted_by": st.none() | st.binary(min_size=16, max_size=16),
    "sender_key": st.none() | few,
    "meters": st.just({})
    | st.dictionaries(st.sampled_from([*METERS][:3]), st.integers(0, 9) | st.just("1.5"), max_size=2),
    "charges": st.sampled_from([{}, {}, {"EUR": "1.25"}, {"JPY": "0"}]),
    "run": st.none() | texts,
    "parent_run": st.none() | texts,
    "ancestors": st.none() | texts,
}
inferences = st.builds(Inference, **FIELDS)
metrics = st.builds(
    UsageMetric,
    id=st.binary(min_size=16, max_size=16),
    source=few,
    name=st.sampled_from(["claude_code.token.usage", "cost"]),
    model=st.none() | few,
    token_type=st.none() | st.sampled_from(["input", "cache_read"]),
    value=st.integers(-5, 5000),
    start_time=st.none() | times,
)
CALLS = [record for record, _ in bench_records()]
# most records are plain, because entries with many unusual records are not read packed
plain = st.sampled_from(CALLS)


def test_every_field_is_tried() -> None:
    """
    The test below must also draw new fields, because each reader of packed bytes must read or refuse every field.
    """
    assert {*Inference.__struct_fields__} == {*FIELDS}


@given(data=st.data())
def test_any_records_are_read_the_same(native: NativeModule, data: st.DataObject) -> None:
    """
    The drawn records include records of earlier versions with fewer items, amended records, shadows and
    counters. Any range of them gives the same result.
    """
    of = data.draw(st.sampled_from([plain | inferences, plain | plain | inferences, plain | plain | metrics]))
    records: list[Record] = data.draw(st.lists(of, min_size=1, max_size=12))
    items = data.draw(st.lists(st.integers(LEAST_ITEMS, len(FIELDS) + 1), max_size=12))
    packed = packed_as(records, items)
    begin = data.draw(st.integers(0, len(records) - 1))
    end = data.draw(st.integers(begin + 1, len(records)))
    fields = st.fixed_dictionaries({}, optional={"user": texts, "input_tokens": counts, "cost": money})
    amendments = data.draw(st.dictionaries(st.integers(0, len(records) - 1), fields, max_size=3))
    Both(native).compare(packed, begin, end, amendments=amendments)


@given(data=st.data())
def test_changed_bytes_are_damage_or_read_the_same(native: NativeModule, data: st.DataObject) -> None:
    """Bytes that pass the checksum but are no record are damage for both readers, and raise nothing else."""
    records: list[Record] = data.draw(st.lists(plain | inferences, min_size=1, max_size=5))
    packed = bytearray(codec.encode_records(records))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        raws = codec.split_records(bytes(packed))
    except EntryUnreadable:
        assert native.record_positions(bytes(packed), len(records)) is None
        return
    if raws:
        Both(native).compare(bytes(packed))


def varied(record: Inference, number: int) -> Inference:
    """Return a call of the same kind with other ids, times and counts."""
    chance = random.Random(number)
    fields: dict[str, Any] = {"id": chance.randbytes(16)}
    for name in ("start_time", "end_time"):
        if getattr(record, name) is not None:
            fields[name] = getattr(record, name) + chance.randrange(10**12)
    for name in ("input_tokens", "output_tokens", "cache_read_tokens", "reasoning_tokens"):
        if getattr(record, name) is not None:
            fields[name] = chance.randrange(10 ** chance.randrange(1, 13))
    if record.trace_id is not None:
        fields |= {"trace_id": chance.randbytes(16).hex(), "span_id": chance.randbytes(8).hex()}
    if record.estimated_cost is not None:
        fields["estimated_cost"] = (
            f"{chance.random() * 10 ** chance.randrange(-3, 8):.{chance.randrange(1, 28)}f}"
        )
    values = {name: getattr(record, name) for name in record.__struct_fields__}
    return Inference(**{**values, **fields})


def test_records_of_every_trace_case_are_read_the_same(native: NativeModule) -> None:
    """
    Each product's record is read many times with other ids, times and counts, in one entry and in ranges of
    it. A range with too many odd records is left to Python.
    """
    calls = [
        record
        for path in cases()
        for record in normalised(path.read_bytes()).records
        if isinstance(record, Inference)
    ]
    # Vary only plain calls, because the cases already have many calls with meters or charges.
    plain = [call for call in calls if not call.meters and not call.charges]
    varieties = [varied(call, number) for number in range(300 if IS_LONG else 10) for call in plain]
    both, packed = Both(native), codec.encode_records([*calls, *varieties])
    assert both.compare(packed)
    chance = random.Random(1)
    taken = 0
    for _ in range(20):
        begin = chance.randrange(len(varieties))
        taken += both.compare(packed, begin, chance.randrange(begin + 1, len(calls) + len(varieties) + 1))
    assert taken > 10


@pytest.mark.parametrize("spans", [1, 10, 100])
def test_bodies_of_the_bench_are_read_the_same(native: NativeModule, spans: int) -> None:
    """
    In bodies of the benchmark, the module reads all records except the first of each combination, from
    which it learns.
    """
    template = protobuf_spans(spans)
    both = Both(native)
    for number in range(20):
        outcome = normalised(numbered(template, number), encoding="protobuf")
        assert both.compare(codec.encode_records(list(outcome.records)))


def test_more_combinations_than_are_remembered(native: NativeModule) -> None:
    """If models, users and tags keep changing, the memory hands its sums to Python and starts again empty."""
    both = Both(native)
    many = [
        Inference(id=bytes(16), source="s", request_model=f"m{number}", tags={"service": str(number)})
        for number in range(5000)
    ]
    assert both.compare(codec.encode_records([*many, *CALLS]))
    assert both.compare(codec.encode_records([*many[2000:], *CALLS]))


def test_sums_beyond_any_number_of_the_module(native: NativeModule) -> None:
    """Maximum amounts are added more often than fits into 128 bits, so Python adds the rest."""
    call = Inference(id=bytes(16), source="s", cost="10000000", cache_read_tokens=2**63 - 1)
    assert Both(native).compare(codec.encode_records([call] * 20_000))


def test_calls_without_usage_have_sums_of_their_own(native: NativeModule) -> None:
    """The module and the rules agree which calls used nothing and cost nothing (`spool.cost_kinds`)."""
    some: Sequence[dict[str, Any]] = (
        {},
        {"output_tokens": 0},
        {"output_tokens": 5},
        {"cache_read_tokens": 5},
    )
    varied = [
        Inference(id=bytes(16), source="s", cost_source=source, status=status, cost=cost, **counts)
        for source in ("none", "reported", "estimated")
        for status in ("ok", "error", "cached")
        for cost in (None, "0", "0.5")
        for counts in some
    ]
    random.Random(7).shuffle(varied)
    assert Both(native).compare(codec.encode_records(varied))


async def test_a_correction_of_a_call_with_other_tags(native: NativeModule) -> None:
    """
    A correction gets the tags that its call had, while a new call in the same read gets the tags that are
    configured now.
    """
    known, new = [call(id=id * 16, tags={"service": "shop", "env": "prod"}) for id in (b"k", b"n")]
    change = late_report_correction(
        known, 0, known, {"output_tokens": 99}, replaces_cost=False, now_ns=NOW * NS
    )
    assert change is not None
    change.corrects_number = FIRST - 1
    packed = packed_as([new])
    found = packed_records(native, CachedEntry(codec.split_records(packed), packed), FIRST, FIRST, FIRST, {})
    assert found is not None
    by_rule, sums = [
        HourlySums(TAGS, tags_of=lambda number, _: TAGS if number >= FIRST else TAGS[:1]) for _ in range(2)
    ]
    adding, late = PackedSums(native, sums), entry_of(1, [change], float(NOW))
    await adding.add_entry(entry_of(0, found, float(NOW)))
    await adding.add_entry(late)
    await adding.move_rows_to_sums()
    by_rule.add_entries([entry_of(0, [new], float(NOW)), late])
    assert by_rule.hours == sums.hours
    assert ['{"env": "prod", "service": "shop"}', '{"service": "shop"}'] == sorted(
        dimensions.tags for _, dimensions, _ in sums.hourly_rows()
    )


async def test_calls_that_differ_are_handed_over_in_steps(
    native: NativeModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each call differs from all others, so Python decodes a separate sum for it. Other tasks get a turn after
    each hundred calls.
    """
    packed = packed_as([call(user=f"u{number}") for number in range(350)])
    cached = CachedEntry(codec.split_records(packed), packed)
    found = packed_records(native, cached, FIRST, FIRST, FIRST + 349, {})
    assert found is not None
    sums = HourlySums(unit_hasher=DIGESTS)
    adding = PackedSums(native, sums)
    await adding.add_entry(entry_of(0, found, float(NOW)))
    steps = []

    async def paused() -> None:
        steps.append(len(*sums.hours.values()))

    monkeypatch.setattr("spool.packed.sums.pause_for_others", paused)
    await adding.move_rows_to_sums()
    assert [99, 199, 299] == steps
