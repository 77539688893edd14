"""Data lake files of a delivery: Parquet readers see exactly what the totals count, to the last digit."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.lake import manifest, parquet, partitions
from exporters.lake.columns import COLUMNS, KEPT, row_of_record
from exporters.lake.formats import PARQUET
from exporters.lake.names import DeliveryRange
from spool import money
from spool.ledger.sums import COUNTS, HourlySums
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, NS, Inference, Record
from tests.exporters.lake.records import NOON, RECORDS
from tests.rounds import examples

ROUTE = "lake/ai-telemetry"


def entry(records: Sequence[Record | None], first: int = 1) -> LogEntry:
    return LogEntry(topic=AI_TELEMETRY, first=first, committed_at=NOON + 0.5, records=records)


def written(
    directory: Path, *entries: LogEntry, last: int | None = None, **options: Any
) -> manifest.LakeManifest:
    last = entries[-1].last if last is None else last
    series = DeliveryRange("lake", "3f9c1a2b", entries[0].first, last)
    files = partitions.DeliveryFiles(directory, series, route=ROUTE, format=PARQUET, **options)
    for each in entries:
        files.add_entry(each)
        while files.has_full_part:
            files.write_largest_part()
    return files.finish_and_describe()


def calls(count: int, **fields: Any) -> list[Inference]:
    return [
        Inference(id=number.to_bytes(16, "big"), source="test", start_time=NOON * NS + number, **fields)
        for number in range(count)
    ]


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.none() | RECORDS, min_size=1, max_size=40))
def test_the_sums_of_files_are_those_of_the_ledger(records: list[Record | None]) -> None:
    """Spend, calls and tokens of counted rows equal the ledger's sums for every day."""
    sums = HourlySums()
    sums.add_entries([entry(records)])
    with tempfile.TemporaryDirectory() as directory:
        made = written(Path(directory), entry(records))
        files = f"{directory}/*.parquet"
        of_days = f"""SELECT "at"::date, sum(spend), sum(calls), sum(input_tokens), sum(output_tokens),
                       sum(cache_read_tokens) FROM read_parquet('{files}') WHERE counted GROUP BY 1"""
        found = duckdb.connect().execute(of_days).fetchall() if made.files else []
    expected: dict[Any, list[Any]] = {}
    for hour, key, measures in sums.hourly_rows():
        day = expected.setdefault(datetime.fromtimestamp(hour, UTC).date(), [0] * 5)
        paid = {"reported": measures[len(COUNTS)], "estimated": measures[len(COUNTS) + 1]}.get(
            key.cost_source, 0
        )
        day[0] += 0 if key.status == "cached" else paid
        for place, name in enumerate(("calls", "input_tokens", "output_tokens", "cache_read_tokens"), 1):
            day[place] += measures[COUNTS.index(name)]
    assert expected == {day: [_units(spend), *(int(n or 0) for n in counts)] for day, spend, *counts in found}
    assert money.units_to_text(sum(day[0] for day in expected.values())) == made.counted.spend
    assert sum(record is None for record in records) == len(made.numbers.damaged)


def _units(amount: Decimal | None) -> int:
    return 0 if amount is None else money.text_to_units(f"{amount:f}")


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=20))
def test_every_value_is_read_as_it_was_written(records: list[Record]) -> None:
    """Numbers, texts, money, times, tags and meters of each row are read back, including unknown values."""
    rows = [
        row_of_record(record, number=number, committed_at=NOON + 0.5, log_edition="3f9c1a2b").values
        for number, record in enumerate(records, 1)
    ]
    with tempfile.TemporaryDirectory() as directory:
        made = written(Path(directory), entry(records))
        found = []
        for file in made.files:
            path = Path(directory) / f"{file.date}.parquet"
            found += list(parquet.read_rows(path, list(COLUMNS)))
    number = list(COLUMNS).index("number")
    assert rows == [
        tuple(map(_plain, COLUMNS.values(), row)) for row in sorted(found, key=lambda row: row[number])
    ]


def _plain(type: str, value: Any) -> Any:
    """Return a value read from a file in the form that a row has."""
    if value is None:
        return None
    if type == "money":
        return money.text_to_units(f"{value:f}")
    if type == "time":
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    if type == "meters":
        return [(name, int(quantity * 10**6)) for name, quantity in value]
    return value


@pytest.mark.parametrize("source", ["none", "reported", "estimated"])
@pytest.mark.parametrize("status", ["ok", "cached"])
@pytest.mark.parametrize("amounts", [(None, None), ("0.5", None), (None, "0.25"), ("0.5", "0.25")])
def test_amounts_of_a_call_are_its_own(
    source: str, status: str, amounts: tuple[str | None, str | None]
) -> None:
    """
    An amount that a call does not state stays null in its row, even if another amount counts as the call's spend.
    """
    cost, estimated_cost = amounts
    (call,) = calls(1, cost=cost, estimated_cost=estimated_cost, cost_source=source, status=status)
    values = dict(
        zip(COLUMNS, row_of_record(call, number=1, committed_at=NOON, log_edition="e").values, strict=True)
    )
    expected = [None if each is None else money.text_to_units(each) for each in amounts]
    assert expected == [values["cost"], values["estimated_cost"]]


