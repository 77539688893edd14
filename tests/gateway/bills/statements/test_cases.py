"""
Every kind of report: a file built from its published schema, with the pitfalls of its format, and
the expected rows.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bills.statements.importing import ReportFile, read_reports
from gateway.bills.statements.sources.list import SOURCES

CASES = Path(__file__).parents[3] / "statements"
READ_AT = 1_790_812_800  # two months after the reports
INPUTS = sorted(path for path in CASES.glob("*/*") if not path.name.endswith(".expected.json"))


def read(path: Path) -> dict[str, Any]:
    """Read a file into the form of the expected files."""
    file = ReportFile(name=path.name, content=path.read_bytes(), read_at=READ_AT)
    [report] = read_reports([file], source=None, account=None, max_unpacked_bytes=1000)
    assert report.statement is not None
    rows = [
        {name: value for name, value in row.items() if value is not None and name != "source"}
        for row in msgspec.to_builtins(report.statement.rows)
    ]
    statement = report.statement
    return {
        "source": statement.source,
        "account": statement.account,
        "start": statement.start,
        "end": statement.end,
        "damaged": list(report.named),
        "rows": sorted(rows, key=json.dumps),
    }


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_report_becomes_its_rows(path: Path) -> None:
    """
    Each report is recognized by its content and becomes the expected rows. Amounts keep every digit, and
    damaged rows are named and skipped.
    """
    expected = json.loads(path.with_name(f"{path.name}.expected.json").read_text())
    assert expected == read(path)
    assert path.parent.name == expected["source"]


def test_every_source_has_a_case() -> None:
    assert set(SOURCES) == {path.parent.name for path in INPUTS}
