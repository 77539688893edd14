"""The calls of the operator API on roles and permission sets: the same values and rules as for keys."""

from __future__ import annotations

from typing import Any

from gateway.api.role_lists import PERMISSION_SET_LIST, ROLES, permission_set_rows, role_rows
from gateway.api.roles import NewRole, RoleChanges, change, create, shown
from gateway.http.requests import Result
from gateway.operator.requests import OperatorRequest
from spool.registry.roles import Role


async def list_roles(request: OperatorRequest[None]) -> Result:
    return await request.list(ROLES, role_rows(request.services))


async def add_role(request: OperatorRequest[NewRole]) -> Result:
    return {"role": await create(request.services, request.body, request.actor, request.asker)}


async def show_role(request: OperatorRequest[None]) -> Result:
    return {"role": shown(request.services, _role(request))}


async def edit_role(request: OperatorRequest[RoleChanges]) -> Result:
    id = _role(request).id
    return {"role": await change(request.services, id, request.body, request.actor, request.asker)}


async def remove_role(request: OperatorRequest[None]) -> Result:
    id = _role(request).id
    await request.registry.roles.delete(id, actor=request.actor)
    return {"deleted": id}


async def list_permission_sets(request: OperatorRequest[None]) -> Result:
    return await request.list(PERMISSION_SET_LIST, permission_set_rows())


def _role(request: OperatorRequest[Any]) -> Role:
    """The role that the path names by its id or its name."""
    return request.registry.roles.find_any(request.word("id"))
