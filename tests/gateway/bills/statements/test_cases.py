"""Every kind of report, built from its published schema with its pitfalls, and the rows that it must become."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bills.statements.importing import ReportFile, read_reports
from gateway.bills.statements.sources.list import SOURCES

CASES = Path(__file__).parents[3] / "statements"
READ_AT = 1_790_812_800  # two months later
INPUTS = sorted(path for path in CASES.glob("*/*") if not path.name.endswith(".expected.json"))


def read(path: Path) -> dict[str, Any]:
    """What becomes of a file, in the form of the expected ones."""
    file = ReportFile(name=path.name, content=path.read_bytes(), read_at=READ_AT)
    [report] = read_reports([file], source=None, account=None, most=1000)
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
    """Recognised by what is in it; every digit of its money; damaged rows named and left out."""
    expected = json.loads(path.with_name(f"{path.name}.expected.json").read_text())
    assert expected == read(path)
    assert path.parent.name == expected["source"]


def test_every_source_has_a_case() -> None:
    """And every case a source."""
    assert set(SOURCES) == {path.parent.name for path in INPUTS}
