"""The calls of people on a resource. A role says what of the calls of models the person may see."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gateway.api.managed import CHANGE, CREATE, DELETE, LIST, SHOW, Asker, ManagedResource, words_of
from gateway.api.visible import Visible
from gateway.http.address import Content
from gateway.http.answers import JSON
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import AddressHandler, Result
from gateway.mounts import OPERATOR_API
from gateway.operator.address import WHOLE, OperatorAddress
from gateway.operator.requests import OperatorRequest
from gateway.operator.visible import known_dimensions, visible_to
from gateway.schemas import OBJECT


def asking_person(request: OperatorRequest[Any, Any], money: MoneyServices | None = None) -> Asker:
    """`money` is given where the handler works with more than that holder."""

    async def known() -> Collection[str]:
        return await known_dimensions(request)

    async def sees() -> Visible:
        return await visible_to(request)

    return Asker(
        services=money or request.services,
        shared=request.shared,
        actor=request.actor,
        http=request.http,
        known=known,
        sees=sees,
        is_person=True,
        holder=request.asker,
    )


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
    said = {**words_of(noun), **(words or {})}

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

    def row(
        verb: str, method: str, handler: AddressHandler, needs: str, takes: type | None = None, **more: Any
    ) -> OperatorAddress:
        return OperatorAddress(
            methods=(method,),
            path=OPERATOR_API + (f"{path}/{{id}}" if verb in (SHOW, CHANGE, DELETE) else path),
            needs=needs,
            name=names[verb],
            summary=said[verb],
            handler=handler,
            body=takes,
            takes={JSON: takes} if takes else {},
            shows=shows,
            **more,
        )

    answered: Content = {JSON: OBJECT}
    required = ("confirm",) if is_confirmed else ()
    return (
        row(LIST, "GET", listed, reads, lists=resource.lists, in_turn=in_turn),
        row(CREATE, "POST", create, changes, new or resource.new, gives={201: answered}),
        row(SHOW, "GET", show, reads, gives={200: answered}, repeated=repeated, in_turn=in_turn),
        row(CHANGE, "PATCH", change, changes, resource.changes, gives={200: answered}),
        row(DELETE, "DELETE", delete, changes, gives={200: answered}, required=required),
    )
