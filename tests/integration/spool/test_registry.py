"""
registry.sqlite and the installation's secret on a real disk: whole changes, memory in step, damage said clearly.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from spool.errors import RegistryDamaged, SpoolError, SpoolFromTheFuture, SpoolUnavailable
from spool.installation import FILE, derived, installation_secret
from spool.registry.keys import Key
from spool.registry.operators import Actor, hashed, matches
from spool.registry.registry import Registry
from spool.registry.roles import Holder
from spool.registry.scopes import INGEST
from spool.sqlite.database import Database
from spool.sqlite.migrations import MARK, migrate, script
from spool.sqlite.registry.store import open_registry
from tests.moved_clock import MovedClock

ACTOR = Actor("ada@example.com", "127.0.0.1")
SECRET = b"i" * 32


async def opened(directory: Path, *, secret: bytes = SECRET) -> Registry:
    return await open_registry(directory, secret=secret, clock=MovedClock())


@pytest_asyncio.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    registry = await opened(tmp_path)
    yield registry
    await registry.close()


async def create(registry: Registry, name: str = "search team") -> tuple[Key, str]:
    return await registry.keys.create(name=name, scopes=[INGEST], actor=ACTOR)


@pytest.mark.asyncio
async def test_a_change_that_fails_on_disk_changes_nothing_in_memory(
    registry: Registry, tmp_path: Path
) -> None:
    """The audit row cannot be written, so the key stays as it was."""
    _, secret = await create(registry)
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        connection.execute("ALTER TABLE audit RENAME TO kept_audit")
        connection.execute("CREATE VIEW audit AS SELECT * FROM kept_audit")  # what cannot be written
    with pytest.raises(SpoolUnavailable):
        await registry.keys.disable("search team", actor=ACTOR)
    found = registry.keys.find(secret)
    assert found is not None
    assert ["Enabled", "Enabled"] == [found.status, *(key.status for key in registry.keys.all())]
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        assert [("Enabled",)] == connection.execute("SELECT status FROM keys").fetchall()
    connection.close()


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
    with pytest.raises(
        RegistryDamaged, match=r"registry\.sqlite is damaged .* The spool is untouched\. Restore"
    ):
        await opened(tmp_path)


@pytest.mark.asyncio
async def test_a_registry_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """A downgrade stops before it can do harm."""
    registry = await opened(tmp_path)
    await registry.close()
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
        connection.execute(f"PRAGMA application_id = {MARK + 99}")
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


def test_a_password_is_kept_as_a_slow_hash(usual_passwords: None) -> None:
    """scrypt with its costs and a salt of its own beside it."""
    first, second = hashed("correct horse battery"), hashed("correct horse battery")
    assert first != second
    assert first.startswith(b"scrypt$32768$8$3$")
    assert matches("correct horse battery", first)
    assert not matches("correct horse batterY", first)


@pytest.mark.asyncio
async def test_accounts_and_sessions_of_before_single_sign_in_go_on(tmp_path: Path) -> None:
    """An operator signs in as before; his session has its twelve hours, and no provider."""
    names = ("registry.sql", "insights.sql", "sessions.sql", "connections.sql", "documents.sql")
    clock = MovedClock()
    times = (clock.now() - 60.0, clock.now() - 60.0)
    password = hashed("a long password")

    def fill(connection: sqlite3.Connection) -> None:
        migrate(connection, [script(f"registry/{name}") for name in names])
        connection.execute(
            "INSERT INTO operators VALUES ('ada@example.com', 'admin', ?, 'init', ?, ?)", (password, *times)
        )
        connection.execute(
            "INSERT INTO sessions VALUES (?, 'ada@example.com', 'admin', 'c', ?, ?, 1, 'ada@example.com', "
            "'127.0.0.1')",
            (b"d" * 32, *times),
        )

    await (await Database.open(tmp_path / "registry.sqlite", fill)).close()

    registry = await open_registry(tmp_path, secret=SECRET, clock=clock)
    try:
        [session] = await registry.operators.sessions()
        assert (times[0] + 12 * 3600, "", "[]") == (session.ends_at, session.issuer, session.groups)
        assert await registry.operators.sign_in("ada@example.com", "a long password", address="127.0.0.1")
        clock.move(2 * 3600)
        assert not await registry.operators.is_on(session)  # not used for an hour
    finally:
        await registry.close()


@pytest.mark.asyncio
async def test_operators_of_before_keep_their_rights(tmp_path: Path) -> None:
    """
    A registry as the version before there were role documents wrote it: every account, its state and its session.
    """
    names = (
        "registry.sql",
        "insights.sql",
        "sessions.sql",
        "connections.sql",
        "documents.sql",
        "sign_in.sql",
    )

    def fill(connection: sqlite3.Connection) -> None:
        migrate(connection, [script(f"registry/{name}") for name in names])
        connection.execute("""
            INSERT INTO operators VALUES
                ('ada@x.y', 'admin', x'00', 'local', 1, 2, 0, '', ''),
                ('bob@x.y', 'operator', x'01', 'ada@x.y', 3, 4, 0, 'https://idp', 'b1'),
                ('eve@x.y', 'viewer', x'02', 'ada@x.y', 5, 6, 1, '', '')""")

    await (await Database.open(tmp_path / "registry.sqlite", fill)).close()
    registry = await opened(tmp_path)
    kept = [
        (
            each.email,
            each.role,
            each.password,
            each.created_by,
            each.created_at,
            each.last_modified,
            each.disabled,
        )
        for each in await registry.operators.all()
    ]
    assert [
        ("ada@x.y", "admin", b"\0", "local", 1.0, 2.0, False),
        ("bob@x.y", "operator", b"\1", "ada@x.y", 3.0, 4.0, False),
        ("eve@x.y", "viewer", b"\2", "ada@x.y", 5.0, 6.0, True),
    ] == kept
    assert ("https://idp", "b1") == (
        (await registry.operators.get("bob@x.y")).issuer,
        (await registry.operators.get("bob@x.y")).subject,
    )
    rights = {role: registry.roles.rights(Holder(person=email, base=role)) for email, role, *_ in kept}
    assert {"admin": ("Organizer",), "operator": ("Operator",), "viewer": ("Member",)} == {
        role: each.roles for role, each in rights.items()
    }
    assert all(each.slice.is_everything for each in rights.values())
    await registry.operators.add("new@x.y", role="none", password="x" * 12, actor=ACTOR)
    await registry.close()
