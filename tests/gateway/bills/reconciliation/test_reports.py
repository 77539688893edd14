"""The reports of every supported source, reconciled with an empty ledger."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from gateway.bills.reconciliation.comparing import ComparisonInput, Reconciliation, compare_bill_with_ledger
from gateway.bills.reconciliation.matching import classify_bill_rows
from gateway.bills.reconciliation.sides import OTHER, PARTS
from gateway.bills.statements.importing import ReportFile, read_reports
from spool.money import UNIT
from spool.statements import StatementRow, day_of_row

CASES = Path(__file__).parents[3] / "statements"
FILES = sorted(path for path in CASES.glob("*/*") if not path.name.endswith(".expected.json"))
DAY_S = 86400
READ_AT = 1_790_812_800  # two months after the period of the reports


def rows_of(path: Path) -> dict[str, list[StatementRow]]:
    """Return the rows of a report, by provider."""
    file = ReportFile(name=path.name, content=path.read_bytes(), read_at=READ_AT)
    rows_by_provider: dict[str, list[StatementRow]] = {}
    for read in read_reports([file], source=None, account=None, max_unpacked_bytes=10**6):
        for row in read.statement.rows if read.statement else ():
            rows_by_provider.setdefault(row.provider, []).append(row)
    return rows_by_provider


def unpriced(model: str, tier: str, day: int, context: int) -> Mapping[str, int]:
    return {}


def compared(provider: str, rows: list[StatementRow]) -> Reconciliation:
    """Reconcile all days from the first to the last, including open days."""
    first, last = min(day_of_row(row) for row in rows), max(row.end for row in rows)
    sides = ComparisonInput(
        provider=provider,
        days=range(min(first, min(row.start for row in rows) // DAY_S * DAY_S), last + DAY_S, DAY_S),
        open_from=last + 2 * DAY_S,
        rows=rows,
        counted=(),
        prices=unpriced,
    )
    return compare_bill_with_ledger(sides)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_reports_of_each_source(path: Path) -> None:
    """No amount is lost, lines add up, and every amount has a cause or is unexplained."""
    by_provider = rows_of(path)
    assert by_provider
    for provider, rows in by_provider.items():
        settled = [msgspec.structs.replace(row, settled=True) for row in rows]
        result = compared(provider, settled)
        money = sum(row.amount for row in classify_bill_rows((row, None) for row in settled).money)
        assert 0 == result.total.counted
        if result.has_money:
            assert money == result.total.billed == sum(line.billed for line in result.days)
        for line in (result.total, *result.days, *result.models):
            assert line.billed == line.counted + sum(line.parts[name] for name in PARTS)
        assert (
            result.total.difference == sum(claim.amount for claim in result.claims) + result.total.unexplained
        )
        beside = sum(
            row.amount
            for row in classify_bill_rows((row, None) for row in settled).money
            if not row.is_for_tokens
        )
        assert (beside if result.has_money else 0) == result.total.parts[OTHER]
        assert abs(result.total.billed) < 10**9 * UNIT


@pytest.mark.parametrize("kind", ["throughput", "tax", "cost", "input"])
def test_monthly_line_and_daily_lines_of_a_bill_combine(kind: str) -> None:
    """
    If a bill has a line for a whole month and lines for single days, no day is lost. The kind of the monthly
    line does not matter.
    """
    path = CASES / "focus/commitment.csv"
    rows = [msgspec.structs.replace(row, settled=True) for row in rows_of(path)["aws.bedrock"]]
    changed = [msgspec.structs.replace(row, kind=kind) if row.kind == "throughput" else row for row in rows]
    result = compared("aws.bedrock", changed)
    assert 310 * UNIT + UNIT // 10 == result.total.billed == sum(line.billed for line in result.days)
    days = {line.name for line in result.days if line.billed}
    assert (1 if kind in ("cost", "input") else 2) == len(days)
