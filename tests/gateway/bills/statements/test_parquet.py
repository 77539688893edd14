"""Parquet files of CUR and FOCUS: same result as CSV, limited memory, and never a crash."""

from __future__ import annotations

import csv
import io
import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from exporters.focus import charges as focus
from gateway.bills.statements.importing import ParsedReport, ReportFile, read_reports, report_file_at
from gateway.core import parquet
from spool.errors import Invalid
from tests.gateway.bills.statements.test_cases import INPUTS, READ_AT
from tests.rounds import part

TABLES = [path for path in INPUTS if path.parent.name in ("aws_cur", "focus") and path.suffix == ".csv"]


def packed(rows: list[dict[str, Any]], group: int = 3, **types: Any) -> bytes:
    """Write rows to a Parquet file with several row groups."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    columns = {name: pa.array([row[name] for row in rows], type=types.get(name)) for name in rows[0]}
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=group)
    return sink.getvalue()


def rows_of(path: Path) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def typed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Convert columns that contain only times or only decimals to these types."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    for name, texts in columns.items():
        for read_cell in (_time, _decimal):
            try:
                columns[name] = [read_cell(text) if text else None for text in texts]
                break
            except ValueError:
                continue
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _time(text: str) -> datetime:
    if "-" not in text[4:]:
        raise ValueError
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _decimal(text: str) -> Decimal:
    if not re.fullmatch(r"-?\d+\.\d+", text):
        raise ValueError
    return Decimal(text)


def read(content: bytes, most: int = 10**7) -> ParsedReport:
    file = ReportFile(name="report", content=content, read_at=READ_AT, most_bytes=most)
    [report] = read_reports([file], source=None, account=None, max_unpacked_bytes=1000)
    return report


@pytest.mark.parametrize("is_typed", [False, True], ids=["texts", "times and decimals"])
@pytest.mark.parametrize("path", part(TABLES, every=3), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_parquet_is_the_statement_of_its_csv(path: Path, is_typed: bool) -> None:
    """A Parquet file gives the same rows, source and damaged rows as its CSV, for any column types."""
    rows = rows_of(path)
    by_csv, by_parquet = read(path.read_bytes()), read(packed(typed(rows) if is_typed else rows))
    assert by_csv.source is by_parquet.source
    assert by_csv.statement is not None
    assert by_parquet.statement is not None
    assert by_csv.statement.rows == by_parquet.statement.rows
    assert by_csv.read == by_parquet.read
    assert by_csv.damaged == by_parquet.damaged
    assert by_csv.equal == by_parquet.equal


def test_a_map_is_an_object_and_a_number_keeps_its_digits() -> None:
    """In a Parquet CUR, tags are a map, and small amounts are read without an exponent."""
    import pyarrow as pa

    rows = [{"tags": [("team", "search")], "cost": 1.5e-07, "on": True, "many": 3, "none": None}]
    content = packed(rows, tags=pa.map_(pa.string(), pa.string()))
    with ReportFile(name="report", content=content, read_at=READ_AT).open_unpacked() as file:
        [(number, row)] = list(parquet.read_rows("report", file, max_unpacked_bytes=10**6))
    expected_row = {
        "tags": '{"team": "search"}',
        "cost": "0.00000015",
        "on": "true",
        "many": "3",
        "none": None,
    }
    assert number == 1
    assert expected_row == row


def test_parquet_files_are_limited_by_unpacked_size(tmp_path: Path) -> None:
    """Equal values compress very well, so the unpacked size is limited in addition to the file size."""
    rows = [{"ChargePeriodStart": "x" * 50 + str(number), "BilledCost": "0"} for number in range(20_000)]
    content = packed(rows, group=20_000)
    with pytest.raises(Invalid, match="unpacked"):
        read(content, most=len(content))
    path = tmp_path / "report.parquet"
    path.write_bytes(content)
    assert len(content) == report_file_at(path, max_unpacked_bytes=len(content), now=READ_AT).most_bytes


@pytest.mark.parametrize("kept", part([4, 12, 200], every=2))
def test_a_damaged_file_is_refused_by_name(kept: int) -> None:
    """A truncated Parquet file leads to an error, and neither to a crash nor to a partial result."""
    content = packed(rows_of(TABLES[0]))
    for damaged in (content[:kept], content[:kept] + bytes(len(content) - kept - 4) + content[-4:]):
        with pytest.raises(Invalid, match="report"):
            read(damaged)


def test_without_the_extra_the_import_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Invalid, match=r"tollhouse\[lake\]"):
        read(parquet.MAGIC + bytes(20) + parquet.MAGIC)


@pytest.mark.parametrize("version", focus.VERSIONS)
def test_what_is_exported_can_be_read_again(version: str) -> None:
    """
    Exported rows of every FOCUS version can be imported again. Each version has the seller in one of its columns.
    """
    charges = [
        focus.Charge(start=datetime(2026, 9, day, 4, tzinfo=UTC), cost="1.25", list_cost="1.5", provider="openai",
                     model="o3", team="search", calls=2, input_tokens=10, output_tokens=5)
        for day in (1, 2)
    ]  # fmt: skip
    columns = focus.VERSIONS[version]
    report = read(focus.csv_header(columns) + focus.charge_lines(charges, columns=columns))
    assert report.source.name == "focus"
    assert report.damaged == 0
    assert report.statement is not None
    assert {"openai"} == {row.provider for row in report.statement.rows}
    assert Decimal("2.5") == sum(row.amount for row in report.statement.rows if row.currency)
