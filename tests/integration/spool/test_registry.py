"""
registry.sqlite and the installation's secret on a real disk: changes are atomic, memory follows the disk, and
damage is reported clearly.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spool.errors import RegistryDamaged, SpoolError, SpoolUnavailable
from spool.installation import FILE, derive_secret, installation_secret
from spool.registry.keys import ApiKey
from spool.registry.operators import Actor, hash_password, is_matching_password
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from spool.sqlite.registry import open_registry
from tests.moved_clock import MovedClock

ACTOR = Actor("ada@example.com", "127.0.0.1")
SECRET = b"i" * 32


async def opened(directory: Path, *, secret: bytes = SECRET) -> Registry:
    return await open_registry(directory, secret=secret, clock=MovedClock())


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    registry = await opened(tmp_path)
    yield registry
    await registry.close()


async def create(registry: Registry, name: str = "search team") -> tuple[ApiKey, str]:
    return await registry.keys.create(name=name, scopes=[INGEST], actor=ACTOR)


async def test_a_change_that_fails_on_disk_changes_nothing_in_memory(
    registry: Registry, tmp_path: Path
) -> None:
    """
    If a change fails on disk, here because the audit row cannot be written, the key stays as it was in memory as
    well.
    """
    _, secret = await create(registry)
    with sqlite3.connect(tmp_path / "registry.sqlite") as connection:
        connection.execute("ALTER TABLE audit RENAME TO kept_audit")
        # writes of the audit list fail, because a view cannot be written
        connection.execute("CREATE VIEW audit AS SELECT * FROM kept_audit")
    with pytest.raises(SpoolUnavailable):
        await registry.keys.disable("search team", actor=ACTOR)
    found = registry.keys.find_by_secret(secret)
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


@pytest.mark.parametrize("at", [0, 100, 8192 * 3, 8192 * 6])
async def test_damage_is_found_at_the_start_and_said_clearly(tmp_path: Path, at: int) -> None:
    """
    If registry.sqlite is damaged at the start, the error says which file is damaged, which are not, and
    what to do.
    """
    await damage(tmp_path, at, b"\xff" * 4096)
    with pytest.raises(
        RegistryDamaged, match=r"registry\.sqlite is damaged .* The spool is not affected\. Restore"
    ):
        await opened(tmp_path)


async def test_the_file_is_its_owners_alone(registry: Registry, tmp_path: Path) -> None:
    """The file mode of registry.sqlite is 0600."""
    assert 0o600 == (tmp_path / "registry.sqlite").stat().st_mode & 0o777


def test_the_installations_secret_is_made_once(tmp_path: Path) -> None:
    """
    The secret has 32 random bytes, is readable only by its owner, and never changes. Each use derives
    a different secret.
    """
    secret = installation_secret(tmp_path)
    assert len(secret) == 32
    assert installation_secret(tmp_path) == secret
    assert 0o600 == (tmp_path / FILE).stat().st_mode & 0o777
    assert 3 == len({secret, derive_secret(secret, "a"), derive_secret(secret, "b")})


def test_a_crash_while_it_is_made_leaves_no_half(tmp_path: Path) -> None:
    """
    A process that is killed while it creates the secret leaves a temporary file, which the next one deletes.
    """
    (tmp_path / FILE).with_suffix(".new").write_bytes(b"half")
    assert 32 == len(installation_secret(tmp_path))


def test_a_cut_secret_is_said(tmp_path: Path) -> None:
    """
    If the installation's secret is truncated, the start stops with an error, because a new secret would silently
    make every key invalid.
    """
    (tmp_path / FILE).write_bytes(b"short")
    with pytest.raises(SpoolError, match="Restore it from a backup"):
        installation_secret(tmp_path)


def test_password_is_stored_as_a_slow_hash(usual_passwords: None) -> None:
    """A password is stored as a hash of scrypt with its own salt, and the stored hash names the costs."""
    first, second = hash_password("correct horse battery"), hash_password("correct horse battery")
    assert first != second
    assert first.startswith(b"scrypt$32768$8$3$")
    assert is_matching_password("correct horse battery", first)
    assert not is_matching_password("correct horse batterY", first)
