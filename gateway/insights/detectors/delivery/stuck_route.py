"""Routes that deliver nothing now: parked, refusing, orphaned, or with a record that does not go through."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from gateway.insights.facts import Facts, Spend
from gateway.insights.findings import finding, named, ordered
from spool.deliveries.values import ORPHANED, PARKED, REFUSING, RUNNING, RouteState
from spool.registry.insights import LOW, MEDIUM, Finding

NAME = "stuck_route"
ADVICE = {
    PARKED: "The key or the address is wrong, the data is safe: `tollhouse check` says which key covers what. The "
    "route goes on by itself once the secret or the configuration is right.",
    REFUSING: "The destination refuses every record: look at its words in `tollhouse spool status`, and at one of "
    "the records with `tollhouse tail`.",
    ORPHANED: "Its destination left the configuration: put it back, or let go with `tollhouse spool route drop`.",
    RUNNING: "One record met server errors while others passed: tell the destination's operator which, from "
    "`tollhouse spool status`.",
}


def find(facts: Facts) -> Sequence[Finding]:
    usual = _usual_cost(facts.week)
    return ordered(_finding(route, usual) for route in facts.routes if route.state != RUNNING or route.stuck)


def _usual_cost(week: Sequence[Spend]) -> Decimal:
    """Return the mean cost of one call."""
    calls = sum(spend.calls for spend in week)
    return sum((spend.cost for spend in week), Decimal(0)) / calls if calls else Decimal(0)


def _finding(route: RouteState, usual: Decimal) -> Finding:
    state = route.state if route.state != RUNNING else "stuck"
    reason = f" ({named(route.reason)})" if route.reason else ""
    return finding(
        NAME,
        (route.name,),
        title=f"The route {named(route.name)} is {state}",
        seen=f"{route.queued:,} records wait for {named(route.name)}{reason}. The impact is about what they cost: "
        "spend that is not shown there yet.",
        advice=ADVICE[route.state],
        category="delivery",
        effort=MEDIUM if state == REFUSING else LOW,
        impact=route.queued * usual,
    )
