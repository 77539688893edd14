"""Roles and permission sets, for keys and for people alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.http.address import key_call
from gateway.http.holders.operators import MoneyServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.http.managed import DELETE, SHOW, Answer, Asker, ByKeys, ByPeople, ManagedResource
from gateway.http.requests import KeyRequest, Result
from gateway.http.resources.declaration import answer, stated
from gateway.money.costs.times import seconds
from gateway.people.roles.declared import (
    FilterOfRole,
    NewRole,
    OneRole,
    PermissionSetItem,
    RoleChanges,
    RoleItem,
)
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, PERMISSION_SETS, PermissionSet
from spool.registry.registry import Registry
from spool.registry.roles import DATA_ACCESS, Role, RoleDraft, RoleFilter


@dataclass(frozen=True, slots=True)
class ShownRole:
    """A role, and why its filters show nothing; None if they can be asked."""

    role: Role
    broken: str | None


def describe_role(row: ShownRole) -> Answer:
    role = row.role
    shown = answer(
        RoleItem,
        role,
        filters=list(map(describe_filter, role.filters)),
        broken=row.broken,
        created=seconds(role.created),
        last_updated=seconds(role.last_updated),
    )
    made = ("created", "last_updated", "last_updated_by", "version")
    return {**shown, **dict.fromkeys(made)} if role.is_builtin else shown


def describe_filter(each: RoleFilter) -> dict[str, object]:
    """An unknown value is null."""
    return {
        "dimension": each.dimension,
        "values": [value or None for value in each.values],
        "mode": each.mode,
    }


def describe_set(each: PermissionSet) -> Answer:
    return answer(PermissionSetItem, each, name=each.title)


ROLES: List[ShownRole] = List(
    root="roles",
    show=describe_role,
    identity=Sort(value=lambda row: row.role.id),
    sorts={
        "name": Sort(value=lambda row: row.role.name.casefold()),
        "last_updated": Sort(value=lambda row: row.role.last_updated),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda row: (row.role.name,)),
        "data_access": Filter(values=lambda row: (row.role.data_access,), valid_values=DATA_ACCESS),
        "permission_set": Filter(
            values=lambda row: row.role.permission_sets, valid_values=tuple(PERMISSION_SETS)
        ),
        "member": Filter(values=lambda row: row.role.members),
        "group": Filter(values=lambda row: row.role.groups),
        "is_builtin": yes_no(lambda row: row.role.is_builtin),
    },
)

PERMISSION_SET_LIST: List[PermissionSet] = List(
    root="permission_sets",
    show=describe_set,
    identity=Sort(value=lambda each: each.id),
    sorts={"name": Sort(value=lambda each: each.title.casefold()), "id": Sort(value=lambda each: each.id)},
    default_sort=("name", "asc"),
    filters={"id": Filter(values=lambda each: (each.id,), valid_values=tuple(PERMISSION_SETS))},
)


class RoleResource(ManagedResource[Role]):
    noun = "role"
    lists = ROLES
    new = NewRole
    changes = RoleChanges
    item = RoleItem
    one = OneRole
    keys = ByKeys(path="/v2/access-control/roles", id="role_id", group="access-control", endpoint="roles")
    people = ByPeople(
        path="/roles",
        reads=ORGANIZATION_ADMINISTRATION,
        changes=ORGANIZATION_ADMINISTRATION,
        words={
            SHOW: "Show a role, by its id or its name",
            DELETE: "Delete a role that nobody has any more",
        },
    )

    def rows_in(self, registry: Registry) -> Any:
        return registry.roles

    async def shown(self, asking: Asker[Any], row: Role) -> ShownRole:
        return ShownRole(row, row.broken(asking.services.ledger.dimensions()))

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        """Invalid for people whom no record names."""
        for each in given.filters or ():
            asking.shared.people.check(value or "" for value in each.values)
        return _fields(given)

    async def create(self, asking: Asker[Any], given: Any) -> Answer:
        made = await asking.registry.roles.create(
            RoleDraft(**await self.fields(asking, given)),
            known=await asking.known(),
            limits=asking.shared.role_limits(),
            actor=asking.actor,
            asker=asking.holder,
        )
        return await self.answer(asking, made)

    async def change(self, asking: Asker[Any], word: str, given: Any) -> Answer:
        id = (await self.find(asking, word)).id
        changed = await asking.registry.roles.change(
            id,
            await self.fields(asking, given),
            version=given.version,
            known=await asking.known(),
            limits=asking.shared.role_limits(),
            actor=asking.actor,
            asker=asking.holder,
        )
        return await self.answer(asking, changed)


ROLE = RoleResource()


@key_call(
    "GET",
    "/v2/access-control/permission_sets",
    "access-control:read_permission_sets",
    "List permission sets",
    endpoint="roles",
    lists=PERMISSION_SET_LIST,
    item=PermissionSetItem,
)
async def read_permission_sets(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list(PERMISSION_SET_LIST, permission_set_rows())


def permission_set_rows() -> MemoryRows[PermissionSet]:
    return MemoryRows(list(PERMISSION_SETS.values()))


def draft_of(given: NewRole) -> RoleDraft:
    """Make a draft from the stated fields, unchecked."""
    return RoleDraft(**_fields(given))


def _fields(given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    return stated(given, filters=lambda filters: tuple(map(_stored_filter, filters)))


def _stored_filter(each: FilterOfRole) -> RoleFilter:
    return RoleFilter(
        dimension=each.dimension, values=tuple(value or "" for value in each.values), mode=each.mode
    )
