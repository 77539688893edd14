"""Names of hashed people: shown to those who may see them, and in no record, audit row or export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config, PrivacySettings
from spool.engines import SQLITE
from spool.people import People
from spool.registry.operators import Actor
from spool.registry.roles import IS, LIMITED, RoleDraft, RoleFilter, RoleLimits
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server

ROOT = Actor("root@example.com", "local")
PEOPLE = People.of_installation(b"e" * 32)


def hashed(address: str) -> str:
    return PEOPLE.hashed(address)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    limits = Config(privacy=PrivacySettings(max_names=3))
    async with operator_server(tmp_path, engine=SQLITE, hashed=hashed, most=limits.most) as server:
        yield server


async def test_names_come_by_csv_and_from_accounts(server: OperatorServer, tmp_path: Path) -> None:
    """The e-mail addresses in the file are not stored, and the audit list contains no name."""

    async def run(*words: str) -> str:
        data = ["--data", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["people-names", *words, *data])
        assert 0 == result.exit_code, result.output
        return result.output

    headers = await signed_in(server, "admin", "boss@example.com")
    (tmp_path / "people.csv").write_text(
        f'Address,Name\neve@example.com,"Lovelace, Ada"\n{hashed("bob@example.com")},Bob\n'
    )
    assert "2 names stored" in await run("import", str(tmp_path / "people.csv"))
    (tmp_path / "twice.csv").write_text('Eve@example.com,Eve\neve@example.com,"Lovelace, Ada"\n')
    said = await run("import", str(tmp_path / "twice.csv"))
    assert "1 names stored" in said and "1 lines repeat a person; the last line of each person counts" in said
    found = await server.over_http("GET", f"/people-names?user={hashed('eve@example.com')}", headers=headers)
    [row] = found.payload["people_names"]
    assert (hashed("EVE@example.com"), "Lovelace, Ada", "given") == tuple(row.values())
    listed = (await server.ask("GET", "/people-names")).payload["people_names"]
    assert {"Lovelace, Ada", "Bob", "boss@example.com"} == {each["name"] for each in listed}
    assert [hashed("boss@example.com")] == [each["user"] for each in listed if each["origin"] == "account"]
    audit = str((await server.ask("GET", "/audit")).payload)
    assert "person_names.change" in audit and "Lovelace" not in audit and "eve@" not in audit
    await run("delete", hashed("bob@example.com"))
    assert "Bob" not in await run("list")


async def test_who_may_not_see_people_sees_no_name(server: OperatorServer) -> None:
    """An operator sees no names, nor does a limited person whose role has the permission set."""
    await server.ask("POST", "/people-names", {"names": [{"user": "ada@example.com", "name": "Ada"}]})
    operator = await signed_in(server, "operator", "op@example.com")
    assert 403 == (await server.over_http("GET", "/people-names", headers=operator)).status
    some = RoleFilter(dimension="team", values=("search",), mode=IS)
    draft = RoleDraft(name="lead", data_access=LIMITED, filters=(some,), permission_sets=("view_names",),
                      members=("lead@example.com",))  # fmt: skip
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known=known, limits=RoleLimits(), actor=ROOT)
    lead = await signed_in(server, "none", "lead@example.com")
    assert 403 == (await server.over_http("GET", "/people-names", headers=lead)).status
    draft = RoleDraft(
        name="people", data_access="full", permission_sets=("view_names",), members=("hr@example.com",)
    )
    await server.registry.roles.create(draft, known=known, limits=RoleLimits(), actor=ROOT)
    people = await signed_in(server, "none", "hr@example.com")
    assert 200 == (await server.over_http("GET", "/people-names", headers=people)).status
    body = {"names": [{"user": "x@example.com", "name": "X"}]}
    assert 403 == (await server.over_http("POST", "/people-names", body, headers=people)).status


async def test_what_is_no_person_is_refused(server: OperatorServer) -> None:
    """An invalid name is refused, and so is one name more than `privacy.max_names`."""
    wrong = await server.ask("POST", "/people-names", {"names": [{"user": "ada", "name": "Ada"}]})
    assert wrong.status == 400
    assert wrong.error[2] == "'ada' is not the hash of an e-mail address, such as email:0123456789abcdef"
    names = [{"user": f"u{number}@example.com"} for number in range(4)]
    most = await server.ask("POST", "/people-names", {"names": names})
    assert 409 == most.status and "privacy.max_names = 3" in most.error[2]
    assert 200 == (await server.ask("POST", "/people-names", {"names": names[:3]})).status
