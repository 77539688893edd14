"""The calls of the operator API for what is in the spool: status, routes, dead letters, replay, receipts, books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from aiohttp import web

from gateway.doors.operator_body import Body, answer, moment
from gateway.doors.operator_calls import Asked, Call
from gateway.listing import Filter, List, MemoryRows, Sort
from spool.errors import Invalid, NotThere
from spool.log import Books, DeadLetter, PartialRefusal, RouteState
from spool.operators import OPERATOR, VIEWER
from spool.record import as_json

STATES = ("running", "parked", "refusing", "orphaned")
Shape = Mapping[str, object]


class Letters(Body):
    """Dead letters by number, or those of one route, or all of them."""

    ids: list[int] | None = None
    route: str | None = None
    all: bool = False


class Replay(Body):
    """`since` and `until` are RFC 3339 times of commit; until when it is left out is now."""

    route: str
    since: str
    until: str | None = None
    dry_run: bool = False


def shown_route(route: RouteState) -> dict[str, object]:
    return {
        "route": route.name,
        "state": route.state,
        "reason": route.reason,
        "queued": route.queued,
        "oldest_age_s": route.oldest_age_s,
    }


def shown_dead(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "route": letter.route,
        "number": letter.number,
        "record_id": letter.record.id.hex(),
        "error": letter.error,
        "status": letter.status,
        "at": moment(letter.at),
    }


def shown_refusal(refusal: PartialRefusal) -> dict[str, object]:
    return {
        "route": refusal.route,
        "first": refusal.first,
        "last": refusal.last,
        "count": refusal.count,
        "words": refusal.words,
        "at": moment(refusal.at),
    }


def shown_books(books: Books) -> dict[str, object]:
    return {
        "topics": {topic: dict(terms) for topic, terms in books.topics.items()},
        "routes": {route: dict(terms) for route, terms in books.routes.items()},
        "balanced": not books.imbalances,
        "imbalances": list(books.imbalances),
    }


def shown_shape(shape: Shape) -> dict[str, object]:
    last_seen = shape.get("last_seen")
    return {**shape, "last_seen": moment(last_seen)} if isinstance(last_seen, float) else dict(shape)


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

DEAD: List[DeadLetter] = List(
    root="dead",
    show=shown_dead,
    identity=Sort(value=lambda letter: letter.id),
    sorts={
        "id": Sort(value=lambda letter: letter.id),
        "route": Sort(value=lambda letter: letter.route),
        "number": Sort(value=lambda letter: letter.number),
        "status": Sort(value=lambda letter: letter.status),
        "at": Sort(value=lambda letter: letter.at),
    },
    default_sort=("id", "asc"),
    filters={
        "route": Filter(values=lambda letter: (letter.route,)),
        "status": Filter(values=lambda letter: (letter.status,)),
    },
)


REFUSALS: List[PartialRefusal] = List(
    root="partial_refusals",
    show=shown_refusal,
    identity=Sort(value=lambda refusal: f"{refusal.route} {refusal.first:020} {refusal.at:017.6f}"),
    sorts={
        "at": Sort(value=lambda refusal: refusal.at),
        "route": Sort(value=lambda refusal: refusal.route),
        "count": Sort(value=lambda refusal: refusal.count),
    },
    default_sort=("at", "desc"),
    filters={"route": Filter(values=lambda refusal: (refusal.route,))},
)


def _shapes(root: str, names: Sequence[str], sorts: Sequence[str], first: str) -> List[Shape]:
    """A list of rows that the log gives as plain mappings, identified by `names`."""

    def value(name: str) -> Sort[Shape]:
        return Sort(value=lambda row: _sortable(row.get(name)))

    return List(
        root=root,
        show=shown_shape,
        identity=Sort(value=lambda row: "\n".join(str(row.get(name)) for name in names)),
        sorts={name: value(name) for name in (*names, *sorts)},
        default_sort=(first, "desc"),
    )


def _sortable(value: object) -> str | int | float | None:
    return value if value is None or isinstance(value, str | int | float) else str(value)


IGNORED = _shapes("ignored", ("names",), ("count", "last_seen"), "last_seen")
CONFLICTS = _shapes("conflicts", ("first_source", "second_source"), ("count",), "count")


async def status(asked: Asked) -> web.Response:
    asked.only()
    services = asked.services
    books, stats, routes = await services.log.books(), await services.log.stats(), await services.deliveries.routes()
    return answer({
        "topics": [{"topic": topic, **terms} for topic, terms in sorted(books.topics.items())],
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
    return await asked.list(ROUTES, MemoryRows(await asked.services.deliveries.routes()))


async def drop_route(asked: Asked) -> web.Response:
    asked.only()
    services = asked.services
    name = f"{asked.word('destination')}/{asked.word('topic')}"
    if name not in {route.name for route in await services.deliveries.routes()}:
        raise NotThere(f"there is no route named {name!r}")
    discarded = await services.noted(asked.actor, "route.drop", name, {}, lambda: services.deliveries.drop(name))
    return answer({"route": name, "discarded": discarded})


async def list_dead(asked: Asked) -> web.Response:
    return await asked.list(DEAD, MemoryRows(await asked.services.deliveries.dead()))


async def show_dead(asked: Asked) -> web.Response:
    asked.only()
    number = asked.number("id")
    for letter in await asked.services.deliveries.dead():
        if letter.id == number:
            return answer({"dead": {**shown_dead(letter), "record": as_json(letter.record)}})
    raise NotThere("there is no dead letter with this id")


async def retry_dead(asked: Asked) -> web.Response:
    services = asked.services
    letters = await _letters(asked)
    ids = [letter.id for letter in letters]
    retried = await services.noted(
        asked.actor, "dead.retry", _target(letters), {"ids": ids}, lambda: services.deliveries.dead_retry(ids)
    )
    for route in {letter.route for letter in letters}:
        services.wake(route)
    return answer({"retried": retried})


async def discard_dead(asked: Asked) -> web.Response:
    services = asked.services
    letters = await _letters(asked)
    ids = [letter.id for letter in letters]
    discarded = await services.noted(
        asked.actor, "dead.discard", _target(letters), {"ids": ids}, lambda: services.deliveries.dead_discard(ids)
    )
    return answer({"discarded": discarded})


async def list_refusals(asked: Asked) -> web.Response:
    return await asked.list(REFUSALS, MemoryRows(await asked.services.deliveries.partial_refusals()))


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
    return answer({"receipt": dict(await asked.services.log.receipt(asked.word("id")))})


async def list_ignored(asked: Asked) -> web.Response:
    return await asked.list(IGNORED, MemoryRows(await asked.services.log.unrecognised()))


async def list_conflicts(asked: Asked) -> web.Response:
    return await asked.list(CONFLICTS, MemoryRows(await asked.services.log.conflicts()))


async def show_running_books(asked: Asked) -> web.Response:
    asked.only()
    return answer(shown_books(await asked.services.log.books()))


async def verify(asked: Asked) -> web.Response:
    """Recounted from commit rows and entries; the running counters are not trusted."""
    asked.only()
    return answer(shown_books(await asked.services.log.verify()))


async def _letters(asked: Asked) -> list[DeadLetter]:
    given = await asked.body(Letters)
    if (given.ids is not None) + (given.route is not None) + given.all != 1:
        raise Invalid("name dead letters by their ids, or one route, or all of them")
    letters = list(await asked.services.deliveries.dead(route=given.route))
    if given.ids is None:
        return letters
    found = [letter for letter in letters if letter.id in set(given.ids)]
    if len(found) != len(set(given.ids)):
        raise NotThere("there is no dead letter with one of these ids; nothing was changed")
    return found


def _target(letters: Sequence[DeadLetter]) -> str:
    return ", ".join(sorted({letter.route for letter in letters})) or "none"


def _time(name: str, text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Invalid(f"{name} must be an RFC 3339 time with its zone, such as 2026-01-31T12:00:00Z")
    return at.timestamp()


CALLS = (
    Call("GET", "/status", VIEWER, status, "Topics, routes and space"),
    Call("GET", "/routes", VIEWER, list_routes, "List routes", lists="routes"),
    Call("DELETE", "/routes/{destination}/{topic}", OPERATOR, drop_route, "Forget an orphaned route"),
    Call("GET", "/dead", VIEWER, list_dead, "List dead letters", lists="dead"),
    Call("GET", "/dead/{id}", VIEWER, show_dead, "Show a dead letter's record"),
    Call("POST", "/dead/retry", OPERATOR, retry_dead, "Send dead letters again", takes=Letters),
    Call("POST", "/dead/discard", OPERATOR, discard_dead, "Give dead letters up", takes=Letters),
    Call(
        "GET",
        "/partial-refusals",
        VIEWER,
        list_refusals,
        "List what partial successes refused",
        lists="partial_refusals",
    ),
    Call("POST", "/replay", OPERATOR, replay, "Send settled records again", takes=Replay),
    Call("GET", "/receipts/{id}", VIEWER, receipt, "What became of a submission"),
    Call("GET", "/ignored", VIEWER, list_ignored, "List unrecognised AI shapes", lists="ignored"),
    Call("GET", "/conflicts", VIEWER, list_conflicts, "List reports that disagreed", lists="conflicts"),
    Call("GET", "/books", VIEWER, show_running_books, "The running books"),
    Call("GET", "/verify", VIEWER, verify, "Recount the books"),
)
