"""Records that destinations rejected lately in answers that accepted others, by route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import PartialRefusal, RouteState

RECENT_S: Final = 86_400.0


async def routes_with_refusals(deliveries: Deliveries, now: float) -> list[RouteState]:
    """
    Return every route, by name, with what its destination rejected within the last day.

    The storage keeps the newest KEPT_REFUSALS answers of a route, so the count of a route that exceeds them
    is a lower bound.
    """
    recent: dict[str, list[PartialRefusal]] = {}
    for refusal in await deliveries.partial_refusals():
        if refusal.at > now - RECENT_S:
            recent.setdefault(refusal.route, []).append(refusal)
    return [_with_refusals(route, recent.get(route.name, ())) for route in await deliveries.routes()]


def _with_refusals(route: RouteState, refusals: Sequence[PartialRefusal]) -> RouteState:
    if not refusals:
        return route
    newest = max(refusals, key=lambda refusal: refusal.at)
    count = sum(refusal.count for refusal in refusals)
    return replace(route, refused_recently=count, refusal=newest.words)
