"""The calls of people on a resource. A role says what of the calls of models the person may see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gateway.http.address import Content
from gateway.http.answers import JSON
from gateway.http.holders.operators import MoneyServices
from gateway.http.managed import CHANGE, CREATE, DELETE, LIST, SHOW, Asker, ManagedResource, words_of
from gateway.http.operator.address import OperatorAddress
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import AddressHandler, Result
from gateway.http.visible import Visible
from gateway.service.mounts import OPERATOR_API
from gateway.service.schemas import OBJECT


def asking_person(
    request: OperatorRequest[Any, Any], money: MoneyServices | None = None
) -> Asker[MoneyServices]:
    """`money` is given where the handler works with more than that holder."""

    seen: list[Visible] = []

    async def sees() -> Visible:
        if not seen:
            seen.append(await request.reads.visible())
        return seen[0]

    return Asker(
        services=money or request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=request.reads.dimensions,
        sees=sees,
        is_person=True,
        holder=request.asker,
    )


def managed_by_people(resource: ManagedResource[Any]) -> Iterator[OperatorAddress]:
    """Make the rows of what people do with a resource; none if they do nothing."""
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
    said = {**words_of(noun), **by.words}

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
        return {root: {"id": id}} if by.is_shown_when_deleted else {"deleted": id}

    def row(
        verb: str, method: str, handler: AddressHandler, needs: str, takes: type | None = None, **more: Any
    ) -> OperatorAddress:
        return OperatorAddress(
            methods=(method,),
            path=OPERATOR_API + (f"{by.path}/{{id}}" if verb in (SHOW, CHANGE, DELETE) else by.path),
            needs=needs,
            name=names[verb],
            summary=said[verb],
            handler=handler,
            body=takes,
            takes={JSON: takes} if takes else {},
            shows=by.shows,
            **more,
        )

    answered: Content = {JSON: OBJECT}
    required = ("confirm",) if by.is_confirmed else ()
    yield row(LIST, "GET", listed, by.reads, lists=resource.lists, in_turn=by.in_turn)
    yield row(CREATE, "POST", create, by.changes, by.new or resource.new, gives={201: answered})
    yield row(SHOW, "GET", show, by.reads, gives={200: answered}, repeated=by.repeated, in_turn=by.in_turn)
    yield row(CHANGE, "PATCH", change, by.changes, resource.changes, gives={200: answered})
    yield row(DELETE, "DELETE", delete, by.changes, gives={200: answered}, required=required)
