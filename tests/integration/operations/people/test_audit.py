from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from gateway.configuration.sections import Config, PrivacySettings
from gateway.configuration.server import ServerSettings
from gateway.core.paths import OPERATOR_API
from gateway.devices.reports import DeviceReport
from gateway.http.error_table import SAFE_METHODS
from gateway.money.allocation.declared import AllocationTable
from gateway.operations.holders.demo_month import DemoMonth
from gateway.operations.services import OperatorServices
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.people.authentication.legacy_key import LegacyKey
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from gateway.service.app import TollhouseApp
from spool.clock import SteadyClock
from spool.clusters import ReportedCluster
from spool.container_files.values import STATUS, ClusterIdentity, ContainerSender
from spool.deliveries.protocols import LakeRepairs
from spool.deliveries.values import RouteSpec
from spool.record import AI_TELEMETRY, utc_iso
from spool.registry.insights import InsightDraft
from spool.registry.scopes import ENROLL
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.operations.every.declared import COVERED
from tests.integration.operations.server import INGEST
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call
from tests.spool.savings import SAVING

ADA = "ada@example.com"
SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
# These requests only read; their bodies are queries. Writes of assistants are tested in test_assistants.py.
READS_BY_POST = {
    "preview_role",
    "preview_price",
    "relay_mcp",
    "diff_definition",
    "validate_definition",
    "identify_key",
}
# test_openid_sign_in.py tests this operation, because its audit entry is under the provider's name.
OF_THE_PROVIDER = {"end_provider_sessions"}
# test_groups_of_complete_totals.py tests this operation, because it needs a finished part of a month with many people
OF_GROUPS = {"divide_groups"}
ROUTE, GONE = "archive/ai-telemetry", "gone/ai-telemetry"


class Operators:
    """A client that sends requests as ADA and counts new rows in the audit list."""

    def __init__(self, app: TollhouseApp, client: aiohttp.ClientSession) -> None:
        self.services: OperatorServices = app.services.operators
        self._url = app.url
        self._client = client
        self.seen = 0
        self.named: set[str] = set()

    async def ask(
        self, method: str, path: str, body: object = None, *, data: aiohttp.FormData | bytes | None = None
    ) -> Any:
        url = URL(f"http://tollhouse{OPERATOR_API}{path}", encoded=True)
        headers = {"X-Tollhouse-As": ADA}
        if isinstance(data, bytes):
            headers["Content-Type"] = "text/csv"
        async with self._client.request(method, url, json=body, data=data, headers=headers) as answer:
            return await answer.json()

    async def over_http(self, method: str, path: str, body: object, headers: Mapping[str, str]) -> Any:
        async with (
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, f"{self._url}{OPERATOR_API}{path}", json=body, headers=headers) as answer,
        ):
            return {"cookies": answer.cookies, **await answer.json()}

    async def sign_in(self) -> dict[str, str]:
        link = (await self.ask("POST", "/console-links", {}))["link"]
        signed_in = await self.over_http("POST", "/sessions", {"link": link.partition("#link=")[2]}, {})
        cookie = f"tollhouse={signed_in['cookies']['tollhouse'].value}"
        return {"Cookie": cookie, "X-CSRF-Token": signed_in["session"]["csrf_token"]}

    async def audited(self, name: str, answer: Any = None) -> None:
        """Check that the request of this name, which was just sent, left an audit row under ADA's name."""
        listed = await self.ask("GET", "/audit?limit=1")
        count = listed["pagination"]["total_count"]
        assert self.seen < count, (name, answer)
        assert ADA == listed["audit"][0]["actor"], (name, listed["audit"][0])
        self.seen = count
        self.named.add(name)

    async def change(self, name: str, method: str, path: str, body: object = None) -> None:
        await self.audited(name, await self.ask(method, path, body))


@pytest_asyncio.fixture
async def app(tmp_path: Path) -> AsyncIterator[TollhouseApp]:
    """Start a server whose configuration file has changed since its start."""
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    config = Config(data_dir=tmp_path / "data", server=server, spool=SpoolSettings(hold=0))
    changed = replace(config, privacy=PrivacySettings(keep_attributes=("region",)))
    app = TollhouseApp(config, version="0", reread=lambda: changed)
    await app.start()
    yield app
    await app.stop()


