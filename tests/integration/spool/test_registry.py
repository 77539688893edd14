"""registry.sqlite and the installation's secret on a real disk: whole changes, memory in step, damage said clearly."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spool.errors import AlreadyThere, NotThere, RegistryDamaged, SpoolError, SpoolFromTheFuture, SpoolUnavailable
from spool.installation import FILE, derived, installation_secret
from spool.registry.keys import Key
from spool.registry.operators import Actor, hashed, matches
from spool.registry.scopes import INGEST
from spool.sqlite.registry.registry import Registry
from tests.moved_clock import MovedClock

ACTOR = Actor("ada@example.com", "127.0.0.1")
SECRET = b"i" * 32


async def opened(directory: Path, *, secret: bytes = SECRET) -> Registry:
    return await Registry.open(directory, secret=secret, clock=MovedClock())


@pytest_asyncio.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    registry = await opened(tmp_path)
    yield registry
    await registry.close()


async def create(registry: Registry, name: str = "search team") -> tuple[Key, str]:
    return await registry.keys.create(name=name, scopes=[INGEST], actor=ACTOR)


@pytest.mark.asyncio
async def test_of_many_at_once_with_one_name_one_wins(registry: Registry) -> None:
    """The name is checked in the transaction that takes it."""
    outcomes = await asyncio.gather(*[create(registry) for _ in range(10)], return_exceptions=True)
    assert 9 == sum(isinstance(outcome, AlreadyThere) for outcome in outcomes)
    assert 1 == len(registry.keys.all())


@pytest.mark.asyncio
async def test_a_cancelled_change_does_not_part_disk_and_memory(registry: Registry, tmp_path: Path) -> None:
    """A client that hangs up while its key is being deleted: what the disk says, the checks say."""
    _, secret = await create(registry)
    deletion = asyncio.create_task(registry.keys.delete("search team", confirm="search team", actor=ACTOR))
    await asyncio.sleep(0)
    deletion.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deletion
    with pytest.raises(NotThere):  # it takes its turn after the cancelled one
        await registry.keys.disable("search team", actor=ACTOR)
    assert registry.keys.find(secret) is None


@pytest.mark.asyncio
async def test_a_change_that_fails_on_disk_changes_nothing_in_memory(registry: Registry, tmp_path: Path) -> None:
    """The audit row cannot be written, so the key stays as it was."""
    _, secret = await create(registry)
    await registry._file._database.transaction(lambda connection: connection.execute("DROP TABLE audit"))
    with pytest.raises(SpoolUnavailable):
        await registry.keys.disable("search team", actor=ACTOR)
    found = registry.keys.find(secret)
    assert found is not None
    assert ["Enabled", "Enabled"] == [found.status, *(key.status for key in registry.keys.all())]
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        assert [("Enabled",)] == connection.execute("SELECT status FROM keys").fetchall()
    connection.close()


@pytest.mark.asyncio
async def test_a_secret_of_another_installation_is_unknown(tmp_path: Path) -> None:
    """Key hashes are worth nothing beside another installation's secret."""
    registry = await opened(tmp_path)
    _, secret = await create(registry)
    await registry.close()
    other = await opened(tmp_path, secret=b"o" * 32)
    assert other.keys.find(secret) is None
    await other.close()


@pytest.mark.asyncio
async def test_only_a_keyed_hash_is_kept(registry: Registry, tmp_path: Path) -> None:
    """256 bits under the pepper; not the secret, not its plain hash."""
    from hashlib import blake2b

    key, secret = await create(registry)
    [kept] = key.secrets
    assert 32 == len(kept.digest)
    assert blake2b(secret.encode(), digest_size=32).digest() != kept.digest
    assert secret.removeprefix("th_") not in repr(key)


@pytest.mark.asyncio
async def test_no_two_secrets_are_alike(registry: Registry) -> None:
    """256 random bits each."""
    secrets = {(await create(registry, f"key {number}"))[1] for number in range(50)}
    assert 50 == len(secrets)
    assert {46} == {len(secret) for secret in secrets}


async def damage(directory: Path, at: int, how: bytes) -> None:
    registry = await opened(directory)
    for number in range(200):
        await create(registry, f"key number {number} with quite a long name to fill pages")
    await registry.close()
    with (directory / "registry.sqlite").open("r+b") as file:
        file.seek(at)
        file.write(how)


@pytest.mark.asyncio
@pytest.mark.parametrize("at", [0, 100, 8192 * 3, 8192 * 6])
async def test_damage_is_found_at_the_start_and_said_clearly(tmp_path: Path, at: int) -> None:
    """Which file, what is untouched, what to do."""
    await damage(tmp_path, at, b"\xff" * 4096)
    with pytest.raises(RegistryDamaged, match=r"registry\.sqlite is damaged .* The spool is untouched\. Restore"):
        await opened(tmp_path)


@pytest.mark.asyncio
async def test_a_registry_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """A downgrade stops before it can do harm."""
    registry = await opened(tmp_path)
    await registry.close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(SpoolFromTheFuture):
        await opened(tmp_path)


@pytest.mark.asyncio
async def test_the_file_is_its_owners_alone(registry: Registry, tmp_path: Path) -> None:
    """Mode 0600."""
    assert 0o600 == (tmp_path / "registry.sqlite").stat().st_mode & 0o777


def test_the_installations_secret_is_made_once(tmp_path: Path) -> None:
    """32 random bytes, for their owner alone, the same ever after; each use has its own."""
    secret = installation_secret(tmp_path)
    assert (32, secret) == (len(secret), installation_secret(tmp_path))
    assert 0o600 == (tmp_path / FILE).stat().st_mode & 0o777
    assert 3 == len({secret, derived(secret, "a"), derived(secret, "b")})


def test_a_crash_while_it_is_made_leaves_no_half(tmp_path: Path) -> None:
    """A draft that a killed process left is thrown away."""
    (tmp_path / FILE).with_suffix(".new").write_bytes(b"half")
    assert 32 == len(installation_secret(tmp_path))


def test_a_cut_secret_is_said(tmp_path: Path) -> None:
    """Going on with another one would shut every key out without a word."""
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(SpoolError, match="restore it from a backup"):
        installation_secret(tmp_path)


def test_a_password_is_kept_as_a_slow_hash() -> None:
    """scrypt with its costs and a salt of its own beside it."""
    first, second = hashed("correct horse battery"), hashed("correct horse battery")
    assert first != second
    assert first.startswith(b"scrypt$32768$8$3$")
    assert matches("correct horse battery", first)
    assert not matches("correct horse batterY", first)
