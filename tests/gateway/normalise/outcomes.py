"""Helpers that return an outcome's records of one kind."""

from __future__ import annotations

from gateway.normalise.outcome import ReadOutcome
from spool.record import Inference, UsageMetric


def inferences(outcome: ReadOutcome) -> list[Inference]:
    """Return the records of an outcome, which must all be calls."""
    found = [record for record in outcome.records if isinstance(record, Inference)]
    assert len(found) == len(outcome.records)
    return found


def usage_metrics(outcome: ReadOutcome) -> list[UsageMetric]:
    """Return the records of an outcome, which must all be counters."""
    found = [record for record in outcome.records if isinstance(record, UsageMetric)]
    assert len(found) == len(outcome.records)
    return found
