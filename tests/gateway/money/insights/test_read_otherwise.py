"""The detector of spans that the compiled module read differently from the Python rules."""

from __future__ import annotations

from gateway.money.insights.detectors.records import read_otherwise
from gateway.normalise.memory.learning import ReadOtherwise
from tests.gateway.money.insights.examples import found


def test_difference_is_reported_by_its_fields() -> None:
    """One finding per product and instrumentation names the fields that differ, without their values."""
    one = ReadOtherwise("madeup", "madeup.sdk", ("record cost", "tag team"))
    other_report = ReadOtherwise("", "an.instrumentation", ("read",))
    findings = found(read_otherwise, read_otherwise=[one, one, other_report])
    assert 2 == len({finding.key for finding in findings}) == len(findings)
    [draft] = [finding.draft for finding in findings if "of madeup" in finding.draft.title]
    assert "these fields differ: record cost, tag team." in draft.description
    assert any("an.instrumentation" in finding.draft.title for finding in findings)
    assert [] == found(read_otherwise)
