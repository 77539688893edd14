"""The calls of the operator API for what is in the spool: status, routes, replay, receipts, books."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.monitoring.health import shown_route
from gateway.operator.body import Body, answer, moment
from gateway.operator.calls import Asked, Call
from spool.deliveries.values import RouteState
from spool.errors import Invalid, NotThere
from spool.log.values import Books
from spool.registry.operators import OPERATOR, VIEWER

ALWAYS_SHOWN = dict.fromkeys(("received", "accepted", "duplicates", "pending", "kept"), 0)
STATES = ("running", "parked", "refusing", "orphaned")


class Replay(Body):
    """`since` and `until` are RFC 3339 times of commit; until when it is left out is now."""

    route: str
    since: str
    until: str | None = None
    dry_run: bool = False


def shown_books(books: Books) -> dict[str, object]:
    return {
        "topics": {topic: dict(terms) for topic, terms in books.topics.items()},
        "routes": {route: dict(terms) for route, terms in books.routes.items()},
        "balanced": not books.imbalances,
        "imbalances": list(books.imbalances),
    }


ROUTES: List[RouteState] = List(
    root="routes",
    show=shown_route,
    identity=Sort(value=lambda route: route.name),
    sorts={
        "route": Sort(value=lambda route: route.name),
        "state": Sort(value=lambda route: route.state),
        "queued": Sort(value=lambda route: route.queued),
        "oldest_age_s": Sort(value=lambda route: route.oldest_age_s),
    },
    default_sort=("route", "asc"),
    filters={
        "state": Filter(values=lambda route: (route.state,), valid_values=STATES),
        "route": Filter(values=lambda route: (route.name,)),
    },
)


async def status(asked: Asked) -> web.Response:
    asked.only()
    services = asked.services
    books, stats, routes = await services.log.books(), await services.log.stats(), await _routes(asked)
    return answer({
        "topics": [{"topic": topic, **ALWAYS_SHOWN, **terms} for topic, terms in sorted(books.topics.items())],
        "routes": [shown_route(route) for route in sorted(routes, key=lambda route: route.name)],
        "space": {
            "entries": stats.entries,
            "bytes": stats.bytes,
            "max_bytes": stats.max_bytes,
            "free_bytes": stats.free_bytes,
            "writable": stats.writable,
            "last_error": stats.last_error,
        },
        "duplicate_window_s": float(stats.duplicate_window_s),
    })  # fmt: skip


async def list_routes(asked: Asked) -> web.Response:
    return await asked.list(ROUTES, MemoryRows(await _routes(asked)))


async def drop_route(asked: Asked) -> web.Response:
    asked.only()
    services = asked.services
    name = f"{asked.word('destination')}/{asked.word('topic')}"
    if name not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {name!r}")
    discarded = await services.noted(asked.actor, "route.drop", name, {}, lambda: services.deliveries.drop(name))
    return answer({"route": name, "discarded": discarded})


async def replay(asked: Asked) -> web.Response:
    services = asked.services
    given = await asked.body(Replay)
    since = _time("since", given.since)
    until = services.clock.now() if given.until is None else _time("until", given.until)
    if since >= until:
        raise Invalid("since must be earlier than until")
    if given.route not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {given.route!r}")
    if given.dry_run:
        records = await services.deliveries.replay(given.route, since=since, until=until, dry_run=True)
    else:
        records = await services.noted(
            asked.actor,
            "route.replay",
            given.route,
            {"since": moment(since), "until": moment(until)},
            lambda: services.deliveries.replay(given.route, since=since, until=until, dry_run=False),
        )
        services.wake(given.route)
    return answer({
        "replay": {
            "route": given.route, "since": moment(since), "until": moment(until),
            "records": records, "dry_run": given.dry_run,
        }
    })  # fmt: skip


async def receipt(asked: Asked) -> web.Response:
    asked.only()
    found = await asked.services.log.receipt(asked.word("id"))
    at = found.get("at")
    return answer({"receipt": {**found, "at": moment(at)} if isinstance(at, float) else dict(found)})


async def show_running_books(asked: Asked) -> web.Response:
    asked.only()
    return answer(shown_books(await asked.services.log.books()))


async def verify(asked: Asked) -> web.Response:
    """Recounted from commit rows and entries; the running counters are not trusted."""
    asked.only()
    return answer(shown_books(await asked.services.log.verify()))


async def _routes(asked: Asked) -> list[RouteState]:
    return [*await asked.services.deliveries.routes(), *asked.services.syncs()]


def _time(name: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None or not 1970 <= at.year < 9999:  # what lies outside may have no UTC time
        raise Invalid(f"{name} must be an RFC 3339 time with its zone, such as 2026-01-31T12:00:00Z")
    return at.timestamp()


CALLS = (
    Call("GET", "/status", VIEWER, status, "Topics, routes and space"),
    Call("GET", "/routes", VIEWER, list_routes, "List routes", lists=ROUTES),
    Call("DELETE", "/routes/{destination}/{topic}", OPERATOR, drop_route, "Forget an orphaned route"),
    Call("POST", "/replay", OPERATOR, replay, "Send settled records again", takes=Replay),
    Call("GET", "/receipts/{id}", VIEWER, receipt, "What became of a submission"),
    Call("GET", "/books", VIEWER, show_running_books, "The running books"),
    Call("GET", "/verify", VIEWER, verify, "Recount the books"),
)
