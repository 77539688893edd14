"""The calls of the operator API for the spool: status, routes, replay, receipts, books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.monitoring.health import describe_route
from gateway.monitoring.nodes import describe_nodes
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest
from spool.deliveries.refusals import routes_with_refusals
from spool.deliveries.values import ORPHANED, ROUTE_STATES, RouteState
from spool.errors import Invalid, NotAllowed, NotThere
from spool.log.values import AcceptedTwice, Books
from spool.record import moment
from spool.steady_clock import SteadyClock, doubts

if TYPE_CHECKING:
    from spool.deliveries.lake_verdicts import LakeState

ALWAYS_SHOWN = dict.fromkeys(("received", "accepted", "duplicates", "pending", "kept"), 0)


class Replay(RequestBody):
    """`since` and `until` are RFC 3339 times of commit; until when it is left out is now."""

    route: str
    since: str
    until: str | None = None
    dry_run: bool = False


class TryRoute(RequestBody):
    """An empty object."""


class AcceptClock(RequestBody):
    """An empty object."""


def describe_books(books: Books) -> dict[str, object]:
    return {
        "topics": {topic: dict(terms) for topic, terms in books.topics.items()},
        "routes": {route: dict(terms) for route, terms in books.routes.items()},
        "balanced": not books.imbalances,
        "imbalances": list(books.imbalances),
    }


def _show_route(route: RouteState) -> dict[str, object]:
    """`refused_24h` records were rejected by answers that accepted others; `refusal` is the newest reason."""
    return {**describe_route(route), "refused_24h": route.refused_recently, "refusal": route.refusal}


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


async def status(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    books, stats, routes = (
        await services.log.books(),
        await services.log.stats(),
        await _routes(request),
    )
    spans = _spans_read(services)
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
        "lakes": [_describe_lake(state) for state in await services.lakes()],
    }


def _spans_read(services: SpoolServices) -> Counter[str] | None:
    """Count the spans by who read them; None where the compiled module is not."""
    if services.memory is None:
        return None
    return services.memory.made.spans if services.memory.made else Counter()


def _describe_lake(state: LakeState) -> dict[str, object]:
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
            "words": verdict.words,
        },
    }


async def list_routes(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(ROUTES, MemoryRows(await _routes(request)))


async def drop_route(request: OperatorRequest[SpoolServices, None]) -> Result:
    services = request.services
    name = f"{request.word('destination')}/{request.word('topic')}"
    if name not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {name!r}")
    async with request.audited("route.drop", name, {}):
        discarded = await services.deliveries.drop(name)
    return {"route": name, "discarded": discarded}


async def try_route(request: OperatorRequest[SpoolServices, TryRoute]) -> Result:
    """Send to it at once, whatever it waits for: a key or a destination was mended."""
    name = f"{request.word('destination')}/{request.word('topic')}"
    route = next((each for each in await _routes(request) if each.name == name), None)
    if route is None:
        raise NotThere(f"there is no route named {name!r}")
    if route.state == ORPHANED:
        raise NotAllowed(f"{name} is not in the configuration: put its destination there first")
    async with request.audited("route.try", name, {"state": route.state}):
        await request.services.wake(name)
    return {"route": name, "next": await request.services.log.newest_number(route.topic)}


async def replay(request: OperatorRequest[SpoolServices, Replay]) -> Result:
    services = request.services
    body = request.body
    since = _time("since", body.since)
    until = request.now() if body.until is None else _time("until", body.until)
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


async def show_clock(request: OperatorRequest[SpoolServices, None]) -> Result:
    step_s, held_s = doubts(request.shared.clock)
    return {
        "clock": {
            "now": moment(request.now()),
            "step_s": step_s,
            "held_s": held_s,
        }
    }


async def accept_clock(request: OperatorRequest[SpoolServices, AcceptClock]) -> Result:
    """Believe the wall clock now, and remove by it."""
    clock = request.shared.clock
    step_s, held_s = doubts(clock)
    if not isinstance(clock, SteadyClock) or not held_s:
        return {"clock": {"moved_s": 0.0, "was_held_s": 0.0}}
    async with request.audited("clock.accept", "clock", {"step_s": step_s}):
        moved_s = clock.accept()
    return {"clock": {"moved_s": moved_s, "was_held_s": held_s}}


async def receipt(request: OperatorRequest[SpoolServices, None]) -> Result:
    found = await request.services.log.receipt(request.word("id"))
    at = found.get("at")
    return {"receipt": {**found, "at": moment(at)} if isinstance(at, float) else dict(found)}


async def show_running_books(request: OperatorRequest[SpoolServices, None]) -> Result:
    return describe_books(await request.services.log.books())


async def verify(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    Recounted from commit rows and entries; the running counters are not trusted. The ledger's calls are
    compared with those that are kept. `accepted_twice` has the records by topic whose ids were known when they were
    accepted, with the numbers of the first of them.
    """
    services = request.services

    async def recounted() -> dict[str, object]:
        books = await services.log.verify()
        compared = await request.whole_ledger.compare(services.log)
        imbalances = [*books.imbalances, *compared.words(), *_twice(books.accepted_twice)]
        accepted_twice = {topic: asdict(found) for topic, found in books.accepted_twice.items()}
        return {**describe_books(replace(books, imbalances=imbalances)), "accepted_twice": accepted_twice}

    return await request.shared.questions.recount(f"person {request.actor.name}", recounted)


def _twice(found: Mapping[str, AcceptedTwice]) -> Iterator[str]:
    """A sentence for each topic."""
    for topic, twice in found.items():
        numbers = ", ".join(map(str, twice.numbers))
        more = ", ..." if twice.records > len(twice.numbers) else ""
        yield (
            f"{topic}: records that count twice, because their ids were known and accepted again: {twice.records} "
            f'(numbers {numbers}{more}); "Records that count twice" in docs/reliability.md says what to do'
        )


async def _routes(request: OperatorRequest[SpoolServices, Any]) -> list[RouteState]:
    services = request.services
    return [*await routes_with_refusals(services.deliveries, request.now()), *services.syncs()]


def _time(name: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    # Outside of these years a time may have no UTC time.
    if at is None or at.tzinfo is None or not 1970 <= at.year < 9999:
        raise Invalid(f"{name} must be an RFC 3339 time with its zone, such as 2026-01-31T12:00:00Z")
    return at.timestamp()
