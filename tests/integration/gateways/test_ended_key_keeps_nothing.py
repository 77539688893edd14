"""
A deleted key stores nothing at another gateway that has not seen the deletion, at any address.

Each address that may store something has a request here. A new address must be added.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import psycopg
import pytest

from gateway.configuration.sections import McpSettings
from gateway.devices.reports import DeviceReport
from gateway.intake.prices import PriceBook
from gateway.money.budgets.evaluator import BudgetEvaluator
from gateway.service.addresses.table import FOR_SENDERS
from spool.identity import RecordIdentity
from spool.leases import LeaseTasks, Work
from spool.log.values import Submission
from spool.postgres.registry.follower import RegistryChangeFollower
from spool.record import AI_TELEMETRY, NS, Inference
from spool.registry import changes
from spool.registry.operators import Actor
from spool.registry.scopes import INGEST
from tests.integration import container_agent as agent
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_topics import DROPS, EVENT, ROW, body, usage
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema

CASES = Path(__file__).parents[2] / "cases/gateway"
ADA = Actor("ada@example.com", "127.0.0.1")
SAFE = {"GET", "HEAD", "OPTIONS"}
# These operations never store anything.
KEEPS_NOTHING = {"export_profiles", "validate_billing_drop", "optimize_check"}
# These tables change without a request: nodes and their leases, empty commits, and the counts of earlier commits.
OF_ITSELF = {"nodes", "leases", "commits", "heads", "books", "marks"}

CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
DEFINITION = b"Dimensions: {Owner: {Rules: [{Type: GroupBy, Source: team}]}}"
JSON, TEXT, PROTOBUF = "application/json", "text/plain", "application/x-protobuf"


class Sent(NamedTuple):
    """A request to an address. `body` is bytes, or a value that is encoded as JSON."""

    path: str
    body: Any = b""
    kind: str | None = JSON
    method: str = "POST"
    headers: Mapping[str, str] = {}


class Things(NamedTuple):
    """Objects that were created before the key was deleted."""

    hook: str  # the secret of a key that may be used in an address
    url: str  # an upload address that was given to the key
    view: str
    spare_view: str
    budget: str
    insight: str
    comment: str
    job: str
    saving: str
    saving_comment: str
    role: str
    cluster: str


def requests(key: str, things: Things) -> dict[str, Sent]:
    """Return the requests by the name of their address."""
    stream = "/unit-cost/v1/telemetry/allocation/calls"
    place = agent.query()
    allocation = "/v2/allocation"
    connection = "/v2/connections/billing"
    insight, saving = f"/v2/insights/{things.insight}", f"/v2/optimize/recommendations/{things.saving}"
    basic = {"Authorization": "Basic " + base64.b64encode(f"public:{key}".encode()).decode()}
    traces = json_traces(json_span())
    point = {"startTimeUnixNano": "1", "timeUnixNano": "2", "asInt": "3"}
    total = {"aggregationTemporality": 1, "isMonotonic": True, "dataPoints": [point]}
    metric = {"name": "gen_ai.client.token.usage", "sum": total}
    return {
        "export_traces": Sent("/v1/traces", traces),
        "export_metrics": Sent("/v1/metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}),
        "export_logs": Sent("/v1/logs", {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"timeUnixNano": "1"}]}]}]}),
        "ingest_recognised": Sent("/v1/ai-telemetry", case("litellm/slp-public-minimal")),
        "ingest_format": Sent("/v1/ai-telemetry/litellm", case("litellm/slp-batch-array")),
        "helicone_webhook": Sent(f"/v1/ai-telemetry/helicone/{things.hook}", case("helicone/webhook-enhanced")),
        "langfuse_ingestion": Sent("/api/public/ingestion", case("langfuse/batch-create-update"), headers=basic),
        "langfuse_traces": Sent("/api/public/otel/v1/traces", traces, headers=basic),
        "langwatch_traces": Sent("/api/otel/v1/traces", traces, headers={"Authorization": f"Bearer {key}"}),
        "honeyhive_traces": Sent("/opentelemetry/v1/traces", traces, headers={"Authorization": f"Bearer {key}"}),
        "keywords_ai_traces": Sent("/api/v1/traces", traces, headers={"Authorization": f"Bearer {key}"}),
        "openmeter_events": Sent(
            "/api/v1/events", case("openmeter/cloudevent-single"), "application/cloudevents+json",
            headers={"Authorization": f"Bearer {key}"},
        ),
        "enroll_device": Sent("/v1/ai-control-plane/enroll", {"device_id": "new", "labels": {"kind": "cluster"}}),
        "heartbeat_device": Sent("/v1/ai-control-plane/heartbeat", {"device_id": "laptop", "hostname": "mill"}),
        "ping_device": Sent("/v1/ai-control-plane/ping", {"device_id": "laptop"}),
        "link_addresses": Sent(
            "/v1/ai-control-plane/people/addresses", {"keys": ["0" * 64], "addresses": {"eve@example.com": 1}}
        ),
        "follow_erasures": Sent("/v1/ai-control-plane/people/erasures", {"installation": "0" * 32}),
        "create_events": Sent("/v1/events", EVENT),
        "sum_records_of_streams": Sent(
            "/unit-cost/v1/telemetry",
            {"records": [{**usage(), "telemetry_stream": "calls"}]},
        ),
        "create_stream": Sent("/unit-cost/v1/telemetry/allocation/other", b"{}", method="PUT"),
        "sum_records_of_stream": Sent(stream, body(usage())),
        "manage_records": Sent(f"{stream}/replace", body(usage())),
        "delete_stream": Sent("/unit-cost/v1/telemetry/calls", {"force": True}, method="DELETE"),
        "announce_container_files": Sent(
            f"{agent.BASE}/upload{place}", {"files": [{"reference_id": "new.parquet"}]}, headers=agent.HEADERS
        ),
        "put_container_file": Sent(things.url, b"metrics", None, "PUT"),
        "abandon_container_files": Sent(f"{agent.BASE}/abandon{place}", [{"reference_id": "one.parquet"}]),
        "report_container_status": Sent(f"{agent.BASE}/status", agent.status(), PROTOBUF),
        "write_container_metrics": Sent(
            f"{agent.BASE}{place}", b"written", PROTOBUF, headers={"Content-Encoding": "snappy"}
        ),
        "create_billing_drop": Sent(DROPS.format("anycost"), {"data": [ROW]}),
        "create_billing_connection": Sent(connection, {"name": "other bill", "cloud_provider": "MongoDB"}),
        "update_billing_connection": Sent(f"{connection}/connection-1", {"is_enabled": False}, method="PATCH"),
        "delete_billing_connection": Sent(f"{connection}/connection-1", method="DELETE", kind=None),
        "insights_create": Sent("/v2/insights", {"title": "a spike"}),
        "insights_update": Sent(insight, {"status": "in_progress"}, method="PATCH"),
        "insights_delete": Sent(insight, method="DELETE", kind=None),
        "insights_create_comment": Sent(f"{insight}/comments", {"message": "who?"}),
        "insights_update_comment": Sent(f"{insight}/comments/{things.comment}", {"message": "I"}, method="PATCH"),
        "insights_delete_comment": Sent(f"{insight}/comments/{things.comment}", method="DELETE", kind=None),
        "update_cluster": Sent(f"/v2/container/clusters/{things.cluster}", {"display_name": "Mill"}, method="PATCH"),
        "create_view": Sent("/v2/views", {"name": "New", "filter": {"team": ["a"]}, "principal_dimension": "model"}),
        "update_view": Sent(f"/v2/views/{things.view}", {"name": "Newer"}, method="PATCH"),
        "delete_view": Sent(f"/v2/views/{things.spare_view}", method="DELETE", kind=None),
        "create_budget": Sent(
            "/v2/budgets", {"name": "New", "view": {"id": things.spare_view}, "default_amount": "1"}
        ),
        "update_budget": Sent(f"/v2/budgets/{things.budget}", {"name": "Newer"}, method="PATCH"),
        "delete_budget": Sent(f"/v2/budgets/{things.budget}", method="DELETE", kind=None),
        "create_definition_version": Sent(f"{allocation}/definition/versions", DEFINITION, TEXT),
        "create_definition_async": Sent(f"{allocation}/definitions", DEFINITION, TEXT),
        "create_namespace": Sent(f"{allocation}/namespaces/new", kind=None),
        "update_namespace": Sent(f"{allocation}/namespaces/ml", {"name": "Models"}, method="PATCH"),
        "delete_namespace": Sent(f"{allocation}/namespaces/ops", method="DELETE", kind=None),
        "create_namespaced_definition_async": Sent(f"{allocation}/namespaces/ml/definitions", DEFINITION, TEXT),
        "cancel_publish_job": Sent(f"{allocation}/publish_jobs/{things.job}/cancel", kind=None),
        "optimize_update_recommendations": Sent(
            "/v2/optimize/recommendations", {"ids": [things.saving], "assignee": "ada"}, method="PATCH"
        ),
        "optimize_create_comments": Sent(f"{saving}/comments", {"message": "who?"}),
        "optimize_update_comment": Sent(
            f"{saving}/comments/{things.saving_comment}", {"message": "I"}, method="PATCH"
        ),
        "optimize_delete_comment": Sent(f"{saving}/comments/{things.saving_comment}", method="DELETE", kind=None),
        "optimize_update_recommendation_type": Sent(
            "/v2/optimize/recommendation_types/priority_tier", {"enabled": False}, method="PATCH"
        ),
        "ask_mcp": Sent("/mcp", {**CALL, "params": {"name": "log_insight", "arguments": {"title": "a new one"}}}),
        "ask_mcp_as_person": Sent(
            "/mcp/people", {**CALL, "params": {"name": "log_insight", "arguments": {"title": "another one"}}}
        ),
        "create_role": Sent("/v2/access-control/roles", {"name": "New", "data_access": "full"}),
        "update_role": Sent(f"/v2/access-control/roles/{things.role}", {"name": "Newer"}, method="PATCH"),
        "delete_role": Sent(f"/v2/access-control/roles/{things.role}", method="DELETE", kind=None),
    }  # fmt: skip


def case(name: str) -> bytes:
    return (CASES / f"{name}.json").read_bytes()


class Asking:
    """A client of one gateway with one key."""

    def __init__(self, serving: Serving, key: str) -> None:
        self.serving = serving
        self.key = key

    async def send(self, sent: Sent) -> tuple[int, Any]:
        content = sent.body if isinstance(sent.body, bytes) else orjson.dumps(sent.body)
        has_key = sent.path.startswith(f"{agent.BASE}/files/") or "/helicone/" in sent.path
        answer = await self.serving.send(
            sent.path,
            content,
            sent.kind,
            method=sent.method,
            key=None if has_key else self.key,
            headers=sent.headers,
        )
        return answer.status, json.loads(answer.body) if answer.body else None

    async def made(self, path: str, **fields: Any) -> str:
        """Create an object; return its id."""
        status, said = await self.send(Sent(path, fields))
        assert 200 <= status < 300, said
        while "id" not in said:
            said = said[0] if isinstance(said, list) else next(iter(said.values()))
        return str(said["id"])


async def things(asking: Asking, hook: str) -> Things:
    serving = asking.serving
    await serving.make_connection()
    assert (
        201 == (await asking.send(Sent("/unit-cost/v1/telemetry/allocation/calls", b"{}", method="PUT")))[0]
    )
    assert 200 == (await asking.send(Sent("/unit-cost/v1/telemetry/allocation/calls/sum", body(usage()))))[0]
    assert 200 == (await asking.send(Sent("/v1/ai-control-plane/enroll", {"device_id": "laptop"})))[0]
    urls = json.loads((await agent.announce(serving, ["one.parquet"], asking.key)).body)
    views = [
        await asking.made("/v2/views", name=name, filter={"team": [name]}, principal_dimension="model")
        for name in ("one", "spare")
    ]
    budget = await asking.made("/v2/budgets", name="one", view={"id": views[0]}, default_amount="1")
    insight = await asking.made("/v2/insights", title="old")
    comment = await asking.made(f"/v2/insights/{insight}/comments", message="old")
    for name in ("ml", "ops"):
        assert 200 == (await asking.send(Sent(f"/v2/allocation/namespaces/{name}", kind=None)))[0]
    status, said = await asking.send(Sent("/v2/allocation/definitions", DEFINITION, TEXT))
    assert 202 == status, said
    saving = await a_saving(serving)
    note = await asking.made(f"/v2/optimize/recommendations/{saving}/comments", message="old")
    role = await asking.made("/v2/access-control/roles", name="old", data_access="full")
    [cluster] = serving.app.services.storage.clusters.all()
    return Things(
        hook=hook,
        url="/" + urls["one.parquet"].partition("://")[2].partition("/")[2],
        view=views[0],
        spare_view=views[1],
        budget=budget,
        insight=insight,
        comment=comment,
        job=said["publish_job"]["id"],
        saving=saving,
        saving_comment=note,
        role=role,
        cluster=cluster.id,
    )


async def a_saving(serving: Serving) -> str:
    """Return the id of a recommendation that comes from a call that could cost less."""
    services = serving.app.services.operators
    call = Inference(
        id=b"0" * 16, source="litellm", provider="openai", request_model="gpt-4.1", team="search",
        start_time=(int(services.spool.clock.now()) - 3600) * NS, input_tokens=10_000_000, output_tokens=1_000_000,
        tags={"service_tier": "priority"},
    )  # fmt: skip
    PriceBook.load().price_record(call)
    log = serving.app.services.storage.log
    await log.append_submission(
        Submission(topic=AI_TELEMETRY, received=1, records=[call], identities=[RecordIdentity(call.id)])
    )
    await services.money.require_adviser().find_and_store_savings()
    found, *_ = await services.installation.require_registry().recommendations.all()
    return found.id


def kept(schema: Schema) -> dict[str, str]:
    """Return a checksum of each table's rows."""
    with psycopg.connect(schema.dsn, autocommit=True) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p')"
                " AND NOT relispartition ORDER BY 1",
                (schema.name,),
            )
            if name not in OF_ITSELF
        ]
        found = {}
        for name in names:
            statement = (
                "SELECT coalesce(md5(string_agg(row, ',' ORDER BY row)), '') FROM"
                f" (SELECT (to_jsonb(t) - 'last_accessed')::text AS row FROM {schema.name}.{name} t) AS rows"
            )
            [[found[name]]] = connection.execute(statement.encode()).fetchall()
        return found


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the gateways' changes from each other and stop background tasks."""

    async def nothing(self: RegistryChangeFollower) -> None:
        pass

    async def never(self: LeaseTasks, name: str, work: Work, **_: Any) -> None:
        await asyncio.Event().wait()

    async def nothing_ever(self: BudgetEvaluator) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(RegistryChangeFollower, "read_registry_changes", nothing)
    monkeypatch.setattr(RegistryChangeFollower, "read_tables_without_announcements", nothing)
    monkeypatch.setattr(changes, "LOOKED_S", 1e9)  # the gateway behaves as if it had just read the changes
    monkeypatch.setattr(LeaseTasks, "run_while_leased", never)
    monkeypatch.setattr(BudgetEvaluator, "run", nothing_ever)


