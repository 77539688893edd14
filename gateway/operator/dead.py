"""The calls of the operator API for what upstreams refused: dead letters, and records named by partial successes."""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.operator.body import Body, answer, moment
from gateway.operator.calls import Asked, Call
from spool.deliveries.values import DeadLetter, PartialRefusal
from spool.errors import Invalid, NotThere
from spool.record import as_json
from spool.registry.operators import OPERATOR, VIEWER


class Letters(Body):
    """Dead letters by number, or those of one route, or all of them."""

    ids: list[int] | None = None
    route: str | None = None
    all: bool = False


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
        asked.actor, "dead.retry", _target(letters), _told(ids), lambda: services.deliveries.dead_retry(ids)
    )
    for route in {letter.route for letter in letters}:
        services.wake(route)
    return answer({"retried": retried})


async def discard_dead(asked: Asked) -> web.Response:
    services = asked.services
    letters = await _letters(asked)
    ids = [letter.id for letter in letters]
    discarded = await services.noted(
        asked.actor, "dead.discard", _target(letters), _told(ids), lambda: services.deliveries.dead_discard(ids)
    )
    return answer({"discarded": discarded})


async def list_refusals(asked: Asked) -> web.Response:
    return await asked.list(REFUSALS, MemoryRows(await asked.services.deliveries.partial_refusals()))


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


def _told(ids: Sequence[int]) -> dict[str, object]:
    """What the audit list says of them: ten thousand numbers would help nobody."""
    return {"count": len(ids), "ids": list(ids[:100])}


def _target(letters: Sequence[DeadLetter]) -> str:
    return ", ".join(sorted({letter.route for letter in letters})) or "none"


CALLS = (
    Call("GET", "/dead", VIEWER, list_dead, "List dead letters", lists=DEAD),
    Call("GET", "/dead/{id}", VIEWER, show_dead, "Show a dead letter's record"),
    Call("POST", "/dead/retry", OPERATOR, retry_dead, "Send dead letters again", takes=Letters),
    Call("POST", "/dead/discard", OPERATOR, discard_dead, "Give dead letters up", takes=Letters),
    Call(
        "GET",
        "/partial-refusals",
        VIEWER,
        list_refusals,
        "List what partial successes refused",
        lists=REFUSALS,
    ),
)
