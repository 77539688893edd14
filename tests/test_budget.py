"""What the code weighs: no subject more statements or tokens than the table of ARCHITECTURE.md grants it."""

from __future__ import annotations

import re

from tests.figures import ROOT, all_figures, subjects

_ROW = re.compile(r"^\| `([a-z/_]+)` \| [\d,]+ \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)


def test_no_subject_outgrows_its_budget() -> None:
    """
    The table only falls. A change that needs more lowers another row, and its message says what was removed. A row
    that a change makes lighter is lowered with it, so that the room is not lost again.
    """
    text = (ROOT / "ARCHITECTURE.md").read_text()
    granted = {
        name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in _ROW.findall(text)
    }
    weights = {name: weight[1:] for name, weight in subjects(all_figures()).items()}
    weights["together"] = [sum(column) for column in zip(*weights.values(), strict=True)]
    over = {
        name: (weight, granted.get(name))
        for name, weight in weights.items()
        if any(have > most for have, most in zip(weight, granted.get(name, (0, 0)), strict=True))
    }
    assert {} == over
    assert set() == granted.keys() - weights.keys()
