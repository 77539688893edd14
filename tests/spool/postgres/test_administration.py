"""The command `tollhouse storage`: data that all nodes share is created once and changed for all."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from spool.errors import NotAllowed, SpoolError
from spool.postgres.address import address_problems, open_database, read_or_store_facts, read_secret
from spool.postgres.administration import (
    change_shared_settings,
    create_storage,
    describe_database,
    upgrade_schema,
)
from spool.postgres.database import Unconfirmed
from spool.postgres.migrations import VERSION
from spool.settings import REPLICATED, SpoolSettings, StorageSettings
from tests.spool.postgres_cluster import Schema, Server

SETTINGS = SpoolSettings()


@pytest.fixture
def storage(unmade_schema: Schema, tmp_path: Path) -> StorageSettings:
    """Settings of a node without a secret and a schema."""
    return replace(unmade_schema.settings(tmp_path), secret_file=tmp_path / "secret")


async def test_what_is_there_stays_as_it_is(storage: StorageSettings) -> None:
    """Secret, schema and facts are created once. The `init` of a second node finds them."""
    with pytest.raises(NotAllowed, match="tollhouse storage init"):
        await upgrade_schema(storage)
    first = await create_storage(storage, SETTINGS)
    assert first["secret_made"] is True
    assert first["version_before"] == 0
    assert first["version"] == VERSION
    secret = read_secret(storage)
    again = await create_storage(storage, SETTINGS)
    assert again["secret_made"] is False
    assert again["version_before"] == VERSION
    assert again["incarnation"] == first["incarnation"]
    assert read_secret(storage) == secret
    assert await upgrade_schema(storage) == {
        "schema": storage.schema, "version_before": VERSION, "version": VERSION
    }  # fmt: skip


async def test_a_migration_is_done_once_the_standby_has_it(storage: StorageSettings) -> None:
    """
    A migration counts as done only when the standby has it. Otherwise a takeover could silently undo it.
    """
    await create_storage(storage, SETTINGS)
    with pytest.raises(Unconfirmed, match="standby"):
        await upgrade_schema(replace(storage, durability=REPLICATED))


async def test_another_secret_is_not_of_this_installation(storage: StorageSettings, tmp_path: Path) -> None:
    """A node with another secret would recognize no key and no receipt, so it does not start."""
    await create_storage(storage, SETTINGS)
    other = replace(storage, secret_file=tmp_path / "other")
    with pytest.raises(SpoolError, match=re.escape("copy the file from another node")):
        await create_storage(other, SETTINGS)


async def test_the_installation_says_what_its_nodes_share(
    storage: StorageSettings, caplog: pytest.LogCaptureFixture
) -> None:
    """
    A node with other settings uses the installation's settings and warns. `set` changes them for all nodes.
    """
    await create_storage(storage, replace(SETTINGS, hold=5.0))
    database = open_database(storage)
    with caplog.at_level(logging.WARNING):
        facts = await read_or_store_facts(
            database, read_secret(storage), replace(SETTINGS, max_bytes=1 << 40)
        )
    assert facts.settings == replace(SETTINGS, hold=5.0, max_bytes=1 << 40)
    assert [record.setting for record in caplog.records if hasattr(record, "setting")] == ["hold"]
    assert (await change_shared_settings(storage, {"hold": 7.0}))["hold"] == 7.0
    assert (await read_or_store_facts(database, read_secret(storage), SETTINGS)).settings.hold == 7.0
    for refused in ({"max_bytes": 1.0}, {"retention": 7.0}):
        with pytest.raises(NotAllowed):
            await change_shared_settings(storage, refused)
    await database.close()


async def test_status_says_why_nothing_is_stored(storage: StorageSettings) -> None:
    """The status says why nothing is stored: it names a missing schema, or a missing standby if one is required."""
    assert "storage init" in str((await describe_database(storage))["problem"])
    await create_storage(storage, SETTINGS)
    found = await describe_database(storage)
    assert (found["problem"], found["pooler"]) == ("", "none") and "pooler_tested" not in found
    assert "pgbouncer" in str(
        (await describe_database(replace(storage, pooler="transaction")))["pooler_tested"]
    )
    assert "the standby is gone" in str(
        (await describe_database(replace(storage, durability="replicated")))["problem"]
    )


def test_what_cannot_be_used_is_a_problem(tmp_path: Path) -> None:
    """
    Settings that cannot be used are a problem that names the user's setting. No problem contains the address, which
    may hold a password.
    """
    dsn_file = tmp_path / "dsn"
    good = StorageSettings(engine="postgres", dsn_file=dsn_file, secret_file=tmp_path / "secret")

    def found(dsn: str) -> str:
        dsn_file.write_text(dsn)
        return "; ".join(address_problems(good))

    for dsn in (
        "dbname=a", "host=/run/postgresql", "host=localhost,::1", "postgresql://u:hidden@127.0.0.1/a",
        "host=db.example.com sslmode=verify-full",
    ):  # fmt: skip
        assert found(dsn) == ""
    assert "sslmode=verify-full" in found("host=db.example.com")
    assert "sslmode=verify-full" in found("host=localhost,db.example.com sslmode=require")
    assert "libpq" in found("password=hidden what")
    assert "hidden" not in found("password=hidden what")
    assert "empty" in found(" \n")
    dsn_file.unlink()
    assert "cannot be read" in "; ".join(address_problems(good))
    assert "dsn_file or dsn_env" in "; ".join(address_problems(replace(good, dsn_file=None)))
    assert "dsn_file or dsn_env" in "; ".join(address_problems(replace(good, dsn_env="DSN")))
    assert "storage.secret_file" in "; ".join(address_problems(replace(good, secret_file=None)))
    assert "storage.schema" in "; ".join(address_problems(replace(good, schema="x" * 64)))


@pytest.mark.parametrize(
    ("address", "variables", "is_refused"),
    [
        ("dbname=a", {"PGHOST": "db.example.com"}, True),
        ("host=localhost", {"PGHOST": "db.example.com"}, False),
        ("host=localhost", {"PGHOSTADDR": "192.0.2.1"}, True),
        ("host=db.example.com", {"PGSSLMODE": "verify-full"}, False),
        ("host=db.example.com sslmode=require", {"PGSSLMODE": "verify-full"}, True),
    ],
)
def test_variables_of_postgresql_are_part_of_the_address(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
    variables: Mapping[str, str],
    is_refused: bool,
) -> None:
    """A connection to another machine is encrypted and verified, wherever its parameters come from."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    dsn_file = tmp_path / "dsn"
    dsn_file.write_text(address)
    settings = StorageSettings(engine="postgres", dsn_file=dsn_file, secret_file=tmp_path / "secret")
    assert is_refused == ("sslmode=verify-full" in "; ".join(address_problems(settings)))


