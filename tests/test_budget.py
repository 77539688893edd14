"""What the code weighs: no subject more statements or tokens than the table of ARCHITECTURE.md grants it."""

from __future__ import annotations

import re

from tests.figures import ROOT, all_weights, subjects

_ROW = re.compile(r"^\| `([a-z/_]+)` \| [\d,]+ \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
_LENT = re.compile(r"^\| `([a-z/_]+)` \| ([\d,]+) \| ([\d,]+) \| [a-z][^|]+ \|$", re.MULTILINE)


def test_no_subject_outgrows_its_budget() -> None:
    """
    The table only falls. A change that needs more lowers another row, and its message says what was removed. A row
    that a change makes lighter is lowered with it, so that the room is not lost again. What is lent to a folder goes
    with the older way that it replaces.
    """
    text = (ROOT / "ARCHITECTURE.md").read_text()
    granted = {
        name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in _ROW.findall(text)
    }
    lent = {
        name: [int(number.replace(",", "")) for number in numbers] for name, *numbers in _LENT.findall(text)
    }
    weights = {name: weight[1:] for name, weight in subjects(all_weights(), lent).items()}
    own = [weight for name, weight in weights.items() if name not in lent]
    weights["together"] = [sum(column) for column in zip(*own, strict=True)]
    granted |= lent
    over = {
        name: (weight, granted.get(name))
        for name, weight in weights.items()
        if any(have > most for have, most in zip(weight, granted.get(name, (0, 0)), strict=True))
    }
    assert {} == over
    assert set() == granted.keys() - weights.keys()
