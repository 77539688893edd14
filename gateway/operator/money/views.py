"""The calls of the operator API on views: the same values and rules as for keys."""

from __future__ import annotations

from typing import Any

from gateway.api.view_lists import VIEWS, view_rows
from gateway.api.views import NewView, ViewChanges, change, create, shown
from gateway.http.requests import Result
from gateway.operator.requests import OperatorRequest
from spool.registry.views import View


async def list_views(request: OperatorRequest[None]) -> Result:
    return await request.list(VIEWS, view_rows(request.services))


async def add_view(request: OperatorRequest[NewView]) -> Result:
    return {"view": await create(request.services, request.body, request.actor)}


async def show_view(request: OperatorRequest[None]) -> Result:
    return {"view": shown(request.services, _view(request))}


async def edit_view(request: OperatorRequest[ViewChanges]) -> Result:
    return {"view": await change(request.services, _view(request).id, request.body, request.actor)}


async def remove_view(request: OperatorRequest[None]) -> Result:
    id = _view(request).id
    await request.registry.views.delete(id, actor=request.actor)
    return {"deleted": id}


def _view(request: OperatorRequest[Any]) -> View:
    """The view that the path names by its id or its name."""
    return request.registry.views.find_any(request.word("id"))
