"""
Exported FOCUS rows follow the published rules. focus-validator contains the rules of 1.2 (it needs Python
3.12, and would download later rules). focus-data-toolkit contains the columns of each version and the model
of 1.4. No package has a model of the draft 1.5.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from exporters.focus import charges as focus
from spool.log.values import LogEntry
from tests.clients import environments
from tests.exporters import test_focus
from tests.gateway.cli import test_billed_rows
from tests.releases.installing import interpreter

pytestmark = pytest.mark.clients

VERSION = "1.2.0.1"
CRITERIA = "SUB_ACCOUNT_SUPPORTED,REGION_SUPPORTED,TAGGING_SUPPORTED"
# Bills can satisfy only one of these two rules, depending on whether no row or each row has an invoice.
# Counted rows lack the recommended column.
INVOICE = re.compile("InvoiceId-|CostAndUsage-D-033-O")
PROGRAM = Path(__file__).parent / "programs" / "focus" / "check_focus.py"


def billed(version: str = focus.VERSION) -> bytes:
    """Export invoice rows without restatements of closed months, which have no invoice yet."""
    lines = test_billed_rows.exported(version).splitlines(keepends=True)
    return b"".join(line for line in lines if b"restated" not in line)


def counted(version: str = focus.VERSION) -> bytes:
    """Export records like a destination."""
    entry = LogEntry(
        topic="ai-telemetry", first=1, committed_at=test_focus.AT + 60, records=test_focus.RECORDS
    )
    charges = asyncio.run(focus.sum_charges([entry]))
    return focus.csv_header(focus.EXPORTED[version]) + focus.charge_lines(
        charges, columns=focus.EXPORTED[version]
    )


EXPORTS = {"billed": billed, "counted": counted}


@pytest.mark.parametrize("name", EXPORTS)
def test_rows_follow_the_published_rules(name: str, tmp_path: Path) -> None:
    found = next(filter(None, map(interpreter, ("3.12", "3.13"))), None)
    if found is None:
        pytest.skip("no Python 3.12 or 3.13 is installed")
    python = environments.python("focus", of=found)
    path = tmp_path / "rows.csv"
    path.write_bytes(EXPORTS[name]())
    command = [str(python), str(PROGRAM), str(path), VERSION, CRITERIA]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    total = re.search(r"Total: (\d+) \| Pass: (\d+)", done.stdout)
    assert total is not None, done.stderr[-2000:]
    assert int(total[2]) > 100
    failed = set(re.findall(r"^❌ (\S+): FAIL", done.stdout, re.MULTILINE))
    of_invoices = {rule for rule in failed if INVOICE.match(rule)}
    assert set() == failed - of_invoices, done.stdout[-3000:]
    assert name == "counted" or of_invoices == {"InvoiceId-C-004-C"}


COLUMNS = PROGRAM.with_name("check_columns.py")


@pytest.mark.parametrize("version", focus.VERSIONS)
@pytest.mark.parametrize("name", EXPORTS)
def test_columns_and_values_of_each_version(name: str, version: str, tmp_path: Path) -> None:
    """
    All mandatory columns exist, and no column belongs only to another version. Values and combinations
    match the model.
    """
    python = environments.python("focus-columns")
    path = tmp_path / "rows.csv"
    path.write_bytes(EXPORTS[name](version))
    command = [str(python), str(COLUMNS), str(path), version]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert " 0 wrong" in done.stdout, done.stdout + done.stderr[-2000:]
