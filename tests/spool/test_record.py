"""The two forms of a record: packed on disk, and JSON everywhere else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.record import (
    Inference,
    UsageMetric,
    format_to_second,
    pack_records,
    record_to_json,
    rfc3339,
    unpack_records,
    utc_iso,
)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (None, None),
        (1_772_442_000_000_000_000, "2026-03-02T09:00:00Z"),
        (1_772_442_002_250_000_000, "2026-03-02T09:00:02.25Z"),
        (1_772_442_002_000_000_001, "2026-03-02T09:00:02.000000001Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_times_have_no_needless_digits(time_ns: int | None, text: str | None) -> None:
    """Times are UTC with Z, up to nine digits and no trailing zeros."""
    assert text == rfc3339(time_ns)


@given(
    st.builds(
        Inference,
        id=st.binary(min_size=16, max_size=16),
        source=st.text(max_size=8),
        start_time=st.none() | st.integers(0, 2**62),
        input_tokens=st.none() | st.integers(0, 10**9),
        cost=st.none() | st.just("0.00024839999999999997"),
        tags=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        shadow=st.booleans(),
    )
    | st.builds(
        UsageMetric,
        id=st.binary(min_size=16, max_size=16),
        source=st.text(max_size=8),
        name=st.text(max_size=8),
        value=st.integers(0, 2**62) | st.just("0.000001"),
    )
)
def test_packing_keeps_everything(record: Inference | UsageMetric) -> None:
    assert [record, record] == unpack_records(pack_records([record, record]))


def test_an_entry_of_an_older_version_stays_readable() -> None:
    """Fields that an older, shorter array lacks get their defaults."""
    # The values are in the order in which the fields were added.
    assert list(Inference.__struct_fields__)[-10:] == [
        "also",
        "cache_write_1h_tokens",
        "region",
        "counted_by",
        "sender_key",
        "meters",
        "charges",
        "run",
        "parent_run",
        "ancestors",
    ]
    older = msgspec.msgpack.encode([[1, b"x" * 16, "otel", "request"]])
    assert [Inference(id=b"x" * 16, source="otel", request_id="request")] == unpack_records(older)


def test_json_has_every_field() -> None:
    """Unknown values are null and never missing, ids are hex, and the currency is always USD."""
    row = record_to_json(Inference(id=b"\1" * 16, source="otel"))
    assert row["kind"] == "inference"
    assert row["id"] == "01" * 16
    assert row["currency"] == "USD"
    assert row["input_tokens"] is None
    assert row["tags"] == {}


@pytest.mark.parametrize(("name", "told"), [("cache_write_1h_tokens", 0), ("region", "us-east-1")])
def test_rare_field_appears_only_in_records_that_have_it(name: str, told: int | str) -> None:
    """A field that few sources report is in the JSON only of records that have it."""
    record = Inference(id=b"\1" * 16, source="otel")
    assert name not in record_to_json(record)
    setattr(record, name, told)
    assert told == record_to_json(record)[name]


@pytest.mark.proves("times, rejected lines, `--json`")
@pytest.mark.parametrize(
    ("at", "text"),
    [
        (1_790_000_000.0, "2026-09-21T14:13:20.000Z"),
        (1_790_000_000.3, "2026-09-21T14:13:20.300Z"),
        (1_790_000_000.33, "2026-09-21T14:13:20.330Z"),
        (1_790_000_000.3333, "2026-09-21T14:13:20.333Z"),
        (1_790_000_000.9996, "2026-09-21T14:13:21.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (None, None),
    ],
)
def test_a_moment_has_three_digits(at: float | None, text: str | None) -> None:
    """Moments have three digits after the second, so that their texts sort in the order of the times."""
    assert text == utc_iso(at)


def test_a_border_is_a_whole_second() -> None:
    assert "2026-09-21T14:00:00Z" == format_to_second(1_789_999_200.0)


def test_a_release_without_meters_reads_a_record_that_has_some() -> None:
    """
    A release without meters reads a record with meters and leaves unknown fields unchanged, because both
    releases may run on one storage.
    """
    fields = [
        (field.name, field.type, field.default if field.default_factory is msgspec.NODEFAULT else {})
        if not field.required
        else (field.name, field.type)
        for field in msgspec.structs.fields(Inference)
        if field.name not in ("meters", "charges", "run", "parent_run", "ancestors")
    ]
    older = msgspec.defstruct("OlderInference", fields, array_like=True, tag=1, kw_only=True)
    record = Inference(id=b"x" * 16, source="otel", input_tokens=9, meters={"input_audio_tokens": 5})
    [read] = msgspec.msgpack.Decoder(list[older]).decode(pack_records([record]))  # type: ignore[valid-type]
    assert (b"x" * 16, 9, None) == tuple(getattr(read, name) for name in ("id", "input_tokens", "sender_key"))


def test_numbers_of_the_log_stay_in_the_installation() -> None:
    """
    Numbers of the log stay within the installation: a destination does not receive the number of the record that a
    counter takes back.
    """
    metric = UsageMetric(
        id=b"m" * 16, source="codex", name="tokens", value="-1", start_time=1, end_time=2, reverses_number=7
    )
    assert "reverses_number" not in record_to_json(metric)
    assert [metric] == unpack_records(pack_records([metric]))
