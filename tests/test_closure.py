"""What the core imports: no part, and no more than ARCHITECTURE.md states."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import closure
from tests.figures import ROOT


@pytest.mark.parametrize("name", closure.ROOTS)
def test_the_core_reaches_no_part_and_no_more_modules_than_stated(name: str) -> None:
    """The table only falls: a change that reaches fewer modules lowers it."""
    row = re.search(
        rf"^\| {name}: .* \| ([\d,]+) \| ([\d,]+) \|$", (ROOT / "ARCHITECTURE.md").read_text(), re.M
    )
    assert row is not None
    modules = closure.closure(closure.ROOTS[name])
    assert [] == closure.way_to_part(modules)
    stated = [int(number.replace(",", "")) for number in row.groups()]
    assert len(modules) <= stated[0]
    assert closure.code_lines(modules) <= stated[1]


@pytest.mark.parametrize(
    "line",
    [
        "from gateway.bills.billed.biller import BilledCostCalculator",
        "import gateway.money.budgets.evaluator",
        'NAME = "exporters.lake.exporter"',
    ],
)
def test_an_import_of_a_part_is_named(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = "gateway.operations.receivers.otlp_http"
    planted = tmp_path / "otlp_http.py"
    source = ROOT.joinpath(*receiver.split(".")).with_suffix(".py")
    planted.write_text(f"{source.read_text()}\n\ndef later() -> None:\n    {line}\n")
    found = closure._find_path
    monkeypatch.setattr(closure, "_find_path", lambda name: planted if name == receiver else found(name))
    way = closure.way_to_part(closure.closure(closure.ROOTS["A"]))
    assert receiver == way[-2]
    assert way[-1] in line
