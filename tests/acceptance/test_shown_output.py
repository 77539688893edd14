"""The output below each `$ command` of a page is what the command prints, without times and ids."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.documents import ROOT, blocks

DAY_S = 86400
OCTOBER = 1_790_812_800  # 2026-10-01
# pages whose output another test compares
ELSEWHERE = {"docs/money/compare-costs.md": "tests/integration/operations/money/costs/test_comparison.py"}
# commands whose output needs a bill that no demo has; the test checks its form and sums
CLAIMS = {"reconcile claim": "tests/integration/operations/bills/test_reconciliation.py"}


def shown() -> list[tuple[str, str, str]]:
    """Return the page, the command and the output of each block that begins with `$`."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for block in blocks(path.read_text()):
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append((str(path.relative_to(ROOT)), command, output))
    return found


SHOWN = shown()
RUN = [each for each in SHOWN if each[0] not in ELSEWHERE and not any(name in each[1] for name in CLAIMS)]


def test_other_outputs_are_compared_elsewhere() -> None:
    assert RUN and len(RUN) < len(SHOWN)
    assert [] == [test for test in [*ELSEWHERE.values(), *CLAIMS.values()] if not (ROOT / test).exists()]
    assert ELSEWHERE.keys() <= {page for page, _, _ in SHOWN}


def masked(text: str) -> str:
    """Replace times of the day and ids, which differ between two runs."""
    text = re.sub(r"\d\d:\d\d(:\d\d(\.\d+)?Z?)?", "TIME", text)
    return re.sub(r"\b([0-9a-f]{16,}|imp_\d+)\b", "ID", text).strip()


def write_bill(path: Path) -> None:
    """Write the costs of October as OpenAI's API returns them: a row for each day."""
    cost = {"amount": {"value": 161.69, "currency": "usd"}, "line_item": "gpt-4.1, input"}
    buckets = [
        {
            "object": "bucket",
            "start_time": OCTOBER + day * DAY_S,
            "end_time": OCTOBER + (day + 1) * DAY_S,
            "results": [{"object": "organization.costs.result", **cost}],
        }
        for day in range(31)
    ]
    path.write_text(json.dumps({"object": "page", "data": buckets, "has_more": False}))


@pytest.mark.timeout(900)
def test_commands_print_what_pages_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of a page run in order in one directory. A page may show only the beginning of an output."""
    for page in dict.fromkeys(page for page, _, _ in RUN):
        directory = tmp_path / Path(page).stem
        directory.mkdir()
        monkeypatch.chdir(directory)
        write_bill(directory / "costs-2026-10.json")
        assert 0 == CliRunner().invoke(main, ["init"]).exit_code  # this command creates the data directory
        for command, output in ((command, output) for each, command, output in RUN if each == page):
            assert command.startswith("tollhouse ")
            done = CliRunner().invoke(main, command.split()[1:])
            assert 0 == done.exit_code, done.output
            assert masked(done.stdout).startswith(masked(output)), (page, command, done.stdout)
