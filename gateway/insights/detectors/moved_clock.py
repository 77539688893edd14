"""A wall clock that was moved: until it is believed, time goes on as before."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding

NAME = "moved_clock"


def find(facts: Facts) -> Sequence[Finding]:
    if not facts.clock_step_s:
        return []
    way = "ahead of" if facts.clock_step_s > 0 else "behind"
    return [
        finding(
            NAME,
            (),
            title="The clock of this machine was moved",
            seen=f"It is {abs(facts.clock_step_s):,.0f} s {way} the time at which records are kept. Until it has stood "
            "for an hour it is not followed, so that no record counts on a wrong day and nothing is removed "
            "too early.",
            advice="Look at the time service of the machine. If the new time is right, say so with "
            "`tollhouse spool accept-clock`.",
            category="reliability",
            effort=LOW,
        )
    ]
