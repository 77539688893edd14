"""
Allocation definitions for operators: published, listed and read over the operator API and with commands.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from tests.integration.operations.server import ADA, OperatorServer, operator_server

OWNER = "Dimensions: {Owner: {Rules: [{Type: GroupBy, Source: team}]}}"
REGION = "Dimensions: {Region: {Rules: [{Type: GroupBy, Source: provider}]}}"
WRONG = "Dimensions: {D: {Rules: [{Type: GroupBy, Source: modle}]}}"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


async def test_definitions(server: OperatorServer) -> None:
    """Definitions of all namespaces are listed. A published one is in force and shown with its job."""
    made = await server.ask("POST", "/allocation/publish", {"definition": OWNER, "base": 0})
    assert made.status == 201
    assert made.payload["version"]["version"] == "1"
    assert made.payload["publish_job"]["state"] == "done"
    assert 201 == (await server.ask("POST", "/allocation/namespaces", {"id": "ml", "name": "Models"})).status
    body = {"definition": REGION, "namespace": "ml"}
    assert 201 == (await server.ask("POST", "/allocation/publish", body)).status
    assert {"User:Defined:Owner", "User:Defined:Region"} <= set(server.services.money.ledger.dimensions())
    versions = (await server.ask("GET", "/allocation/versions", is_in_force="true")).payload["versions"]
    assert {(None, "1"), ("ml", "1")} == {(each["namespace"], each["version"]) for each in versions}
    one = await server.ask("GET", "/allocation/versions/latest", namespace="ml")
    assert one.payload["version"]["definition"] == REGION
    assert one.payload["version"]["last_updated_by"] == ADA
    assert 404 == (await server.ask("GET", "/allocation/versions/latest", namespace="none")).status
    assert "Models" == (await server.ask("GET", "/allocation/namespaces/ml")).payload["namespace"]["name"]
    jobs = (await server.ask("GET", "/allocation/jobs", namespace="ml")).payload["publish_jobs"]
    one_job = (await server.ask("GET", f"/allocation/jobs/{jobs[0]['id']}")).payload["publish_job"]
    assert jobs == [one_job]


async def test_what_is_refused(server: OperatorServer) -> None:
    """
    A definition is refused if it has faults (named with their places), a stale base or an unknown namespace. No
    refused definition is put in force.
    """
    answer = await server.ask("POST", "/allocation/publish", {"definition": WRONG})
    assert (422, "invalid_definition") == answer.error[:2]
    assert [["Dimensions", "D", "Rules", 0, "Source"]] == [each["path"] for each in answer.payload["errors"]]
    stale = await server.ask("POST", "/allocation/publish", {"definition": OWNER, "base": 3})
    assert stale.status == 409
    assert "based on version 3" in stale.error[2]
    for path, definition in product(("publish", "validate"), (OWNER, WRONG)):
        body = {"definition": definition, "namespace": "none"}
        assert 404 == (await server.ask("POST", f"/allocation/{path}", body)).status
    valid = await server.ask("POST", "/allocation/validate", {"definition": OWNER})
    assert valid.payload["version"]["version"] == "1"
    assert valid.payload["version"]["is_in_force"] is False
    assert "" == server.services.money.published.version


def test_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands also work without a server. The next command finds what an earlier one published."""
    monkeypatch.chdir(tmp_path)
    Path("owner.yaml").write_text(OWNER)
    Path("region.yaml").write_text(REGION)
    Path("wrong.yaml").write_text(WRONG)
    Path("store").mkdir()

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["allocation", *words, "--data", "store"])
        assert code == done.exit_code, done.output
        return done.output

    assert "It would become version 1" in run("validate", "owner.yaml")
    assert "Dimensions.D.Rules.0.Source" in run("publish", "wrong.yaml", code=2)
    assert "version 1 is in force: 1 dimension" in run("publish", "owner.yaml", "--base", "0")
    assert "based on version 0" in run("publish", "region.yaml", "--base", "0", code=2)
    assert OWNER == run("versions", "show").strip()
    assert "models" in run("namespaces", "create", "ml", "--name", "models")
    assert "description" in run("namespaces", "edit", "ml", "--description", "Whose models")
    assert "version 1 is in force" in run("publish", "region.yaml", "--namespace", "ml")
    assert REGION == run("versions", "show", "1", "--namespace", "ml").strip()
    assert 2 == run("versions", "list").count("User:Defined:")
    assert 2 == run("jobs", "list", "--state", "done").count("done")
    assert "without dimensions" in run("namespaces", "delete", "ml", code=2)
    assert "there is no publish job" in run("jobs", "cancel", "none", code=2)
    assert "Whose models" in run("namespaces", "list", "--json")
    listed = CliRunner().invoke(main, ["report", "--by", "User:Defined:Owner", "--data", "store"])
    assert 0 == listed.exit_code, listed.output
