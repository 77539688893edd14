"""
A resource as it is asked for: what keys and people list, create, read, change and delete, each verb written once.

What is stated of it, and what is answered, is declared in `gateway.resources`. Five calls for keys are made from this
here, and five for people in `gateway.operator.managed`. What is published stays to the letter: names, scopes, words
and the form of answers are parameters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from gateway.api.visible import EVERYTHING, Visible
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.holders.installation import InstallationServices
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import List, Rows
from gateway.http.requests import AddressHandler, KeyRequest, Result, check_json
from gateway.schemas import OBJECT, TEXT, Schema, closed
from spool.errors import Invalid
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.roles import Holder

Answer = Mapping[str, object]


async def _everything() -> Visible:
    return EVERYTHING


@dataclass(frozen=True, kw_only=True)
class Asker:
    """
    Who asks. `sees` is what of the calls, and what is made of them, the asker may see; `known` the dimensions
    that the asker may name. A person may name things by their names, too, and confirms what is deleted.

    `holder` is a person as a role holder, None for a key and at the server itself.
    """

    services: MoneyServices
    shared: InstallationServices
    actor: Actor
    http: web.Request
    known: Callable[[], Awaitable[Collection[str]]]
    sees: Callable[[], Awaitable[Visible]] = _everything
    is_person: bool = False
    holder: Holder | None = None

    @property
    def registry(self) -> Registry:
        """The registry. Refusal 503 with the reason while it cannot be read."""
        return self.services.require_registry()

    def check_confirmed(self, text: str, what: str) -> None:
        """Invalid unless a person confirms a deletion with `text`."""
        if self.is_person and self.http.query.get("confirm", "") != text:
            raise Invalid(f"confirm must be the exact {what}")


def asking_key(request: KeyRequest[MoneyServices, Any]) -> Asker:
    """Return the asker for a key: role filters do not apply to keys."""

    async def known() -> Collection[str]:
        return request.services.ledger.dimensions()

    return Asker(
        services=request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=known,
    )


@dataclass(frozen=True, kw_only=True)
class ManagedResource:
    """
    `noun` is that of its operations, `root` the member under which one is answered. `new` and `changes`
    decode bodies, `item` is a row of the list and `one` an answer about one.

    `show`, `change` and `delete` take what the path names. `fill` adds to a page of the list what the
    query asks for.
    """

    noun: str
    root: str
    lists: List[Any]
    new: type[msgspec.Struct]
    changes: type[msgspec.Struct]
    item: type[msgspec.Struct]
    one: type[msgspec.Struct]
    rows: Callable[[Asker], Awaitable[Rows[Any]]]
    create: Callable[[Asker, Any], Awaitable[Answer]]
    show: Callable[[Asker, str], Awaitable[Answer]]
    change: Callable[[Asker, str, Any], Awaitable[Answer]]
    delete: Callable[[Asker, str], Awaitable[str]]  # the id of what is gone
    fill: Callable[[Asker, Answer], Awaitable[Answer]] | None = None

    async def filled(self, asking: Asker, page: Answer) -> Answer:
        return page if self.fill is None else await self.fill(asking, page)


def managing(
    method: str,
    path: str,
    handler: AddressHandler,
    summary: str,
    *,
    group: str,
    endpoint: str,
    scope: str = "",
    takes: type | None = None,
    gives: Content | None = None,
    lists: List[Any] | None = None,
    item: type | Schema = OBJECT,
    may_be_empty: bool = False,
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
    name: str = "",
) -> Address:
    """
    `group` is the part of the scope before the colon; the part behind it is the name, unless given, and that
    is the handler's, unless given.
    """
    answers: Mapping[int, Content] = {200: gives} if gives else {}
    name = name or handler.__name__
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=name,
        summary=summary,
        handler=handler,
        endpoint=endpoint,
        scope=f"{group}:{scope or name}",
        check=check_json if takes and not may_be_empty else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        may_be_empty=may_be_empty,
        gives=answers,
        lists=lists,
        item=item,
        repeated=repeated,
        in_turn=in_turn,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


LIST, CREATE, SHOW, CHANGE, DELETE = "list", "create", "show", "change", "delete"  # the verbs of a resource


def managed_by_keys(
    resource: ManagedResource,
    path: str,
    id: str,
    *,
    group: str,
    endpoint: str,
    one_endpoint: str = "",
    names: Mapping[str, str] | None = None,
    scopes: Mapping[str, str] | None = None,
    words: Mapping[str, str] | None = None,
    is_bare_when_made: bool = False,
    by_hand: Collection[str] = (),
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
) -> tuple[Address, ...]:
    """
    The calls of keys on a resource at `path`; `id` names its part of the path.

    `names`, `scopes` and `words` are in place of the usual ones, by verb. `is_bare_when_made`: one that was
    created or changed is answered without its name. Rows of `by_hand` stand elsewhere. `repeated` are query
    parameters of one, `in_turn` what is read.
    """
    noun = resource.noun
    root = resource.root
    names = {
        LIST: f"read_{noun}s",
        CREATE: f"create_{noun}",
        SHOW: f"read_{noun}",
        CHANGE: f"update_{noun}",
        DELETE: f"delete_{noun}",
        **(names or {}),
    }
    said = {**words_of(noun), SHOW: with_article(noun).capitalize(), **(words or {})}

    async def listed(request: KeyRequest[MoneyServices, None]) -> Result:
        asking = asking_key(request)
        return await resource.filled(asking, await request.list(resource.lists, await resource.rows(asking)))

    async def create(request: KeyRequest[MoneyServices, Any]) -> Any:
        return made(await resource.create(asking_key(request), request.body))

    async def show(request: KeyRequest[MoneyServices, None]) -> Result:
        return await resource.show(asking_key(request), request.word(id))

    async def change(request: KeyRequest[MoneyServices, Any]) -> Any:
        return made(await resource.change(asking_key(request), request.word(id), request.body))

    async def delete(request: KeyRequest[MoneyServices, None]) -> Result:
        return {root: {"id": await resource.delete(asking_key(request), request.word(id))}}

    def made(answer: Answer) -> Any:
        return answer[root] if is_bare_when_made else answer

    def row(verb: str, method: str, handler: AddressHandler, **more: Any) -> Address:
        is_one = verb in (SHOW, CHANGE, DELETE)
        return managing(
            method,
            f"{path}/{{{id}}}" if is_one else path,
            handler,
            said[verb],
            group=group,
            name=names[verb],
            scope=(scopes or {}).get(verb, ""),
            endpoint=one_endpoint or endpoint if is_one else endpoint,
            **more,
        )

    shown = {JSON: resource.one}
    gone = {JSON: closed({root: closed({"id": TEXT})})}
    changed = {JSON: resource.item} if is_bare_when_made else shown
    rows = {
        LIST: row(LIST, "GET", listed, lists=resource.lists, item=resource.item, in_turn=in_turn),
        CREATE: row(CREATE, "POST", create, takes=resource.new, gives=changed),
        SHOW: row(SHOW, "GET", show, gives=shown, repeated=repeated, in_turn=in_turn),
        CHANGE: row(CHANGE, "PATCH", change, takes=resource.changes, gives=changed),
        DELETE: row(DELETE, "DELETE", delete, gives=gone),
    }
    return tuple(each for verb, each in rows.items() if verb not in by_hand)


def words_of(noun: str) -> Mapping[str, str]:
    """The summaries of the calls, by verb."""
    one = with_article(noun)
    return {
        LIST: f"List {noun.replace('_', ' ')}s",
        CREATE: f"Create {one}",
        SHOW: f"Show {one}",
        CHANGE: f"Change {one}",
        DELETE: f"Delete {one}",
    }


def with_article(noun: str) -> str:
    """Put the article before a noun."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun.replace('_', ' ')}"