async def test_standby_that_the_role_may_not_see_is_unknown(
    storage: StorageSettings, unmade_schema: Schema, cluster: Server, tmp_path: Path
) -> None:
    """
    If the role may not see standbys, the standby is unknown, and the message names the missing right. With
    the right, a missing standby is the problem.
    """
    await create_storage(storage, SETTINGS)
    role = f"limited_{unmade_schema.name}"
    for statement in (
        f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {unmade_schema.name} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {unmade_schema.name} TO {role}",
    ):  # fmt: skip
        cluster.execute(statement)
    dsn_file = tmp_path / "limited.dsn"
    dsn_file.write_text(f"{unmade_schema.dsn} user={role}")
    limited = replace(storage, dsn_file=dsn_file, durability=REPLICATED)
    cluster.change(synchronous_standby_names="nobody")
    try:
        while cluster.execute("SHOW synchronous_standby_names") != [("nobody",)]:
            pass
        found = await describe_database(limited)
        assert found["problem"] == ""
        assert "pg_monitor" in str(found["synchronous_standbys"])
        cluster.execute(f"SET synchronous_commit = local; GRANT pg_monitor TO {role}")
        found = await describe_database(limited)
        assert found["synchronous_standbys"] == 0
        assert "no synchronous standby" in str(found["problem"])
    finally:
        cluster.change(synchronous_standby_names="")
        cluster.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
