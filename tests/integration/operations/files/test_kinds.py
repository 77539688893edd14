"""Kinds with rules of their own: definitions, connections, tokens, and settings that have a default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.money.allocation.declared import AllocationTable
from spool.errors import Managed
from spool.registry.enrolment_tokens import new_token
from tests.integration.conftest import ACTOR
from tests.integration.operations.files.objects import CONNECTION, NOTES, TOKEN, TOOL, TYPE, files_of
from tests.integration.operations.files.test_apply import apply, texts
from tests.integration.operations.server import OperatorServer, operator_server

OWNED = "Dimensions: {%s: {Rules: [{Type: GroupBy, Source: team}]}}\n"
MANAGED = "managed by platform"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as running:
        yield running


def definitions(**texts: str) -> dict[str, list[dict[str, Any]]]:
    return {
        "namespaces": [{"id": name} for name in texts if name != "default"],
        "allocation": [{"namespace": name, "definition": text} for name, text in texts.items()],
    }


def in_force(server: OperatorServer) -> dict[str, tuple[str, ...]]:
    versions = server.registry.table(AllocationTable).in_force()
    return {namespace: version.dimensions for namespace, version in versions.items() if version.dimensions}


async def test_definitions_are_published_with_the_set(server: OperatorServer) -> None:
    """
    A view may name a dimension of the same set. Two namespaces may exchange their dimensions. All are in force when the
    apply ends.
    """
    view = {
        "name": "Parts",
        "filter": {"User:Defined:Part": ["a"]},
        "principal_dimension": "User:Defined:Part",
    }
    first = {**definitions(default=OWNED % "Part", team=OWNED % "Owner"), "views": [view]}
    await apply(server, files_of(first))
    assert in_force(server) == {"": ("User:Defined:Part",), "team": ("User:Defined:Owner",)}
    assert "User:Defined:Part" in server.services.money.ledger.dimensions()
    await apply(
        server, files_of({**definitions(default=OWNED % "Owner", team=OWNED % "Part"), "views": [view]})
    )
    assert in_force(server) == {"": ("User:Defined:Owner",), "team": ("User:Defined:Part",)}
    assert texts(await apply(server, files_of({}))) == [
        "- view Parts",
        "- definition default",
        "- definition team",
        "- namespace team",
    ]
    assert in_force(server) == {}
    assert "User:Defined:Part" not in server.services.money.ledger.dimensions()


async def test_faults_of_definitions_have_their_place(server: OperatorServer) -> None:
    wrong = definitions(default="Dimensions:\n  Part:\n    Rules:\n      - {Type: Grup, Source: team}\n")
    [problem] = await apply(server, files_of(wrong))
    assert problem.startswith("allocation/default.yaml:4:"), problem
    [problem] = await apply(server, files_of(definitions(default=OWNED % "Part", team=OWNED % "Part")))
    assert problem.startswith("allocation/"), problem
    assert "the dimension Part belongs to the default namespace" in problem
    [problem] = await apply(
        server, files_of({"allocation": [{"namespace": "team", "definition": OWNED % "A"}]})
    )
    assert problem == 'allocation/team.yaml:1:1: namespace "team" does not exist'
    assert in_force(server) == {}


async def test_managed_objects_of_every_kind_refuse_changes(server: OperatorServer) -> None:
    """A token can be revoked all the same, and the plan names it."""
    objects: dict[str, list[dict[str, Any]]] = {
        **definitions(default=OWNED % "Part"),
        "connections": [CONNECTION],
        "assistant-tools": [TOOL],
        "recommendation-types": [TYPE],
        "organization": [NOTES],
        "enrolment-tokens": [TOKEN],
    }
    secrets = {"enrolment-tokens/laptops%2F1e3": new_token()}
    await apply(server, files_of(objects), secrets=secrets)
    for method, path, body in (
        ("PATCH", f"/assistant-tools/{TOOL['name']}", {"enabled": True}),
        ("PATCH", f"/recommendation-types/{TYPE['type']}", {"enabled": True}),
        ("PATCH", "/connections/1e3", {"in_costs": False}),
        ("DELETE", "/connections/1e3?confirm=1e3", None),
        ("POST", "/allocation/publish", {"definition": "Dimensions: {}"}),
    ):
        answer = await server.ask(method, path, body)
        assert answer.status == 409, (path, answer.payload)
        assert MANAGED in answer.error[2], path
    with pytest.raises(Managed):
        await server.registry.org_context.set("other notes", actor=ACTOR)
    [token] = server.registry.enrolment_tokens.all()
    await server.registry.enrolment_tokens.revoke(token.id, actor=ACTOR)
    planned = await apply(server, files_of(objects), dry_run=True)
    assert texts(planned) == [". enrolment token laptops/1e3: revoked, and stays revoked"]


async def test_objects_that_left_the_files_have_their_defaults_again(server: OperatorServer) -> None:
    """A type is as before, a tool has no decision, and a token is revoked. Its name is free again."""
    objects: dict[str, list[dict[str, Any]]] = {
        "assistant-tools": [TOOL],
        "recommendation-types": [TYPE],
        "enrolment-tokens": [TOKEN],
    }
    secrets = {"enrolment-tokens/laptops%2F1e3": new_token()}
    await apply(server, files_of(objects), secrets=secrets)
    await apply(server, files_of({}))
    assert server.registry.assistant_tools.all() == {}
    assert (await server.registry.recommendations.types())[TYPE["type"]].enabled
    assert server.registry.enrolment_tokens.live() == []
    again = await apply(server, files_of(objects), secrets={"enrolment-tokens/laptops%2F1e3": new_token()})
    assert len(texts(again)) == 3


async def test_a_file_names_a_usable_token(server: OperatorServer) -> None:
    """A secret of another form is refused, and a token keeps its secret."""
    token = {**TOKEN, "secret_file": "token"}
    text = new_token()
    [problem] = await apply(server, files_of({"enrolment-tokens": [token]}), secrets={"token": "the_x_y"})
    assert "a token has the form the_ID_SECRET" in problem
    await apply(server, files_of({"enrolment-tokens": [token]}), secrets={"token": text})
    found = server.registry.enrolment_tokens.match(text)
    assert found is not None
    assert found.name == "laptops"
    [problem] = await apply(server, files_of({"enrolment-tokens": [token]}), secrets={"token": new_token()})
    assert "a token keeps its secret" in problem
    same = await server.ask(
        "POST", "/fleet/tokens", {"name": "Laptops", "expires_at": "2027-05-01", "serials": ["1E3"]}
    )
    assert same.status == 409


async def test_names_of_settings_with_a_default_are_known(server: OperatorServer) -> None:
    wrong: dict[str, list[dict[str, Any]]] = {
        "assistant-tools": [{"name": "set_org_contex", "enabled": True}],
        "recommendation-types": [{"type": "bach"}],
        "organization": [{"text": " "}],
    }
    assert sorted(await apply(server, files_of(wrong))) == [
        'assistant-tools.yaml:1:3: name: there is no such tool; did you mean "set_org_context"?',
        "organization.yaml:1:3: text must not be empty; remove this item instead",
        'recommendation-types.yaml:1:3: type: there is no such type of recommendations; did you mean "batch"?',
    ]


async def test_an_object_is_shown_as_its_file_has_it(server: OperatorServer) -> None:
    """Objects are found by id and by name, and only by people who may see them."""
    view = {"name": "Search", "filter": {}, "principal_dimension": "team"}
    files = files_of({"views": [view], **definitions(default=OWNED % "Part")})
    await apply(server, files)
    await server.create("sender")
    [found] = server.registry.views.all()
    for path in (f"/files/views/{found.id}", "/files/views/Search"):
        shown = (await server.ask("GET", path)).payload["object"]
        assert shown == {"yaml": files["views.yaml"], "managed": "platform, views.yaml:1"}
    shown = (await server.ask("GET", "/files/allocation/default")).payload["object"]
    assert shown["yaml"] == files["allocation/default.yaml"]
    shown = (await server.ask("GET", "/files/keys/sender")).payload["object"]
    assert shown["managed"] is None
    assert shown["yaml"].startswith("- name: sender\n")
    for path in (
        "/files/views/other",
        "/files/nothing/1",
        "/files/recommendation-types/nothing",
        "/files/keys/x",
    ):
        assert (await server.ask("GET", path)).status == 404, path
