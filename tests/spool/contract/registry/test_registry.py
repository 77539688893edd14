"""The registry on every engine: atomic changes, a matching copy in memory, and no stored secrets."""

from __future__ import annotations

import asyncio
from hashlib import blake2b

import pytest

from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere
from spool.registry.audit import AuditedChange
from spool.registry.keys import ApiKey
from spool.registry.operators import ADMIN, LINK_LIFE_S, SESSION_IDLE_S, VIEWER, Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = "ada@example.com"
ACTOR = Actor(ADA, "127.0.0.1")
PASSWORD = "correct horse battery"


async def create(registry: Registry, name: str = "search team") -> tuple[ApiKey, str]:
    return await registry.keys.create(name=name, scopes=[INGEST], actor=ACTOR)


@pytest.mark.one_engine
async def test_of_many_at_once_with_one_name_one_wins(registry: Registry) -> None:
    """
    Of many simultaneous changes with one name, only one succeeds, because the transaction that stores a name
    also checks that it is free.
    """
    outcomes = await asyncio.gather(*[create(registry) for _ in range(10)], return_exceptions=True)
    assert 9 == sum(isinstance(outcome, AlreadyThere) for outcome in outcomes)
    assert 1 == len(registry.keys.all())


async def test_a_cancelled_change_does_not_separate_rows_and_memory(registry: Registry) -> None:
    """A client disconnects while its key is being deleted. Afterwards memory equals the stored rows."""
    _, secret = await create(registry)
    deletion = asyncio.create_task(registry.keys.delete("search team", confirm="search team", actor=ACTOR))
    await asyncio.sleep(0)
    deletion.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deletion
    # the deletion was completed although its caller was cancelled, because this change runs after it
    with pytest.raises(NotThere):
        await registry.keys.disable("search team", actor=ACTOR)
    assert registry.keys.find_by_secret(secret) is None


@pytest.mark.one_engine
async def test_a_secret_of_another_installation_is_unknown(open_registry: RegistryOpener) -> None:
    """Stored key hashes are useless without the installation's secret."""
    registry = await open_registry()
    _, secret = await create(registry)
    await registry.close()
    other = await open_registry(secret=b"o" * 32)
    assert other.keys.find_by_secret(secret) is None


async def test_only_a_keyed_hash_is_stored(registry: Registry) -> None:
    """
    The stored hash has 256 bits and depends on the secret of the installation. Neither the key nor its plain
    hash is stored.
    """
    key, secret = await create(registry)
    [kept] = key.secrets
    assert 32 == len(kept.digest)
    assert blake2b(secret.encode(), digest_size=32).digest() != kept.digest
    assert secret.removeprefix("th_") not in repr(key)


@pytest.mark.one_engine
async def test_no_two_secrets_are_alike(registry: Registry) -> None:
    """Each secret has 256 random bits."""
    secrets = {(await create(registry, f"key {number}"))[1] for number in range(50)}
    assert 50 == len(secrets)
    assert {46} == {len(secret) for secret in secrets}


