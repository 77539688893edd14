"""The fixed table of meters: which quantities fit a record, and quantities with fractions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from spool.log.entries.codec import compress_entry
from spool.meters import (
    METERS,
    MOST,
    plausible_meters,
    quantity_from_millionths,
    quantity_in_millionths,
    remove_implausible_meters,
)
from spool.record import Inference, pack_records, record_to_json, unpack_records

COUNTS = {"input_tokens": 1200, "output_tokens": 300, "cache_read_tokens": 700, "cache_write_tokens": 10}


def call(**counts: int) -> Inference:
    return Inference(id=b"1" * 16, source="otel", **counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("told", "left_out"),
    [
        ({"input_audio_tokens": 1000, "cache_audio_read_tokens": 640, "output_audio_tokens": 300}, set()),
        ({"input_audio_tokens": 1201}, {"input_audio_tokens"}),
        ({"output_audio_tokens": 301, "web_searches": 1}, {"output_audio_tokens"}),
        (  # Together these meters exceed the input, and it is unknown which meter is wrong.
            {"input_audio_tokens": 800, "input_image_tokens": 500, "web_searches": 1},
            {"input_audio_tokens", "input_image_tokens"},
        ),
        ({"input_audio_tokens": 600, "cache_audio_read_tokens": 640}, {"cache_audio_read_tokens"}),
        ({"input_audio_tokens": 900, "cache_audio_read_tokens": 701}, {"cache_audio_read_tokens"}),
        ({"cache_write_12h_tokens": 11, "web_searches": 1}, {"cache_write_12h_tokens"}),
        (
            {"input_document_pages": 2, "input_annotated_document_pages": 3},
            {"input_annotated_document_pages"},
        ),
        ({"audio_seconds": "1000000000.5", "web_searches": 1}, {"audio_seconds"}),
    ],
)
def test_a_part_is_at_most_its_whole(told: dict[str, int | str], left_out: set[str]) -> None:
    """Meters that exceed their whole are left out and counted, and the whole stays."""
    record = call(**COUNTS)
    record.meters = dict(told)
    assert len(left_out) == remove_implausible_meters(record)
    assert {name: told[name] for name in told if name not in left_out} == record.meters


def test_an_unknown_whole_is_not_exceeded() -> None:
    """
    If a report states only the parts of a quantity and no whole, the parts are accepted, because they exceed no
    known whole.
    """
    assert {"input_audio_tokens": 5} == plausible_meters(call(), {"input_audio_tokens": 5})


def test_all_zero_parts_and_unknown_names_are_not_stored() -> None:
    """
    If all reported parts are 0, none is stored, because providers write 0 audio tokens for every text. A 0
    next to another part is stored, because it states how much is text.
    """
    assert {} == plausible_meters(call(**COUNTS), {"input_audio_tokens": 0, "invented_tokens": 5})
    both = {"input_audio_tokens": 0, "output_audio_tokens": 7}
    assert both == plausible_meters(call(**COUNTS), both)
    everything = dict.fromkeys(METERS, 1)
    assert MOST == len(plausible_meters(call(input_tokens=99, output_tokens=99), everything))


@pytest.mark.parametrize(("quantity", "units"), [(3, 3_000_000), ("12.5", 12_500_000), ("0.000001", 1)])
def test_quantities_are_exact(quantity: int | str, units: int) -> None:
    """Quantities convert to millionths of a unit and back."""
    assert quantity_in_millionths(quantity) == units
    assert quantity_from_millionths(units) == quantity


def test_a_record_without_meters_is_as_it_was() -> None:
    """
    Without meters, charges and runs, a packed record has five more bytes, and the JSON nothing more. With meters it
    is read back completely.
    """
    plain = call(**COUNTS)
    assert "meters" not in record_to_json(plain)
    assert pack_records([plain]).endswith(b"\x80\x80\xc0\xc0\xc0")
    heard = call(**COUNTS)
    heard.meters = {"input_audio_tokens": 5, "audio_seconds": "1.5"}
    assert unpack_records(pack_records([heard])) == [heard]
    assert heard.meters == record_to_json(heard)["meters"]


def test_meters_of_a_tenth_of_the_calls_cost_a_fiftieth_of_the_spool() -> None:
    """
    Compare the stored bytes of a thousand calls, every tenth with three meters, with the same calls without meters.
    """
    chance = random.Random(36)
    calls = [spoken(chance) for _ in range(1000)]
    telling = [replace(each, meters={}) if place % 10 else each for place, each in enumerate(calls)]
    silent = [replace(each, meters={}) for each in calls]
    assert stored(silent) < stored(telling) <= stored(silent) * 1.02


def spoken(chance: random.Random) -> Inference:
    """Return a call with ids, a session and audio."""
    counts: dict[str, Any] = {name: chance.randint(1, 9000) for name in COUNTS}
    told = ("input_audio_tokens", "cache_audio_read_tokens", "output_audio_tokens")
    return Inference(
        id=chance.randbytes(16), source="otel", trace_id=chance.randbytes(16).hex(), span_id=chance.randbytes(8).hex(),
        request_id=f"chatcmpl-{chance.randbytes(14).hex()}", provider="openai", request_model="gpt-realtime",
        start_time=chance.randint(0, 10**12), user=f"user-{chance.randint(1, 50)}",
        session=f"session-{chance.randint(1, 300)}", estimated_cost=f"0.0{chance.randint(10**4, 10**5)}",
        price_book="2026-11-20", meters={name: chance.randint(1, 9000) for name in told}, **counts,
    )  # fmt: skip


def stored(records: list[Inference]) -> int:
    return len(compress_entry(pack_records(records), "place").data)
