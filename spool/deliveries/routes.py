"""Where a route begins, what waits in it, and what operators see. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spool.deliveries.protocols import Deliveries
from spool.deliveries.rules import TERMS
from spool.deliveries.stored import COUNTS, StoredRoute
from spool.deliveries.values import ORPHANED, PartialRefusal, RouteSpec, RouteState
from spool.errors import NotAllowed, NotThere


class RouteBacklog(NamedTuple):
    """
    Sums over the open deliveries of a route. `stuck`: records that are rejected even when sent alone.

    Deliveries with unknown outcome count only in `unknown`; replays count only in `stuck` and `unknown`.
    """

    records: int
    oldest: int | None  # lowest record that is still needed
    kept_at: float | None  # when the oldest rejected record that is retried was committed
    stuck: int  # single records that are stuck, including replays
    unknown: int  # records of deliveries with unknown outcome, including replays


def new_route(spec: RouteSpec, *, accepted: int, oldest: int) -> StoredRoute:
    """
    Return the row of a new route. `accepted`: the last number assigned for its topic. `oldest`: the lowest
    stored number.
    """
    first = accepted + 1 if spec.start == "now" else oldest
    counts = {**dict.fromkeys(COUNTS, 0), "next": first, "before_start": first - 1}
    return StoredRoute(name=spec.name, topic=spec.topic, required=spec.required, counts=counts)


def require_route(route: StoredRoute | None, name: str) -> StoredRoute:
    if route is None:
        raise NotThere(f"there is no route {name}")
    return route


def require_unconfigured_route(route: StoredRoute) -> None:
    if not route.orphaned:
        raise NotAllowed(f"{route.name} is in the configuration. Remove its destination there first")


def unsent_record_count(route: StoredRoute, backlog: RouteBacklog, *, accepted: int) -> int:
    """Return the number of records that wait to be sent, including records that are in no delivery yet."""
    return backlog.records + accepted + 1 - route.next_number


def route_accounting_counts(route: StoredRoute, backlog: RouteBacklog, *, accepted: int) -> dict[str, int]:
    counted = {term: route.counts[term] for term in TERMS}
    return {**counted, "queued": unsent_record_count(route, backlog, accepted=accepted)}


def lowest_unsettled_number(route: StoredRoute, backlog: RouteBacklog) -> int:
    return route.next_number if backlog.oldest is None else min(backlog.oldest, route.next_number)


def route_state(
    route: StoredRoute, backlog: RouteBacklog, *, accepted: int, committed_at: float | None, now: float
) -> RouteState:
    """Return a route as operators see it. `committed_at`: commit time of its lowest unsettled record."""
    waiting = unsent_record_count(route, backlog, accepted=accepted)
    times = [at for at in (backlog.kept_at, committed_at) if at is not None]
    return RouteState(
        name=route.name,
        topic=route.topic,
        required=route.required,
        state=ORPHANED if route.orphaned else route.state,
        reason=route.reason,
        progress=lowest_unsettled_number(route, backlog),
        queued=waiting,
        oldest_age_s=max(0.0, now - min(times)) if waiting and times else None,
        delivered=route.counts["delivered"],
        refused=route.counts["refused_upstream"],
        dead=route.counts["dead"],
        stuck=backlog.stuck,
        unknown=backlog.unknown,
        ambiguous=route.counts["ambiguous"],
        since=None if route.orphaned else route.state_since,
    )


# -- records recently rejected while others were accepted
# ------------------------------------------------------


RECENT_S: Final = 86_400.0


async def routes_with_refusals(deliveries: Deliveries, now: float) -> list[RouteState]:
    """
    Return all routes by name, with the number of records rejected in the last day while others were accepted.

    A route stores only its newest KEPT_REFUSALS rejections, so the true number may be larger.
    """
    recent: dict[str, list[PartialRefusal]] = {}
    for refusal in await deliveries.partial_refusals():
        if refusal.at > now - RECENT_S:
            recent.setdefault(refusal.route, []).append(refusal)
    return [
        _with_recent_refusals(route, recent.get(route.name, ())) for route in await deliveries.route_states()
    ]


def _with_recent_refusals(route: RouteState, refusals: Sequence[PartialRefusal]) -> RouteState:
    if not refusals:
        return route
    newest = max(refusals, key=lambda refusal: refusal.at)
    count = sum(refusal.count for refusal in refusals)
    return replace(route, refused_recently=count, refusal=newest.words)
