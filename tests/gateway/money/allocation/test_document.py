"""The examples of docs/money/allocation.md are run and match what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.money.allocation.definition import PREFIX, Transform
from gateway.money.allocation.evaluation import apply_transforms, build_dimension_evaluators
from gateway.money.allocation.language import parse_definition
from spool.ledger.dimensions import DIMENSIONS
from spool.ledger.ledger import MAX_ROWS

TEXT = (Path(__file__).parents[4] / "docs/money/allocation.md").read_text("utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
KNOWN = (*DIMENSIONS, "tag:service")


def rows(head: str) -> list[list[str]]:
    """Return the rows of the table whose header starts with `head`."""
    table = TEXT[TEXT.index(f"| {head} |") :].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
        if "---" not in line
    ]


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_definitions(text: str) -> None:
    assert parse_definition(text.encode(), KNOWN).dimensions


def test_the_first_example_gives_the_elements_of_the_table() -> None:
    """
    Each row of the page's table has a combination of values and the elements that this combination gets.
    """
    head, *lines = rows("`tag:service`")
    decisions_by_name = {
        each.dimension.id.removeprefix(PREFIX): each
        for each in build_dimension_evaluators(parse_definition(EXAMPLES[0].encode(), KNOWN))
    }
    assert len(lines) >= 5
    for line in lines:
        cells = dict(zip((name.strip("`") for name in head), line, strict=True))
        for key, decision in decisions_by_name.items():
            assert cells[key] == decision.element_of_values(
                tuple(cells[name] for name in decision.sources)
            ), line


def test_transforms_of_the_table() -> None:
    value = " Platform_Team-EU"
    shown = {line[0]: line[1] for line in rows(f'`Type` | `"{value}"` becomes')}
    types = {"`Normalize`": ["Normalize"], "`Lower`, `Upper`": ["Lower", "Upper"], "`Trim`": ["Trim"]}
    for label, names in types.items():
        quoted = re.findall(r"`([^`]*)`", shown[label])
        assert quoted == [apply_transforms(value, [Transform(name)]) for name in names]
    [split] = [cell for label, cell in shown.items() if label.startswith("`Split`")]
    assert split.startswith(f"`{apply_transforms(value, [Transform('Split', '-', 1)])}`")


def test_every_source_is_named() -> None:
    assert [] == [name for name in DIMENSIONS if f"`{name}`" not in TEXT]
    assert f"{MAX_ROWS:,} combinations" in TEXT
