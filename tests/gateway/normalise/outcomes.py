"""The records of an outcome, by kind: a test says which kind it expects."""

from __future__ import annotations

from gateway.normalise.outcome import Outcome
from spool.record import Inference, UsageMetric


def inferences(outcome: Outcome) -> list[Inference]:
    """The records of an outcome that holds calls alone."""
    found = [record for record in outcome.records if isinstance(record, Inference)]
    assert len(found) == len(outcome.records)
    return found


def usage_metrics(outcome: Outcome) -> list[UsageMetric]:
    """The records of an outcome that holds counters alone."""
    found = [record for record in outcome.records if isinstance(record, UsageMetric)]
    assert len(found) == len(outcome.records)
    return found
