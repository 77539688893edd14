"""RouteDeadLetters letters that grow: records that a destination refused, and that are missing there."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts, RouteDeadLetters
from gateway.insights.findings import finding, named, ordered
from spool.registry.insights import MEDIUM, Finding

NAME = "dead_letters"


def find(facts: Facts) -> Sequence[Finding]:
    return ordered(_finding(dead) for dead in facts.dead if dead.recent)


def _finding(dead: RouteDeadLetters) -> Finding:
    return finding(
        NAME,
        (dead.route,),
        title=f"{named(dead.route)} refused {dead.recent:,} records within a day",
        seen=f"{dead.count:,} dead letters wait there. The newest was refused with: {named(dead.words)}. The impact is "
        "what their calls cost.",
        advice="Look at them with `tollhouse spool dead list`, then retry or discard them.",
        category="delivery",
        effort=MEDIUM,
        impact=dead.cost,
        newest=dead.newest,
    )
