"""
What is exported as FOCUS rows, by the published rules: those of 1.2, which focus-validator has in it (it wants Python
3.12, and would download those of later versions), and for each version the columns and the model of 1.4, which
focus-data-toolkit has in it. Of 1.5, which is in work, no package has any.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from pathlib import Path

import pytest

from exporters.focus import charges as focus
from spool.log.values import Entry
from tests.acceptance.test_wheel import interpreter
from tests.clients import environments
from tests.exporters import test_focus
from tests.gateway.cli import test_billed_rows

pytestmark = pytest.mark.clients

VERSION = "1.2.0.1"
CRITERIA = "SUB_ACCOUNT_SUPPORTED,REGION_SUPPORTED,TAGGING_SUPPORTED"
# Of bills one of two rules holds: no row has an invoice, or each has one. What is counted has not the column, which is
# recommended.
INVOICE = re.compile("InvoiceId-|CostAndUsage-D-033-O")
PROGRAM = Path(__file__).parent / "programs" / "focus" / "check_focus.py"


def billed(version: str = focus.VERSION) -> bytes:
    """Of invoices alone: what restates a closed month is of none yet."""
    lines = test_billed_rows.exported(version).splitlines(keepends=True)
    return b"".join(line for line in lines if b"restated" not in line)


def counted(version: str = focus.VERSION) -> bytes:
    """Of records, as a destination writes them."""
    entry = Entry(topic="ai-telemetry", first=1, committed_at=test_focus.AT + 60, records=test_focus.RECORDS)
    charges = asyncio.run(focus.of_entries([entry]))
    return focus.header(version) + focus.lines(charges, version=version)


EXPORTS = {"billed": billed, "counted": counted}


@pytest.mark.parametrize("name", EXPORTS)
def test_rows_follow_the_published_rules(name: str, tmp_path: Path) -> None:
    """Every rule that can be applied holds."""
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
    """Mandatory columns are there, others are none of another version; values and pairs of values are by the model."""
    python = environments.python("focus-columns")
    path = tmp_path / "rows.csv"
    path.write_bytes(EXPORTS[name](version))
    command = [str(python), str(COLUMNS), str(path), version]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert " 0 wrong" in done.stdout, done.stdout + done.stderr[-2000:]
