"""
Roles in a registry: rights change at once, an Owner or Admin must remain, and each change has an audit row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.registry.documents import replace_fields
from spool.registry.operators import ADMIN, NO_ROLE, VIEWER, Actor, Person
from spool.registry.permission_sets import ALL, ORGANIZATION_ADMINISTRATION, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.roles import (
    BUILTIN,
    EXCEPT,
    FULL,
    LIMITED,
    NO_DATA,
    NewRole,
    Rights,
    Role,
    RoleFilter,
    RoleHolder,
    RoleLimits,
)
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA, BOB = "ada@example.com", "bob@example.com"
ACTOR = Actor(ADA, "local")
KNOWN = ("model", "team")
SEARCH = RoleFilter(dimension="team", values=("search", ""))
DRAFT = NewRole(
    name="Search",
    description="What search spends",
    data_access=LIMITED,
    filters=(SEARCH, RoleFilter(dimension="model", values=("opus",), mode=EXCEPT)),
    permission_sets=(VIEW_COSTS,),
    members=(BOB,),
    groups=("finance",),
)
EVERYTHING = NewRole(name="All of it", data_access=FULL, permission_sets=tuple(ALL), members=(ADA,))
PASSWORD = "correct horse battery"

pytestmark = pytest.mark.rule


async def create(registry: Registry, draft: NewRole, limits: RoleLimits = RoleLimits()) -> Role:  # noqa: B008
    return await registry.roles.create(draft, known_dimensions=KNOWN, limits=limits, actor=ACTOR)


async def change(registry: Registry, id: str, asker: RoleHolder | None = None, **changes: Any) -> Role:
    return await registry.roles.change(
        id, changes, known_dimensions=KNOWN, limits=RoleLimits(), actor=ACTOR, asker=asker
    )


async def account(registry: Registry, email: str = ADA, role: str = ADMIN) -> None:
    await registry.operators.add(email, role=role, password=PASSWORD, actor=ACTOR)


@pytest.mark.every_engine
async def test_a_role_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """Every field of a role, and the rights that it grants, survive a restart."""
    registry = await open_registry()
    made = await create(registry, DRAFT)
    rights = registry.roles.holder_rights(RoleHolder(person=BOB))
    assert rights.roles == ("Search",)
    assert frozenset((VIEW_COSTS,)) == rights.permission_sets
    assert (DRAFT.filters,) == rights.slice.parts
    await registry.close()
    again = (await open_registry()).roles
    assert [*BUILTIN.values(), made] == again.all()
    assert rights == again.holder_rights(RoleHolder(person=BOB))
    assert replace(rights, person="eve@x.y") == again.holder_rights(
        RoleHolder(person="eve@x.y", groups=("finance",))
    )
    assert [made] * 3 == [
        again.get(made.id),
        again.require_by_id_or_name(made.id),
        again.require_by_id_or_name(" SEARCH"),
    ]
    assert BUILTIN["member"] == again.require_by_id_or_name("Member")
    with pytest.raises(NotThere):
        again.get("nobody")
    with pytest.raises(NotThere):
        again.require_by_id_or_name("nobody")


async def test_a_change_holds_at_once(registry: Registry, clock: MovedClock) -> None:
    """
    A change of a role applies at once: a removed member has no rights. The audit row has only the changed fields,
    and the role names who changed it.
    """
    made = await create(registry, DRAFT)
    clock.move(60)
    changed = await change(registry, made.id, members=[ADA], name=DRAFT.name)
    assert replace_fields(made, members=(ADA,), last_updated=made.created + 60) == changed
    assert (Rights(person=BOB), ("Search",)) == tuple(
        registry.roles.holder_rights(RoleHolder(person=each))
        if each == BOB
        else registry.roles.holder_rights(RoleHolder(person=each)).roles
        for each in (BOB, ADA)
    )
    row = (await audit_rows(registry))[-1]
    assert row.action == "role.change"
    assert row.before == {"members": [BOB]}
    assert row.after == {"members": [ADA]}


async def test_a_role_in_use_is_not_deleted(registry: Registry) -> None:
    """
    A role in use is not deleted, and the error names its members. A role without members is deleted, and the audit
    row has its fields.
    """
    made = await create(registry, DRAFT)
    with pytest.raises(
        NotAllowed, match=r"still has members: bob@example.com, the group finance. Give them another"
    ):
        await registry.roles.delete(made.id, actor=ACTOR)
    await change(registry, made.id, members=(), groups=())
    await registry.roles.delete(made.id, actor=ACTOR)
    assert list(BUILTIN.values()) == registry.roles.all()
    row = (await audit_rows(registry))[-1]
    assert row.action == "role.delete"
    assert made.id == row.target
    assert (row.before or {})["name"] == "Search"
    with pytest.raises(NotThere):
        await registry.roles.delete(made.id, actor=ACTOR)


async def test_a_message_names_some_of_many_members(registry: Registry) -> None:
    """If a role has many members, the error names ten of them and the number of the others."""
    made = await create(
        registry, replace_fields(DRAFT, members=tuple(f"p{i:02}@x.y" for i in range(15)), groups=())
    )
    with pytest.raises(NotAllowed, match=r"p00@x.y, .*p09@x.y and 5 more\. "):
        await registry.roles.delete(made.id, actor=ACTOR)


@pytest.mark.parametrize("id", BUILTIN)
async def test_built_in_roles_stay(registry: Registry, id: str) -> None:
    """Built-in roles cannot be changed or deleted, and their names cannot be used again."""
    with pytest.raises(NotAllowed, match="built in"):
        await change(registry, id, members=(BOB,))
    with pytest.raises(NotAllowed, match="built in"):
        await registry.roles.delete(id, actor=ACTOR)
    with pytest.raises(AlreadyThere):
        await create(registry, replace_fields(DRAFT, name=BUILTIN[id].name.upper()))


async def test_a_dimension_must_be_known(registry: Registry) -> None:
    """
    Dimensions are checked when a filter names them. A role on a deleted dimension can still be renamed or repaired.
    """
    with pytest.raises(Invalid, match=r"unknown dimension 'planet'\. Use one of: model, team"):
        await create(registry, replace_fields(DRAFT, filters=(replace_fields(SEARCH, dimension="planet"),)))
    made = await create(registry, DRAFT)
    gone: Any = {"known_dimensions": ("model",), "limits": RoleLimits(), "actor": ACTOR}
    assert "Ads" == (await registry.roles.change(made.id, {"name": "Ads"}, **gone)).name
    with pytest.raises(Invalid):
        await registry.roles.change(made.id, {"filters": DRAFT.filters}, **gone)


@pytest.mark.proves("A change of roles locks everybody out")
@pytest.mark.parametrize("how", ["role", "disabled", "removed"])
async def test_the_last_organizer_stays(registry: Registry, how: str) -> None:
    """
    No actor can remove the last Admin. If there is a second Admin by any means, the first may be removed.
    """
    await account(registry)
    await account(registry, BOB, VIEWER)

    async def take_away() -> None:
        if how == "removed":
            await registry.operators.remove(ADA, actor=ACTOR)
        else:
            changes: Any = {"role": VIEWER} if how == "role" else {"disabled": True}
            await registry.operators.change(ADA, actor=ACTOR, **changes)

    with pytest.raises(NotAllowed, match=r"ada@example.com must stay Admin"):
        await take_away()
    assert [(ADA, ADMIN, False), (BOB, VIEWER, False)] == [
        (each.email, each.role, each.disabled) for each in await registry.operators.all()
    ]
    await create(registry, replace_fields(EVERYTHING, members=(BOB,)))
    await take_away()


async def test_the_last_organizer_by_a_role_stays(registry: Registry) -> None:
    """
    Administration granted by a role counts like an account's own role, so the last one cannot be removed either.
    """
    await account(registry, ADA, NO_ROLE)
    made = await create(registry, EVERYTHING)
    for changes in ({"members": ()}, {"data_access": NO_DATA}, {"permission_sets": (VIEW_COSTS,)}):
        with pytest.raises(NotAllowed, match="no other Admin is enabled"):
            await change(registry, made.id, **changes)
    assert "Everything" == (await change(registry, made.id, name="Everything")).name
    await account(registry, BOB, ADMIN)
    await change(registry, made.id, members=())


async def test_without_an_organizer_nothing_is_held(registry: Registry) -> None:
    """An installation that was only administered from its own machine may stay without an Admin."""
    await account(registry, ADA, VIEWER)
    await registry.operators.remove(ADA, actor=ACTOR)
    made = await create(registry, replace_fields(EVERYTHING, members=(), groups=("root",)))
    await change(registry, made.id, groups=())


@pytest.mark.proves("A change of roles locks everybody out")
@pytest.mark.parametrize(
    "changes",
    [{"members": ()}, {"permission_sets": (VIEW_COSTS,)}, {"data_access": LIMITED, "filters": (SEARCH,)}],
)
async def test_people_cannot_remove_their_own_administration(
    registry: Registry, changes: dict[str, Any]
) -> None:
    """
    People cannot remove their own administration, by membership or by group. Other operators, keys and the
    command line may do it.
    """
    await account(registry, "root@example.com")
    sets = (ORGANIZATION_ADMINISTRATION,)
    made = await create(
        registry, NewRole(name="People", data_access=FULL, permission_sets=sets, members=(ADA,))
    )
    own = RoleHolder(person=ADA, base=VIEWER if "filters" not in changes else "")
    with pytest.raises(NotAllowed, match="your own right to administer"):
        await change(registry, made.id, own, **changes)
    await change(registry, made.id, own, description="Still there")
    await change(registry, made.id, RoleHolder(person=BOB, base=ADMIN), **changes)
    assert not registry.roles.holder_rights(own).can_administer


async def test_draft_of_a_role_is_evaluated_without_being_stored(registry: Registry) -> None:
    """A draft of a role is evaluated, without being stored, next to the existing roles or in place of one."""
    made = await create(registry, DRAFT)
    tried = NewRole(name="Tried", data_access=NO_DATA, permission_sets=(), members=(BOB,))
    assert ("Search", "Tried") == registry.roles.rights_if_saved(RoleHolder(person=BOB), tried).roles
    assert ("Tried",) == registry.roles.rights_if_saved(RoleHolder(person=BOB), tried, replaced=made.id).roles
    assert ("Search",) == registry.roles.holder_rights(RoleHolder(person=BOB)).roles


async def test_a_person_of_a_provider_whom_a_role_names(registry: Registry) -> None:
    """
    A person whom a role names gets no default role. If a group grants a default role, the person has
    it in addition.
    """
    await create(registry, DRAFT)
    eve = Person(
        email="Eve@example.com",
        role=VIEWER,
        decides_role=True,
        issuer="https://idp",
        subject="1",
        groups=("finance",),
    )
    for person, expected in (
        (eve, NO_ROLE),
        (replace(eve, is_mapped=True), VIEWER),
        (replace(eve, groups=()), VIEWER),
    ):
        _, session = await registry.operators.sign_in_person(
            person, address="here", life_s=60, takes_over_accounts=False
        )
        assert expected == session.role
