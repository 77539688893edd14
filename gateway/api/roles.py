"""Roles and permission sets, for keys and for people alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET

from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.api.times import seconds
from gateway.http.holders.money import MoneyServices
from gateway.http.lists import Filter, List, MemoryRows, Sort, yes_no
from gateway.http.requests import KeyRequest, Result
from gateway.resources.declaration import answer, stated
from gateway.resources.roles import FilterOfRole, NewRole, OneRole, PermissionSetItem, RoleChanges, RoleItem
from spool.registry.permission_sets import PERMISSION_SETS, PermissionSet
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


async def _rows(asking: Asker) -> MemoryRows[ShownRole]:
    return MemoryRows([_add_state(asking.services, role) for role in asking.registry.roles.all()])


async def _create(asking: Asker, given: NewRole) -> Answer:
    _check_people(asking, given.filters)
    known, limits = await asking.known(), asking.shared.role_limits()
    creating = asking.registry.roles.create(
        draft_of(given), known=known, limits=limits, actor=asking.actor, asker=asking.holder
    )
    return _describe(asking, await creating)


def _check_people(asking: Asker, filters: Sequence[FilterOfRole]) -> None:
    """Invalid for people whom no record names."""
    for each in filters:
        asking.shared.people.check(value or "" for value in each.values)


async def _show(asking: Asker, word: str) -> Answer:
    return _describe(asking, _role(asking, word))


async def _change(asking: Asker, word: str, given: Any) -> Answer:
    if given.filters is not UNSET:
        _check_people(asking, given.filters)
    id, known, limits = _role(asking, word).id, await asking.known(), asking.shared.role_limits()
    changing = asking.registry.roles.change(
        id,
        _fields(given),
        version=given.version,
        known=known,
        limits=limits,
        actor=asking.actor,
        asker=asking.holder,
    )
    return _describe(asking, await changing)


async def _delete(asking: Asker, word: str) -> str:
    id = _role(asking, word).id
    await asking.registry.roles.delete(id, actor=asking.actor)
    return id


def _role(asking: Asker, word: str) -> Role:
    """People may name a role by its name."""
    table = asking.registry.roles
    return table.find_any(word) if asking.is_person else table.get(word)


ROLE = ManagedResource(
    noun="role",
    root="role",
    lists=ROLES,
    new=NewRole,
    changes=RoleChanges,
    item=RoleItem,
    one=OneRole,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)


async def read_permission_sets(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list(PERMISSION_SET_LIST, permission_set_rows())


def permission_set_rows() -> MemoryRows[PermissionSet]:
    return MemoryRows(list(PERMISSION_SETS.values()))


def draft_of(given: NewRole) -> RoleDraft:
    """Make a draft from the stated fields, unchecked."""
    return RoleDraft(**_fields(given))


def _describe(asking: Asker, role: Role) -> Answer:
    return {"role": describe_role(_add_state(asking.services, role))}


def _add_state(money: MoneyServices, role: Role) -> ShownRole:
    return ShownRole(role, role.broken(money.ledger.dimensions()))


def _fields(given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    return stated(given, filters=lambda filters: tuple(map(_stored_filter, filters)))


def _stored_filter(each: FilterOfRole) -> RoleFilter:
    return RoleFilter(
        dimension=each.dimension, values=tuple(value or "" for value in each.values), mode=each.mode
    )
