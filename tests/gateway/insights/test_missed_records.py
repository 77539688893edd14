"""Records that the ledger could not count."""

from __future__ import annotations

from gateway.insights.detectors import missed_records
from tests.gateway.insights.examples import found


def test_numbers_that_were_passed_over_are_told() -> None:
    """With the command that says whether they can be counted again."""
    [one] = found(missed_records, missed_records=15)
    assert one.draft.title.startswith("15 records")
    assert [] == found(missed_records)
