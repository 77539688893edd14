"""Each kind of answer gives the same meters and price lines in every source that can carry it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.intake import meter_matrix as matrix
from tests.gateway.intake.test_meters_of_cases import _lines

ANSWERS = tuple(matrix.answers())
PAIRS = [
    pytest.param(place, answer, id=f"{place}-{answer.name}")
    for place, (_, has, _) in matrix.PLACES.items()
    for answer in ANSWERS
    if has(answer)
]


@pytest.mark.parametrize(("place", "answer"), PAIRS)
def test_each_source_reports_every_meter_of_the_answer(place: str, answer: matrix.Answer) -> None:
    """No meter is lost or counted twice. If the seller is the same, the price is the same."""
    row = matrix.read(place, answer)
    assert dict(answer.meters) == (row.get("meters") or {})
    if row["provider"] == answer.provider and answer.wanted["estimated_cost"] == row["estimated_cost"]:
        assert answer.wanted["lines"] == _lines(row)


def test_the_document_has_the_table() -> None:
    """
    The table on the page equals the current output of the program, so a change in the meters of any
    source fails here.
    """
    page = Path(__file__).parents[3] / "docs/money/meters.md"
    assert matrix.table() in page.read_text()
