"""
Rows for what people and keys create, list and change: JSON in and out, with the refusals of all such calls.

A resource's five calls for keys and five for people are made from its declaration (`gateway.api.managed`).
What is published stays to the letter: names, scopes, words and the form of answers are parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gateway.addresses.operator_call import call
from gateway.api.managed import Answer, ManagedResource, asking_key
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, KeyRequest, Result, check_json
from gateway.operator.address import WHOLE, OperatorAddress
from gateway.operator.managed import asking_person
from gateway.operator.requests import OperatorRequest
from gateway.schemas import OBJECT, TEXT, Schema, closed


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
    said = {**_words(noun), SHOW: _one(noun).capitalize(), **(words or {})}

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


def managed_by_people(
    resource: ManagedResource,
    path: str,
    *,
    reads: str,
    changes: str,
    shows: str = WHOLE,
    names: Mapping[str, str] | None = None,
    words: Mapping[str, str] | None = None,
    new: type | None = None,
    is_shown_when_deleted: bool = False,
    is_confirmed: bool = False,
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
) -> tuple[OperatorAddress, ...]:
    """
    The calls of people on a resource; `reads` and `changes` are the permission sets that they need.

    `new` decodes one that people create, if not as keys do. `is_shown_when_deleted`: what is gone is answered
    under its name. `is_confirmed`: who deletes one says its name.
    """
    noun = resource.noun
    root = resource.root
    names = {
        LIST: f"list_{noun}s",
        CREATE: f"add_{noun}",
        SHOW: f"show_{noun}",
        CHANGE: f"edit_{noun}",
        DELETE: f"remove_{noun}",
        **(names or {}),
    }
    said = {**_words(noun), **(words or {})}

    async def listed(request: OperatorRequest[MoneyServices, None]) -> Result:
        asking = asking_person(request)
        return await resource.filled(asking, await request.list(resource.lists, await resource.rows(asking)))

    async def create(request: OperatorRequest[MoneyServices, Any]) -> Result:
        return await resource.create(asking_person(request), request.body)

    async def show(request: OperatorRequest[MoneyServices, None]) -> Result:
        return await resource.show(asking_person(request), request.word("id"))

    async def change(request: OperatorRequest[MoneyServices, Any]) -> Result:
        return await resource.change(asking_person(request), request.word("id"), request.body)

    async def delete(request: OperatorRequest[MoneyServices, None]) -> Result:
        id = await resource.delete(asking_person(request), request.word("id"))
        return {root: {"id": id}} if is_shown_when_deleted else {"deleted": id}

    def row(verb: str, method: str, handler: AddressHandler, needs: str, **more: Any) -> OperatorAddress:
        at = f"{path}/{{id}}" if verb in (SHOW, CHANGE, DELETE) else path
        return call(method, at, needs, handler, said[verb], name=names[verb], shows=shows, **more)

    required = ("confirm",) if is_confirmed else ()
    return (
        row(LIST, "GET", listed, reads, lists=resource.lists, in_turn=in_turn),
        row(CREATE, "POST", create, changes, takes=new or resource.new, status=201),
        row(SHOW, "GET", show, reads, repeated=repeated, in_turn=in_turn),
        row(CHANGE, "PATCH", change, changes, takes=resource.changes),
        row(DELETE, "DELETE", delete, changes, required=required),
    )


def _words(noun: str) -> Mapping[str, str]:
    """The summaries of the calls, by verb."""
    one = _one(noun)
    return {
        LIST: f"List {noun.replace('_', ' ')}s",
        CREATE: f"Create {one}",
        SHOW: f"Show {one}",
        CHANGE: f"Change {one}",
        DELETE: f"Delete {one}",
    }


def _one(noun: str) -> str:
    """Put the article before a noun."""
    return f"{'an' if noun[0] in 'aeio' else 'a'} {noun.replace('_', ' ')}"
