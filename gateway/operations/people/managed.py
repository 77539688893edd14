"""
The handlers of resources, for keys and for people.

The interface for keys is published, so names, scopes, texts and responses are exactly as declared. For
people, a role decides which calls they see data of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.core.paths import OPERATOR_API
from gateway.core.schemas import TEXT, Schema, closed_object_schema, schema_with_description
from gateway.core.visibility import VisibilityRules
from gateway.http.address import READ, WRITE, ApiAddress, Content
from gateway.http.answers import JSON
from gateway.http.lists import SearchableObject
from gateway.http.requests import AddressHandler, Result, check_json_content_type
from gateway.money.costs.reader import CostReader
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import (
    CHANGE,
    CREATE,
    DELETE,
    LIST,
    SHOW,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
    operation_summaries,
    with_article,
)
from gateway.operations.requests.address import OperatorApiAddress
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.operations.requests.requests import OperatorRequest


def cost_reader_for_key(money: MoneyServices) -> CostReader:
    return CostReader(whole=money.ledger, require_registry=money.require_registry)


def asker_for_key(request: OperationKeyRequest[MoneyServices, Any]) -> OperationCaller[MoneyServices]:
    """Return the caller for a key. Role filters do not apply to keys."""
    return OperationCaller(
        services=request.services,
        shared=request.shared,
        actor=request.actor,
        query=request.http.query,
        known=cost_reader_for_key(request.services).visible_dimensions,
    )


def build_key_rows(resource: ManagedResource[Any, Any]) -> Iterator[ApiAddress]:
    """
    Build the addresses at which keys use the operations on a resource. There are none if keys may not use it.
    """
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
    summaries = {**operation_summaries(noun), SHOW: f"Show {with_article(noun)}", **by.words}

    async def list_resources(request: OperationKeyRequest[MoneyServices, None]) -> Result:
        asking = asker_for_key(request)
        return await resource.add_requested_data(
            asking, await request.list_page(resource.lists, await resource.visible_rows(asking))
        )

    async def create(request: OperationKeyRequest[MoneyServices, Any]) -> Any:
        return unwrap_if_bare(await resource.create(asker_for_key(request), request.body))

    async def show(request: OperationKeyRequest[MoneyServices, None]) -> Result:
        return await resource.show(asker_for_key(request), request.path_parameter(by.id))

    async def change(request: OperationKeyRequest[MoneyServices, Any]) -> Any:
        return unwrap_if_bare(
            await resource.change(asker_for_key(request), request.path_parameter(by.id), request.body)
        )

    async def delete(request: OperationKeyRequest[MoneyServices, None]) -> Result:
        return {root: {"id": await resource.delete(asker_for_key(request), request.path_parameter(by.id))}}

    def unwrap_if_bare(answer: JsonAnswer) -> Any:
        return answer[root] if by.is_bare_when_made else answer

    def build_row(
        verb: str,
        method: str,
        handler: AddressHandler,
        takes: type | None = None,
        gives: Content | None = None,
        **more: Any,
    ) -> ApiAddress:
        is_one = verb in (SHOW, CHANGE, DELETE)
        return ApiAddress(
            methods=("GET", "HEAD") if method == "GET" else (method,),
            path=f"{by.path}/{{{by.id}}}" if is_one else by.path,
            name=names[verb],
            summary=summaries[verb],
            handler=handler,
            endpoint=by.one_endpoint or by.endpoint if is_one else by.endpoint,
            scope=f"{by.group}:{by.scopes.get(verb) or names[verb]}",
            check=check_json_content_type if takes else None,
            body=takes,
            takes={JSON: takes} if takes else {},
            gives={200: gives} if gives else {},
            refusals=(*(WRITE if takes else READ), 404, 409),
            **more,
        )

    shown = {JSON: resource.one}
    gone = {JSON: _deleted_schema(resource)}
    changed = {JSON: resource.item} if by.is_bare_when_made else shown
    rows = {
        LIST: build_row(
            LIST, "GET", list_resources, lists=resource.lists, item=resource.item, in_turn=by.in_turn
        ),
        CREATE: build_row(CREATE, "POST", create, takes=resource.new, gives=changed),
        SHOW: build_row(SHOW, "GET", show, gives=shown, repeated=by.repeated, in_turn=by.in_turn),
        CHANGE: build_row(CHANGE, "PATCH", change, takes=resource.changes, gives=changed),
        DELETE: build_row(DELETE, "DELETE", delete, gives=gone),
    }
    yield from (row for verb, row in rows.items() if verb not in by.by_hand)


def operation_caller_for_person(
    request: OperatorRequest[Any, Any], money: MoneyServices | None = None
) -> OperationCaller[MoneyServices]:
    """Return the caller for a person. `money` is required if the request's services are not MoneyServices."""

    seen: list[VisibilityRules] = []

    async def sees() -> VisibilityRules:
        if not seen:
            seen.append(await request.cost_reader.read_visibility())
        return seen[0]

    return OperationCaller(
        services=money or request.services,
        shared=request.shared,
        actor=request.actor,
        query=request.http.query,
        known=request.cost_reader.visible_dimensions,
        sees=sees,
        is_person=True,
        holder=request.asker,
    )