async def test_keys_outlive_a_restart(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """Every field of a key, both secrets of a running rotation, and the last access survive a restart."""
    registry = await open_registry()
    key, secret = await registry.keys.create(
        name="search",
        use_cases=["Send AI Telemetry"],
        labels={"team": "search"},
        description="d",
        actor=ACTOR,
    )
    _, rotated = await registry.keys.rotate("search", overlap_s=60, actor=ACTOR)
    await registry.keys.store_access_times({key.id: 5.0, 0: 7.0, 99: 8.0})
    [kept] = registry.keys.all()
    await registry.close()
    again = await open_registry()
    assert [kept] == again.keys.all()
    assert 5.0 == kept.last_accessed
    assert [kept, kept] == [again.keys.find_by_secret(secret), again.keys.find_by_secret(rotated)]
    clock.move(60)
    assert [None, kept] == [again.keys.find_by_secret(secret), again.keys.find_by_secret(rotated)]


async def test_an_access_never_moves_back(open_registry: RegistryOpener) -> None:
    """A clock that was set back does not make a key look unused for longer."""
    registry = await open_registry()
    key, _ = await create(registry)
    await registry.keys.store_access_times({key.id: 100.0})
    await registry.keys.store_access_times({key.id: 50.0})
    await registry.keys.edit("search team", description="d", actor=ACTOR)
    await registry.close()
    assert [100.0] == [key.last_accessed for key in (await open_registry()).keys.all()]


async def test_a_number_is_given_once(registry: Registry) -> None:
    """A deleted key's id is never used again."""
    first, _ = await create(registry)
    await registry.keys.delete("search team", confirm="search team", actor=ACTOR)
    second, _ = await create(registry)
    assert second.id > first.id


async def test_a_change_that_is_refused_changes_nothing(registry: Registry) -> None:
    """After a refused change, rows, audit list and memory are as before."""
    _, secret = await create(registry, "one")
    await create(registry, "two")
    before = registry.keys.all(), await audit_rows(registry)
    for name, error in (("ONE", AlreadyThere), ("one", AlreadyThere)):
        with pytest.raises(error):
            await registry.keys.edit("two", new_name=name, actor=ACTOR)
    with pytest.raises(NotThere):
        await registry.keys.delete("three", confirm="three", actor=ACTOR)
    await registry.keys.rotate("one", overlap_s=60, actor=ACTOR)
    after = registry.keys.all(), await audit_rows(registry)
    with pytest.raises(NotAllowed):
        await registry.keys.rotate("one", overlap_s=60, actor=ACTOR)
    assert after == (registry.keys.all(), await audit_rows(registry))
    assert len(before[1]) + 1 == len(after[1])
    assert registry.keys.find_by_secret(secret) is not None


@pytest.mark.one_engine
async def test_every_change_is_audited(registry: Registry, clock: MovedClock) -> None:
    """
    Each change has an audit row with actor, address, time, action, object and changed fields, and no hash.
    """
    await create(registry)
    await registry.keys.edit("search team", description="d", actor=ACTOR)
    await registry.audit_change(ACTOR, "route.drop", "archive/ai-telemetry", after={"n": 1})
    await registry.audit_changes(
        [AuditedChange(actor=ACTOR, action="device.enrol", target=name) for name in "ab"]
    )
    rows = await audit_rows(registry)
    actions = ["key.create", "key.edit", "route.drop", "device.enrol", "device.enrol"]
    assert [row.action for row in rows] == actions
    assert [row.id for row in rows] == [1, 2, 3, 4, 5]
    assert {(ACTOR.name, ACTOR.address, clock.now())} == {(row.actor, row.address, row.at) for row in rows}
    assert rows[1].before == {"description": ""}
    assert rows[1].after == {"description": "d"}
    assert rows[2].before is None
    assert rows[2].after == {"n": 1}
    assert "digest" not in repr(rows)


@pytest.mark.one_engine
async def test_the_life_of_an_operator(open_registry: RegistryOpener) -> None:
    """
    An operator is added, signs in, is changed (which ends the sessions) and is removed. Each step
    survives a restart.
    """
    registry = await open_registry()
    added = await registry.operators.add(" Ada@Example.com", role=VIEWER, password=PASSWORD, actor=ACTOR)
    with pytest.raises(AlreadyThere):
        await registry.operators.add("ada@example.com", role=ADMIN, password=PASSWORD, actor=ACTOR)
    assert await registry.operators.sign_in("ada@example.com", "wrong", address="::1") is None
    assert await registry.operators.sign_in("bob@example.com", PASSWORD, address="::1") is None
    signed_in = await registry.operators.sign_in("ada@example.com", PASSWORD, address="::1")
    assert signed_in is not None
    await registry.close()
    again = await open_registry()
    assert [added] == list(await again.operators.all())
    assert signed_in[1] == await again.operators.find_and_extend_session(signed_in[0])
    await again.operators.add("root@example.com", role=ADMIN, password=PASSWORD, actor=ACTOR)
    changed = await again.operators.change("ADA@example.com", role=ADMIN, actor=ACTOR)
    assert changed.role == ADMIN
    assert await again.operators.get("ada@example.com") == changed
    assert await again.operators.find_and_extend_session(signed_in[0]) is None
    await again.operators.remove("ada@example.com", actor=ACTOR)
    with pytest.raises(NotThere):
        await again.operators.get("ada@example.com")


async def test_what_an_account_signed_in_ends_with_it(open_registry: RegistryOpener) -> None:
    """
    Removing an account ends its sessions, the sessions of its links, and its unused links. Other sessions
    continue, even after a restart.
    """
    registry = await open_registry()
    operators = registry.operators
    await operators.add(ADA, role=ADMIN, password=PASSWORD, actor=ACTOR)
    as_ada = Actor(ADA, "::1")
    unused = await operators.create_sign_in_link(role=ADMIN, actor=as_ada, account=ADA)
    followed = await operators.sign_in_by_link(
        await operators.create_sign_in_link(role=ADMIN, actor=as_ada, account=ADA), address="::2"
    )
    other = await operators.sign_in_by_link(
        await operators.create_sign_in_link(role=ADMIN, actor=ACTOR), address="::3"
    )
    own = await operators.sign_in(ADA, PASSWORD, address="::1")
    assert own and followed and other
    await registry.close()
    operators = (await open_registry()).operators
    assert {own[1], followed[1], other[1]} == set(await operators.live_sessions())
    await operators.add("root@example.com", role=ADMIN, password=PASSWORD, actor=ACTOR)
    await operators.change(ADA, role=VIEWER, actor=ACTOR)
    assert [other[1]] == list(await operators.live_sessions())
    assert await operators.find_and_extend_session(followed[0]) is None
    assert await operators.sign_in_by_link(unused, address="::2") is None


async def test_a_session_is_ended_by_its_id(registry: Registry, clock: MovedClock) -> None:
    """A session is listed until it ends, can be ended once, and has an audit row for its end."""
    operators = registry.operators
    first = await operators.sign_in_by_link(
        await operators.create_sign_in_link(role=ADMIN, actor=ACTOR), address="::1"
    )
    assert first is not None
    await operators.end_session(first[1].id, actor=ACTOR)
    with pytest.raises(NotThere):
        await operators.end_session(first[1].id, actor=ACTOR)
    assert await operators.find_and_extend_session(first[0]) is None
    assert (
        await operators.sign_in_by_link(
            await operators.create_sign_in_link(role=ADMIN, actor=ACTOR), address="::1"
        )
        is not None
    )
    clock.move(SESSION_IDLE_S)
    assert [] == list(await operators.live_sessions())


async def test_a_console_link_is_used_once_and_in_time(registry: Registry, clock: MovedClock) -> None:
    """The session of a console link has the actor's name. It ends when idle, at its limit, or at sign-out."""
    link = await registry.operators.create_sign_in_link(role=ADMIN, actor=ACTOR)
    late = await registry.operators.create_sign_in_link(role=ADMIN, actor=ACTOR)
    followed = await registry.operators.sign_in_by_link(link, address="::1")
    assert followed is not None
    secret, session = followed
    assert ACTOR.name == session.actor
    assert session.role == ADMIN
    assert session.operator is False
    assert await registry.operators.sign_in_by_link(link, address="::1") is None
    clock.move(LINK_LIFE_S)
    assert await registry.operators.sign_in_by_link(late, address="::1") is None
    assert (
        await registry.operators.find_and_extend_session(secret) is not None
    )  # this lookup extends the idle session
    clock.move(SESSION_IDLE_S - 1)
    assert await registry.operators.find_and_extend_session(secret) is not None
    clock.move(SESSION_IDLE_S)
    assert await registry.operators.find_and_extend_session(secret) is None
    second = await registry.operators.sign_in_by_link(
        await registry.operators.create_sign_in_link(role=VIEWER, actor=ACTOR), address="::1"
    )
    assert second is not None
    await registry.operators.sign_out(second[1])
    assert await registry.operators.find_and_extend_session(second[0]) is None


@pytest.mark.one_engine
async def test_a_key_opens_until_it_expires(open_registry: RegistryOpener, clock: MovedClock) -> None:
    """
    A key expires at the exact moment, even after a restart. From then on its secret is not found until the
    expiry date is moved, except as that of an expired key.
    """
    registry = await open_registry()
    now = clock.now()
    for over in (now, now - 1):
        with pytest.raises(Invalid, match="future"):
            await registry.keys.create(name="late", scopes=[INGEST], expires_at=over, actor=ACTOR)
    key, secret = await registry.keys.create(
        name="search", scopes=[INGEST], expires_at=now + 60.0004, actor=ACTOR
    )
    assert now + 60 == key.expires_at
    await registry.close()
    again = await open_registry()
    clock.move(59.999)
    found = again.keys.find_by_secret(secret)
    assert found is not None and "Enabled" == found.state(clock.now())
    assert again.keys.find_expired_by_secret(secret) is None
    clock.move(0.001)
    assert again.keys.find_by_secret(secret) is None
    assert again.keys.is_known_or_ended_secret(secret) is True
    assert again.keys.is_secret_expired(secret) is True
    [kept] = again.keys.all()
    assert kept.status == "Enabled"
    assert "Expired" == kept.state(clock.now())
    assert kept == again.keys.find_expired_by_secret(secret)
    assert again.keys.find_expired_by_secret(secret[:-1]) is None
    renamed = await again.keys.edit("search", new_name="ranking", expires_at=kept.expires_at, actor=ACTOR)
    assert kept.expires_at == renamed.expires_at
    with pytest.raises(Invalid, match="future"):
        await again.keys.edit("ranking", expires_at=clock.now() - 1, actor=ACTOR)
    await again.keys.edit("ranking", expires_at=clock.now() + 1, actor=ACTOR)
    assert again.keys.find_by_secret(secret) is not None
    await again.keys.edit("ranking", expires_at=None, actor=ACTOR)
    clock.move(1e6)
    found = again.keys.find_by_secret(secret)
    assert found is not None and found.expires_at is None
    changes = [row for row in await audit_rows(again) if row.action.startswith("key.")]
    told = (
        [(row.before or {}).get("expires_at", "") for row in changes],
        [(row.after or {}).get("expires_at", "") for row in changes],
    )
    assert now + 60 in told[0] and None in told[1]


@pytest.mark.proves("A key is used after its expiry date")
async def test_no_secret_outlasts_its_key(registry: Registry, clock: MovedClock) -> None:
    """
    A rotation keeps the key's expiry date, and the overlap ends at that date. If the date is
    moved earlier, a running overlap ends earlier as well.
    """
    end = clock.now() + 60
    _, first = await registry.keys.create(name="search", scopes=[INGEST], expires_at=end, actor=ACTOR)
    rotated, second = await registry.keys.rotate("search", overlap_s=3600, actor=ACTOR)
    assert rotated.expires_at == end
    assert rotated.overlap_ends_at == end
    later = await registry.keys.edit("search", expires_at=end + 60, actor=ACTOR)
    assert later.expires_at == end + 60
    assert later.overlap_ends_at == end
    sooner = await registry.keys.edit("search", expires_at=end - 30, actor=ACTOR)
    assert sooner.expires_at == end - 30
    assert sooner.overlap_ends_at == end - 30
    clock.move(30)
    assert [None, None] == [registry.keys.find_by_secret(secret) for secret in (first, second)]
