"""
Roles: permissions of people, and the calls whose costs they may see. Values and rules.

Members are e-mail addresses or groups of the OpenID provider. A person may do and see what any role allows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Annotated, Any

import msgspec

from spool.errors import Invalid, NotAllowed
from spool.ledger.dimensions import BILLED_TYPES, COST_TYPES, WantedValues
from spool.people import USER, filter_values_of_dimension
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import DocumentCheck, NamedTable, check_name_free, draft_fields
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, words
from spool.registry.operators import (
    ADMIN,
    NO_ROLE,
    OPERATOR,
    VIEWER,
    Actor,
    Operator,
    Person,
    SignInSession,
    check_email,
)
from spool.registry.permission_sets import (
    ALL,
    OF_MEMBER,
    OF_OPERATOR,
    ORGANIZATION_ADMINISTRATION,
    PERMISSION_SETS,
    VIEW_NAMES,
    resolve_permission_sets,
)
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import (
    check_dimensions,
    check_one_of,
    check_optional_text,
    check_text,
    storable_text,
)

COUNTED_TYPES = tuple(COST_TYPES)
ROLE_COST_TYPES = (*COUNTED_TYPES, *BILLED_TYPES)


def expand_named_cost_types(named: Collection[str]) -> frozenset[str]:
    """
    Return the named cost types, or all if none is named.

    Several types may be names of the same sum. If one of these is named, all are returned.
    """
    sums = {COST_TYPES.get(name, name) for name in named or ROLE_COST_TYPES}
    return frozenset(name for name in ROLE_COST_TYPES if COST_TYPES.get(name, name) in sums)


MAX_NAME = 200
MAX_DESCRIPTION = 2000
MAX_VALUE = 256  # characters of a value, as in the ledger
MAX_GROUP = 256  # characters

FULL, LIMITED, NO_DATA = "full", "limited", "none"
DATA_ACCESS = (FULL, LIMITED, NO_DATA)
IS, EXCEPT = "is", "except"  # modes of a filter
MODES = (IS, EXCEPT)
MEMBER_ID, OPERATOR_ID, ORGANIZER_ID = "member", "operator", "organizer"

_MAX_COMBINATIONS = 1000  # combinations of filter values that are checked one by one


class FilterOfRole(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter of a role, as interfaces show it. None in `values` means unknown. `mode`: `is` or `except`."""

    dimension: Annotated[str, words("The dimension, such as `team`.")]
    values: Annotated[
        tuple[str | None, ...], words("The values of the dimension. Null is the unknown value.")
    ]
    mode: Annotated[str, words("`is` for the listed values, `except` for all other values.")] = IS