def _deleted_schema(resource: ManagedResource[Any, Any]) -> Schema:
    id = schema_with_description(TEXT, f"The id of the deleted {resource.noun.replace('_', ' ')}.")
    return closed_object_schema({resource.root: closed_object_schema({"id": id})})


def build_people_rows(resource: ManagedResource[Any, Any]) -> Iterator[OperatorApiAddress]:
    """
    Build the addresses at which people use the operations on a resource. There are none if people may not use
    it.
    """
    by = resource.people
    if by is None:
        return
    noun = resource.noun
    root = resource.root
    names = {
        LIST: f"list_{noun}s",
        CREATE: f"add_{noun}",
        SHOW: f"show_{noun}",
        CHANGE: f"edit_{noun}",
        DELETE: f"remove_{noun}",
        **by.names,
    }
    summaries = {**operation_summaries(noun), **by.words}

    async def list_resources(request: OperatorRequest[MoneyServices, None]) -> Result:
        asking = operation_caller_for_person(request)
        return await resource.add_requested_data(
            asking, await request.list_page(resource.lists, await resource.visible_rows(asking))
        )

    async def names_of_resources(request: OperatorRequest[MoneyServices, None]) -> Iterator[SearchableObject]:
        return await resource.searchable_objects(operation_caller_for_person(request))

    async def create(request: OperatorRequest[MoneyServices, Any]) -> Result:
        return await resource.create(operation_caller_for_person(request), request.body)

    async def show(request: OperatorRequest[MoneyServices, None]) -> Result:
        return await resource.show(operation_caller_for_person(request), request.path_parameter("id"))

    async def change(request: OperatorRequest[MoneyServices, Any]) -> Result:
        return await resource.change(
            operation_caller_for_person(request), request.path_parameter("id"), request.body
        )

    async def delete(request: OperatorRequest[MoneyServices, None]) -> Result:
        id = await resource.delete(operation_caller_for_person(request), request.path_parameter("id"))
        return {root: {"id": id}} if by.is_shown_when_deleted else {"deleted": id}

    def build_row(
        verb: str, method: str, handler: AddressHandler, needs: str, takes: type | None = None, **more: Any
    ) -> OperatorApiAddress:
        return OperatorApiAddress(
            methods=(method,),
            path=OPERATOR_API + (f"{by.path}/{{id}}" if verb in (SHOW, CHANGE, DELETE) else by.path),
            needs=needs,
            name=names[verb],
            summary=summaries[verb],
            handler=handler,
            body=takes,
            takes={JSON: takes} if takes else {},
            shows=by.shows,
            **more,
        )

    content: Content = {JSON: resource.one}
    gone = (
        _deleted_schema(resource)
        if by.is_shown_when_deleted
        else closed_object_schema(
            {"deleted": schema_with_description(TEXT, "The id or name of the deleted item.")}
        )
    )
    required = ("confirm",) if by.is_confirmed else ()
    yield build_row(
        LIST,
        "GET",
        list_resources,
        by.reads,
        lists=resource.lists,
        item=resource.item,
        in_turn=by.in_turn,
        names=names_of_resources if resource.searched else None,
    )
    yield build_row(CREATE, "POST", create, by.changes, by.new or resource.new, gives={201: content})
    yield build_row(
        SHOW, "GET", show, by.reads, gives={200: content}, repeated=by.repeated, in_turn=by.in_turn
    )
    yield build_row(CHANGE, "PATCH", change, by.changes, resource.changes, gives={200: content})
    yield build_row(DELETE, "DELETE", delete, by.changes, gives={200: {JSON: gone}}, required=required)
