"""Deliveries whose arrival is unknown: they wait for a person, whatever the route does now."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, named, ordered
from spool.deliveries.values import RouteState
from spool.registry.insights import MEDIUM, Finding

NAME = "unknown_arrival"


def find(facts: Facts) -> Sequence[Finding]:
    return ordered(_finding(route) for route in facts.routes if route.unknown)


def _finding(route: RouteState) -> Finding:
    return finding(
        NAME,
        (route.name,),
        title=f"{named(route.name)} may or may not have {route.unknown:,} records",
        seen=f"{named(route.name)} gave no clear answer to requests with {route.unknown:,} records. They would be "
        "summed twice if they were sent again, so they wait.",
        advice="Compare the records of `tollhouse streams list --unknown` with those at the destination, then settle "
        "each delivery with `tollhouse streams resolve ID sent` or `unsent`.",
        category="delivery",
        effort=MEDIUM,
    )
