"""Kinds with rules of their own: definitions, connections, tokens, and settings that have a default."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.money.allocation.declared import AllocationTable
from spool.clusters import ReportedCluster
from spool.errors import Managed
from spool.registry.enrolment_tokens import new_token_text
from tests.integration.conftest import ACTOR
from tests.integration.operations.files.objects import CLUSTER, CONNECTION, NOTES, TOKEN, TOOL, TYPE, files_of
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
    versions = server.registry.declared_table(AllocationTable).versions_in_force()
    return {namespace: version.dimensions for namespace, version in versions.items() if version.dimensions}


async def test_definitions_are_published_with_the_set(server: OperatorServer) -> None:
    """
    Definitions are published together with the other objects of a set. A view may name a dimension of the same set,
    and two namespaces may exchange their dimensions. All are in force when the apply ends.
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
    """Objects that files manage refuse other changes. A token can still be revoked, and the plan names it."""
    objects: dict[str, list[dict[str, Any]]] = {
        **definitions(default=OWNED % "Part"),
        "connections": [CONNECTION],
        "assistant-tools": [TOOL],
        "recommendation-types": [TYPE],
        "organization": [NOTES],
        "enrolment-tokens": [TOKEN],
    }
    secrets = {"enrolment-tokens/laptops%2F1e3": new_token_text()}
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
        await server.registry.org_context.set_text("other notes", actor=ACTOR)
    [token] = server.registry.enrolment_tokens.all()
    await server.registry.enrolment_tokens.revoke(token.id, actor=ACTOR)
    planned = await apply(server, files_of(objects), dry_run=True)
    assert texts(planned) == [". enrolment token laptops/1e3: revoked, and stays revoked"]


async def test_objects_that_left_the_files_have_their_defaults_again(server: OperatorServer) -> None:
    """
    Objects that were removed from the files have their defaults again: a built-in type is as before, a tool has no
    decision, and a token is revoked. The name of the token is free again.
    """
    objects: dict[str, list[dict[str, Any]]] = {
        "assistant-tools": [TOOL],
        "recommendation-types": [TYPE],
        "enrolment-tokens": [TOKEN],
    }
    secrets = {"enrolment-tokens/laptops%2F1e3": new_token_text()}
    await apply(server, files_of(objects), secrets=secrets)
    await apply(server, files_of({}))
    assert server.registry.assistant_tools.all() == {}
    assert (await server.registry.recommendations.stored_type_settings())[TYPE["type"]].enabled
    assert server.registry.enrolment_tokens.live_tokens() == []
    again = await apply(
        server, files_of(objects), secrets={"enrolment-tokens/laptops%2F1e3": new_token_text()}
    )
    assert len(texts(again)) == 3


async def test_a_file_names_a_usable_token(server: OperatorServer) -> None:
    """
    The file of a token must have a secret of the right form. Another form is refused, and the token keeps its
    secret.
    """
    token = {**TOKEN, "secret_file": "token"}
    text = new_token_text()
    [problem] = await apply(server, files_of({"enrolment-tokens": [token]}), secrets={"token": "the_x_y"})
    assert "a token has the form the_ID_SECRET" in problem
    await apply(server, files_of({"enrolment-tokens": [token]}), secrets={"token": text})
    found = server.registry.enrolment_tokens.find_by_text(text)
    assert found is not None
    assert found.name == "laptops"
    [problem] = await apply(
        server, files_of({"enrolment-tokens": [token]}), secrets={"token": new_token_text()}
    )
    assert "the secret of a token cannot change" in problem
    same = await server.ask(
        "POST", "/fleet/tokens", {"name": "Laptops", "expires_at": "2027-05-01", "serials": ["1E3"]}
    )
    assert same.status == 409


MILL = ReportedCluster(account=CLUSTER["account"], region=CLUSTER["region"], name=CLUSTER["name"])


