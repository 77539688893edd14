"""Reports that came too late for their calls are shown, by source."""

from __future__ import annotations

from collections import Counter

from gateway.insights.detectors import late_reports
from gateway.monitoring.late_reports import DAY_S, MAX_SOURCES, LateReportCounter, LateReports
from spool.log.values import Commit
from tests.gateway.insights.examples import found
from tests.moved_clock import MovedClock


def commit(**terms: int) -> Commit:
    """A commit with `source__term` as keys."""
    counted = {("ai-telemetry", term, source): n for key, n in terms.items()
               for source, _, term in [key.partition("__")]}  # fmt: skip
    return Commit(seconds=0.0, flush_seconds=0.0, terms=Counter(counted))


def test_late_reports_of_a_source_are_one_finding() -> None:
    findings = found(late_reports, late_reports=[LateReports("bedrock", 3, 0), LateReports("kong", 1, 2)])
    titles = {each.draft.title for each in findings}
    assert {
        "3 reports of bedrock came too late for their calls",
        "3 reports of kong came too late for their calls",
    } == titles
    assert 2 == len({each.key for each in findings})
    [uncompared] = [each.draft.description for each in findings if "out of reach" in each.draft.description]
    assert "2 of them repeat calls" in uncompared
    assert [] == found(late_reports)


def test_a_week_is_counted() -> None:
    """Of each source; other terms are none of it, and a day that is long ago goes."""
    clock = MovedClock(1_790_000_000)
    counter = LateReportCounter(clock)
    counter.committed(commit(kong__uncompared=2, kong__duplicates=9, otel__corrected=1))
    clock.move(3 * DAY_S)
    counter.committed(commit(kong__amended_late=1))
    assert [LateReports("kong", 1, 2)] == counter.recent()
    clock.move(5 * DAY_S)
    assert [LateReports("kong", 1, 0)] == counter.recent()
    clock.move(5 * DAY_S)
    assert [] == counter.recent()


def test_names_of_senders_are_bounded() -> None:
    counter = LateReportCounter(MovedClock(1_790_000_000))
    for number in range(MAX_SOURCES + 10):
        counter.committed(commit(**{f"s{number}__uncompared": 1}))
    assert MAX_SOURCES + 1 == len(counter.recent())
    assert LateReports("other", 0, 10) in counter.recent()
