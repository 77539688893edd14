"""Rules of routes: where a route begins, which records wait in it, and what operators see of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from spool.deliveries.protocols import Deliveries
from spool.deliveries.rules import STUCK_AFTER, TERMS
from spool.deliveries.stored import COUNTS, StoredDelivery, StoredRoute
from spool.deliveries.values import OPEN, ORPHANED, UNKNOWN, PartialRefusal, RouteSpec, RouteState
from spool.errors import NotAllowed, NotThere


class Backlog(NamedTuple):
    """
    Contents of the deliveries of a route. `unknown` counts records of deliveries with unknown outcome. All
    other fields count open deliveries.

    Replays count only in `stuck` and `unknown`.
    """

    records: int
    oldest: int | None  # the lowest record number whose entry is still needed
    kept_at: float | None  # commit time of the oldest rejected record that is retried
    stuck: int  # stuck single records, including replays
    unknown: int  # records with unknown outcome, including those of replays


def new_route(spec: RouteSpec, *, accepted: int, oldest: int) -> StoredRoute:
    """
    Create a route. `accepted` is the last number assigned in its topic, `oldest` is the lowest stored number.
    """
    first = accepted + 1 if spec.start == "now" else oldest
    counts = {**dict.fromkeys(COUNTS, 0), "next": first, "before_start": first - 1}
    return StoredRoute(name=spec.name, topic=spec.topic, required=spec.required, counts=counts)


def require_route(route: StoredRoute | None, name: str) -> StoredRoute:
    if route is None:
        raise NotThere(f"there is no route {name}")
    return route


def check_drop(route: StoredRoute) -> None:
    if not route.orphaned:
        raise NotAllowed(f"{route.name} is in the configuration. Remove its destination there first")


def sum_backlog(deliveries: Iterable[StoredDelivery]) -> Backlog:
    """Add up the records that a route still has to deliver."""
    stored = list(deliveries)
    open_deliveries = [delivery for delivery in stored if delivery.state == OPEN]
    own = [delivery for delivery in open_deliveries if not delivery.replay]
    kept_entries = [delivery.kept for delivery in own if delivery.kept is not None]
    return Backlog(
        records=sum(delivery.count for delivery in own),
        oldest=min((delivery.first for delivery in own if delivery.kept is None), default=None),
        kept_at=min((entry.committed_at for entry in kept_entries), default=None),
        stuck=sum(
            delivery.count == 1 and delivery.server_errors >= STUCK_AFTER for delivery in open_deliveries
        ),
        unknown=sum(delivery.count for delivery in stored if delivery.state == UNKNOWN),
    )


def queued_count(route: StoredRoute, backlog: Backlog, *, accepted: int) -> int:
    """Return the number of records that wait, including records that are not in a delivery yet."""
    return backlog.records + accepted + 1 - route.next


def route_terms(route: StoredRoute, backlog: Backlog, *, accepted: int) -> dict[str, int]:
    """Return the terms of a route for the accounting."""
    counted = {term: route.counts[term] for term in TERMS}
    return {**counted, "queued": queued_count(route, backlog, accepted=accepted)}


def lowest_unsettled(route: StoredRoute, backlog: Backlog) -> int:
    """Return the lowest number that is not settled."""
    return route.next if backlog.oldest is None else min(backlog.oldest, route.next)


def route_state(
    route: StoredRoute,
    backlog: Backlog,
    *,
    accepted: int,
    committed_at: float | None,
    now: float,
) -> RouteState:
    """
    Return the state of a route for operators. `committed_at` is the commit time of the record at its progress.
    """
    waiting = queued_count(route, backlog, accepted=accepted)
    times = [at for at in (backlog.kept_at, committed_at) if at is not None]
    return RouteState(
        name=route.name,
        topic=route.topic,
        required=route.required,
        state=ORPHANED if route.orphaned else route.state,
        reason=route.reason,
        progress=lowest_unsettled(route, backlog),
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


# -- records that destinations rejected recently while they accepted others ----------------------------------


RECENT_S: Final = 86_400.0


async def routes_with_refusals(deliveries: Deliveries, now: float) -> list[RouteState]:
    """
    Return every route, by name, with the records that its destination rejected within the last day.

    The storage keeps only the newest KEPT_REFUSALS rejections of a route. If a route has more, its count is
    a lower bound.
    """
    recent: dict[str, list[PartialRefusal]] = {}
    for refusal in await deliveries.partial_refusals():
        if refusal.at > now - RECENT_S:
            recent.setdefault(refusal.route, []).append(refusal)
    return [_add_refusals(route, recent.get(route.name, ())) for route in await deliveries.routes()]


def _add_refusals(route: RouteState, refusals: Sequence[PartialRefusal]) -> RouteState:
    if not refusals:
        return route
    newest = max(refusals, key=lambda refusal: refusal.at)
    count = sum(refusal.count for refusal in refusals)
    return replace(route, refused_recently=count, refusal=newest.words)