async def test_a_cluster_is_configured_before_it_reports(server: OperatorServer) -> None:
    """
    A cluster can be configured by a file before it reports. From its first report on, it has the settings of its
    file, and only the file changes them. People can still disable the cluster.
    """
    await apply(server, files_of({"clusters": [CLUSTER]}))
    clusters = server.services.senders.require_clusters().table
    assert clusters.all() == []
    await clusters.store_report(MILL)
    path = f"/clusters/{MILL.id}"
    shown = (await server.ask("GET", path)).payload["cluster"]
    assert {name: shown[name] for name in ("display_name", "labels", "config", "config_state")} == {
        **{name: CLUSTER[name] for name in ("display_name", "labels", "config")},
        "config_state": "pending",
    }
    for method, query, body in (
        ("PATCH", "", {"config": {}}),
        ("PATCH", "", {"labels": {"team": None}, "enabled": False}),
        ("DELETE", f"?confirm={MILL.id}", None),
    ):
        answer = await server.ask(method, path + query, body)
        assert (answer.status, MANAGED in answer.error[2]) == (409, True), (method, body)
    assert 200 == (await server.ask("PATCH", path, {"enabled": False})).status
    planned = await apply(server, files_of({"clusters": [CLUSTER]}), dry_run=True)
    assert texts(planned) == [". cluster no/0123/on: disabled, and stays disabled"]
    changed = {**CLUSTER, "labels": {"team": "1e4", "no": "x"}, "display_name": ""}
    planned = await apply(server, files_of({"clusters": [changed]}))
    assert texts(planned)[:1] == [
        "~ cluster no/0123/on: display_name yes: the mill -> ''; labels.team 1e3 -> 1e4; labels.no x added"
    ]
    assert {"team": "1e4", "no": "x"} == clusters.all()[0].labels
    assert texts(await apply(server, files_of({}))) == ["- cluster no/0123/on"]
    [mill] = clusters.all()
    assert (mill.display_name, mill.labels, mill.config, mill.enabled) == ("", {}, {}, False)
    assert 200 == (await server.ask("PATCH", path, {"config": CLUSTER["config"]})).status
    assert (await server.ask("GET", "/files")).payload["files"]["clusters.yaml"].count("- name: ") == 1


async def test_faults_of_clusters_have_their_place(server: OperatorServer) -> None:
    server.services.installation.most = lambda _: 1
    wrong: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "config": {"scrape_intervall": "60s"}},
        {"name": "c", "config": {"log_level": 1}},
        {"name": "", "display_name": "x"},
        {"name": "d", "display_name": "x"},
        {"name": "e", "display_name": "x"},
    ]
    assert [problem.partition(";")[0] for problem in await apply(server, files_of({"clusters": wrong}))] == [
        "clusters.yaml:1:3: a cluster needs a name. Its name, account and region have at most 256 characters each",
        "clusters.yaml:3:3: name: this cluster has no settings",
        "clusters.yaml:5:3: config has no field scrape_intervall: did you mean scrape_interval? its fields are "
        "scrape_interval, upload_interval, metrics, labels, namespaces, log_level, and names of your own that begin "
        "with x_",
        "clusters.yaml:8:3: config.log_level must be one of debug, info, warn, error",
        "clusters.yaml:12:3: the limit of 1 clusters (clusters.max) is reached: remove one first",
    ]


async def test_names_of_settings_with_a_default_are_known(server: OperatorServer) -> None:
    wrong: dict[str, list[dict[str, Any]]] = {
        "assistant-tools": [{"name": "set_org_contex", "enabled": True}],
        "recommendation-types": [{"type": "bach"}],
        "organization": [{"text": " "}],
    }
    assert sorted(await apply(server, files_of(wrong))) == [
        'assistant-tools.yaml:1:3: name: there is no such tool; did you mean "set_org_context"?',
        "organization.yaml:1:3: text must not be empty; to delete the text, remove its item from the file",
        'recommendation-types.yaml:1:3: type: there is no such type of recommendations; did you mean "batch"?',
    ]


async def test_an_object_is_shown_as_its_file_has_it(server: OperatorServer) -> None:
    """
    An object can be shown as its file would state it. It is found by id or by name, and only by people who may see
    it.
    """
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