def test_rows_of_many_days_wait_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and groups stay within their limits for any mix of days, and each row is written once."""
    monkeypatch.setattr(partitions, "PART_ROWS", 8)
    monkeypatch.setattr(partitions, "GROUP_ROWS", 32)
    records = calls(300)
    for place, record in enumerate(records):
        record.start_time = (NOON - place * place % 17 * 86400) * NS
    made = written(tmp_path, *entry(records).split(4))
    assert 300 == sum(file.rows for file in made.files) == made.numbers.rows
    for file in made.files:
        found = pq.read_metadata(tmp_path / f"{file.date}.parquet")
        assert all(found.row_group(place).num_rows <= 32 for place in range(found.num_row_groups))
    there = [number for file in made.files for (number,) in numbers(tmp_path / f"{file.date}.parquet")]
    assert list(range(1, 301)) == sorted(there)


def numbers(path: Path) -> list[tuple[Any, ...]]:
    return list(parquet.read_rows(path, ["number"]))


@pytest.mark.parametrize("count", [1, partitions.GROUP_ROWS + 1])
def test_groups_end_at_their_bound(tmp_path: Path, count: int) -> None:
    """Rows beyond the limit start another group, and every row is written once."""
    made = written(tmp_path, *entry(calls(count, cost="0.1", cost_source="reported")).split(4096))
    (file,) = made.files
    found = pq.read_metadata(tmp_path / f"{file.date}.parquet")
    assert count == found.num_rows == made.numbers.rows == file.rows
    assert -(-count // partitions.GROUP_ROWS) == found.num_row_groups
    assert money.units_to_text(count * money.UNIT // 10) == made.counted.spend


def test_a_row_that_was_damaged_is_named(tmp_path: Path) -> None:
    """
    The manifest of a delivery lists numbers without a record: in an entry, between entries and at the end.
    """
    first, second = entry([*calls(1), None], first=5), entry(calls(1), first=9)
    assert [6, 7, 8, 10] == written(tmp_path, first, second, last=10).numbers.damaged


def test_a_delivery_has_a_file_for_each_day(tmp_path: Path) -> None:
    """A file name contains the day of the calls, not the day of their arrival."""
    late = Inference(id=b"l" * 16, source="test", start_time=(NOON - 86400) * NS)
    unbelieved = Inference(id=b"u" * 16, source="test", start_time=(NOON + 86400) * NS)
    made = written(tmp_path, entry([late, unbelieved, *calls(1)], first=123001))
    name = "ai_telemetry/v1/date={}/lake-3f9c1a2b-000000123001-000000123003.parquet"
    assert [name.format("2026-10-25"), name.format("2026-10-26")] == [file.key for file in made.files]
    assert [1, 2] == [file.rows for file in made.files]


def test_the_digest_is_the_same_for_the_same_rows_only(tmp_path: Path) -> None:
    """
    The digest depends only on the rows, not on groups and entries. If an amount differs, the digest differs,
    also in the file's footer.
    """
    records = calls(100, cost="0.1", cost_source="reported")
    one = written(tmp_path, entry(records))
    assert one.digest == written(tmp_path, *entry(records).split(7)).digest
    assert one.digest == parquet.read_metadata(tmp_path / "2026-10-26.parquet")["tollhouse.digest"]
    records[50].cost = "0.100000000000000000000000001"
    assert one.digest != written(tmp_path, entry(records)).digest


def test_columns_that_are_left_out_stay_null(tmp_path: Path) -> None:
    """Leaving out a column changes neither the digest nor the sums."""
    records = calls(3, user="ada@acme.com", cost="0.1", cost_source="reported")
    whole = written(tmp_path, entry(records))
    made = written(tmp_path, entry(records), leave_out=["user"])
    assert [(None,)] * 3 == list(parquet.read_rows(tmp_path / "2026-10-26.parquet", ["user"]))
    assert whole.digest == made.digest
    assert whole.counted == made.counted
    assert "user" not in KEPT


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    """A manifest is JSON and stores its sums with every digit."""
    made = written(tmp_path, entry(calls(2, cost="0.000000000000000000000000001", cost_source="reported")))
    body = manifest.encode_manifest(made)
    assert made == manifest.decode_manifest(body)
    assert "0.000000000000000000000000002" == json.loads(body)["counted"]["spend"]
    with pytest.raises(ValueError, match="version 2"):
        manifest.decode_manifest(body.replace(b'"manifest":1', b'"manifest":2'))