async def test_every_address(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, alone: None
) -> None:
    """
    Under the deleted key, every address answers 401 and no row changes, with two exceptions: an upload address
    answers 403, and a ping is answered but stored nowhere.
    """
    schema = new_schema()
    plain = shared_config(schema.dsn, schema.name, tmp_path)
    config = replace(plain, mcp=McpSettings(writes=True))
    one = await serve(config=config)
    scopes = sorted({row.scope for row in FOR_SENDERS if row.scope})
    key, hook = await one.make_key("all", scopes=scopes), await one.make_key("hook", scopes=[INGEST])
    there = await things(Asking(one, key), hook)
    other = await serve(config=config, key_name="other sender", chain_keys=("all",))
    sent = requests(key, there)
    writing = {row.name for row in FOR_SENDERS if not SAFE.issuperset(row.methods)}
    assert writing - KEEPS_NOTHING == sent.keys()
    registry = one.app.services.storage.registry
    assert registry is not None
    for name in ("all", "hook"):
        await registry.keys.delete(name, confirm=name, actor=ADA)
    devices = other.app.services.storage.devices
    for gateway in (one, other):
        await gateway.app.services.storage.devices.flush()
    before = kept(schema)
    asking, outcomes = Asking(other, key), {}
    for name, request in sent.items():
        outcomes[name] = await asking.send(request)
    await devices.flush()
    others = {name: said for name, said in outcomes.items() if said[0] != 401}
    assert {"put_container_file": 403, "ping_device": 200} == {
        name: said[0] for name, said in others.items()
    }, others
    assert "was deleted" in json.dumps(outcomes["export_traces"][1])
    assert before == kept(schema)
    assert [] == devices.unenrolled_names()


