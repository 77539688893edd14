"""Cumulative counters that nearly fill their table: soon those that were silent longest are forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding
from spool.settings import MAX_SERIES
from spool.shares import NEARLY_FULL

NAME = "many_series"


def find(facts: Facts) -> Sequence[Finding]:
    if not facts.max_series or facts.series < NEARLY_FULL * facts.max_series:
        return []
    return [
        finding(
            NAME,
            (),
            title=f"{facts.series:,} cumulative counters nearly fill {MAX_SERIES}",
            seen=f"At most {facts.max_series:,} are known. Beyond, those that were silent longest are forgotten. If "
            "one is reported again, what it grew by meanwhile is not counted.",
            advice=f"Raise {MAX_SERIES}. If some senders make a counter for each request, such as one with an id among "
            "its attributes, let them send deltas or fewer attributes.",
            category="reliability",
            effort=LOW,
        )
    ]
