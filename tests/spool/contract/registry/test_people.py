"""People of an OpenID provider in a registry: one operator each, with sessions that end as configured."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from spool.errors import AlreadyThere, NotAllowed
from spool.registry.operators import ADMIN, SESSION_LIFE_S, VIEWER, Actor, Person, SignInSession
from spool.registry.registry import Registry
from spool.registry.tables import operators as table
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener

ROOT = Actor("root", "local")
ADA = Person(
    email="Ada@example.com",
    role=VIEWER,
    decides_role=False,
    issuer="https://idp.example.com",
    subject="a1",
    session="s1",
    groups=("x", 'y"'),
    refreshes=True,
)


async def came(
    registry: Registry, person: Person = ADA, life_s: float = 3000, *, takes_accounts: bool = False
) -> SignInSession:
    _, session = await registry.operators.sign_in_person(
        person, address="here", life_s=life_s, takes_over_accounts=takes_accounts
    )
    return session


async def test_facts_of_a_person_are_stored(registry: Registry) -> None:
    session = await came(registry)
    [kept] = await registry.operators.live_sessions()
    assert session == kept
    assert ADA.issuer == kept.issuer
    assert kept.subject == "a1"
    assert kept.provider_session == "s1"
    assert kept.groups == '["x", "y\\""]'
    assert kept.refreshes is True
    [operator] = await registry.operators.all()
    assert operator.email == "ada@example.com"
    assert operator.role == VIEWER
    assert operator.disabled is False
    assert operator.subject == "a1"


@pytest.mark.one_engine
async def test_who_decides_the_role(registry: Registry) -> None:
    """
    Either the list of operators or the provider decides about a role. A new role ends the sessions of
    the old role.
    """
    await came(registry)
    assert VIEWER == (await came(registry, replace(ADA, role=ADMIN))).role
    session = await came(registry, replace(ADA, role=ADMIN, decides_role=True))
    assert ADMIN == session.role
    assert [session] == await registry.operators.live_sessions()


@pytest.mark.proves("Somebody puts an operator's e-mail address into a profile at the provider")
async def test_existing_name_is_refused_for_a_different_provider_id(registry: Registry) -> None:
    """A different id at the provider cannot use a name that exists, and neither can a disabled operator."""
    await came(registry)
    with pytest.raises(AlreadyThere):
        await came(registry, replace(ADA, subject="b2"), takes_accounts=True)
    await registry.operators.change("ada@example.com", disabled=True, actor=ROOT)
    assert [] == await registry.operators.live_sessions()
    with pytest.raises(NotAllowed):
        await came(registry)
    [operator] = await registry.operators.all()
    assert operator.disabled


@pytest.mark.one_engine
async def test_sessions_have_their_own_end(registry: Registry, clock: MovedClock) -> None:
    """
    Sessions of people from the provider end at the general limit at the latest. Selected sessions end at once, and
    none ends twice.
    """
    long = await came(registry, life_s=10 * SESSION_LIFE_S)
    short = await came(registry, replace(ADA, session="s2"), 60)
    assert long.ends_at - clock.now() == SESSION_LIFE_S
    assert short.ends_at - clock.now() == 60
    clock.move(60)
    assert [long] == await registry.operators.live_sessions()
    ended = [
        await registry.operators.end_sessions_where(lambda one: one.provider_session == "s1", actor=ROOT)
        for _ in range(2)
    ]
    assert [1, 0] == ended


@pytest.mark.proves("A withdrawn right stays in effect")
@pytest.mark.parametrize(
    "change", [{"disabled": True}, {"role": VIEWER}, {"password": "another long word"}, None]
)
async def test_who_is_changed_during_a_sign_in_is_not_signed_in(
    open_registry: RegistryOpener, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any] | None
) -> None:
    """
    If the account is changed or deleted (None) while its correct password is being checked, the sign-in fails.
    """
    operators = (await open_registry()).operators
    for email in ("bob@example.com", "root@example.com"):
        await operators.add(email, role=ADMIN, password="a long password", actor=ROOT)
    begun, gate = Event(), Event()

    def slow(password: str, kept: bytes) -> bool:
        begun.set()
        return gate.wait()

    monkeypatch.setattr(table, "is_matching_password", slow)
    signing_in = asyncio.create_task(operators.sign_in("bob@example.com", "a long password", address="here"))
    try:
        await asyncio.to_thread(begun.wait)
        if change is None:
            await operators.remove("bob@example.com", actor=ROOT)
        else:
            await operators.change("bob@example.com", **change, actor=ROOT)
    finally:
        gate.set()
    assert await signing_in is None
    assert [] == list(await operators.live_sessions())
    assert (await operators.sign_in("root@example.com", "a long password", address="here")) is not None
