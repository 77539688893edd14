"""The roles of a registry: every change with its audit row, and all of them in memory for every request of a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from spool.errors import AlreadyThere, NotAllowed, NotThere
from spool.registry import roles
from spool.registry.changes import Changes
from spool.registry.operators import Actor
from spool.registry.roles import BUILTIN, DRAFTED, KIND, Holder, Rights, Role, RoleDraft, RoleLimits, Roles
from spool.registry.rows import RegistryRows
from spool.registry.shared.edits import check_version, edited
from spool.registry.shared.following import DOCUMENTS
from spool.registry.shared.makers import ROLES, check_share, forget_maker, note_maker
from spool.registry.texts import check_dimensions

_SHOWN = 10  # holders of a role that a message names


class RoleTable:
    """
    Create, change and delete roles. A method that raises (Invalid, NotAllowed, NotThere) changes nothing.

    `known` are the dimensions of the ledger. `asker` is the person who changes something, None for a key and on the
    server's own machine: nobody takes away his own administration.
    """

    about = ((DOCUMENTS, KIND),)

    def __init__(self, changes: Changes) -> None:
        self._changes = changes
        self._roles: dict[str, Role] = {}
        self._in_force = Roles(())

    async def load(self) -> None:
        self._set(await self._changes.read(_all))

    def all(self) -> list[Role]:
        """The built-in ones, too."""
        return [*BUILTIN.values(), *self._roles.values()]

    def rights(self, holder: Holder) -> Rights:
        """What a person may do and see now."""
        return self._in_force.of_holder(holder)

    def rights_with(self, holder: Holder, draft: RoleDraft, replaced: str | None = None) -> Rights:
        """What the person would have if a draft were a role, in place of the one with the id `replaced`."""
        tried = Role(id="", **_fields(draft))
        return Roles([*(role for id, role in self._roles.items() if id != replaced), tried]).of_holder(holder)

    def get(self, id: str) -> Role:
        return BUILTIN.get(id) or _found(self._roles, id)

    def find_any(self, word: str) -> Role:
        """The role of this id, else of this name whatever the case. NotThere if there is neither."""
        wanted = word.strip().casefold()
        found = next((role for role in self.all() if role.id == word), None)
        found = found or next((role for role in self.all() if role.name.casefold() == wanted), None)
        if found is None:
            raise NotThere("there is no role with this id or name")
        return found

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
        now = self._changes.clock.now()
        drafted = roles.checked_role_draft(draft, limits)
        check_dimensions(roles.dimensions(drafted), known)
        id = roles.new_role_id()
        role = Role(id=id, created=now, last_updated=now, last_updated_by=actor.name, **_fields(drafted))

        def work(rows: RegistryRows) -> Role:
            kept = _all(rows)
            if len(kept) >= limits.most:
                raise NotAllowed(f"there are {limits.most} roles (roles.max); delete one")
            check_share(rows, ROLES, kept, limits.most, actor)
            _check_name(kept, role)
            _check_rights_that_remain(rows, kept, {**kept, id: role}, asker)
            rows.put_document(KIND, id, roles.stored(role))
            note_maker(rows, ROLES, id, actor)
            rows.add_audit(now, actor, "role.create", id, after=_shown(role, DRAFTED))
            return role

        return await self._changes.change(work, self._remember)

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
        now = self._changes.clock.now()

        def work(rows: RegistryRows) -> Role:
            kept = _all(rows)
            before = _found(kept, id)
            check_version(before.version, version)
            drafted = roles.checked_role_draft(RoleDraft(**{**_fields(before), **changes}), limits)
            if "filters" in changes:
                check_dimensions(roles.dimensions(drafted), known)
            after = replace(before, **_fields(drafted))
            after = edited(before, after, last_updated=now, last_updated_by=actor.name)
            if after is before:
                return before
            _check_name(kept, after)
            _check_rights_that_remain(rows, kept, {**kept, id: after}, asker)
            rows.put_document(KIND, id, roles.stored(after))
            names = [name for name in DRAFTED if getattr(before, name) != getattr(after, name)]
            rows.add_audit(now, actor, "role.change", id, before=_shown(before, names), after=_shown(after, names))
            return after

        return await self._changes.change(work, self._remember)

    async def delete(self, id: str, *, actor: Actor) -> None:
        """NotAllowed while it has members or groups."""

        def work(rows: RegistryRows) -> None:
            before = _found(_all(rows), id)
            holders = [*before.members, *(f"the group {group}" for group in before.groups)]
            if holders:
                more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
                raise NotAllowed(
                    f"the role {before.name} is given to {', '.join(holders[:_SHOWN])}{more}: give them another role"
                    " and take them out of this one first"
                )
            rows.delete_document(KIND, id)
            forget_maker(rows, ROLES, id)
            rows.add_audit(self._changes.clock.now(), actor, "role.delete", id, before=_shown(before, DRAFTED))

        await self._changes.change(work, lambda _: self._forget(id))

    def _remember(self, role: Role) -> None:
        self._set({**self._roles, role.id: role})

    def _forget(self, id: str) -> None:
        self._set({kept: role for kept, role in self._roles.items() if kept != id})

    def _set(self, kept: dict[str, Role]) -> None:
        self._roles, self._in_force = kept, Roles(kept.values())


def roles_of(rows: RegistryRows) -> Roles:
    """Those of one moment."""
    return Roles(_all(rows).values())


def check_organizer_remains(were: Collection[str], remaining: Collection[str]) -> None:
    """NotAllowed if the last account that may do everything would be gone."""
    if were and not remaining:
        raise NotAllowed(
            f"{', '.join(sorted(were)[:_SHOWN])} is the last enabled Organizer: give the role admin to another account"
            " first"
        )


def _check_rights_that_remain(
    rows: RegistryRows, before: Mapping[str, Role], after: Mapping[str, Role], asker: Holder | None
) -> None:
    were, become = Roles(before.values()), Roles(after.values())
    operators = rows.operators()
    check_organizer_remains(were.organizers(operators), become.organizers(operators))
    if asker is None:
        return
    had, has = were.of_holder(asker), become.of_holder(asker)
    if had.may_administer and not has.may_administer:
        raise NotAllowed("this would take your own administration away; another Organizer or the command line can")


def _all(rows: RegistryRows) -> dict[str, Role]:
    return {id: roles.restored(body) for id, body in rows.documents(KIND).items()}


def _found(kept: Mapping[str, Role], id: str) -> Role:
    if id in BUILTIN:
        raise NotAllowed(f"the role {BUILTIN[id].name} is built in: it cannot be changed or deleted")
    role = kept.get(id)
    if role is None:
        raise NotThere("there is no role with this id")
    return role


def _fields(draft: RoleDraft) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in DRAFTED}


def _shown(role: Role, names: Iterable[str]) -> dict[str, Any]:
    body = roles.stored(role)
    return {name: body[name] for name in names}


def _check_name(kept: Mapping[str, Role], role: Role) -> None:
    name = role.name.casefold()
    if any(each.name.casefold() == name and each.id != role.id for each in (*BUILTIN.values(), *kept.values())):
        raise AlreadyThere(f"there is a role named {role.name!r}")
