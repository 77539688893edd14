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
from spool.registry.operators import Actor
from spool.registry.roles import IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.registry.tables.persons import ReportedForms
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server

ROOT = Actor("root@example.com", "local")


def hashed(server: OperatorServer, address: str) -> str:
    return server.registry.people.hash_address(address)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    limits = Config(privacy=PrivacySettings(max_names=3))
    async with operator_server(tmp_path, engine=SQLITE, most=limits.limit_value) as server:
        yield server


async def test_names_come_by_csv_and_from_accounts(server: OperatorServer, tmp_path: Path) -> None:
    """
    Names of people are imported from a CSV file. Its e-mail addresses are not stored, and the audit list contains
    no name.
    """

    async def run(*words: str) -> str:
        data = ["--data", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["people", *words, *data])
        assert 0 == result.exit_code, result.output
        return result.output

    headers = await signed_in(server, "admin", "boss@example.com")
    (tmp_path / "people.csv").write_text(
        f'Address,Name\neve@example.com,"Lovelace, Ada"\n{hashed(server, "bob@example.com")},Bob\n'
    )
    assert "2 people stored" in await run("import", str(tmp_path / "people.csv"))
    (tmp_path / "twice.csv").write_text('Eve@example.com,Eve\neve@example.com,"Lovelace, Ada"\n')
    said = await run("import", str(tmp_path / "twice.csv"))
    assert (
        "1 people stored" in said and "1 lines repeat a person; the last line of each person counts" in said
    )
    found = await server.over_http(
        "GET", f"/people?user={hashed(server, 'eve@example.com')}", headers=headers
    )
    [row] = found.payload["people"]
    eve = hashed(server, "EVE@example.com")
    assert (eve, [eve], "Lovelace, Ada", "given") == tuple(row.values())
    listed = (await server.ask("GET", "/people")).payload["people"]
    assert {"Lovelace, Ada", "Bob", "boss@example.com"} == {each["name"] for each in listed}
    assert [hashed(server, "boss@example.com")] == [
        each["user"] for each in listed if each["origin"] == "account"
    ]
    audit = str((await server.ask("GET", "/audit")).payload)
    assert "person.link" in audit and "Lovelace" not in audit and "eve@" not in audit
    await run("delete", hashed(server, "bob@example.com"))
    assert "Bob" not in await run("list")


async def test_who_may_not_see_people_sees_no_name(server: OperatorServer) -> None:
    """
    An operator without the right to see people sees no names. Neither does a limited person, even if the role has
    the permission set for names.
    """
    await server.ask("POST", "/people", {"people": [{"users": ["ada@example.com"], "name": "Ada"}]})
    operator = await signed_in(server, "operator", "op@example.com")
    assert 403 == (await server.over_http("GET", "/people", headers=operator)).status
    some = RoleFilter(dimension="team", values=("search",), mode=IS)
    draft = NewRole(name="lead", data_access=LIMITED, filters=(some,), permission_sets=("view_names",),
                      members=("lead@example.com",))  # fmt: skip
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    lead = await signed_in(server, "none", "lead@example.com")
    assert 403 == (await server.over_http("GET", "/people", headers=lead)).status
    draft = NewRole(
        name="people", data_access="full", permission_sets=("view_names",), members=("hr@example.com",)
    )
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    people = await signed_in(server, "none", "hr@example.com")
    assert 200 == (await server.over_http("GET", "/people", headers=people)).status
    body = {"people": [{"users": ["x@example.com"], "name": "X"}]}
    assert 403 == (await server.over_http("POST", "/people", body, headers=people)).status


async def test_what_is_no_person_is_refused(server: OperatorServer) -> None:
    """
    An entry with one user and without a name to show is refused. So is one name more than `privacy.max_names`.
    """
    for stated in ({"users": ["ada"]}, {"users": [], "name": "Ada"}):
        wrong = await server.ask("POST", "/people", {"people": [stated]})
        assert (400, "a person needs two names to link, or one name and the name to show") == (
            wrong.status, wrong.error[2]
        )  # fmt: skip
    assert 400 == (await server.ask("POST", "/people", {"people": []})).status
    assert 404 == (await server.ask("POST", "/people/split", {"user": "ada"})).status
    people = [{"users": [f"u{number}@example.com"]} for number in range(4)]
    most = await server.ask("POST", "/people", {"people": people})
    assert 409 == most.status and "privacy.max_names = 3" in most.error[2]
    assert 200 == (await server.ask("POST", "/people", {"people": people[:3]})).status


async def test_names_are_linked_and_split_by_command(server: OperatorServer, tmp_path: Path) -> None:
    """A list row has all names of the person. An account names a person who has no name to show."""

    async def run(*words: str) -> str:
        data = ["--data", str(tmp_path)]
        result = await asyncio.to_thread(CliRunner().invoke, main, ["people", *words, *data])
        assert 0 == result.exit_code, result.output
        return result.output

    await signed_in(server, "admin", "boss@example.com")
    boss = hashed(server, "boss@example.com")
    assert "1 person stored" in await run("link", "Boss@example.com", "uuid-1")
    (tmp_path / "people.csv").write_text("boss@example.com,,boss\n")
    await run("import", str(tmp_path / "people.csv"))
    for name in ("uuid-1", "boss", "boss@example.com"):
        [row] = (await server.ask("GET", f"/people?user={name}")).payload["people"]
        assert (boss, [boss, "uuid-1", "boss"], "boss@example.com") == (
            row["user"],
            row["names"],
            row["name"],
        )
    assert f"{boss}; uuid-1; boss" in await run("list")
    assert "uuid-1 is a person of its own" in await run("split", "uuid-1")
    assert [] == (await server.ask("GET", "/people?user=uuid-1")).payload["people"]
    await run("edit", "boss", "The Boss")
    assert "The Boss" in await run("list")
    assert "1 people deleted" in await run("delete", "boss")
    assert "The Boss" not in await run("list")


async def test_an_operator_decides_conflicts_by_command(tmp_path: Path) -> None:
    """
    `people conflicts` lists what a sender reported about two people, and `people decide` joins them or keeps them
    apart.
    """

    async def run(*words: str) -> str:
        result = await asyncio.to_thread(
            CliRunner().invoke, main, ["people", *words, "--data", str(tmp_path)]
        )
        assert 0 == result.exit_code, result.output
        return result.output

    async with operator_server(tmp_path, engine=SQLITE) as server:
        ada, bob = hashed(server, "ada@example.com"), hashed(server, "bob@example.com")
        for names in ((ada, "ada"), (bob, "bob")):
            await run("link", *names)
        for own, other in ((ada, "bob"), (bob, "ada")):
            await server.registry.persons.link_address_forms(
                [ReportedForms(own, [other])],
                sender="device laptop-1",
                max_names=80,
                max_conflicts=8,
                actor=ROOT,
            )
        listed = await run("conflicts", "--state", "open")
        assert 2 == listed.count("device laptop-1") and ada in listed and bob in listed
        first, second = [each.id for each in await server.registry.persons.conflicts()]
        assert "1 conflicts decided" in await run("decide", first, "--apart")
        assert second in (listed := await run("conflicts", "--state", "open")) and first not in listed
        assert first in await run("conflicts", "--state", "apart")
        assert server.registry.people.person_identity("ada") != server.registry.people.person_identity("bob")
        assert "1 conflicts decided" in await run("decide", second, "--accept")
        assert server.registry.people.person_identity("ada") == server.registry.people.person_identity("bob")