async def test_a_device_that_is_named_under_such_a_key(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, alone: None
) -> None:
    """
    If telemetry under a deleted key names a device, the device is neither enrolled nor noted as unenrolled. Its
    heartbeat is ignored, and it is not revoked or reset.
    """
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    fleet = ["ai-control-plane:enroll-device", "ai-control-plane:heartbeat-device", INGEST]
    keys = {
        "fleet": await one.make_key("fleet", scopes=fleet),
        "sender only": await one.make_key("sender only", scopes=[INGEST]),
    }
    lifecycle = one.app.services.single.devices
    registry = one.app.services.storage.registry
    assert registry is not None
    other = await serve(config=config, key_name="other sender", chain_keys=("fleet",))
    bearers = {
        name: other.app.services.receivers.access.admit(secret, INGEST, address="")
        for name, secret in keys.items()
    }
    _, own_key = await lifecycle.enrol_or_update(
        DeviceReport(id="laptop", want_key=True), bearers["fleet"], ""
    )
    assert own_key is not None
    await other.app.services.storage.devices.read_changes_of_other_processes(["laptop"])
    for name in keys:
        await registry.keys.delete(name, confirm=name, actor=ADA)
    await lifecycle.reset_device("laptop", ADA)
    before = kept(schema)
    outcomes = []
    for secret, device_id in ((keys["fleet"], "new"), (keys["sender only"], "unknown"), (own_key, "laptop")):
        answer = await other.send(
            "/v1/traces", json_traces(json_span()), key=secret, headers={"X-Device-Id": device_id}
        )
        outcomes.append(answer.status)
    for words in ({"state": "revoked"}, {"reset": True}, {"want_key": True, "fingerprint": "f"}):
        content = orjson.dumps({"device_id": "laptop", **words})
        outcomes.append(
            (await other.send("/v1/ai-control-plane/heartbeat", content, key=keys["fleet"])).status
        )
        outcomes.append((await other.send("/v1/ai-control-plane/enroll", content, key=keys["fleet"])).status)
    outcomes.append((await other.send("/v1/ai-control-plane/heartbeat", b"{}", key=own_key)).status)
    await other.app.services.storage.devices.flush()
    assert [401] * len(outcomes) == outcomes
    assert before == kept(schema)
