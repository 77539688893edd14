"""Allocation definitions, namespaces and publish jobs over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest_asyncio
from aiohttp import ClientSession, FormData

from gateway.configuration.sections import AllocationSettings, Config, LedgerSettings
from gateway.configuration.server import ServerSettings
from gateway.money.allocation.declared import OVER, PUBLISHING, VALIDATING, AllocationTable, NewNamespace
from gateway.operations.services import OperatorServices
from gateway.service.app import TollhouseApp
from spool.registry.scopes import GROUPS
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR, Serving
from tests.waiting import limited

BASE = "/v2/allocation"
VERSIONS, DEFINITIONS = f"{BASE}/definition/versions", f"{BASE}/definitions"
NAMESPACES, JOBS = f"{BASE}/namespaces", f"{BASE}/publish_jobs"
OWNER = b"Dimensions: {Owner: {Rules: [{Type: GroupBy, Source: team}]}}"
REGION = b"Dimensions: {Region: {Rules: [{Type: GroupBy, Source: provider}]}}"
BY_SERVICE = b'Dimensions: {Owner: {Rules: [{Type: GroupBy, Source: "tag:service"}]}}'
NOTHING = b"Dimensions: {}"
WRONG = b"Dimensions: {D: {Rules: [{Type: GroupBy, Source: modle}, {Type: Grop}]}}"
SMALL = AllocationSettings(max_versions=2, max_namespaces=3, max_jobs=6, max_definition_bytes=2048)


class Manager:
    """A client whose key has every allocation scope."""

    def __init__(self, serving: Serving, key: str) -> None:
        self.serving = serving
        self.key = key

    async def ask(
        self, method: str, path: str, body: bytes | dict[str, Any] = b"", kind: str = "text/plain"
    ) -> tuple[int, Any]:
        if isinstance(body, dict):
            body, kind = orjson.dumps(body), "application/json"
        answer = await self.serving.send(path, body, kind if body else None, method=method, key=self.key)
        return answer.status, orjson.loads(answer.body)

    async def publish(self, definition: bytes, query: str = "") -> tuple[int, Any]:
        return await self.ask("POST", VERSIONS + query, definition)

    async def job(self, path: str, definition: bytes) -> dict[str, Any]:
        """Submit a definition and return its job."""
        status, said = await self.ask("POST", path, definition)
        assert 202 == status, said
        job: dict[str, Any] = said["publish_job"]
        return job

    async def over(self, id: str) -> dict[str, Any]:
        """Wait until a job has finished; return it."""
        async with limited():
            while True:
                job: dict[str, Any] = (await self.ask("GET", f"{JOBS}/{id}"))[1]["publish_job"]
                if job["state"] in OVER:
                    return job

    @property
    def services(self) -> OperatorServices:
        return self.serving.app.services.operators

    @property
    def table(self) -> AllocationTable:
        return self.services.installation.require_registry().declared_table(AllocationTable)

    @property
    def dimensions(self) -> list[str]:
        """Return the dimensions that are in force."""
        return [each.id.rpartition(":")[2] for each in self.services.money.published.dimensions()]


async def started(
    directory: Path, allocation: AllocationSettings, tags: tuple[str, ...] = ("service",)
) -> Manager:
    config = Config(
        data_dir=directory,
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
        spool=SpoolSettings(hold=0),
        ledger=replace(LedgerSettings(), tags=tags),
        allocation=allocation,
    )
    app = TollhouseApp(config, version="0")
    await app.start()
    serving = Serving(app=app, key="", client=ClientSession())
    table = app.services.storage.registry
    assert table is not None
    name = f"manager {len(table.keys.all())}"
    return Manager(serving, await serving.make_key(name, scopes=GROUPS["Cost Allocation"]))


async def stop(manager: Manager) -> None:
    await manager.serving.client.close()
    await manager.serving.app.stop()


@pytest_asyncio.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    manager = await started(tmp_path, SMALL)
    yield manager
    await stop(manager)


async def test_versions(manager: Manager) -> None:
    """The newest version is in force. Older versions are kept up to the number that the setting allows."""
    assert 404 == (await manager.ask("GET", f"{VERSIONS}/latest"))[0]
    for number, text in enumerate((OWNER, REGION, OWNER), start=1):
        status, said = await manager.publish(text)
        assert status == 200, said
        assert str(number) == said["version"]["version"], said
    assert ["Owner"] == manager.dimensions
    assert "3" == manager.services.money.published.version
    status, said = await manager.ask("GET", VERSIONS)
    assert [("3", True), ("2", False)] == [
        (each["version"], each["is_in_force"]) for each in said["versions"]
    ]
    status, said = await manager.ask("GET", f"{VERSIONS}?sort_key=version&sort_order=asc&limit=1")
    assert [each["version"] for each in said["versions"]] == ["2"]
    assert said["pagination"]["total_count"] == 2
    version = (await manager.ask("GET", f"{VERSIONS}/latest"))[1]["version"]
    assert {
        "version": "3",
        "namespace": None,
        "dimensions": ["User:Defined:Owner"],
    }.items() <= version.items()
    assert OWNER.decode() == version["definition"]
    assert version["last_updated_by"] == "manager 0"
    assert version == (await manager.ask("GET", f"{VERSIONS}/3"))[1]["version"]
    sent = await manager.serving.send(version["uri"], b"", None, method="GET", key=manager.key)
    assert sent.status == 200
    assert sent.body == OWNER
    for word in ("1", "4", "0", "x", "9" * 40, "-1", "%00"):
        assert 404 == (await manager.ask("GET", f"{VERSIONS}/{word}"))[0], word


async def test_the_older_name_of_the_group(manager: Manager) -> None:
    """
    Existing clients call the address group for definitions `costformation`. Both names lead to the same addresses.
    """
    older = VERSIONS.replace("allocation", "costformation")
    assert 200 == (await manager.ask("POST", older, OWNER))[0]
    assert "1" == (await manager.ask("GET", f"{older}/latest"))[1]["version"]["version"]


async def test_validation_keeps_nothing(manager: Manager) -> None:
    """
    A validation returns the version and the border that a publication would have, but stores no version
    and no job.
    """
    status, said = await manager.publish(OWNER, "?validate_only=true")
    assert status == 200
    assert said["version"]["version"] == "1"
    assert said["version"]["uri"] is None
    assert said["version"]["is_in_force"] is False
    assert {"kept_since": None, "tags": {}} == said["version"]["border"]
    assert manager.table.versions() == []
    assert manager.table.jobs() == []
    assert manager.dimensions == []
    assert 400 == (await manager.publish(OWNER, "?validate_only=yes"))[0]


FAULTS: Sequence[str] = ["", "?validate_only=true"]


async def test_every_fault_is_listed(manager: Manager) -> None:
    """A 422 lists each fault with its value and path. No job and no version is stored."""
    for query in FAULTS:
        status, said = await manager.publish(WRONG, query)
        assert status == 422, query
        assert said["error"]["type"] == "invalid_definition", query
        assert [
            ("modle", ["Dimensions", "D", "Rules", 0, "Source"]),
            ("Grop", ["Dimensions", "D", "Rules", 1, "Type"]),
        ] == [(each["value"], each["path"]) for each in said["errors"]], query
        assert manager.table.versions() == [], query
        assert manager.table.jobs() == [], query
        for text in (b" ", b"\xff", b"a: &a [*a]", b"[", b"x" * 2049):
            status, said = await manager.publish(text, query)
            assert status == 422, text
            assert bool(said["errors"][0]["error"]), text
        assert (await manager.publish(b"x" * 40_000, query))[0] == 413, query
        assert (await manager.ask("POST", VERSIONS + query, OWNER, "application/json"))[0] == 415, query


async def test_a_form(manager: Manager) -> None:
    """A form with one file counts like the plain text. A form with several parts or none is rejected."""

    async def send(*parts: bytes) -> tuple[int, Any]:
        form = FormData()
        for place, part in enumerate(parts):
            form.add_field(
                f"file{place}", part, filename="owners.yaml", content_type="application/octet-stream"
            )
        body = form()
        headers = {"Authorization": manager.key}
        url = manager.serving.url + VERSIONS
        async with manager.serving.client.post(url, data=body, headers=headers) as answer:
            return answer.status, await answer.json()

    status, said = await send(OWNER.replace(b"Owner", "Eigentümer".encode()))
    assert 422 == status, (
        said
    )  # the error is about the name, which must be ASCII, so the whole text has arrived
    assert "Eigentümer" == said["errors"][0]["value"]
    assert 200 == (await send(OWNER))[0]
    assert OWNER.decode() == await manager.table.version_text(manager.table.version("", 1))
    assert 400 == (await send(OWNER, REGION))[0]
    for kind in (
        "multipart/form-data",
        'multipart/form-data; boundary="ü"',
        "multipart/form-data; boundary=x",
    ):
        assert 400 == (await manager.ask("POST", VERSIONS, b"--x--", kind))[0], kind


async def test_a_stale_base(manager: Manager) -> None:
    """A definition gets 409 if another version came into force after the version on which it is based."""
    assert 200 == (await manager.publish(OWNER, "?base_version=0"))[0]
    assert 200 == (await manager.publish(REGION, "?base_version=1"))[0]
    status, said = await manager.publish(OWNER, "?base_version=1")
    assert status == 409
    assert "version 2 is in force" in said["error"]["message"]
    assert 409 == (await manager.ask("POST", f"{DEFINITIONS}?base_version=1", OWNER))[0]
    for text in ("x", "-1", "9" * 30):
        assert 400 == (await manager.publish(OWNER, f"?base_version={text}"))[0]
    assert ["Region"] == manager.dimensions


async def test_jobs(manager: Manager) -> None:
    """
    Jobs run one at a time. Of two jobs with the same base, the first is published. The second fails, and its
    error names the version in force.
    """
    turn = manager.services.money.require_definition_publisher()._turn
    async with turn:
        first, second = await manager.job(DEFINITIONS, OWNER), await manager.job(DEFINITIONS, REGION)
        assert first["state"] == "queued"
        assert first["base_version"] is None
        assert {"queued"} == {each.state for each in manager.table.jobs()}
    first, second = await manager.over(first["id"]), await manager.over(second["id"])
    assert first["state"] == "done"
    assert first["version"] == "1"
    assert first["border"] == {"kept_since": None, "tags": {}}
    assert second["state"] == "failed"
    assert second["version"] is None
    assert "version 1 is in force" in second["error"]
    wrong = await manager.over((await manager.job(DEFINITIONS, WRONG))["id"])
    assert wrong["state"] == "failed"
    assert len(wrong["errors"]) == 2
    assert ["Owner"] == manager.dimensions
    listed = (await manager.ask("GET", f"{JOBS}?state=failed&sort_key=submitted&sort_order=asc"))[1][
        "publish_jobs"
    ]
    assert [second["id"], wrong["id"]] == [each["id"] for each in listed]
    assert 400 == (await manager.ask("GET", f"{JOBS}?state=lost"))[0]
    assert 404 == (await manager.ask("GET", f"{JOBS}/none"))[0]


async def test_only_what_waits_is_cancelled(manager: Manager) -> None:
    """Queued and validating jobs can be cancelled. A job that is publishing or finished answers 409."""
    table = manager.table
    async with manager.services.money.require_definition_publisher()._turn:
        queued, validating, publishing = [(await manager.job(DEFINITIONS, OWNER))["id"] for _ in range(3)]
        status, said = await manager.ask("POST", DEFINITIONS, OWNER)
        assert status == 409
        assert "allocation.max_jobs" in said["error"]["message"]
        await table.advance_job(validating, VALIDATING)
        await table.advance_job(publishing, PUBLISHING)
        for id in (queued, validating):
            status, said = await manager.ask("POST", f"{JOBS}/{id}/cancel")
            assert status == 200
            assert said["publish_job"]["state"] == "cancelled"
            assert 409 == (await manager.ask("POST", f"{JOBS}/{id}/cancel"))[0]
        assert 409 == (await manager.ask("POST", f"{JOBS}/{publishing}/cancel"))[0]
    assert "done" == (await manager.over(publishing))["state"]
    for _ in range(4):  # four more jobs, so that the oldest finished job is deleted
        await manager.over((await manager.job(DEFINITIONS, REGION))["id"])
    assert queued not in {each.id for each in table.jobs()}


async def test_namespaces(manager: Manager) -> None:
    """
    A namespace can be created, read, changed and deleted. Its definitions are separate from other namespaces.
    """
    assert 200 == (await manager.publish(OWNER))[0]
    status, said = await manager.ask("POST", f"{NAMESPACES}/ml", {"description": "Models"})
    assert (200, "ml", "ml", None) == (
        status,
        *(said["namespace"][name] for name in ("id", "name", "version")),
    )
    assert 409 == (await manager.ask("POST", f"{NAMESPACES}/ml"))[0]
    for id in ("default", "Ml", "1", "a" * 65, "a%20b"):
        assert 400 == (await manager.ask("POST", f"{NAMESPACES}/{id}"))[0], id
    assert 200 == (await manager.ask("POST", f"{NAMESPACES}/ops"))[0]
    assert 409 == (await manager.ask("POST", f"{NAMESPACES}/more"))[0]
    clash = await manager.over((await manager.job(f"{NAMESPACES}/ml/definitions", OWNER))["id"])
    assert clash["state"] == "failed"
    assert "belongs to the default namespace" in clash["error"]
    done = await manager.over((await manager.job(f"{NAMESPACES}/ml/definitions", REGION))["id"])
    assert done["state"] == "done"
    assert done["namespace"] == "ml"
    assert done["version"] == "1"
    assert manager.dimensions == ["Owner", "Region"]
    assert manager.services.money.published.version == "1, ml 1"
    one = (await manager.ask("GET", f"{NAMESPACES}/ml"))[1]["namespace"]
    assert one["version"] == "1"
    assert REGION.decode() == one["definition"]
    assert one["broken"] is None
    status, said = await manager.ask("PATCH", f"{NAMESPACES}/ml", {"name": "Learning"})
    assert said["namespace"]["name"] == "Learning"
    assert said["namespace"]["description"] == "Models"
    assert 400 == (await manager.ask("PATCH", f"{NAMESPACES}/ml", {"name": " "}))[0]
    listed = (await manager.ask("GET", f"{NAMESPACES}?sort_key=id&sort_order=desc"))[1]["namespaces"]
    assert ["ops", "ml"] == [each["id"] for each in listed]
    assert ["1"] == [each["version"] for each in (await manager.ask("GET", VERSIONS))[1]["versions"]]
    assert 409 == (await manager.ask("DELETE", f"{NAMESPACES}/ml"))[0]
    await manager.over((await manager.job(f"{NAMESPACES}/ml/definitions", NOTHING))["id"])
    assert {"namespace": {"id": "ml"}} == (await manager.ask("DELETE", f"{NAMESPACES}/ml"))[1]
    assert manager.dimensions == ["Owner"]
    assert len(manager.table.versions()) == 1
    for method, path in (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/definitions")):
        body: Any = {"name": "x"} if method == "PATCH" else OWNER if path else b""
        assert 404 == (await manager.ask(method, f"{NAMESPACES}/ml{path}", body))[0], method


async def test_a_restart(tmp_path: Path) -> None:
    """
    A restart keeps the definition in force and finishes jobs that were under way when the process ended.
    """
    manager = await started(tmp_path, SMALL)
    await manager.publish(BY_SERVICE)
    await manager.table.create(NewNamespace(name="ml"), id="ml", max_rows=2, actor=ACTOR)
    # The job stays under way until the process ends, because the test holds the turn.
    async with manager.services.money.require_definition_publisher()._turn:
        for state, namespace, text in ((VALIDATING, "ml", REGION), (PUBLISHING, "", WRONG)):
            job = await manager.table.submit_job(
                text.decode(), namespace=namespace, base=None, most=9, actor=ACTOR
            )
            await manager.table.advance_job(job.id, state)
        waiting = [each.id for each in manager.table.unfinished_jobs()]
        await stop(manager)

    manager = await started(tmp_path, SMALL)
    found = [await manager.over(id) for id in waiting]
    assert [("done", "1"), ("failed", None)] == [(each["state"], each["version"]) for each in found]
    assert ["Owner", "Region"] == manager.dimensions
    assert "service" in next(iter((await manager.publish(BY_SERVICE))[1]["version"]["border"]["tags"]))
    await stop(manager)

    manager = await started(tmp_path, SMALL, tags=())
    assert ["Region"] == manager.dimensions
    assert False is (await manager.ask("GET", f"{VERSIONS}/latest"))[1]["version"]["is_in_force"]
    taken = BY_SERVICE.replace(b"tag:service", b"team")
    clash = await manager.over((await manager.job(f"{NAMESPACES}/ml/definitions", taken))["id"])
    assert clash["state"] == "failed"
    assert "belongs to the default namespace" in clash["error"]
    assert 200 == (await manager.publish(taken))[0]
    assert ["Owner", "Region"] == manager.dimensions
    await stop(manager)
