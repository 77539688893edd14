"""Devices, clusters, connections, keys and accounts as assistants see them: page by page, without secrets."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gateway.devices.reports import DeviceReport
from gateway.mcp.tool import MAX_BYTES
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import Device
from spool.registry.scopes import ENROLL
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant

TOOL = "get_resource_metadata"
FLEET = AuthenticatedKey("fleet", frozenset({ENROLL}))


async def enrol(assistant: Assistant, id: str, **report: Any) -> None:
    lifecycle = assistant.serving.app.services.single.devices
    await lifecycle.enrol_or_update(DeviceReport(id=id, fingerprint="finger-print", **report), FLEET, "")


@pytest.mark.proves("resource metadata for assistants")
async def test_each_kind_is_there(assistant: Assistant) -> None:
    """
    Each kind of resource has the same entries as its own list. Without a kind, the answer has only counts.
    """
    services = assistant.serving.app.services
    await enrol(assistant, "laptop-1", user="ada", labels={"team": "search"}, hostname="10.0.0.7")
    await services.single.clusters.record_data_from_cluster("1", "eu", "prod", FLEET)
    await assistant.serving.make_connection("bill", cloud_provider="AWS")
    counts = (await assistant.content(TOOL))["counts"]
    keys = services.operators.senders.access.keys()
    assert {"device": 1, "cluster": 1, "connection": 1, "key": len(keys), "account": 0} == counts
    found = {kind: await assistant.content(TOOL, kind=kind) for kind in counts}
    assert counts == {kind: each["total"] for kind, each in found.items()}
    [device], [cluster], [connection] = (found[kind]["rows"] for kind in ("device", "cluster", "connection"))
    assert device["id"] == "laptop-1"
    assert device["name"] == "laptop-1"
    assert device["owner"] == {"team": "search", "user": "ada"}
    assert cluster["name"] == "prod"
    assert cluster["account"] == "1"
    assert cluster["region"] == "eu"
    assert connection["id"] == "bill"
    assert connection["provider"] == "AWS"
    assert connection["cost_30d"] is None
    assert {key.name for key in keys} == {each["id"] for each in found["key"]["rows"]}


async def test_costs_are_those_of_the_ledger(assistant: Assistant) -> None:
    """The costs of a kind add up to the costs by its dimension."""
    await assistant.calls("gpt-4o", "gpt-4o")
    for kind, dimension in (("key", "sender"),):
        rows = (await assistant.content(TOOL, kind=kind, limit=100))["rows"]
        costs = await assistant.content("get_cost_data", group_by=[dimension])
        assert Decimal(costs["total"]["cost"]) == sum(Decimal(each["cost_30d"]) for each in rows) > 0
        assert 2 == sum(each["calls_30d"] for each in rows)


async def test_answers_contain_no_secret_digest_or_device_address(assistant: Assistant) -> None:
    """
    Answers about devices, clusters, connections, keys and accounts contain no secret, no digest and no device
    address.
    """
    await enrol(assistant, "laptop-1", hostname="10.1.2.3")
    answers = json.dumps([await assistant.call(TOOL, kind=kind) for kind in ("device", "key")])
    for secret in (assistant.key, assistant.serving.key, "finger-print", "10.1.2.3", "digest"):
        assert secret not in answers


async def test_filters_and_their_nearest(assistant: Assistant) -> None:
    """Filters include and exclude values. A wrong value returns the nearest valid one."""
    for number, team in enumerate(("search", "chat", "chat")):
        await enrol(assistant, f"laptop-{number}", labels={"team": team})

    async def ids(**asked: Any) -> list[str]:
        rows = (await assistant.content(TOOL, kind="device", sort="name", **asked))["rows"]
        return [each["id"] for each in rows]

    assert ["laptop-1", "laptop-2"] == await ids(filters={"team": ["chat"]})
    assert ["laptop-0"] == await ids(filters={"!team": ["chat"]})
    assert ["laptop-0"] == await ids(filters={"tag:team": ["search"]})
    assert ["laptop-2"] == await ids(match="TOP-2")
    assert "did you mean search" in await assistant.mistake(TOOL, kind="device", filters={"team": ["serach"]})
    assert "did you mean region" in await assistant.mistake(TOOL, kind="device", filters={"regoin": ["x"]})
    assert "did you mean laptop-1" in await assistant.mistake(TOOL, kind="device", id="laptop1")
    assert "need a kind" in await assistant.mistake(TOOL, match="x")
    facets = (await assistant.content(TOOL, kind="device"))["facets"]["team"]
    assert [("chat", 2), ("search", 1)] == [(each["value"], each["rows"]) for each in facets]


async def test_a_large_fleet_stays_small(assistant: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    300 devices with 32 labels are 50 times the size limit of an answer. Each answer stays within the limit,
    and the pages list every device once. Without a limit, a page has 25 devices.
    """
    labels = {f"label-{number}": "x" * 200 for number in range(32)}
    fleet = [
        Device(id=f"d{number:04}", enrolled_at=1.0, enrolled_by="fleet", last_seen=2.0, labels=labels)
        for number in range(300)
    ]
    monkeypatch.setattr(assistant.serving.app.services.single.devices.table, "all", lambda: fleet)
    first = await assistant.call(TOOL, kind="device", limit=100)
    assert len(json.dumps(first).encode()) < 1.2 * MAX_BYTES
    whole = await assistant.content(TOOL, kind="device", id="d0007")
    assert 32 == len(whole["rows"][0]["tags"])
    seen: list[str] = []
    pages = 0
    monkeypatch.setattr(assistant.serving.app.services.single.devices.table, "all", lambda: fleet[:60])
    cursor: dict[str, str] = {}
    while True:
        page = await assistant.content(TOOL, kind="device", limit=100, **cursor)
        pages += 1
        seen += [each["id"] for each in page["rows"]]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [each.id for each in fleet[:60]] == seen
    assert pages > 2
    small = [replace(device, labels={}) for device in fleet[:30]]
    monkeypatch.setattr(assistant.serving.app.services.single.devices.table, "all", lambda: small)
    usual = await assistant.content(TOOL, kind="device")
    assert 25 == len(usual["rows"])
    assert usual["next_cursor"]


@pytest.mark.parametrize("name", ["![x](https://evil.example)", "<img src=x>", "a|b\n# c", "*b* `c` _d_"])
async def test_hostile_names_stay_text(assistant: Assistant, name: str) -> None:
    """A hostile name in an answer creates no link, picture or heading."""
    registry = assistant.serving.app.services.operators.installation.require_registry()
    await registry.keys.create(name=name.replace("\n", " "), scopes=[ENROLL], use_cases=[], actor=ACTOR)
    text = (await assistant.call(TOOL, kind="key"))["content"][0]["text"]
    for markup in ("![", "](", "<img", "https://", "*b*", "`c`", " _d_"):
        assert markup not in text.replace("\\[", "").replace("\\]", ""), text


async def test_a_device_has_the_states_of_its_assistants(assistant: Assistant) -> None:
    claims = {"codex": {"state": "overridden", "cause": "project"}, "copilot": {"state": "unused"}}
    report = DeviceReport(id="laptop-2", heartbeat=msgspec.json.encode({"assistants": claims}))
    lifecycle = assistant.serving.app.services.single.devices
    await lifecycle.store_heartbeat_and_issue_token(report, FLEET, "")
    [row] = (await assistant.content(TOOL, kind="device", id="laptop-2"))["rows"]
    assert {"coding_assistants": "codex overridden (project), copilot unused"} == row["tags"]
