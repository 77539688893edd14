"""Roles and permission sets for keys that manage them: one scope for each method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.api.role_lists import (
    PERMISSION_SET_LIST,
    ROLES,
    permission_set_rows,
    role_rows,
    shown_role,
    with_state,
)
from gateway.http.requests import KeyRequest, Result
from gateway.http.services import OperatorServices
from spool.registry.operators import Actor
from spool.registry.roles import IS, Holder, Role, RoleDraft, RoleFilter


class FilterOfRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A null value is the unknown one. `mode` is `is` or `except`."""

    dimension: str
    values: list[str | None]
    mode: str = IS


class NewRole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    `data_access` is `full`, `limited` or `none`; `limited` needs filters, which must all pass.

    `members` are e-mail addresses, `groups` those of the OpenID provider. Without `cost_types` all are shown.
    """

    name: str
    data_access: str
    description: str = ""
    filters: list[FilterOfRole] = []
    cost_types: list[str] = []
    permission_sets: list[str] = []
    members: list[str] = []
    groups: list[str] = []


class RoleChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """
    What is left out stays as it is; a list replaces the whole list. With the `version` that was read, the change is
    refused if somebody else made one since.
    """

    version: str | None = None
    name: str | msgspec.UnsetType = msgspec.UNSET
    data_access: str | msgspec.UnsetType = msgspec.UNSET
    description: str | msgspec.UnsetType = msgspec.UNSET
    filters: list[FilterOfRole] | msgspec.UnsetType = msgspec.UNSET
    cost_types: list[str] | msgspec.UnsetType = msgspec.UNSET
    permission_sets: list[str] | msgspec.UnsetType = msgspec.UNSET
    members: list[str] | msgspec.UnsetType = msgspec.UNSET
    groups: list[str] | msgspec.UnsetType = msgspec.UNSET


class RoleItem(msgspec.Struct, kw_only=True):
    """
    A role as it is answered; times are epoch seconds as text, null for a built-in role.

    `broken` says why its filters show nothing: the ledger lost a dimension.
    """

    id: str
    name: str
    description: str
    data_access: str
    filters: list[FilterOfRole]
    cost_types: list[str]
    permission_sets: list[str]
    members: list[str]
    groups: list[str]
    is_builtin: bool
    broken: str | None
    created: str | None
    last_updated: str | None
    last_updated_by: str | None
    version: str | None


class OneRole(msgspec.Struct, kw_only=True):
    role: RoleItem


class PermissionSetItem(msgspec.Struct, kw_only=True):
    """`includes` are the ids of sets that come with it."""

    id: str
    name: str
    description: str
    includes: list[str]


async def read_roles(request: KeyRequest[None]) -> Result:
    return await request.list(ROLES, role_rows(request.services.operators))


async def create_role(request: KeyRequest[NewRole]) -> Result:
    return {"role": await create(request.services.operators, request.body, request.actor)}


async def read_role(request: KeyRequest[None]) -> Result:
    services = request.services.operators
    return {"role": shown(services, services.require_registry().roles.get(request.word("role_id")))}


async def update_role(request: KeyRequest[RoleChanges]) -> Result:
    return {"role": await change(request.services.operators, request.word("role_id"), request.body, request.actor)}


async def delete_role(request: KeyRequest[None]) -> Result:
    id = request.word("role_id")
    await request.services.operators.require_registry().roles.delete(id, actor=request.actor)
    return {"role": {"id": id}}


async def read_permission_sets(request: KeyRequest[None]) -> Result:
    return await request.list(PERMISSION_SET_LIST, permission_set_rows())


def shown(services: OperatorServices, role: Role) -> Mapping[str, object]:
    return shown_role(with_state(services, role))


async def create(
    services: OperatorServices, given: NewRole, actor: Actor, asker: Holder | None = None
) -> Mapping[str, object]:
    table, known, limits = services.require_registry().roles, services.ledger.dimensions(), services.role_limits()
    return shown(services, await table.create(draft_of(given), known=known, limits=limits, actor=actor, asker=asker))


async def change(
    services: OperatorServices, id: str, given: RoleChanges, actor: Actor, asker: Holder | None = None
) -> Mapping[str, object]:
    table, known, limits = services.require_registry().roles, services.ledger.dimensions(), services.role_limits()
    return shown(
        services,
        await table.change(
            id, _fields(given), version=given.version, known=known, limits=limits, actor=actor, asker=asker
        ),
    )


def draft_of(given: NewRole) -> RoleDraft:
    """What is given, not checked."""
    return RoleDraft(**_fields(given))


def _fields(given: NewRole | RoleChanges) -> dict[str, Any]:
    """By the names of a draft, what is given."""
    values = msgspec.structs.asdict(given)
    found = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not msgspec.UNSET and name != "version"
    }
    if "filters" in found:
        found["filters"] = tuple(
            RoleFilter(dimension=each.dimension, values=tuple(value or "" for value in each.values), mode=each.mode)
            for each in found["filters"]
        )
    return found
