"""The calls of the operator API for what upstreams refused: dead letters, and records named by partial successes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.address import call
from gateway.operator.body import RequestBody
from gateway.operator.delivery.record_edit import edited
from gateway.operator.requests import OperatorRequest
from spool.deliveries.values import DeadLetter, PartialRefusal
from spool.errors import Invalid, NotThere
from spool.record import Record, as_json, moment, pack
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION


class Letters(RequestBody):
    """Dead letters by number, or those of one route, or all of them."""

    ids: list[int] | None = None
    route: str | None = None
    all: bool = False


class Edit(RequestBody):
    """`record` has the fields to change; those that are as they were may stand beside them."""

    record: dict[str, Any]


def describe_dead(letter: DeadLetter) -> dict[str, object]:
    return {
        "id": letter.id,
        "route": letter.route,
        "number": letter.number,
        "record_id": letter.record.id.hex(),
        "error": letter.error,
        "status": letter.status,
        "at": moment(letter.at),
    }


def describe_refusal(refusal: PartialRefusal) -> dict[str, object]:
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
    show=describe_dead,
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
    show=describe_refusal,
    identity=Sort(value=lambda refusal: f"{refusal.route} {refusal.first:020} {refusal.at:017.6f}"),
    sorts={
        "at": Sort(value=lambda refusal: refusal.at),
        "route": Sort(value=lambda refusal: refusal.route),
        "count": Sort(value=lambda refusal: refusal.count),
    },
    default_sort=("at", "desc"),
    filters={"route": Filter(values=lambda refusal: (refusal.route,))},
)


@call("GET", "/dead", VIEW_OPERATION, "List dead letters", lists=DEAD)
async def list_dead(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(DEAD, MemoryRows(await request.services.deliveries.dead()))


@call("GET", "/dead/{id}", VIEW_OPERATION, "Show a dead letter's record")
async def show_dead(request: OperatorRequest[SpoolServices, None]) -> Result:
    letter = await _letter(request, request.number("id"))
    return {"dead": {**describe_dead(letter), "record": as_json(letter.record)}}


@call("PATCH", "/dead/{id}", OPERATE_SPOOL, "Send a dead letter again with other values")
async def edit_dead(request: OperatorRequest[SpoolServices, Edit]) -> Result:
    """Send a dead letter again with other values. The audit row has the fields, and a hash of either record."""
    services = request.services
    id = request.number("id")
    letter = await _letter(request, id)
    record, names = edited(letter.record, request.body.record, request.shared.people)
    noted = {"id": id, "fields": list(names), "before": _hash(letter.record), "after": _hash(record)}
    async with request.audited("dead.edit", letter.route, noted):
        await services.deliveries.dead_edit(id, record)
    await services.wake(letter.route)
    return {"edited": {"id": id, "route": letter.route, "fields": list(names), "record": as_json(record)}}


@call("POST", "/dead/retry", OPERATE_SPOOL, "Send dead letters again")
async def retry_dead(request: OperatorRequest[SpoolServices, Letters]) -> Result:
    services = request.services
    letters = await _letters(request)
    ids = [letter.id for letter in letters]
    async with request.audited("dead.retry", _target(letters), _describe_ids(ids)):
        retried = await services.deliveries.dead_retry(ids)
    for route in {letter.route for letter in letters}:
        await services.wake(route)
    return {"retried": retried}


async def _letter(request: OperatorRequest[SpoolServices, Any], id: int) -> DeadLetter:
    for letter in await request.services.deliveries.dead():
        if letter.id == id:
            return letter
    raise NotThere("there is no dead letter with this id")


def _hash(record: Record) -> str:
    return sha256(pack([record])).hexdigest()


@call("POST", "/dead/discard", OPERATE_SPOOL, "Give dead letters up")
async def discard_dead(request: OperatorRequest[SpoolServices, Letters]) -> Result:
    services = request.services
    letters = await _letters(request)
    ids = [letter.id for letter in letters]
    async with request.audited("dead.discard", _target(letters), _describe_ids(ids)):
        discarded = await services.deliveries.dead_discard(ids)
    for route in {letter.route for letter in letters}:
        await services.wake(route)  # it may have parked with all the dead letters that it may have
    return {"discarded": discarded}


@call("GET", "/partial-refusals", VIEW_OPERATION, "List what partial successes refused", lists=REFUSALS)
async def list_refusals(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(REFUSALS, MemoryRows(await request.services.deliveries.partial_refusals()))


async def _letters(request: OperatorRequest[SpoolServices, Letters]) -> list[DeadLetter]:
    given = request.body
    if (given.ids is not None) + (given.route is not None) + given.all != 1:
        raise Invalid("name dead letters by their ids, or one route, or all of them")
    letters = list(await request.services.deliveries.dead(route=given.route))
    if given.ids is None:
        return letters
    found = [letter for letter in letters if letter.id in set(given.ids)]
    if len(found) != len(set(given.ids)):
        raise NotThere("there is no dead letter with one of these ids; nothing was changed")
    return found


def _describe_ids(ids: Sequence[int]) -> dict[str, object]:
    """Their part of the audit row: the count, and at most a hundred ids."""
    return {"count": len(ids), "ids": list(ids[:100])}


def _target(letters: Sequence[DeadLetter]) -> str:
    return ", ".join(sorted({letter.route for letter in letters})) or "none"
