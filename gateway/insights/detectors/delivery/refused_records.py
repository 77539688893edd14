"""Records that a destination rejected in answers that accepted others: it lacks them, and they are not sent again."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.deliveries.values import RouteState
from spool.registry.insights import MEDIUM, Finding

NAME = "refused_records"


def find(facts: Facts) -> Sequence[Finding]:
    return ordered(_finding(route) for route in facts.routes if route.refused_recently)


def _finding(route: RouteState) -> Finding:
    name = named(route.name)
    words = f" The newest reason: {named(route.refusal, most=300)}." if route.refusal else ""
    return finding(
        NAME,
        (route.name,),
        title=f"{name} rejected {route.refused_recently:,} records within a day",
        seen=f"The destination of {name} answered success, rejected {route.refused_recently:,} records within 24 hours "
        f"and accepted others.{words} It lacks the rejected records, and they are not sent again.",
        advice="List the requests with `tollhouse spool refused`. Repair the cause, then send the time range again "
        "with `tollhouse spool replay`.",
        category="delivery",
        effort=MEDIUM,
    )
