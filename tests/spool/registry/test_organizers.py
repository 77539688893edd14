"""After any changes in any order, one person remains who may do everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spool.errors import SpoolError
from spool.registry import operators
from spool.registry.operators import ROLES, Actor
from spool.registry.permission_sets import ALL, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.roles import FULL, NO_DATA, NewRole, RoleHolder, RoleLimits, Roles
from spool.sqlite.in_memory import new_in_memory_registry
from tests.moved_clock import MovedClock
from tests.rounds import examples

ACTOR = Actor("root", "local")
PEOPLE = ("ada@example.com", "bob@example.com")
LIMITS: Any = {"known_dimensions": (), "limits": RoleLimits(), "actor": ACTOR}
Step = Callable[[Registry], Coroutine[Any, Any, object]]

emails, accesses = st.sampled_from(PEOPLE), st.sampled_from((FULL, NO_DATA))
sets = st.sampled_from((tuple(ALL), (VIEW_COSTS,)))
members = st.sampled_from(((), PEOPLE[:1], PEOPLE))


def role(registry: Registry) -> str:
    return registry.roles.require_by_id_or_name("One").id


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(
        lambda email, role: (
            lambda registry: registry.operators.add(email, role=role, password="x" * 12, actor=ACTOR)
        ),
        emails,
        st.sampled_from(ROLES),
    ),
    st.builds(
        lambda email, role: lambda registry: registry.operators.change(email, role=role, actor=ACTOR),
        emails,
        st.sampled_from(ROLES),
    ),
    st.builds(
        lambda email, disabled: (
            lambda registry: registry.operators.change(email, disabled=disabled, actor=ACTOR)
        ),
        emails,
        st.booleans(),
    ),
    st.builds(lambda email: lambda registry: registry.operators.remove(email, actor=ACTOR), emails),
    st.builds(
        lambda access, ids, people: (
            lambda registry: registry.roles.create(
                NewRole(name="One", data_access=access, permission_sets=ids, members=people), **LIMITS
            )
        ),
        accesses,
        sets,
        members,
    ),
    st.builds(
        lambda change: lambda registry: registry.roles.change(role(registry), change, **LIMITS),
        st.one_of(
            st.fixed_dictionaries({"members": members}),
            st.fixed_dictionaries({"permission_sets": sets}),
            st.fixed_dictionaries({"data_access": accesses}),
        ),
    ),
    st.just(lambda registry: registry.roles.delete(role(registry), actor=ACTOR)),
)


async def organizers(registry: Registry) -> set[str]:
    """Return the people who may sign in and do everything, recounted from their rights."""
    return {
        each.email
        for each in await registry.operators.all()
        if not each.disabled
        and registry.roles.holder_rights(RoleHolder(person=each.email, base=each.role)).is_everything
    }


@given(st.lists(STEPS, min_size=4, max_size=14))
@settings(max_examples=examples(60), deadline=None)
def test_an_organizer_remains(steps: list[Step]) -> None:
    """
    An organizer remains: once an Admin exists, every accepted change leaves one, and a refused change alters
    nothing.
    """

    async def run() -> None:
        registry = await Registry.open(new_in_memory_registry(), secret=b"i" * 32, clock=MovedClock())
        await registry.operators.add(PEOPLE[0], role="admin", password="x" * 12, actor=ACTOR)
        for step in steps:
            before = (await registry.operators.all(), registry.roles.all())
            try:
                await step(registry)
            except SpoolError:
                assert before == (await registry.operators.all(), registry.roles.all())
            assert await organizers(registry)
            in_force = Roles(each for each in registry.roles.all() if not each.is_builtin)
            assert await organizers(registry) == in_force.enabled_admins(await registry.operators.all())
        await registry.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(operators, "SCRYPT_N", 2)
        patched.setattr(operators, "SCRYPT_P", 1)
        asyncio.run(run())
