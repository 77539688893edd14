"""Clusters over HTTP: rights, lists, updates and the reports of devices about their clusters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from gateway.configuration.sections import ClusterSettings, Config
from spool.clusters import ClusterCheck, ReportedCluster
from spool.registry.scopes import ENROLL, HEARTBEAT
from spool.shares import KeyShare
from tests.integration.conftest import Serve, Serving
from tests.spool.kept import audit_rows

GET, UPDATE = "container:get-clusters", "container:update-cluster"
ALL = "/v2/container/clusters"
KEPT = (
    ReportedCluster(
        account="1", region="eu", name="mill", state="init_ok", agent_version="1.3", k8s_version="1.31",
        checks=(ClusterCheck(name="api_key_valid", passing=False, error="401"),),
    ),
    ReportedCluster(account="1", region="us", name="alpha", state="pod_started", agent_version="1.2"),
    ReportedCluster(account="2", region="eu", name="barn"),
)  # fmt: skip


class Desk:
    """A gateway that knows three clusters, with a key for them."""

    def __init__(self, serving: Serving, key: str) -> None:
        self.serving = serving
        self.key = key

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", status: int = 200
    ) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await self.serving.send(path, sent, method=method, key=key or self.key)
        assert status == answer.status, answer.body
        return json.loads(answer.body)

    async def names(self, **query: str) -> list[str]:
        return [row["name"] for row in (await self.ask("GET", f"{ALL}?{urlencode(query)}"))["clusters"]]


async def desk(serve: Serve) -> Desk:
    serving = await serve()
    for cluster in KEPT:
        await serving.app.services.storage.clusters.store_report(cluster)
    return Desk(serving, await serving.make_key("clusters", scopes=(GET, UPDATE)))


async def test_the_list(serve: Serve) -> None:
    """
    The list of clusters is sorted by name and has the declared filters and sorts. An unknown filter is refused.
    """
    asking = await desk(serve)
    assert ["alpha", "barn", "mill"] == await asking.names()
    assert ["mill", "barn"] == await asking.names(sort_key="name", sort_order="desc", limit="2")
    assert ["barn", "alpha", "mill"] == await asking.names(sort_key="last_seen", sort_order="desc")
    for query, expected in (
        ({"state": "init_ok"}, ["mill"]),
        ({"state": "unknown"}, ["barn"]),
        ({"account": "1"}, ["alpha", "mill"]),
        ({"region": "eu"}, ["barn", "mill"]),
        ({"agent_version": "1.2"}, ["alpha"]),
        ({"silent": "true"}, []),
    ):
        assert expected == await asking.names(**query)
    await asking.ask("GET", f"{ALL}?colour=red", status=400)


async def test_one_cluster(serve: Serve) -> None:
    asking = await desk(serve)
    one = f"{ALL}/{KEPT[0].id}"
    read = (await asking.ask("GET", one))["cluster"]
    assert [read] == (await asking.ask("GET", f"{ALL}?state=init_ok"))["clusters"]
    assert ("mill", "init_ok", False, True, {}) == tuple(
        read[name] for name in ("name", "state", "silent", "enabled", "config")
    )
    assert [{"name": "api_key_valid", "passing": False, "error": "401"}] == read["checks"]
    assert read["first_seen"] == read["last_seen"]
    await asking.ask("GET", f"{one}?expand=1", status=400)
    await asking.ask("GET", f"{ALL}/none", status=404)


async def test_cluster_update_is_stored_and_audited(serve: Serve) -> None:
    """
    Omitted fields stay, a label set to null is removed, and a device report overwrites none of the changes.
    """
    asking = await desk(serve)
    one = f"{ALL}/{KEPT[0].id}"
    config = {"scrape_interval": "60s", "x_note": [1]}
    await asking.ask("PATCH", one, {"labels": {"team": "search", "floor": "3"}, "config": config})
    changed = await asking.ask(
        "PATCH", one, {"display_name": "Mill", "enabled": False, "labels": {"floor": None}}
    )
    await asking.serving.app.services.storage.clusters.store_report(KEPT[0])
    shown = (await asking.ask("GET", one))["cluster"]
    assert {**changed["cluster"], "last_seen": shown["last_seen"]} == shown
    assert ("Mill", False, {"team": "search"}, {"scrape_interval": "60s", "x_note": [1]}) == tuple(
        shown[name] for name in ("display_name", "enabled", "labels", "config")
    )
    registry = asking.serving.app.services.storage.registry
    assert registry is not None
    rows = [row for row in await audit_rows(registry) if row.action == "cluster.update"]
    assert [
        ("clusters", {"labels": {}, "config": {}}),
        ("clusters", {"display_name": "", "enabled": True}),
    ] == [
        (
            row.actor,
            {name: value for name, value in (row.before or {}).items() if name != "labels" or not value},
        )
        for row in rows
    ]


WRONG_UPDATES: Sequence[object] = [
    {"display_name": "x" * 257},
    {"display_name": "a\x00b"},
    {"labels": {"no good": "x"}},
    {"config": {"x_a": "x" * 20_000}},
    {"config": {"scrape_intervall": "60s"}},
    {"config": {"scrape_interval": 60}},
    {"config": {"metrics": {"exclude": "a"}}},
    {"config": {"log_level": "loud"}},
    {"config": []},
    {"enabled": "no"},
    {"state": "init_ok"},
    [],
]


async def test_a_wrong_update_changes_nothing(serve: Serve) -> None:
    """
    If an update of a cluster names a field that only the cluster itself reports, or is wrong in another way, it
    gets a 400 and nothing changes.
    """
    asking = await desk(serve)
    one = f"{ALL}/{KEPT[0].id}"
    before = await asking.ask("GET", one)
    for body in WRONG_UPDATES:
        await asking.ask("PATCH", one, body, status=400)
        assert before == await asking.ask("GET", one), body


LABELS = {"kind": "cluster", "account": "3", "region": "ap", "cluster": "yard"}


async def test_a_device_of_kind_cluster_reports_for_one(serve: Serve) -> None:
    """
    The device labels name its cluster. Heartbeats keep the cluster's last-seen time and agent version current.
    """
    asking = await desk(serve)
    key = await asking.serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    for path, version in (("enroll", "1"), ("heartbeat", "1"), ("heartbeat", "2")):
        body = {"device_id": "yard-agent", "labels": LABELS, "agent_version": version}
        await asking.ask("POST", f"/v1/ai-control-plane/{path}", body, key=key)
        [yard] = (await asking.ask("GET", f"{ALL}?region=ap"))["clusters"]
        assert ("yard", "3", "unknown", version) == tuple(
            yard[name] for name in ("name", "account", "state", "agent_version")
        )
    body = {"device_id": "laptop", "labels": {"account": "3", "cluster": "yard"}}
    await asking.ask("POST", "/v1/ai-control-plane/enroll", body, key=key)
    assert 4 == len(await asking.names())


async def test_a_full_list_refuses_no_heartbeat(serve: Serve) -> None:
    """A device is enrolled even if the list of clusters is full. Its cluster is listed when there is room."""
    asking = await desk(serve)
    table = asking.serving.app.services.storage.clusters
    table.max = len(table)
    key = await asking.serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    body = {"device_id": "yard-agent", "labels": LABELS}
    await asking.ask("POST", "/v1/ai-control-plane/enroll", body, key=key)
    assert 3 == len(await asking.names())
    table.max += 1
    await asking.ask("POST", "/v1/ai-control-plane/heartbeat", body, key=key)
    assert 4 == len(await asking.names())


async def test_a_cluster_that_sends_files_is_heard_unless_it_is_disabled(serve: Serve) -> None:
    """
    An upload lists an unknown cluster. A disabled cluster is refused until it is enabled. A full list
    refuses no upload.
    """
    asking = await desk(serve)
    key = await asking.serving.make_key("agent", scopes=("container-metrics_v1:upload",))
    upload = "/v1/container-metrics/upload?cluster_name={}&cloud_account_id=9&region=eu"
    body = {"files": [{"reference_id": "a.parquet"}]}
    await asking.ask("POST", upload.format("yard"), body, key=key)
    [yard] = (await asking.ask("GET", f"{ALL}?account=9"))["clusters"]
    assert yard["name"] == "yard"
    assert yard["state"] == "unknown"
    assert yard["silent"] is False
    for enabled, status in ((False, 403), (True, 200)):
        await asking.ask("PATCH", f"{ALL}/{yard['id']}", {"enabled": enabled})
        await asking.ask("POST", upload.format("yard"), body, key=key, status=status)
    asking.serving.app.services.storage.clusters.max = 4
    await asking.ask("POST", upload.format("late"), body, key=key)
    assert ["yard"] == await asking.names(account="9")


async def test_the_operator_hears_which_key_brings_nearly_all_clusters_that_it_may(serve: Serve) -> None:
    """
    If one key added nearly all clusters that `clusters.max` allows, the operator sees which key it is. Only
    clusters that were added since the start count.
    """
    serving = await serve(config=Config(clusters=ClusterSettings(max=10)))
    key = await serving.make_key("agent", scopes=("container-metrics_v1:upload",))
    for number in range(4):
        path = f"/v1/container-metrics/upload?cluster_name=c{number}&cloud_account_id=9&region=eu"
        answer = await serving.send(path, b'{"files": [{"reference_id": "a"}]}', "application/json", key=key)
        assert 200 == answer.status
    assert [KeyShare("clusters.max", "agent", 4, 5)] == list(
        await serving.app.services.operators.senders.shares()
    )
