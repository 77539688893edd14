"""Sets of files: what they may change, what they report, and that nothing is changed by halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from gateway.configuration.sections import FileSetLimits
from gateway.core.paths import AS, OPERATOR_API
from gateway.operations.files.text import format_objects
from spool.errors import SpoolUnavailable
from spool.registry.documents import DocumentCollection
from tests.integration.operations.files.objects import files_of
from tests.integration.operations.server import OperatorServer, operator_server

VIEW: dict[str, Any] = {"name": "Search", "filter": {"team": ["search"]}, "principal_dimension": "team"}
BUDGET: dict[str, Any] = {"name": "Monthly", "view": "Search", "default_amount": "1000"}
BOTH = {"views": [VIEW], "budgets": [BUDGET]}
SECRET = {"keys/sender": "s" * 40}
KEY: dict[str, Any] = {"name": "sender", "use_cases": ["Send AI Telemetry"]}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as running:
        yield running


async def apply(server: OperatorServer, files: dict[str, str], **how: Any) -> Any:
    """Apply files. Return the result, or the lines of a refusal."""
    answer = await server.ask("POST", "/apply", {"files": files, **how})
    return answer.payload["apply"] if answer.status == 200 else answer.error[2].splitlines()


def texts(outcome: Any) -> list[str]:
    return [each["text"] for each in outcome["differences"]]


async def audited(server: OperatorServer) -> list[str]:
    return [row["action"] for row in (await server.ask("GET", "/audit")).payload["audit"]][::-1]


async def test_a_plan_states_each_difference_and_changes_nothing(server: OperatorServer) -> None:
    planned = await apply(server, files_of(BOTH), dry_run=True)
    assert texts(planned) == ["+ view Search", "+ budget Search/Monthly"]
    assert await audited(server) == []
    await apply(server, files_of(BOTH))
    changed = {"views": [VIEW], "budgets": [{**BUDGET, "default_amount": "1500", "alerts": {"100": "Y"}}]}
    planned = await apply(server, files_of(changed), dry_run=True)
    assert texts(planned) == ["~ budget Search/Monthly: alerts.100 Y added; default_amount 1000 -> 1500"]
    assert texts(await apply(server, files_of({}), dry_run=True)) == [
        "- budget Search/Monthly",
        "- view Search",
    ]
    assert len(await audited(server)) == 3


async def test_a_second_apply_changes_nothing(server: OperatorServer) -> None:
    """
    If the same files are applied again, neither rows nor audit entries nor ids change, and no other table sees a
    change.
    """
    await apply(server, files_of(BOTH))
    before = (await audited(server), server.registry.views.all(), server.registry.file_owners.all())
    assert (await apply(server, files_of(BOTH)))["differences"] == []
    assert before == (await audited(server), server.registry.views.all(), server.registry.file_owners.all())


async def test_all_errors_are_reported_with_their_places(server: OperatorServer) -> None:
    files = {
        "tollhouse.yaml": "set: platform\nformat: 1\n",
        "budget.yaml": "",
        "views.yaml": "- name: A\n  filter: {}\n  principal_dimension: teams\n  colour: red\n",
        "budgets.yaml": (
            "- name: Monthly\n  view: Serch\n  default_amount: many\n"
            "- name: Calls\n  view: Search\n  cycle: x\n"
            "- name: Monthly\n  view: search\n  default_amount: minus\n"
        ),
        **{name: text for name, text in files_of({"views": [VIEW]}).items() if name == "roles.yaml"},
    }
    files["views.yaml"] += format_objects([VIEW])
    assert await apply(server, files) == [
        'budget.yaml:1:1: no such kind of objects; did you mean "budgets.yaml"?',
        "views.yaml:4:3: unknown field 'colour'",
        "budgets.yaml:6:3: unknown field 'cycle'",
        'budgets.yaml:2:3: view "Serch" does not exist; did you mean "Search"?',
        "budgets.yaml:9:3: default_amount must be a decimal number, such as 12.50",
    ]
    assert await audited(server) == []


WRONG_HEADS = [
    ({}, "1:1: this file is missing; write `set: NAME` and `format: 1` to it"),
    ({"tollhouse.yaml": "set: a\nformat: 2\n"}, "2:1: format must be 1"),
    ({"tollhouse.yaml": "format: 1\n"}, "1:1: set must have 1 to 64 printable characters"),
    ({"tollhouse.yaml": "set: a\nformat: 1\nsets: b\n"}, "3:1: unknown field 'sets'; did you mean \"set\"?"),
]
WRONG_PLANS = [
    ("a: b\n", "1:1: this must be a list of plans"),
    ("- 1\n", "1:3: this must be an object with fields"),
    ("- name: [a]\n  view: x\n", "1:3: name must be a text"),
    ("- name: a\n", "1:3: the field view is missing"),
    ("- {name: a, view: x}\n- {name: A, view: x}\n", "2:3: the plan 'A' already stands in line 1"),
    ("- name: P\n  view: x\n  cycle_day: 1e3\n", "3:3: cycle_day must be a whole number, not '1e3'"),
    ("- name: P\n  view: x\n  is_pooled: yes\n", "3:3: is_pooled must be true or false, not 'yes'"),
    (
        "- name: P\n  view: x\n  unit: usdd\n",
        "3:3: unit must be one of calls, credits, usd, not 'usdd'; did you mean \"usd\"?",
    ),
    (
        "- name: P\n  view: x\n  seats:\n    - user: a\n      sinse: b\n",
        "5:7: unknown field 'sinse'; did you mean \"since\"?",
    ),
    ("- name: &a x\n", "1:9: anchors such as &a are not allowed; write the value in full"),
    ("- name: 'x\n", "2:1: this is not YAML: found unexpected end of stream"),
]


@pytest.mark.parametrize(("files", "problem"), WRONG_HEADS)
async def test_a_wrong_head_is_refused(server: OperatorServer, files: dict[str, str], problem: str) -> None:
    assert await apply(server, files) == [f"tollhouse.yaml:{problem}"]


@pytest.mark.parametrize(("text", "problem"), WRONG_PLANS)
async def test_a_wrong_file_is_refused(server: OperatorServer, text: str, problem: str) -> None:
    files = files_of({}) | {"plans.yaml": text}
    assert (await apply(server, files))[0] == f"plans.yaml:{problem}"


async def test_objects_made_by_hand_are_only_adopted(server: OperatorServer) -> None:
    await server.ask("POST", "/views", VIEW)
    conflict = "! view Search: exists, made by hand; --adopt takes it over"
    assert await apply(server, files_of({"views": [VIEW]})) == [conflict]
    await apply(server, files_of({}))
    assert ["Search"] == [view.name for view in server.registry.views.all()]
    adopted = await apply(server, files_of({"views": [{**VIEW, "range": "this_year"}]}), adopt=True)
    assert texts(adopted) == ["~ view Search: taken over; range this_month -> this_year"]
    assert texts(await apply(server, files_of({}))) == ["- view Search"]


async def test_two_sets_keep_apart(server: OperatorServer) -> None:
    other = {**VIEW, "name": "Other"}
    await apply(server, files_of({"views": [VIEW]}))
    await apply(server, files_of({"views": [other]}, name="team"))
    assert ["Other", "Search"] == sorted(view.name for view in server.registry.views.all())
    both = files_of({"views": [VIEW, other]}, name="team")
    assert await apply(server, both) == [
        "! view Search: exists, managed by platform, views.yaml:1; --adopt takes it over"
    ]
    assert texts(await apply(server, files_of({}, name="team"))) == ["- view Other"]


async def test_a_managed_object_is_changed_only_by_its_file(server: OperatorServer) -> None:
    await apply(server, files_of({**BOTH, "keys": [KEY]}), secrets=SECRET)
    [view] = server.registry.views.all()
    managed = "managed by platform, views.yaml:1. Change that file and apply it"
    for answer in (
        await server.ask("PATCH", f"/views/{view.id}", {"range": "this_year"}),
        await server.ask("DELETE", f"/views/{view.id}"),
        await server.ask("PATCH", "/keys/sender", {"description": "x"}),
        await server.ask("DELETE", "/keys/sender", confirm="sender"),
    ):
        assert answer.error[:2] == (409, "managed")
        assert "managed by platform" in answer.error[2]
    assert managed in (await server.ask("DELETE", f"/views/{view.id}")).error[2]
    assert 200 == (await server.ask("POST", "/keys/sender/disable", {})).status
    planned = await apply(server, files_of({**BOTH, "keys": [KEY]}), dry_run=True)
    assert texts(planned) == [". key sender: disabled, and stays disabled"]
    assert "Disabled" == (await server.ask("GET", "/keys/sender")).payload["key"]["status"]


async def test_a_released_object_is_made_by_hand_again(server: OperatorServer) -> None:
    await apply(server, files_of(BOTH))
    released = await server.ask("POST", "/release", {"kind": "budgets", "name": "Search/Monthly"})
    assert released.payload == {"released": "Search/Monthly"}
    [budget] = (await server.ask("GET", "/budgets")).payload["budgets"]
    assert 200 == (await server.ask("PATCH", f"/budgets/{budget['id']}", {"default_amount": "7"})).status
    assert len(await apply(server, files_of(BOTH))) == 1
    again = await server.ask("POST", "/release", {"kind": "budgets", "name": "Search/Monthly"})
    assert again.error[:2] == (404, "not_found")
    assert (
        "use one of allocation" in (await server.ask("POST", "/release", {"kind": "x", "name": ""})).error[2]
    )


async def test_a_key_needs_its_secret(server: OperatorServer) -> None:
    files = files_of({"keys": [KEY]})
    planned = await apply(server, files, dry_run=True)
    assert planned["new_secrets"] == ["keys/sender"]
    [refused] = await apply(server, files)
    assert refused.startswith("keys.yaml:1:3: a new key needs `secret_file`")
    await apply(server, files, secrets=SECRET)
    key = server.registry.keys.find_by_secret("s" * 40)
    assert key is not None
    assert key.name == "sender"
    named = files_of({"keys": [{**KEY, "secret_file": "ci"}]})
    assert await apply(server, named) == ["keys.yaml:4:3: secret_file: 'ci' was not found"]
    outcome = await apply(server, named, secrets={"ci": "t" * 40 + "\n"})
    assert texts(outcome) == ["~ key sender: another secret"]
    assert server.registry.keys.find_by_secret("s" * 40) is None
    assert server.registry.keys.find_by_secret("t" * 40) is not None
    assert (await apply(server, named, secrets={"ci": "t" * 40}))["differences"] == []
    exported = (await server.ask("GET", "/files")).payload["files"]
    assert exported == named
    shown = f"{await audited(server)}{(await server.ask('GET', '/audit')).payload}"
    assert "tttt" not in shown
    assert "ssss" not in shown


@pytest.mark.parametrize(
    ("secret", "rule"),
    [("short", "32 to 512 ASCII characters"), ("s" * 513, "32 to 512"), ("é" * 40, "ASCII")],
)
async def test_a_weak_secret_is_refused(server: OperatorServer, secret: str, rule: str) -> None:
    [refused] = await apply(server, files_of({"keys": [KEY]}), secrets={"keys/sender": secret})
    assert rule in refused
    assert secret not in refused


async def test_two_keys_cannot_have_one_secret(server: OperatorServer) -> None:
    keys = [{**KEY, "secret_file": "ci"}, {**KEY, "name": "sender 2", "secret_file": "ci"}]
    [refused] = await apply(server, files_of({"keys": keys}), secrets={"ci": "s" * 40})
    assert "is the secret of another key" in refused
    assert server.registry.keys.all() == []


async def test_two_applies_at_once_create_each_object_once(server: OperatorServer) -> None:
    outcomes = await asyncio.gather(*(apply(server, files_of(BOTH)) for _ in range(4)))
    assert [0, 0, 0, 2] == sorted(len(outcome["differences"]) for outcome in outcomes)
    assert ["view.create", "budget.create", "files.apply"] == await audited(server)


async def test_budgets_follow_a_renamed_view(server: OperatorServer) -> None:
    """
    If a view is renamed in a file, its budgets follow. A name that differs only in case is a change of the object.
    Another name is another object.
    """
    await apply(server, files_of(BOTH))
    [before] = server.registry.views.all()
    upper = {"views": [{**VIEW, "name": "SEARCH"}], "budgets": [{**BUDGET, "view": "search"}]}
    assert texts(await apply(server, files_of(upper))) == ["~ view SEARCH: name Search -> SEARCH"]
    assert [before.id] == [view.id for view in server.registry.views.all()]
    other = {"views": [{**VIEW, "name": "Find"}], "budgets": [{**BUDGET, "view": "Find"}]}
    assert texts(await apply(server, files_of(other))) == [
        "+ view Find",
        "+ budget Find/Monthly",
        "- budget SEARCH/Monthly",
        "- view SEARCH",
    ]


async def test_a_view_in_use_by_hand_stays(server: OperatorServer) -> None:
    await apply(server, files_of({"views": [VIEW]}))
    [view] = server.registry.views.all()
    await server.ask("POST", "/budgets", {**BUDGET, "view": {"id": view.id}})
    [refused] = await apply(server, files_of({}))
    assert refused.startswith(
        "views.yaml:1:1: the view 'Search' is no longer in the files, but cannot be deleted"
    )


async def test_only_an_organizer_applies(server: OperatorServer) -> None:
    answer = await server.over_http("POST", "/apply", {"files": {}})
    assert 401 == answer.status


async def test_a_large_set_is_refused_at_its_limit(server: OperatorServer) -> None:
    body = b'{"files": {"tollhouse.yaml": "set: a\\nformat: 1\\n#%s"}, "dry_run": true}'
    filled = b"#" * (FileSetLimits().max_bytes - len(body % b""))

    async def send(filling: bytes) -> int:
        connector = aiohttp.UnixConnector(str(server.socket))
        headers = {AS: "ada@example.com", "Content-Type": "application/json"}
        url = f"http://tollhouse{OPERATOR_API}/apply"
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.post(url, data=BytesIO(body % filling)) as answer,
        ):
            return answer.status

    assert (200, 413) == (await send(filled), await send(filled + b"#"))


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_work_of_an_apply_grows_with_its_objects(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    """
    The work of an apply grows with the number of objects: four times as many objects read at most five times as
    many documents.
    """
    decoded: list[int] = []
    restore = DocumentCollection.build_row_from_body

    def counted(kind: DocumentCollection[Any], body: Any) -> Any:
        decoded[-1] += 1
        return restore(kind, body)

    monkeypatch.setattr(DocumentCollection, "build_row_from_body", counted)
    server.services.installation.most = lambda _: 1000
    for count in (20, 80):
        views = [{**VIEW, "name": f"view {number:03}"} for number in range(count)]
        budgets = [{**BUDGET, "view": view["name"]} for view in views]
        decoded.append(0)
        outcome = await apply(server, files_of({"views": views, "budgets": budgets}), dry_run=dry_run)
        assert not outcome["problems"]
    assert decoded[1] <= 5 * decoded[0]


async def test_memory_that_could_not_be_loaded_is_loaded_later(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If one table cannot be read after the commit of an apply, the apply fails, and the next change loads everything.
    """
    table = server.registry.views
    calls = 0

    async def broken() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise SpoolUnavailable("the disk is gone")
        await type(table).load(table)

    loaders = server.registry._changes._loaders
    loaders[:] = [(about, broken if load == table.load else load) for about, load in loaders]
    answer = await server.ask("POST", "/apply", {"files": files_of(BOTH)})
    assert 503 == answer.status
    assert [] == table.all()
    assert (await apply(server, files_of(BOTH)))["differences"] == []
    assert ["Search"] == [view.name for view in table.all()]
