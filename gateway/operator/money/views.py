"""The calls of the operator API on views: the same values and rules as for keys."""

from __future__ import annotations

from msgspec import UNSET

from gateway.api.view_lists import VIEWS, view_rows
from gateway.api.views import NewView, ViewChanges, change, create, shown
from gateway.http.requests import Result
from gateway.operator.money.visible import check_visible, known_dimensions, view_of, visible_to
from gateway.operator.requests import OperatorRequest


async def list_views(request: OperatorRequest[None]) -> Result:
    visible = await visible_to(request)
    return await request.list(VIEWS, view_rows(request.services, visible.view))


async def add_view(request: OperatorRequest[NewView]) -> Result:
    check_visible(request, await visible_to(request), request.body.filter)
    return {"view": await create(request.services, request.body, request.actor, known=await known_dimensions(request))}


async def show_view(request: OperatorRequest[None]) -> Result:
    return {"view": shown(request.services, view_of(request, await visible_to(request), request.word("id")))}


async def edit_view(request: OperatorRequest[ViewChanges]) -> Result:
    visible = await visible_to(request)
    id = view_of(request, visible, request.word("id")).id
    if request.body.filter is not UNSET:
        check_visible(request, visible, request.body.filter)
    known = await known_dimensions(request)
    return {"view": await change(request.services, id, request.body, request.actor, known=known)}


async def remove_view(request: OperatorRequest[None]) -> Result:
    id = view_of(request, await visible_to(request), request.word("id")).id
    await request.registry.views.delete(id, actor=request.actor)
    return {"deleted": id}
