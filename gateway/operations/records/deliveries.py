"""Operator API handlers for routes: their state, their deliveries, replays, and repairs of data lakes."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.monitoring.health import describe_nodes, describe_route
from gateway.monitoring.route_trouble import group_trouble, http_status_in
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.requests.address import OPERATION, call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.deliveries.routes import routes_with_refusals
from spool.deliveries.values import (
    DELIVERY_STATES,
    OPEN,
    ORPHANED,
    ROUTE_STATES,
    RouteState,
    UnsettledDelivery,
)
from spool.errors import Invalid, NotAllowed, NotThere
from spool.record import AI_TELEMETRY, moment
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION

if TYPE_CHECKING:
    from spool.deliveries.protocols import LakeState


ALWAYS_SHOWN = dict.fromkeys(("received", "accepted", "duplicates", "pending", "kept"), 0)


class Replay(RequestBody):
    """
    Records to send again. `since` and `until` are RFC 3339 times of commits. Without `until`, the time is now.
    """

    route: str
    since: str
    until: str | None = None
    dry_run: bool = False


class TryRoute(RequestBody):
    """An empty object."""


def _show_route(route: RouteState) -> dict[str, object]:
    """
    Describe a route. `refused_24h` is the number of records that responses rejected while accepting other
    records; `refusal` is the newest reason. `trouble` says why the route delivers nothing, or is null.
    """
    trouble = group_trouble([route])
    return {
        **describe_route(route),
        "refused_24h": route.refused_recently,
        "refusal": route.refusal,
        "trouble": trouble and trouble[1],
    }


ROUTES: List[RouteState] = List(
    root="routes",
    show=_show_route,
    identity=Sort(value=lambda route: route.name),
    sorts={
        "route": Sort(value=lambda route: route.name),
        "state": Sort(value=lambda route: route.state),
        "queued": Sort(value=lambda route: route.queued),
        "oldest_age_s": Sort(value=lambda route: route.oldest_age_s),
        "unknown": Sort(value=lambda route: route.unknown),
        "ambiguous": Sort(value=lambda route: route.ambiguous),
        "refused_24h": Sort(value=lambda route: route.refused_recently),
    },
    default_sort=("route", "asc"),
    filters={
        "state": Filter(values=lambda route: (route.state,), valid_values=ROUTE_STATES),
        "route": Filter(values=lambda route: (route.name,)),
    },
)


@call("GET", "/status", VIEW_OPERATION, "Show topics, routes and space", shows=OPERATION)
async def status(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    books, stats, routes = (
        await services.log.books(),
        await services.log.stats(),
        await _visible_routes(request),
    )
    spans = _span_counts(services)
    topics = [{"topic": topic, **ALWAYS_SHOWN, **terms} for topic, terms in sorted(books.topics.items())]
    return {
        "topics": topics,
        "routes": [_show_route(route) for route in sorted(routes, key=lambda route: route.name)],
        "space": {
            "entries": stats.entries,
            "bytes": stats.bytes,
            "max_bytes": stats.max_bytes,
            "free_bytes": stats.free_bytes,
            "writable": stats.writable,
            "last_error": stats.last_error,
            "wal_problem": stats.wal_problem or None,
        },
        "duplicate_window_s": float(stats.duplicate_window_s),
        "native": {
            "on": services.native.is_on,
            "version": services.native.version or None,
            "words": services.native.words,
            "spans": None if spans is None else spans.total(),
            "known_spans": None if spans is None else spans["reading"],
        },
        "nodes": await describe_nodes(request.shared.leases, request.now()),
        "lakes": [
            _describe_lake(state, shows_words=not request.is_limited) for state in await services.lakes()
        ],
    }


def _span_counts(services: SpoolServices) -> Counter[str] | None:
    if services.memory is None:
        return None
    return services.memory.made.spans if services.memory.made else Counter()


def _describe_lake(state: LakeState, *, shows_words: bool) -> dict[str, object]:
    verdict = state.verdict
    return {
        "route": state.route,
        "landed_at": None if state.landed_at is None else moment(state.landed_at),
        "verified": verdict
        and {
            "at": moment(verdict.at),
            "files": verdict.files,
            "rows": verdict.rows,
            "differences": dict(verdict.differences),
            "words": verdict.words if shows_words else "",
        },
    }


@call("GET", "/routes", VIEW_OPERATION, "List routes", lists=ROUTES, shows=OPERATION)
async def list_routes(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(ROUTES, MemoryRows(await _visible_routes(request)))


@call(
    "DELETE",
    "/routes/{destination}/{topic}",
    OPERATE_SPOOL,
    "Delete a route without a destination",
    shows=OPERATION,
)
async def drop_route(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    name = f"{request.word('destination')}/{request.word('topic')}"
    if name not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {name!r}")
    async with request.audited("route.drop", name, {}):
        discarded = await services.deliveries.delete_route(name)
    return {"route": name, "discarded": discarded}


@call(
    "POST",
    "/routes/{destination}/{topic}/try",
    OPERATE_SPOOL,
    "Make a route send at once",
    shows=OPERATION,
)
async def try_route(request: OperatorRequest[SpoolServices, TryRoute]) -> Result:
    """Send at once, whatever the route waits for. Useful after its key or destination was corrected."""
    name = f"{request.word('destination')}/{request.word('topic')}"
    route = next((route for route in await _visible_routes(request) if route.name == name), None)
    if route is None:
        raise NotThere(f"there is no route named {name!r}")
    if route.state == ORPHANED:
        raise NotAllowed(f"{name} is not in the configuration; add its destination first")
    async with request.audited("route.try", name, {"state": route.state}):
        await request.services.wake(name)
    return {"route": name, "next": await request.services.log.newest_number(route.topic)}


def describe_delivery(delivery: UnsettledDelivery) -> dict[str, object]:
    """
    Describe a delivery. `not_before` is null if the delivery does not wait for a time, because it is due or
    because a person must resolve it.
    """
    waits = delivery.state == OPEN and delivery.not_before > 0
    return {
        "id": delivery.id,
        "route": delivery.route,
        "first": delivery.first,
        "last": delivery.last,
        "state": delivery.state,
        "replay": delivery.replay,
        "attempts": delivery.attempts,
        "not_before": moment(delivery.not_before) if waits else None,
        "last_error": delivery.last_error,
    }


DELIVERIES: List[UnsettledDelivery] = List(
    root="deliveries",
    show=describe_delivery,
    identity=Sort(value=lambda delivery: delivery.id),
    sorts={
        "id": Sort(value=lambda delivery: delivery.id),
        "route": Sort(value=lambda delivery: delivery.route),
        "first": Sort(value=lambda delivery: delivery.first),
        "attempts": Sort(value=lambda delivery: delivery.attempts),
        "not_before": Sort(value=lambda delivery: delivery.not_before),
    },
    default_sort=("id", "asc"),
    filters={
        "route": Filter(values=lambda delivery: (delivery.route,)),
        "state": Filter(values=lambda delivery: (delivery.state,), valid_values=DELIVERY_STATES),
    },
)


@call(
    "GET",
    "/deliveries",
    VIEW_OPERATION,
    "List unacknowledged deliveries",
    lists=DELIVERIES,
    shows=OPERATION,
)
async def list_deliveries(request: OperatorRequest[SpoolServices, None]) -> Result:
    found = await request.services.deliveries.unsettled_deliveries()
    if request.is_limited:
        found = [replace(delivery, last_error=http_status_in(delivery.last_error)) for delivery in found]
    return await request.list(DELIVERIES, MemoryRows(found))


@call("POST", "/replay", OPERATE_SPOOL, "Send delivered records again")
async def replay(request: OperatorRequest[SpoolServices, Replay]) -> Result:
    services = request.services
    body = request.body
    since = _parse_time("since", body.since)
    until = request.now() if body.until is None else _parse_time("until", body.until)
    if since >= until:
        raise Invalid("since must be earlier than until")
    if body.route not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {body.route!r}")
    if body.dry_run:
        records = await services.deliveries.replay(body.route, since=since, until=until, dry_run=True)
    else:
        span = {"since": moment(since), "until": moment(until)}
        async with request.audited("route.replay", body.route, span):
            records = await services.deliveries.replay(body.route, since=since, until=until, dry_run=False)
        await services.wake(body.route)
    return {
        "replay": {
            "route": body.route,
            "since": moment(since),
            "until": moment(until),
            "records": records,
            "dry_run": body.dry_run,
        }
    }


class Repair(RequestBody):
    """
    A repair of a data lake of files named `destination`. With `after`, nothing is written: the deliveries of
    `topic` that begin after this record number are compared with the log.
    """

    destination: str
    dry_run: bool = False
    topic: str = AI_TELEMETRY
    after: int | None = None


@call("POST", "/lake-repairs", OPERATE_SPOOL, "Write missing files of a data lake again")
async def repair_lake(request: OperatorRequest[SpoolServices, Repair]) -> Result:
    """
    Write missing files again, as far as the log still has their records. `lost` lists the files that cannot
    be written, with the reason.
    """
    body = request.body
    if body.after is not None:
        recount = await request.services.recount_lake(body.destination, body.topic, body.after)
        return {"recount": asdict(recount)}
    if body.dry_run:
        done = await request.services.repair_lake(body.destination, dry_run=True)
    else:
        async with request.audited("lake.repair", body.destination, {}):
            done = await request.services.repair_lake(body.destination, dry_run=False)
    return {
        "repair": {
            "destination": body.destination,
            "dry_run": body.dry_run,
            "put": list(done.put),
            "lost": dict(done.lost),
        }
    }


async def _visible_routes(request: OperatorRequest[SpoolServices, Any]) -> list[RouteState]:
    """
    Return the routes. People who may see only some calls get no text of a receiver, because it may repeat
    values of a record.
    """
    services = request.services
    routes = [*await routes_with_refusals(services.deliveries, request.now()), *services.syncs()]
    if not request.is_limited:
        return routes
    return [replace(route, reason=http_status_in(route.reason), refusal=None) for route in routes]


def _parse_time(name: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    # A time outside these years may have no UTC equivalent.
    if at is None or at.tzinfo is None or not 1970 <= at.year < 9999:
        raise Invalid(f"{name} must be an RFC 3339 time with its zone, such as 2026-01-31T12:00:00Z")
    return at.timestamp()
