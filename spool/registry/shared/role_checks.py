"""What a draft of a role must keep to. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spool.errors import Invalid
from spool.registry.operators import check_email
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import (
    DATA_ACCESS,
    LIMITED,
    MAX_DESCRIPTION,
    MAX_GROUP,
    MAX_NAME,
    MAX_VALUE,
    MODES,
    RoleDraft,
    RoleFilter,
    RoleLimits,
)
from spool.registry.shared.cost_types import ROLE_COST_TYPES
from spool.registry.shared.texts import check_one_of, check_text, optional_text, storable


def check_role_draft(draft: RoleDraft, limits: RoleLimits) -> RoleDraft:
    """
    The draft in its stored form; Invalid names the field and the rule. Which dimensions exist is asked elsewhere.
    """
    check_one_of("data_access", draft.data_access, DATA_ACCESS)
    if draft.data_access == LIMITED and not draft.filters:
        raise Invalid("data_access limited needs at least one filter; full shows all data, none shows none")
    if draft.data_access != LIMITED and draft.filters:
        raise Invalid("filters go with data_access limited: leave them out, or give an empty list")
    for name in draft.cost_types:
        check_one_of("cost_types", name, ROLE_COST_TYPES)
    if len(draft.filters) > limits.filters:
        raise Invalid(f"a role has at most {limits.filters} filters (roles.max_filters)")
    if sum(len(each.values) for each in draft.filters) > limits.values:
        raise Invalid(f"the filters of a role have at most {limits.values} values (roles.max_values)")
    if len(draft.members) + len(draft.groups) > limits.members:
        raise Invalid(f"a role has at most {limits.members} members and groups (roles.max_members)")
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        description=optional_text("description", draft.description, MAX_DESCRIPTION),
        filters=tuple(map(_check_filter, draft.filters)),
        cost_types=tuple(name for name in ROLE_COST_TYPES if name in draft.cost_types),
        permission_sets=_check_sets(draft.permission_sets),
        members=tuple(sorted(set(map(check_email, draft.members)))),
        groups=tuple(sorted({storable(check_text("groups", each, MAX_GROUP)) for each in draft.groups})),
    )


def _check_filter(given: RoleFilter) -> RoleFilter:
    check_one_of("filters.mode", given.mode, MODES)
    if not given.values:
        raise Invalid(f"filters: {given.dimension[:MAX_NAME]} needs at least one value")
    if any(len(value) > MAX_VALUE for value in given.values):
        raise Invalid(f"filters: a value of {given.dimension[:MAX_NAME]} has at most {MAX_VALUE} characters")
    values = tuple(dict.fromkeys(map(storable, given.values)))
    return RoleFilter(dimension=given.dimension, values=values, mode=given.mode)


def _check_sets(ids: Iterable[str]) -> tuple[str, ...]:
    chosen = set(ids)
    for id in sorted(chosen):
        check_one_of("permission_sets", id, PERMISSION_SETS)
    return tuple(id for id in PERMISSION_SETS if id in chosen)
