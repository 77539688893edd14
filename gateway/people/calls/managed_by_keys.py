"""
The calls of keys on a resource. What is published stays to the letter: names, scopes, words and the form of answers
are declared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.holders.operators import MoneyServices
from gateway.http.managed import (
    CHANGE,
    CREATE,
    DELETE,
    LIST,
    SHOW,
    Answer,
    Asker,
    ManagedResource,
    with_article,
    words_of,
)
from gateway.http.requests import AddressHandler, KeyRequest, Result, check_json
from gateway.money.costs.reader import CostReader
from gateway.service.schemas import TEXT, closed


def reader_of_key(money: MoneyServices) -> CostReader:
    """Return what a key sees of costs: everything."""
    return CostReader(whole=money.ledger, require_registry=money.require_registry)


def asking_key(request: KeyRequest[MoneyServices, Any]) -> Asker[MoneyServices]:
    """Return the asker for a key: role filters do not apply to keys."""
    return Asker(
        services=request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=reader_of_key(request.services).dimensions,
    )


def managed_by_keys(resource: ManagedResource[Any]) -> Iterator[Address]:
    """Make the rows of what keys do with a resource; none if they do nothing."""
    by = resource.keys
    if by is None:
        return
    noun = resource.noun
    root = resource.root
    names = {
        LIST: f"read_{noun}s",
        CREATE: f"create_{noun}",
        SHOW: f"read_{noun}",
        CHANGE: f"update_{noun}",
        DELETE: f"delete_{noun}",
        **by.names,
    }
    said = {**words_of(noun), SHOW: with_article(noun).capitalize(), **by.words}

    async def listed(request: KeyRequest[MoneyServices, None]) -> Result:
        asking = asking_key(request)
        return await resource.filled(asking, await request.list(resource.lists, await resource.rows(asking)))

    async def create(request: KeyRequest[MoneyServices, Any]) -> Any:
        return made(await resource.create(asking_key(request), request.body))

    async def show(request: KeyRequest[MoneyServices, None]) -> Result:
        return await resource.show(asking_key(request), request.word(by.id))

    async def change(request: KeyRequest[MoneyServices, Any]) -> Any:
        return made(await resource.change(asking_key(request), request.word(by.id), request.body))

    async def delete(request: KeyRequest[MoneyServices, None]) -> Result:
        return {root: {"id": await resource.delete(asking_key(request), request.word(by.id))}}

    def made(answer: Answer) -> Any:
        return answer[root] if by.is_bare_when_made else answer

    def row(
        verb: str,
        method: str,
        handler: AddressHandler,
        takes: type | None = None,
        gives: Content | None = None,
        **more: Any,
    ) -> Address:
        is_one = verb in (SHOW, CHANGE, DELETE)
        return Address(
            methods=("GET", "HEAD") if method == "GET" else (method,),
            path=f"{by.path}/{{{by.id}}}" if is_one else by.path,
            name=names[verb],
            summary=said[verb],
            handler=handler,
            endpoint=by.one_endpoint or by.endpoint if is_one else by.endpoint,
            scope=f"{by.group}:{by.scopes.get(verb) or names[verb]}",
            check=check_json if takes else None,
            body=takes,
            takes={JSON: takes} if takes else {},
            gives={200: gives} if gives else {},
            refusals=(*(WRITE if takes else READ), 404, 409),
            **more,
        )

    shown = {JSON: resource.one}
    gone = {JSON: closed({root: closed({"id": TEXT})})}
    changed = {JSON: resource.item} if by.is_bare_when_made else shown
    rows = {
        LIST: row(LIST, "GET", listed, lists=resource.lists, item=resource.item, in_turn=by.in_turn),
        CREATE: row(CREATE, "POST", create, takes=resource.new, gives=changed),
        SHOW: row(SHOW, "GET", show, gives=shown, repeated=by.repeated, in_turn=by.in_turn),
        CHANGE: row(CHANGE, "PATCH", change, takes=resource.changes, gives=changed),
        DELETE: row(DELETE, "DELETE", delete, gives=gone),
    }
    yield from (each for verb, each in rows.items() if verb not in by.by_hand)
