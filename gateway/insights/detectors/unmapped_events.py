"""Usage events that stay here because the upstream takes no events and no stream is set for their type."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import DAY_S, Facts
from gateway.insights.findings import MAX_FINDINGS, finding, named
from spool.log.event_types import EventType
from spool.registry.insights import LOW, Finding

NAME = "unmapped_events"
RECENT_S = 7 * DAY_S


def find(facts: Facts) -> Sequence[Finding]:
    recent = [seen for seen in facts.unmapped if facts.now - seen.last_seen <= RECENT_S]
    recent.sort(key=lambda seen: (-seen.count, seen.type))
    return [_finding(seen) for seen in recent[:MAX_FINDINGS]]


def _finding(seen: EventType) -> Finding:
    return finding(
        NAME,
        (seen.type,),
        title=f"{seen.count:,} usage events of the type {named(seen.type)} are unmapped",
        seen="The upstream takes no usage events, and no unit-cost stream is set for this type: its events are kept "
        "here and not sent.",
        advice="Give the type a stream in [upstream.events], or mark this insight as ignored. "
        "`tollhouse events types` lists every type.",
        category="delivery",
        effort=LOW,
        newest=seen.last_seen,
    )
