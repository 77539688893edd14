"""The detector of records that the ledger could not count."""

from __future__ import annotations

from gateway.money.insights.detectors.service import missed_records
from tests.gateway.money.insights.examples import found


def test_skipped_records_are_reported_with_a_command() -> None:
    """The insight about skipped records has the command that shows whether they can be counted again."""
    [one] = found(missed_records, missed_records=15)
    assert one.draft.title.startswith("15 records")
    assert [] == found(missed_records)


def test_hours_that_differ_from_the_log_are_reported() -> None:
    """Hours that differ from the log are a separate finding."""
    first, second = found(missed_records, missed_records=1, differing_periods=2)
    assert "2 hours or days" in second.draft.title
    assert first.key != second.key