@pytest.mark.proves("A change leaves no trace")
async def test_every_change_is_audited(app: TollhouseApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each operator address with a method other than GET leaves an audit row under the actor's name. every/test_life.py
    tests the addresses that create, change and delete a resource.
    """
    socket = aiohttp.UnixConnector(str(app.config.data_dir / "operator.sock"))
    async with aiohttp.ClientSession(connector=socket) as client:
        operators = Operators(app, client)
        services = operators.services
        await sessions(operators)
        monkeypatch.setattr(DemoMonth, "_run_filling_process", _made_at_once)
        await operators.change("load_demo", "POST", "/demo", {})
        await operators.change("remove_demo", "DELETE", "/demo")
        await operators.change("create_key", "POST", "/keys", {"name": "search team", "scopes": [INGEST]})
        key = "/keys/search%20team"
        await operators.change("edit_key", "PATCH", key, {"description": "x"})
        for verb in ("rotate", "disable", "enable"):
            await operators.change(f"{verb}_key", "POST", f"{key}/{verb}", {} if verb == "rotate" else None)
        await operators.change("delete_key", "DELETE", f"{key}?confirm=search%20team")
        file = app.config.data_dir / "key"
        file.write_text("of-the-deployment")
        services.senders.access.configure(ServerSettings(api_key_file=file), LegacyKey(file))
        await operators.change("adopt_key", "POST", "/keys/adopt")

        fleet = AuthenticatedKey("fleet", frozenset({ENROLL}))
        await services.senders.require_devices().enrol_or_update(
            DeviceReport(id="d0", fingerprint="print"), fleet, ""
        )
        for verb in ("revoke", "approve", "reset"):
            await operators.change(f"{verb}_device", "POST", f"/devices/d0/{verb}")
        await operators.change("label_device", "PATCH", "/devices/d0", {"labels": {"floor": "9"}})
        await operators.change("admit_device", "POST", "/devices", {"id": "d1"})
        await operators.change("delete_device", "DELETE", "/devices/d1?confirm=d1")
        imported = await operators.ask("PUT", "/fleet/inventory?source=csv", data=b"serial\nA1\n")
        await operators.audited("replace_inventory", imported)
        token = {"name": "jamf", "expires_at": utc_iso(time.time() + 60)}
        await operators.change("create_tokens", "POST", "/fleet/tokens", token)
        await operators.change("revoke_tokens", "POST", "/fleet/tokens/jamf/revoke", {})
        mill = ReportedCluster(account="1", region="eu", name="mill")
        await app.services.storage.clusters.store_report(mill)
        await operators.change("change_cluster", "PATCH", f"/clusters/{mill.id}", {"display_name": "Mill"})
        await operators.change("delete_cluster", "DELETE", f"/clusters/{mill.id}?confirm={mill.id}")

        files = services.senders.require_container_files()
        by = ContainerSender(key="agent")
        await files.put_status(ClusterIdentity("1", "eu", "mill"), "status", by, request="", body=b"x")
        (waiting,) = await files.due_files(STATUS, limit=1)
        discard = f"/container-files/{waiting.id}/discard"
        await operators.change("discard_container_file", "POST", discard, {"confirm": waiting.reference})

        await deliveries(operators)
        await operators.change(
            "push", "POST", "/billing/push", {"since": "2026-09-01", "until": "2026-09-01"}
        )
        await definitions(operators)
        await operators.change("evaluate", "POST", "/budgets/evaluate", {})
        await operators.change("rebuild", "POST", "/ledger/rebuild", {})
        await operators.change("reprice", "POST", "/ledger/reprice", {"since": "2026-09-01"})
        await operators.change("freeze_rates", "POST", "/ledger/rates", {"month": "2026-08"})
        await operators.change("thaw_rates", "DELETE", "/ledger/rates/2026-08")
        await operators.change("reload", "POST", "/reload", {})
        backup = {"directory": str(app.config.data_dir.parent / "backup")}
        await operators.change("back_up", "POST", "/backup", backup)

        report = Path(__file__).parents[3] / "statements/openai_usage/page.json"
        await operators.change("import_statements", "POST", "/statements", {"files": [str(report)]})
        form = aiohttp.FormData()
        form.add_field("file", report.read_bytes().replace(b"gpt", b"gpx"), filename="page.json")
        await operators.audited(
            "upload_statements", await operators.ask("POST", "/statement-uploads", data=form)
        )
        await operators.change("pull_statements", "POST", "/statement-pulls", {})
        await operators.change("read_enforcers", "POST", "/enforcers/read", {})
        await operators.change("undo_import", "POST", "/statement-imports/imp_1/undo", {})
        await bills(operators)

        await operators.change("run_all_detectors", "POST", "/insights/run", {})
        insight = await services.installation.require_registry().insights.create(
            InsightDraft(title="Spike"), actor=ACTOR
        )
        await operators.change("set_insight", "PATCH", f"/insights/{insight.id}", {"status": "in_progress"})
        await operators.change(
            "comment_insight", "POST", f"/insights/{insight.id}/comments", {"message": "seen"}
        )
        await operators.change("delete_insight_comment", "DELETE", f"/insights/{insight.id}/comments/1")

        tool = "/assistant-tools/get_budgets"
        await operators.change("set_assistant_tool", "PATCH", tool, {"enabled": False})
        await recommendations(operators)
        notices = services.installation.require_registry().notices
        notices.channels = ("chat",)
        test = await operators.ask("POST", "/notification-channels/chat/test", {})
        await operators.audited("test_channel", test)
        await channels_and_reports(operators)
        chosen = {"ids": [test["notification"]["id"]]}
        await operators.change("discard_notifications", "POST", "/notifications/discard", chosen)
        await operators.change("retry_notifications", "POST", "/notifications/retry", chosen)

        stated = {
            "tollhouse.yaml": "set: a\nformat: 1\n",
            "roles.yaml": "- {name: Desk, data_access: none}\n",
        }
        await operators.change("apply_files", "POST", "/apply", {"files": stated})
        of_zoe = {
            "name": "ci-zoe",
            "scopes": ["ai-telemetry-ingest:ingest-ai-telemetry"],
            "labels": {"user": "zoe"},
        }
        await operators.ask("POST", "/keys", of_zoe)
        operators.seen += 1
        await operators.change("let_person_leave", "POST", "/people/zoe/leave", {})
        await operators.change("release_object", "POST", "/release", {"kind": "roles", "name": "Desk"})

        wall = MovedClock()
        services.installation.clock = SteadyClock(wall, timer=lambda: 0.0)
        wall.move(86_400)
        await operators.change("accept_clock", "POST", "/clock/accept", {})
    changes = {each.name for each in OPERATOR_ADDRESSES if each.methods[0] not in SAFE_METHODS}
    changes -= READS_BY_POST | OF_THE_PROVIDER | OF_GROUPS
    of_resources = {
        operation.row.name
        for resource in COVERED
        for operation in (resource.create, resource.at("PATCH"), resource.delete)
        if operation is not None and operation.is_for_people
    }
    assert changes - of_resources == operators.named - of_resources


async def _made_at_once(demo: DemoMonth[object]) -> None:
    demo._unfinished.mkdir()


async def recommendations(operators: Operators) -> None:
    await operators.change("look_for_savings", "POST", "/recommendations/run", {})
    type = "/recommendation-types/priority_tier"
    await operators.change("change_recommendation_type", "PATCH", type, {"enabled": False})
    table = operators.services.installation.require_registry().recommendations
    await table.merge_savings([SAVING], looked_for=[SAVING.type])
    [found] = await table.all()
    status = {"ids": [found.id], "status": "in_progress"}
    await operators.change("change_recommendations", "PATCH", "/recommendations", status)
    comments = f"/recommendations/{found.id}/comments"
    await operators.change("comment_recommendation", "POST", comments, {"message": "seen"})
    await operators.change(
        "change_recommendation_comment", "PATCH", f"{comments}/1", {"message": "seen twice"}
    )
    await operators.change("delete_recommendation_comment", "DELETE", f"{comments}/1")


async def channels_and_reports(operators: Operators) -> None:
    """Create a channel, a report that uses it, and names of people."""
    channel = {"name": "desk", "type": "webhook", "url": "http://127.0.0.1:9/", "secret": SIGNING_SECRET}
    await operators.change("add_channel", "POST", "/notification-channels", channel)
    view = {"name": "Weekly", "filter": {"team": ["search"]}, "principal_dimension": "model"}
    await operators.change("add_view", "POST", "/views", view)
    receiver = {"type": "otlp", "url": "http://127.0.0.1:9", "secret": "s" * 40}
    await operators.change("test_forwarding", "POST", "/forwarding-tests", receiver)
    report = {"name": "Weekly", "view": "Weekly", "channels": ["desk"]}
    await operators.change("add_scheduled_report", "POST", "/scheduled-reports", report)
    await operators.change("send_scheduled_report", "POST", "/scheduled-reports/Weekly/send", {})
    people = {"people": [{"users": ["eve@example.com", "eve"], "name": "Eve"}]}
    await operators.change("link_people", "POST", "/people", people)
    await operators.change("split_person", "POST", "/people/split", {"user": "eve"})
    registry = operators.services.installation.require_registry()
    for key in (b"first", b"second"):  # a second key waits for an operator
        await registry.persons.accepted_hash_keys("laptop", [key], max_keys=1, max_conflicts=1, actor=ACTOR)
    operators.seen = (await operators.ask("GET", "/audit"))["pagination"]["total_count"]
    [conflict] = (await operators.ask("GET", "/people/conflicts"))["name_conflicts"]
    decision = {"ids": [conflict["id"]], "accept": True}
    await operators.change("decide_name_conflicts", "POST", "/people/conflicts/decide", decision)
    await operators.change("link_accounts_with_stated_addresses", "POST", "/people/link-stated", {})
    granted = {"name": "Privacy", "data_access": "none", "permission_sets": ["answer_privacy_requests"],
               "members": [ADA]}  # fmt: skip
    await operators.ask("POST", "/roles", granted)
    out = operators.services.installation.config().data_dir.parent / "export"
    await operators.change("export_person", "POST", "/people/Eve/export", {"directory": str(out)})
    await operators.change("erase_person", "POST", "/people/Eve/erase", {"confirm": "Eve"})
    await operators.ask("POST", "/people", people)
    await operators.change("forget_people", "POST", "/people/forget", {"all": True})


async def definitions(operators: Operators) -> None:
    """Publish a definition, and cancel a job that has not begun."""
    await operators.change(
        "publish_definition", "POST", "/allocation/publish", {"definition": "Dimensions: {}"}
    )
    table = operators.services.installation.require_registry().declared_table(AllocationTable)
    job = await table.submit_job("Dimensions: {}", namespace="", base=None, most=9, actor=ACTOR)
    await operators.change("cancel_job", "POST", f"/allocation/jobs/{job.id}/cancel")


async def sessions(operators: Operators) -> None:
    headers = await operators.sign_in()
    await operators.audited("sign_in")
    await operators.change("make_link", "POST", "/console-links", {})
    await operators.over_http("DELETE", "/session", None, headers)
    await operators.audited("sign_out")
    await operators.sign_in()
    [session] = (await operators.ask("GET", "/sessions"))["sessions"]
    await operators.change("end_session", "DELETE", f"/sessions/{session['id']}")


async def bills(operators: Operators) -> None:
    report = Path(__file__).parents[3] / "statements/openai_costs/page.json"
    await operators.ask("POST", "/statements", {"files": [str(report)]})
    operators.seen += 1
    month = {"provider": "openai", "month": "2026-08"}
    invoice = {**month, "number": "1", "total": "5"}
    made = await operators.ask("POST", "/billed-invoices", invoice)
    await operators.audited("add_invoice", made)
    await operators.change("close_month", "POST", "/closed-months", {**month, "accept": True})
    await operators.change("reopen_month", "DELETE", "/closed-months/openai/2026-08")
    await operators.change("delete_invoice", "DELETE", f"/billed-invoices/{made['billed_invoice']['id']}")


async def deliveries(operators: Operators) -> None:
    services = operators.services
    table = services.spool.deliveries
    specs = [RouteSpec(name=name, topic=AI_TELEMETRY) for name in (ROUTE, GONE)]
    await table.set_routes(specs)
    await table.set_routes(specs[:1])
    await operators.change("drop_route", "DELETE", f"/routes/{GONE}")
    await operators.change("try_route", "POST", f"/routes/{ROUTE}/try", {})
    await add(services.spool.log, *[call(number) for number in range(4)])
    for number in range(4):
        delivery = await table.take_due_delivery(ROUTE, now=services.installation.clock.now(), max_records=1)
        assert delivery is not None
        if number:
            await table.set_aside(delivery, error="no such model", status="400")
        else:
            await table.mark_outcome_unknown(delivery, reason="no answer")
            await operators.change("resolve", "POST", f"/unknown/{delivery.id}/resolve", {"sent": True})
    first, second, third = [letter.id for letter in await table.dead_letters()]
    await operators.change("edit_dead", "PATCH", f"/dead/{first}", {"record": {"provider": "openai"}})
    await operators.change("retry_dead", "POST", "/dead/retry", {"ids": [second]})
    await operators.change("discard_dead", "POST", "/dead/discard", {"ids": [third]})
    await operators.change("replay", "POST", "/replay", {"route": ROUTE, "since": "2026-01-01T00:00:00Z"})
    services.spool.repair_lake = _repaired
    await operators.change("repair_lake", "POST", "/lake-repairs", {"destination": "lake"})


async def _repaired(destination: str, *, dry_run: bool) -> LakeRepairs:
    return LakeRepairs(put=(), lost={})


async def test_a_row_names_what_its_id_means(app: TollhouseApp) -> None:
    """
    A row shows the target's current name. If the target is deleted, the row shows its own recorded name, or
    else the last known name.
    """
    socket = aiohttp.UnixConnector(str(app.config.data_dir / "operator.sock"))
    async with aiohttp.ClientSession(connector=socket) as client:
        ask = Operators(app, client).ask
        view = {"name": "Search", "filter": {"team": ["search"]}, "principal_dimension": "model"}
        await ask("POST", "/views", view)
        await ask("PATCH", "/views/search", {"range": "this_year"})
        await ask("PATCH", "/views/search", {"name": "Finding"})
        role = {"name": "Readers", "data_access": "full", "permission_sets": ["view_costs"]}
        await ask("POST", "/roles", role)
        await ask("POST", "/keys", {"name": "laptop", "scopes": [INGEST]})
        registry = app.services.operators.installation.require_registry()
        insight = await registry.insights.create(InsightDraft(title="Spike"), actor=ACTOR)
        await ask("PATCH", f"/insights/{insight.id}", {"status": "in_progress"})
        await ask("POST", "/operators", {"email": "eve@example.com", "password": "correct horse battery"})

        async def named() -> dict[str, list[tuple[str | None, bool]]]:
            found: dict[str, list[tuple[str | None, bool]]] = {}
            for row in (await ask("GET", "/audit"))["audit"]:
                found.setdefault(row["action"], []).append((row["target_name"], row["target_exists"]))
            return found

        await ask("POST", "/allocation/publish", {"definition": "Dimensions: {}"})
        there = await named()
        [job] = [found for action, found in there.items() if action.startswith("publish_job.")]
        assert [("default", True)] == job
        assert [("Finding", True)] == there["view.create"]
        assert [("Finding", True)] * 2 == there["view.change"]
        assert [("Readers", True)] == there["role.create"]
        assert [("laptop", True)] == there["key.create"]
        assert [("Spike", True)] == there["insight.change"] == there["insight.create"]
        assert [("eve@example.com", True)] == there["operator.add"]

        await ask("DELETE", "/views/finding")
        gone = await named()
        assert [("Finding", False)] == gone["view.delete"]
        assert [("Search", False)] == gone["view.create"]
        assert [("Finding", False)] * 2 == gone[
            "view.change"
        ]  # the row about the changed range records no name