class RoleFilter(FilterOfRole, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    A filter of a role. It passes calls with one of `values` or, in the mode EXCEPT, all other calls. "" means
    unknown.
    """

    values: tuple[str, ...]

    def is_met_by(self, *values: str) -> bool:
        """Return whether a call with this value passes. Several values are the names of the call's person."""
        return any(value in self.values for value in values) == (self.mode == IS)

    def contains(self, include: Collection[str], exclude: Collection[str]) -> bool:
        """
        Return whether the filter certainly passes every call that `include` and `exclude` select.

        An empty `include` means every value. A value in both is included. True is always right. False may be
        wrong, because a person's included name may be excluded under another name.
        """
        if include and (self.mode == IS or self.dimension != USER) and all(map(self.is_met_by, include)):
            return True
        return self.mode == EXCEPT and set(self.values) <= set(exclude)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSlice:
    """
    The calls that a person may see: those that pass every filter of at least one part.

    Without parts, no call; with a part without filters, every call. `hides_money`: some cost types are
    hidden, so the person does not see everything.
    """

    parts: tuple[tuple[RoleFilter, ...], ...] = ()
    hides_money: bool = False

    @property
    def has_every_call(self) -> bool:
        return () in self.parts

    @property
    def is_everything(self) -> bool:
        return self.has_every_call and not self.hides_money

    @property
    def dimensions(self) -> tuple[str, ...]:
        return tuple(sorted({role_filter.dimension for part in self.parts for role_filter in part}))

    def has_call(self, value_of: Callable[[str], str]) -> bool:
        return any(
            all(
                role_filter.is_met_by(*filter_values_of_dimension(role_filter.dimension, value_of))
                for role_filter in part
            )
            for part in self.parts
        )

    def contains(self, include: WantedValues, exclude: WantedValues) -> bool:
        """
        Return True only if the slice contains every call that passes a view's filters, whatever records
        exist.

        Included values are checked one by one, because different roles may allow them.
        """
        if self._part_contains(include, exclude):
            return True
        restricted = [name for name in self.dimensions if include.get(name)]
        if prod(len(include[name]) for name in restricted) > _MAX_COMBINATIONS:
            return False
        choices = product(*(include[name] for name in restricted))
        return all(
            self._part_contains(
                {**include, **{name: (value,) for name, value in zip(restricted, combination, strict=True)}},
                exclude,
            )
            for combination in choices
        )

    def without_unknown_dimensions(self, known_dimensions: Collection[str]) -> LedgerSlice:
        """
        Return the slice without parts that filter by unknown dimensions, because no call matches such a
        filter.
        """
        parts = (
            part
            for part in self.parts
            if all(role_filter.dimension in known_dimensions for role_filter in part)
        )
        return replace(self, parts=tuple(parts))

    def _part_contains(self, include: WantedValues, exclude: WantedValues) -> bool:
        return any(
            all(
                role_filter.contains(
                    include.get(role_filter.dimension, ()), exclude.get(role_filter.dimension, ())
                )
                for role_filter in part
            )
            for part in self.parts
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleLimits:
    most: int = 200
    members: int = 1000  # members per role, and groups per role
    filters: int = 20
    values: int = 1000  # values in all filters of a role


class NewRole(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A role to create. `data_access`: `full`, `limited` or `none`. A `limited` role needs filters, and its
    members see only calls that match all of them.

    `members`: e-mail addresses. `groups`: groups of the OpenID provider. Without `cost_types`, members see
    all types.
    """

    name: Annotated[
        str,
        words(f"Unique among roles, ignoring case: 1 to {MAX_NAME} printable characters."),
        example("Search leads"),
    ]
    data_access: Annotated[
        str,
        words("Calls that its members see: `full`, `limited` or `none`."),
        example("limited"),
        Option(choices=DATA_ACCESS, help="Calls that members see: full, limited (by --where) or none."),
    ]
    description: Annotated[
        str, words(f"Purpose of the role: at most {MAX_DESCRIPTION} printable characters.")
    ] = ""
    filters: Annotated[
        tuple[FilterOfRole, ...],
        words("Conditions that a call must all meet, limited by `roles.max_filters` and `roles.max_values`."),
        example([{"dimension": "team", "values": ["search"], "mode": "is"}]),
    ] = ()
    cost_types: Annotated[
        tuple[str, ...],
        words("Kinds of cost that members see; if empty, all."),
        Option(
            "--cost-type", choices=ROLE_COST_TYPES, help="Kind of cost that members see; without it, all."
        ),
    ] = ()
    permission_sets: Annotated[
        tuple[str, ...],
        words("Permission sets of its members, by id."),
        example(["view_costs"]),
        Option("--permission-set", choices=tuple(PERMISSION_SETS), help="Permission set of its members."),
    ] = ()
    members: Annotated[
        tuple[str, ...],
        words("E-mail addresses; together with groups at most `roles.max_members`."),
        example(["bob@example.com"], changed=["bob@example.com", "eve@example.com"]),
        Option("--member", "EMAIL", help="E-mail address of a member."),
    ] = ()
    groups: Annotated[
        tuple[str, ...],
        words("Groups of the OpenID provider."),
        Option("--group", "GROUP", help="Group of the OpenID provider whose members have the role."),
    ] = ()


class Role(NewRole, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A stored role. Times are epoch seconds."""

    filters: tuple[RoleFilter, ...] = ()
    id: str
    created: float = 0.0
    last_updated: float = 0.0
    last_updated_by: str = ""

    @property
    def version(self) -> str:
        return row_version(self)

    @property
    def is_builtin(self) -> bool:
        return self.id in BUILTIN

    @property
    def has_hidden_calls_or_cost_types(self) -> bool:
        """Return whether the role shows only some calls or cost types."""
        return self.data_access == LIMITED or bool(self.cost_types)

    def broken_reason(self, known_names: Collection[str]) -> str | None:
        """
        Return why the role's filters match nothing, or None: they use a dimension that is not in
        `known_names`.
        """
        unknown = sorted({role_filter.dimension for role_filter in self.filters} - set(known_names))
        if not unknown:
            return None
        return (
            f"the ledger no longer has {', '.join(unknown)}, so the role shows no calls: add the tag to "
            "[ledger] tags, publish a definition of the dimension, or change the role"
        )


ROLES = DocumentCollection("role", Role, "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """
    The permissions and visible data of a person.

    `slice`: the calls that the person sees in counted costs of every type. `shown`: the filters of all roles,
    with their cost types. `person`: e-mail address. `groups`: the calls that are only visible in sums of
    large groups (`privacy.min_group`).
    """

    permission_sets: frozenset[str] = frozenset()
    slice: LedgerSlice = LedgerSlice()
    roles: tuple[str, ...] = ()
    shown: tuple[tuple[frozenset[str], tuple[RoleFilter, ...]], ...] = ()
    person: str = ""
    groups: LedgerSlice = LedgerSlice()

    def slice_for_cost_types(self, cost_types: Collection[str]) -> LedgerSlice:
        parts = dict.fromkeys(part for types, part in self.shown if types.issuperset(cost_types))
        if () not in parts:
            return LedgerSlice(parts=tuple(parts))
        return LedgerSlice(parts=((),), hides_money=(frozenset(ROLE_COST_TYPES), ()) not in self.shown)

    def limited_to_own_calls(self, own_calls: RoleFilter | None) -> Rights:
        """
        Return the rights limited to calls that pass the filter `own_calls` (None: no calls). The other calls of
        the present `slice` stay visible only in large groups.
        """
        shown = () if own_calls is None else tuple((types, (*part, own_calls)) for types, part in self.shown)
        rights = replace(self, shown=shown, groups=self.slice)
        return replace(rights, slice=rights.slice_for_cost_types(COUNTED_TYPES))

    @property
    def visible_slice(self) -> LedgerSlice:
        """Return the slice of calls that a person may see, either each call or only sums of large
        groups."""
        return self.groups if self.groups.parts else self.slice

    @property
    def hides_calls(self) -> bool:
        """Return whether calls are visible, but none in all counted cost types."""
        return bool(self.shown) and not self.slice.parts

    @property
    def cost_types(self) -> tuple[str, ...]:
        return tuple(name for name in ROLE_COST_TYPES if self.slice_for_cost_types((name,)).parts)

    @property
    def is_everything(self) -> bool:
        return self.permission_sets >= ALL and self.slice.is_everything

    @property
    def can_administer(self) -> bool:
        """
        Return whether the person may manage roles. This requires access to all data, because a role can give
        access to all data.
        """
        return ORGANIZATION_ADMINISTRATION in self.permission_sets and self.slice.is_everything


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleHolder:
    """A person with roles. `has_default_role`: the account role is the default in the OpenID settings."""

    person: str
    groups: tuple[str, ...] = ()
    base: str = ""
    has_default_role: bool = False


def session_holder(session: SignInSession) -> RoleHolder:
    """Return whose roles apply in a session. In a session of a console link, only the link's role does."""
    groups = tuple(json.loads(session.groups))
    return RoleHolder(person=session.account if session.operator else "", groups=groups, base=session.role)


_BUILTIN = (
    Role(
        id=MEMBER_ID,
        name="Member",
        description="Reads everything, changes nothing. Accounts with the role Member have it.",
        data_access=FULL,
        permission_sets=tuple(sorted(OF_MEMBER)),
    ),
    Role(
        id=OPERATOR_ID,
        name="Operator",
        description=(
            "Runs Tollhouse day by day: everything except people, API keys and the installation. "
            "Accounts with the role Operator have it."
        ),
        data_access=FULL,
        permission_sets=tuple(sorted(OF_OPERATOR)),
    ),
    Role(
        id=ORGANIZER_ID,
        name="Organizer",
        description=(
            "May do everything except answer privacy requests. Accounts with the role Admin have it, and so "
            "do people who work on the server itself."
        ),
        data_access=FULL,
        permission_sets=tuple(sorted(ALL)),
    ),
)
BUILTIN: Mapping[str, Role] = {role.id: role for role in _BUILTIN}
# the roles that account roles stand for, except NO_ROLE
BASES: Mapping[str, Role] = {
    VIEWER: BUILTIN[MEMBER_ID],
    OPERATOR: BUILTIN[OPERATOR_ID],
    ADMIN: BUILTIN[ORGANIZER_ID],
}


class Roles:
    """All roles that people created, found by member and group."""

    def __init__(self, roles: Iterable[Role]) -> None:
        self._roles = tuple(sorted(roles, key=lambda role: (role.name.casefold(), role.id)))
        self._by_member: dict[str, list[int]] = {}
        self._by_group: dict[str, list[int]] = {}
        for index, role in enumerate(self._roles):
            for member in role.members:
                self._by_member.setdefault(member, []).append(index)
            for group in role.groups:
                self._by_group.setdefault(group, []).append(index)

    def person_rights(self, person: str, groups: Collection[str] = (), base: str = "") -> Rights:
        """Return the rights by a person's roles. `base`: the account role, or ""."""
        own = (BASES[base],) if base in BASES else ()
        roles = (*own, *self.assigned_roles(person, groups))
        shown = dict.fromkeys(
            (expand_named_cost_types(role.cost_types), part)
            for role in roles
            for part in _visible_data_filters(role)
        )
        rights = Rights(
            permission_sets=resolve_permission_sets(id for role in roles for id in role.permission_sets),
            roles=tuple(role.name for role in roles),
            shown=tuple(shown),
            person=person,
        )
        return replace(rights, slice=rights.slice_for_cost_types(COUNTED_TYPES))

    def holder_rights(self, holder: RoleHolder) -> Rights:
        """
        Return the holder's rights. If a created role names the person, a default account role does not count.
        """
        is_closed = holder.has_default_role and self._has_assigned_role(holder.person, holder.groups)
        return self.person_rights(holder.person, holder.groups, NO_ROLE if is_closed else holder.base)

    def assigned_roles(self, person: str, groups: Collection[str] = ()) -> Iterator[Role]:
        places = set(self._by_member.get(person, ()))
        for group in groups:
            places.update(self._by_group.get(group, ()))
        return (self._roles[index] for index in sorted(places))

    def account_role(self, person: Person) -> str:
        """
        Return the account role of a person. It is NO_ROLE if a created role names the person and no group
        maps to an account role, because the default would show data that the created role should restrict.
        """
        return (
            NO_ROLE
            if not person.is_mapped and self._has_assigned_role(person.email, person.groups)
            else person.role
        )

    def enabled_admins(self, operators: Iterable[Operator]) -> frozenset[str]:
        """
        Return the enabled accounts that may do everything. Admins by group are left out, because group
        members are unknown.
        """
        return frozenset(
            operator.email
            for operator in operators
            if not operator.disabled and self.person_rights(operator.email, base=operator.role).is_everything
        )

    def _has_assigned_role(self, person: str, groups: Collection[str]) -> bool:
        return next(self.assigned_roles(person, groups), None) is not None


def new_role_id() -> str:
    return secrets.token_hex(16)


def role_dimensions(draft: NewRole) -> Iterator[str]:
    return (condition.dimension for condition in draft.filters)


def _visible_data_filters(role: Role) -> Iterator[tuple[RoleFilter, ...]]:
    if role.data_access == FULL:
        yield ()
    elif role.data_access == LIMITED and role.filters:
        yield role.filters


EVERYTHING = Roles(()).person_rights("", base=ADMIN)


def check_role_draft(draft: NewRole, limits: RoleLimits) -> NewRole:
    """
    Return the checked role. Unknown dimensions are accepted. Raises Invalid with the field and the broken
    rule.
    """
    check_one_of("data_access", draft.data_access, DATA_ACCESS)
    if draft.data_access == LIMITED and not draft.filters:
        raise Invalid(
            "data_access limited needs at least one filter. Use full to show all data, or none to show "
            "no data"
        )
    if draft.data_access != LIMITED and draft.filters:
        raise Invalid("filters need data_access limited. Omit them or give an empty list")
    for name in draft.cost_types:
        check_one_of("cost_types", name, ROLE_COST_TYPES)
    if len(draft.filters) > limits.filters:
        raise Invalid(f"a role must have at most {limits.filters} filters (roles.max_filters)")
    if sum(len(condition.values) for condition in draft.filters) > limits.values:
        raise Invalid(f"the filters of a role must have at most {limits.values} values (roles.max_values)")
    if len(draft.members) + len(draft.groups) > limits.members:
        raise Invalid(f"a role must have at most {limits.members} members and groups (roles.max_members)")
    return replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        description=check_optional_text("description", draft.description, MAX_DESCRIPTION),
        filters=tuple(map(_check_filter, draft.filters)),
        cost_types=tuple(name for name in ROLE_COST_TYPES if name in draft.cost_types),
        permission_sets=_check_permission_sets(draft.permission_sets),
        members=tuple(sorted(set(map(check_email, draft.members)))),
        groups=tuple(
            sorted({storable_text(check_text("groups", group, MAX_GROUP)) for group in draft.groups})
        ),
    )


def _check_filter(role_filter: FilterOfRole) -> RoleFilter:
    check_one_of("filters.mode", role_filter.mode, MODES)
    if not role_filter.values:
        raise Invalid(f"filters: {role_filter.dimension[:MAX_NAME]} needs at least one value")
    stated = [value or "" for value in role_filter.values]
    if any(len(value) > MAX_VALUE for value in stated):
        raise Invalid(
            f"filters: a value of {role_filter.dimension[:MAX_NAME]} must have at most {MAX_VALUE} characters"
        )
    values = tuple(dict.fromkeys(map(storable_text, stated)))
    return RoleFilter(dimension=role_filter.dimension, values=values, mode=role_filter.mode)


def _check_permission_sets(ids: Iterable[str]) -> tuple[str, ...]:
    chosen = set(ids)
    for id in sorted(chosen):
        check_one_of("permission_sets", id, PERMISSION_SETS)
    return tuple(id for id in PERMISSION_SETS if id in chosen)


_SHOWN = 10  # holders of a role that a message lists


class RoleTable(NamedTable[Role]):
    """
    All roles. In its methods, `known` are the ledger's dimensions, and `asker` is the person who makes a
    change, None for a key or a command on the server. People cannot remove their own right to administer.
    """

    kind = ROLES
    draft = NewRole
    limit = "roles.max"
    action = "role"

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        super().__init__(change_writer)
        self._in_force = Roles(())
        change_writer.people.persons.add_watcher(lambda: self._set_rows(self._rows))

    def all(self) -> list[Role]:
        return [*BUILTIN.values(), *self._rows.values()]

    def holder_rights(self, holder: RoleHolder) -> Rights:
        """
        Return the holder's rights under `privacy.min_group`. They are equal for every address of a person.
        """
        return self._limit_to_own_if_min_group(self._in_force.holder_rights(holder))

    def rights_if_saved(self, holder: RoleHolder, draft: NewRole, replaced: str | None = None) -> Rights:
        tried_role = Role(id="", **draft_fields(draft))
        other_roles = (role for id, role in self._rows.items() if id != replaced)
        return self._limit_to_own_if_min_group(
            Roles(map(self._expand_people_in_filters, [*other_roles, tried_role])).holder_rights(holder)
        )

    def _limit_to_own_if_min_group(self, rights: Rights) -> Rights:
        """
        Apply `privacy.min_group`: without VIEW_NAMES, people see their own calls, and other calls only in
        sums over enough people (see spool.ledger.groups). Other sums are not shown, because their safety
        would depend on all sums that a person ever requests.
        """
        people = self._changes.people
        if not people.min_group or VIEW_NAMES in rights.permission_sets:
            return rights
        own = (
            RoleFilter(dimension=USER, values=people.all_recorded_names(rights.person))
            if rights.person
            else None
        )
        return rights.limited_to_own_calls(own)

    def get(self, id: str) -> Role:
        return BUILTIN.get(id) or super().get(id)

    async def create(
        self,
        draft: NewRole,
        *,
        known_dimensions: Collection[str],
        limits: RoleLimits,
        actor: Actor,
        asker: RoleHolder | None = None,
    ) -> Role:
        """
        Create a role. Raises NotAllowed beyond the maximum number of roles, or if one key would have created too many.
        """
        now = self._changes.now()
        drafted = check_role_draft(draft, limits)
        check_dimensions(role_dimensions(drafted), known_dimensions)
        id = new_role_id()
        role = Role(id=id, created=now, last_updated=now, last_updated_by=actor.name, **draft_fields(drafted))
        return await self._add_row(role, check=_build_role_check(asker), max_rows=limits.most, actor=actor)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known_dimensions: Collection[str],
        limits: RoleLimits,
        actor: Actor,
        asker: RoleHolder | None = None,
    ) -> Role:
        """
        Change a role. Filters that it already has may use deleted dimensions.

        Raises NotAllowed if the role's version is not `version`.
        """

        def edit_role(before: Role) -> Role:
            drafted = check_role_draft(self._changed_draft(before, changes), limits)
            if "filters" in changes:
                check_dimensions(role_dimensions(drafted), known_dimensions)
            return replace_fields(before, **draft_fields(drafted))

        check = _build_role_check(asker)
        return await self._edit_row(
            id, edit_role, check=check, version=version, actor=actor, last_updated_by=actor.name
        )

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Delete a role. Raises NotAllowed while it has members or groups."""
        await self._remove_row(id, check=_check_role_unused, actor=actor)

    def _require_row(self, kept: Mapping[str, Role], id: str) -> Role:
        if id in BUILTIN:
            raise NotAllowed(f"the role {BUILTIN[id].name} is built in: it cannot be changed or deleted")
        return super()._require_row(kept, id)

    def _set_rows(self, rows: dict[str, Role]) -> None:
        super()._set_rows(rows)
        self._in_force = Roles(map(self._expand_people_in_filters, rows.values()))

    def _expand_people_in_filters(self, role: Role) -> Role:
        matched = self._changes.people.expand_filter
        filters = tuple(
            replace_fields(
                condition, values=matched({condition.dimension: condition.values})[condition.dimension]
            )
            for condition in role.filters
        )
        return replace_fields(role, filters=filters)


def read_roles(registry_rows: RegistryRows) -> Roles:
    return Roles(ROLES.all(registry_rows).values())


def require_remaining_admin(were: Collection[str], remaining: Collection[str]) -> None:
    """Raise NotAllowed if no enabled account could do everything."""
    if were and not remaining:
        raise NotAllowed(
            f"{', '.join(sorted(were)[:_SHOWN])} must stay Admin: no other Admin is enabled. Make another account "
            "an Admin first"
        )


def _require_remaining_admin_rights(
    registry_rows: RegistryRows,
    before: Mapping[str, Role],
    after: Mapping[str, Role],
    asker: RoleHolder | None,
) -> None:
    were = Roles(before.values())
    become = Roles(after.values())
    operators = registry_rows.all(Operator)
    require_remaining_admin(were.enabled_admins(operators), become.enabled_admins(operators))
    if asker is None:
        return
    had = were.holder_rights(asker)
    rights = become.holder_rights(asker)
    if had.can_administer and not rights.can_administer:
        raise NotAllowed(
            "this would remove your own right to administer. Another Admin can do it, or you can "
            "use the command line"
        )


def _build_role_check(asker: RoleHolder | None) -> DocumentCheck[Role]:
    def check_name_and_rights(registry_rows: RegistryRows, kept: Mapping[str, Role], role: Role) -> None:
        check_name_free((*BUILTIN.values(), *kept.values()), role, noun="role")
        _require_remaining_admin_rights(registry_rows, kept, {**kept, role.id: role}, asker)

    return check_name_and_rights


def _check_role_unused(registry_rows: RegistryRows, role: Role) -> None:
    holders = [*role.members, *(f"the group {group}" for group in role.groups)]
    if holders:
        suffix = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
        raise NotAllowed(
            f"the role {role.name} still has members: {', '.join(holders[:_SHOWN])}{suffix}. Give them "
            "another role and remove them from this one first"
        )
