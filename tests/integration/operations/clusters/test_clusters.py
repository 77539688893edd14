"""Clusters over the operator API: silence, changes and their actors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from gateway.configuration.sections import ClusterSettings
from gateway.devices.machine_state import MISSED
from gateway.devices.reports import DeviceReport
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clusters import ReportedCluster
from spool.registry.scopes import ENROLL
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.spool.kept import audit_rows

MILL = ReportedCluster(account="1", region="eu", name="mill", state="init_ok")
ONE = f"/clusters/{MILL.id}"
FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))
SILENT_AFTER_S = MISSED * ClusterSettings().report_interval


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as opened:
        await opened.services.senders.require_clusters().table.store_report(MILL)
        yield opened


async def listed(server: OperatorServer, **query: str) -> list[str]:
    answer = await server.ask("GET", "/clusters", **query)
    assert 200 == answer.status, answer.payload
    return [row["name"] for row in answer.payload["clusters"]]


async def test_a_cluster_without_three_reports_is_silent(server: OperatorServer) -> None:
    """After three missed reports, a cluster is silent until its next report."""
    server.clock.move(SILENT_AFTER_S)
    assert await listed(server, silent="false") == ["mill"]
    assert await listed(server, silent="true") == []
    server.clock.move(1)
    assert await listed(server, silent="false") == []
    assert await listed(server, silent="true") == ["mill"]
    await server.services.senders.require_clusters().table.store_report(MILL)
    assert ["mill"] == await listed(server, silent="false")


async def test_a_silent_cluster_has_an_insight(server: OperatorServer) -> None:
    """A cluster has an insight only while it is silent and enabled."""
    clusters = server.services.senders.require_clusters()
    assert clusters.count_by_state() == {"heard": 1, "silent": 0, "disabled": 0}
    assert await insights(server) == []
    server.clock.move(SILENT_AFTER_S + 1)
    await server.ask("PATCH", ONE, {"enabled": False})
    assert clusters.count_by_state() == {"heard": 0, "silent": 0, "disabled": 1}
    assert await insights(server) == []
    await server.ask("PATCH", ONE, {"enabled": True})
    assert {"heard": 0, "silent": 1, "disabled": 0} == clusters.count_by_state()
    assert ["The cluster mill has stopped reporting"] == await insights(server)


async def insights(server: OperatorServer) -> list[str]:
    """Return the titles of insights after an inspection."""
    await server.ask("POST", "/insights/run", {})
    return [row["title"] for row in (await server.ask("GET", "/insights")).payload["insights"]]


async def test_the_heartbeats_of_its_device_keep_it_from_silence(server: OperatorServer) -> None:
    """Heartbeats of a device keep its cluster from being silent. Those of a revoked device do not count."""
    clusters, lifecycle = (
        server.services.senders.require_clusters(),
        server.services.senders.require_devices(),
    )
    labels = {"kind": "cluster", "account": "1", "region": "eu", "cluster": "mill"}
    report = DeviceReport(id="agent", labels=labels)
    device, _ = await lifecycle.enrol_or_update(report, FLEET, "")
    await clusters.store_device_cluster(device, FLEET)
    server.clock.move(SILENT_AFTER_S + 1)
    assert ["mill"] == await listed(server, silent="true")
    device, _ = await lifecycle.store_heartbeat_and_issue_token(report, FLEET, "")
    await clusters.store_device_cluster(device, FLEET)
    assert ["mill"] == await listed(server, silent="false")
    [row] = (await server.ask("GET", "/clusters")).payload["clusters"]
    assert row["last_seen"] > row["first_seen"]
    assert 200 == (await server.ask("POST", "/devices/agent/revoke")).status
    assert ["mill"] == await listed(server, silent="true")


async def test_changes_and_their_audit_rows(server: OperatorServer) -> None:
    """A cluster is changed, then deleted by its exact id. Each audit row names the actor."""
    answer = await server.ask("PATCH", ONE, {"display_name": "Mill", "enabled": False})
    assert answer.payload["cluster"]["display_name"] == "Mill"
    assert answer.payload["cluster"]["enabled"] is False
    assert answer.payload == (await server.ask("GET", ONE)).payload
    for query in ({}, {"confirm": "mill"}):
        assert 400 == (await server.ask("DELETE", ONE, **query)).status
    assert 200 == (await server.ask("DELETE", ONE, confirm=MILL.id)).status
    assert [] == await listed(server)
    assert 404 == (await server.ask("GET", ONE)).status
    assert 404 == (await server.ask("PATCH", ONE, {})).status
    assert 404 == (await server.ask("DELETE", ONE, confirm=MILL.id)).status
    rows = [row for row in await audit_rows(server.registry) if row.action.startswith("cluster.")]
    assert [("cluster.update", ADA), ("cluster.delete", ADA)] == [(row.action, row.actor) for row in rows]
    assert {"display_name": "Mill", "enabled": False, "labels": {}, "config": {}} == rows[1].before


async def test_the_limit_follows_the_configuration(server: OperatorServer) -> None:
    """A reload changes the limit of clusters."""
    clusters = server.services.senders.require_clusters()
    clusters.configure(ClusterSettings(max=7, report_interval=1))
    server.clock.move(4)
    assert clusters.table.max == 7
    assert await listed(server, silent="true") == ["mill"]
