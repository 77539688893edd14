"""Roles and permission sets as every list and answer shows them, to keys and to operators alike."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.api.insight_lists import seconds
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.services import OperatorServices
from spool.registry.permission_sets import PERMISSION_SETS, PermissionSet
from spool.registry.roles import DATA_ACCESS, Role, RoleFilter


@dataclass(frozen=True, slots=True)
class ShownRole:
    """A role, and why its filters show nothing; None if they can be asked."""

    role: Role
    broken: str | None


def shown_role(row: ShownRole) -> dict[str, object]:
    role = row.role
    return {
        "id": role.id,
        "name": role.name,
        "description": role.description,
        "data_access": role.data_access,
        "filters": list(map(shown_filter, role.filters)),
        "cost_types": list(role.cost_types),
        "permission_sets": list(role.permission_sets),
        "members": list(role.members),
        "groups": list(role.groups),
        "is_builtin": role.is_builtin,
        "broken": row.broken,
        "created": None if role.is_builtin else seconds(role.created),
        "last_updated": None if role.is_builtin else seconds(role.last_updated),
        "last_updated_by": None if role.is_builtin else role.last_updated_by,
        "version": None if role.is_builtin else role.version,
    }


def shown_filter(each: RoleFilter) -> dict[str, object]:
    """An unknown value is null."""
    return {"dimension": each.dimension, "values": [value or None for value in each.values], "mode": each.mode}


ROLES: List[ShownRole] = List(
    root="roles",
    show=shown_role,
    identity=Sort(value=lambda row: row.role.id),
    sorts={
        "name": Sort(value=lambda row: row.role.name.casefold()),
        "last_updated": Sort(value=lambda row: row.role.last_updated),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda row: (row.role.name,)),
        "data_access": Filter(values=lambda row: (row.role.data_access,), valid_values=DATA_ACCESS),
        "permission_set": Filter(values=lambda row: row.role.permission_sets, valid_values=tuple(PERMISSION_SETS)),
        "member": Filter(values=lambda row: row.role.members),
        "group": Filter(values=lambda row: row.role.groups),
        "is_builtin": Filter(
            values=lambda row: ("true" if row.role.is_builtin else "false",),
            valid_values=("true", "false"),
            type="boolean",
        ),
    },
)

PERMISSION_SET_LIST: List[PermissionSet] = List(
    root="permission_sets",
    show=lambda each: {
        "id": each.id,
        "name": each.title,
        "description": each.description,
        "includes": list(each.includes),
    },
    identity=Sort(value=lambda each: each.id),
    sorts={"name": Sort(value=lambda each: each.title.casefold()), "id": Sort(value=lambda each: each.id)},
    default_sort=("name", "asc"),
    filters={"id": Filter(values=lambda each: (each.id,), valid_values=tuple(PERMISSION_SETS))},
)


def role_rows(services: OperatorServices) -> MemoryRows[ShownRole]:
    return MemoryRows([with_state(services, role) for role in services.require_registry().roles.all()])


def permission_set_rows() -> MemoryRows[PermissionSet]:
    return MemoryRows(list(PERMISSION_SETS.values()))


def with_state(services: OperatorServices, role: Role) -> ShownRole:
    return ShownRole(role, role.broken(services.ledger.dimensions()))
