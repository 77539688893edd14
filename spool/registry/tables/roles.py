"""
The roles of a registry: every change with its audit row, and all of them in memory for every request of a person.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from spool.errors import NotAllowed
from spool.registry import roles
from spool.registry.changes import Changes
from spool.registry.operators import Actor, Operator
from spool.registry.registry_rows import RegistryRows
from spool.registry.roles import BUILTIN, ROLES, Holder, Rights, Role, RoleDraft, RoleLimits, Roles
from spool.registry.shared import makers
from spool.registry.shared.document_table import Check, NamedTable, check_name, stated
from spool.registry.shared.role_checks import check_role_draft
from spool.registry.shared.texts import check_dimensions

_SHOWN = 10  # holders of a role that a message names


class RoleTable(NamedTable[Role]):
    """
    Create, change and delete roles. A method that raises (Invalid, NotAllowed, NotThere) changes nothing.

    `known` are the dimensions of the ledger. `asker` is the person who changes something, None for a key and
    on the server's own machine: nobody takes away his own administration.
    """

    kind = ROLES
    draft = RoleDraft
    limit = makers.ROLES
    action = "role"

    def __init__(self, changes: Changes) -> None:
        super().__init__(changes)
        self._in_force = Roles(())

    def all(self) -> list[Role]:
        """The built-in ones, too."""
        return [*BUILTIN.values(), *self._rows.values()]

    def rights(self, holder: Holder) -> Rights:
        """Return what a person may do and see now."""
        return self._in_force.of_holder(holder)

    def rights_with(self, holder: Holder, draft: RoleDraft, replaced: str | None = None) -> Rights:
        """Return the rights of a person if a draft were a role, in place of the one with the id `replaced`."""
        tried = Role(id="", **stated(draft))
        others = (role for id, role in self._rows.items() if id != replaced)
        return Roles(map(self._matched, [*others, tried])).of_holder(holder)

    def get(self, id: str) -> Role:
        return BUILTIN.get(id) or super().get(id)

    async def create(
        self,
        draft: RoleDraft,
        *,
        known: Collection[str],
        limits: RoleLimits,
        actor: Actor,
        asker: Holder | None = None,
    ) -> Role:
        """NotAllowed when there are as many as may be, or a key made as many as it leaves free."""
        now = self._changes.now()
        drafted = check_role_draft(draft, limits)
        check_dimensions(roles.dimensions(drafted), known)
        id = roles.new_role_id()
        role = Role(id=id, created=now, last_updated=now, last_updated_by=actor.name, **stated(drafted))
        return await self._add(role, check=_check_for(asker), most=limits.most, actor=actor)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        known: Collection[str],
        limits: RoleLimits,
        actor: Actor,
        asker: Holder | None = None,
    ) -> Role:
        """
        Set the fields of a draft that are given. A filter on a dimension that is gone may stay as it is.

        NotAllowed if it is not of the `version` any more that was read.
        """

        def edit(before: Role) -> Role:
            drafted = check_role_draft(self._redrafted(before, changes), limits)
            if "filters" in changes:
                check_dimensions(roles.dimensions(drafted), known)
            return replace(before, **stated(drafted))

        check = _check_for(asker)
        return await self._edit(
            id, edit, check=check, version=version, actor=actor, last_updated_by=actor.name
        )

    async def delete(self, id: str, *, actor: Actor) -> None:
        """NotAllowed while it has members or groups."""
        await self._remove(id, check=_check_unused, actor=actor)

    def _found(self, kept: Mapping[str, Role], id: str) -> Role:
        if id in BUILTIN:
            raise NotAllowed(f"the role {BUILTIN[id].name} is built in: it cannot be changed or deleted")
        return super()._found(kept, id)

    def _set(self, rows: dict[str, Role]) -> None:
        super()._set(rows)
        self._in_force = Roles(map(self._matched, rows.values()))

    def _matched(self, role: Role) -> Role:
        """Return a role whose filters hold for every form of the people that they name."""
        matched = self._changes.people.matched
        filters = (replace(each, values=matched({"": each.values})[""]) for each in role.filters)
        return replace(role, filters=tuple(filters))


def roles_of(rows: RegistryRows) -> Roles:
    """Read all roles in one transaction."""
    return Roles(ROLES.all(rows).values())


def check_organizer_remains(were: Collection[str], remaining: Collection[str]) -> None:
    """NotAllowed if the last account that may do everything would be gone."""
    if were and not remaining:
        raise NotAllowed(
            f"{', '.join(sorted(were)[:_SHOWN])} is the last enabled Organizer: make another account one "
            "first"
        )


def _check_rights_that_remain(
    rows: RegistryRows, before: Mapping[str, Role], after: Mapping[str, Role], asker: Holder | None
) -> None:
    were = Roles(before.values())
    become = Roles(after.values())
    operators = rows.all(Operator)
    check_organizer_remains(were.organizers(operators), become.organizers(operators))
    if asker is None:
        return
    had = were.of_holder(asker)
    has = become.of_holder(asker)
    if had.may_administer and not has.may_administer:
        raise NotAllowed(
            "this would take your own administration away; another Organizer or the command line can"
        )


def _check_for(asker: Holder | None) -> Check[Role]:
    def check(rows: RegistryRows, kept: Mapping[str, Role], role: Role) -> None:
        check_name((*BUILTIN.values(), *kept.values()), role, noun="role")
        _check_rights_that_remain(rows, kept, {**kept, role.id: role}, asker)

    return check


def _check_unused(rows: RegistryRows, role: Role) -> None:
    holders = [*role.members, *(f"the group {group}" for group in role.groups)]
    if holders:
        more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
        raise NotAllowed(
            f"the role {role.name} is given to {', '.join(holders[:_SHOWN])}{more}: give them another role"
            " and take them out of this one first"
        )
