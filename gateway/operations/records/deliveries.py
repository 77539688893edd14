"""Operator API handlers for routes: their state, their deliveries, replays, and repairs of data lakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.fields import build_answer, one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort
from gateway.http.requests import Result
from gateway.monitoring.health import (
    GatewayNode,
    QueueSize,
    RouteStatus,
    describe_nodes,
    describe_queue_size,
    describe_route,
)
from gateway.monitoring.route_trouble import http_status_in, route_trouble_title_and_text
from gateway.operations.answers import DeliveryItem
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.requests.address import OPERATION, operator_call
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
from spool.record import AI_TELEMETRY, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION

if TYPE_CHECKING:
    from spool.deliveries.protocols import LakeState


ALWAYS_SHOWN = dict.fromkeys(("received", "accepted", "duplicates", "pending", "kept"), 0)


class Replay(RequestBody):
    """A request to send records again."""

    route: Annotated[str, words("The route that sends the records again.")]
    since: Annotated[str, words("The begin of the time range in which the records were stored.")]
    until: Annotated[str | None, words("The end of this range; default: now.")] = None
    dry_run: Annotated[bool, words("Whether to count the records and send nothing.")] = False


class TryRoute(RequestBody):
    """The request body, an empty JSON object."""


def _describe_route_with_trouble(route: RouteState) -> dict[str, object]:
    """
    Describe a route. `refused_24h` is the number of records that responses rejected while accepting other
    records; `refusal` is the newest reason. `trouble` says why the route delivers nothing, or is null.
    """
    trouble = route_trouble_title_and_text([route])
    return {
        **describe_route(route),
        "refused_24h": route.refused_recently,
        "refusal": route.refusal,
        "trouble": trouble and trouble[1],
    }


ROUTES: ListDefinition[RouteState] = ListDefinition(
    root="routes",
    show=_describe_route_with_trouble,
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


class RouteItem(RouteStatus, kw_only=True):
    refused_24h: Annotated[
        int,
        words("The number of records rejected in the last 24 hours while others were accepted."),
        example(0),
    ]
    refusal: Annotated[str | None, words("The last rejection of records."), example(None)]
    trouble: Annotated[str | None, words("Why the route delivers nothing, or null."), example(None)]


class QueueSpace(QueueSize, kw_only=True):
    entries: Annotated[int, words("The number of entries in the log of records."), example(157)]
    writable: Annotated[bool, words("Whether records can be stored."), example(True)]
    last_error: Annotated[str | None, words("The last error while storing, or null."), example(None)]


class CompiledModule(msgspec.Struct, kw_only=True):
    on: Annotated[bool, words("Whether the compiled module is used."), example(False)]
    version: Annotated[str | None, words("The version of the compiled module."), example(None)]
    words: Annotated[
        str,
        words("A sentence about the state of the compiled module."),
        example("off: No module named 'tollhouse_native'"),
    ]


class LakeComparison(msgspec.Struct, kw_only=True):
    at: Annotated[str, words("When the files were compared.")]
    files: Annotated[int, words("The number of compared files.")]
    rows: Annotated[int, words("The number of rows in the compared files.")]
    differences: Annotated[dict[str, int], words("The numbers of differences by kind; empty if all is well.")]
    words: Annotated[str, words("The first difference, or empty.")]


class LakeOfRoute(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("lake/ai-telemetry")]
    landed_at: Annotated[
        str | None, words("When the last file was written."), example("2026-11-27T01:44:55.094Z")
    ]
    verified: Annotated[
        LakeComparison | None,
        words("The last comparison of the files with the accounting, or null."),
        example(None),
    ]


class StatusAnswer(msgspec.Struct, kw_only=True):
    topics: Annotated[
        list[dict[str, Any]],
        words("The numbers of items of each topic by what happened to them."),
        example(
            [
                {
                    "topic": "ai-telemetry",
                    "received": 63213,
                    "accepted": 62584,
                    "duplicates": 588,
                    "pending": 0,
                    "kept": 62584,
                    "ignored.not_ai": 1,
                    "ignored.unrecognised_ai": 40,
                    "unidentified": 1,
                }
            ]
        ),
    ]
    routes: Annotated[list[RouteItem], words("The routes, each with the fields below.")]
    space: Annotated[QueueSpace, words("The disk space of the queue.")]
    duplicate_window_s: Annotated[
        float, words("The seconds for which ids of records are remembered."), example(604800.0)
    ]
    native: Annotated[CompiledModule, words("The compiled module.")]
    nodes: Annotated[
        list[GatewayNode],
        words("The gateways that share the database; empty without a shared one."),
        example([]),
    ]
    lakes: Annotated[list[LakeOfRoute], words("The data lakes.")]


class DropRouteAnswer(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("old-archive/ai-telemetry")]
    discarded: Annotated[int, words("The number of waiting records that were discarded."), example(12)]


class TryRouteAnswer(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("archive/ai-telemetry")]
    next: Annotated[int, words("The number of the newest record of the topic."), example(62585)]


class ReplayResult(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("archive/ai-telemetry")]
    since: Annotated[
        str, words("The time from which records are sent again."), example("2026-10-27T01:44:36.000Z")
    ]
    until: Annotated[
        str, words("The time up to which records are sent again."), example("2026-11-27T01:45:02.859Z")
    ]
    records: Annotated[int, words("The number of records to send again."), example(62579)]
    dry_run: Annotated[bool, words("Whether to show the effect and change nothing."), example(True)]


class LakeRepairReport(msgspec.Struct, kw_only=True):
    destination: Annotated[str, words("The name of the destination."), example("lake")]
    dry_run: Annotated[bool, words("Whether to show the effect and change nothing."), example(False)]
    put: Annotated[list[str], words("The files that were written again."), example([])]
    lost: Annotated[
        dict[str, Any], words("The files whose records are no longer stored, with the reason."), example({})
    ]


class LakeRecountReport(msgspec.Struct, kw_only=True):
    differs: Annotated[dict[str, str], words("The deliveries that differ from the log, by manifest.")]
    editions: Annotated[
        list[str], words("The editions of the route: one for each log that assigned record numbers.")
    ]
    compared: Annotated[int, words("The number of deliveries whose records are in the log.")]
    after: Annotated[int | None, words("Send this as `after` to continue; null at the end.")]


class RepairLakeAnswer(msgspec.Struct, kw_only=True):
    repair: Annotated[
        LakeRepairReport | UnsetType,
        words("The result of the repair."),
        example({"destination": "lake", "dry_run": False, "put": [], "lost": {}}),
    ] = UNSET
    recount: Annotated[
        LakeRecountReport | UnsetType, words("The deliveries compared with the log, if the body has `after`.")
    ] = UNSET


@operator_call(
    "GET",
    "/status",
    VIEW_OPERATION,
    "Show counts of topics, routes and disk space",
    shows=OPERATION,
    answers=StatusAnswer,
)
async def status(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    books, stats, routes = (
        await services.log.books(),
        await services.log.stats(),
        await _visible_routes(request),
    )
    topics = [{"topic": topic, **ALWAYS_SHOWN, **terms} for topic, terms in sorted(books.topics.items())]
    return {
        "topics": topics,
        "routes": [
            _describe_route_with_trouble(route) for route in sorted(routes, key=lambda route: route.name)
        ],
        "space": {
            **describe_queue_size(stats),
            "entries": stats.entries,
            "writable": stats.writable,
            "last_error": stats.last_error,
        },
        "duplicate_window_s": float(stats.duplicate_window_s),
        "native": {
            "on": services.native.is_on,
            "version": services.native.version or None,
            "words": services.native.status_text,
        },
        "nodes": await describe_nodes(request.shared.leases, request.now()),
        "lakes": [
            _describe_lake(state, shows_error_text=not request.has_limited_data_access)
            for state in await services.lakes()
        ],
    }


def _describe_lake(state: LakeState, *, shows_error_text: bool) -> dict[str, object]:
    verdict = state.verdict
    return {
        "route": state.route,
        "landed_at": None if state.landed_at is None else utc_iso(state.landed_at),
        "verified": verdict
        and {
            "at": utc_iso(verdict.at),
            "files": verdict.files,
            "rows": verdict.rows,
            "differences": dict(verdict.differences),
            "words": verdict.words if shows_error_text else "",
        },
    }


async def _names_of_routes(request: OperatorRequest[SpoolServices, None]) -> Iterator[SearchableObject]:
    services = request.services
    return (
        SearchableObject(each.name, (each.name,))
        for each in [*await services.deliveries.route_states(), *services.syncs()]
    )


@operator_call(
    "GET",
    "/routes",
    VIEW_OPERATION,
    "List routes",
    lists=ROUTES,
    names=_names_of_routes,
    shows=OPERATION,
    item=RouteItem,
)
async def list_routes(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(ROUTES, MemoryRows(await _visible_routes(request)))


@operator_call(
    "DELETE",
    "/routes/{destination}/{topic}",
    OPERATE_SPOOL,
    "Delete a route without a destination",
    shows=OPERATION,
    answers=DropRouteAnswer,
)
async def drop_route(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    name = f"{request.path_parameter('destination')}/{request.path_parameter('topic')}"
    if name not in {route.name for route in await services.deliveries.route_states()}:
        raise NotThere(f"there is no route named {name!r}")
    async with request.audited_change("route.drop", name, {}):
        discarded = await services.deliveries.delete_route_and_count_discarded(name)
    return {"route": name, "discarded": discarded}


@operator_call(
    "POST",
    "/routes/{destination}/{topic}/try",
    OPERATE_SPOOL,
    "Make a route send at once",
    shows=OPERATION,
    answers=TryRouteAnswer,
)
async def try_route(request: OperatorRequest[SpoolServices, TryRoute]) -> Result:
    """Send at once, whatever the route waits for. Useful after its key or destination was corrected."""
    name = f"{request.path_parameter('destination')}/{request.path_parameter('topic')}"
    route = next((route for route in await _visible_routes(request) if route.name == name), None)
    if route is None:
        raise NotThere(f"there is no route named {name!r}")
    if route.state == ORPHANED:
        raise NotAllowed(f"{name} is not in the configuration; add its destination first")
    async with request.audited_change("route.try", name, {"state": route.state}):
        await request.services.wake(name)
    return {"route": name, "next": await request.services.log.newest_number(route.topic)}


def describe_delivery(delivery: UnsettledDelivery) -> dict[str, object]:
    """
    Describe a delivery. `not_before` is null if the delivery does not wait for a time, because it is due or
    because a person must resolve it.
    """
    waits = delivery.state == OPEN and delivery.not_before > 0
    return build_answer(DeliveryItem, delivery, not_before=utc_iso(delivery.not_before) if waits else None)


DELIVERIES: ListDefinition[UnsettledDelivery] = ListDefinition(
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


@operator_call(
    "GET",
    "/deliveries",
    VIEW_OPERATION,
    "List unacknowledged deliveries",
    lists=DELIVERIES,
    shows=OPERATION,
    item=DeliveryItem,
)
async def list_deliveries(request: OperatorRequest[SpoolServices, None]) -> Result:
    found = await request.services.deliveries.unsettled_deliveries()
    if request.has_limited_data_access:
        found = [replace(delivery, last_error=http_status_in(delivery.last_error)) for delivery in found]
    return await request.list_page(DELIVERIES, MemoryRows(found))


@operator_call(
    "POST",
    "/replay",
    OPERATE_SPOOL,
    "Send delivered records again",
    answers=one_field_answer(
        "OneReplay", replay=Annotated[ReplayResult, words("The records to send again.")]
    ),
)
async def replay(request: OperatorRequest[SpoolServices, Replay]) -> Result:
    services = request.services
    body = request.body
    since = _parse_time("since", body.since)
    until = request.now() if body.until is None else _parse_time("until", body.until)
    if since >= until:
        raise Invalid("since must be earlier than until")
    if body.route not in {route.name for route in await services.deliveries.route_states()}:
        raise NotThere(f"there is no route named {body.route!r}")
    if body.dry_run:
        records = await services.deliveries.replay_records(body.route, since=since, until=until, dry_run=True)
    else:
        span = {"since": utc_iso(since), "until": utc_iso(until)}
        async with request.audited_change("route.replay", body.route, span):
            records = await services.deliveries.replay_records(
                body.route, since=since, until=until, dry_run=False
            )
        await services.wake(body.route)
    return {
        "replay": {
            "route": body.route,
            "since": utc_iso(since),
            "until": utc_iso(until),
            "records": records,
            "dry_run": body.dry_run,
        }
    }


class Repair(RequestBody):
    """A request to repair or to compare a data lake of files."""

    destination: Annotated[str, words("The name of the data lake of files.")]
    dry_run: Annotated[bool, words("Whether to show the effect and change nothing.")] = False
    topic: Annotated[str, words("With `after`: the topic whose deliveries are compared with the log.")] = (
        AI_TELEMETRY
    )
    after: Annotated[
        int | None,
        words(
            "The number of a record. Only deliveries of later records are compared, and nothing is written."
        ),
    ] = None


@operator_call(
    "POST",
    "/lake-repairs",
    OPERATE_SPOOL,
    "Write missing files of a data lake again",
    answers=RepairLakeAnswer,
)
async def repair_lake(request: OperatorRequest[SpoolServices, Repair]) -> Result:
    """
    Write missing files again, as far as the log still has their records. `lost` lists the files that cannot
    be written, with the reason. With `after`, only compare.
    """
    body = request.body
    if body.after is not None:
        recount = await request.services.recount_lake(body.destination, body.topic, body.after)
        return {"recount": asdict(recount)}
    if body.dry_run:
        done = await request.services.repair_lake(body.destination, dry_run=True)
    else:
        async with request.audited_change("lake.repair", body.destination, {}):
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
    if not request.has_limited_data_access:
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
