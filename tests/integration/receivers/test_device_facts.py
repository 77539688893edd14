"""Facts of machines and coding assistants in heartbeats: what is stored, left out, kept and shown."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.devices import lifecycle as rules
from gateway.normalise.assistants import ASSISTANTS
from gateway.operations.devices.devices import DeviceWithState, describe_device_details
from spool.registry.scopes import ENROLL, HEARTBEAT
from tests.integration.conftest import ACTOR, Serving
from tests.integration.receivers.test_devices import ALL, ask, found, said, traces
from tests.rounds import part

FACTS = {
    "serial": "C02XL0GYJGH5",
    "os": "macos 26.1",
    "agent": {"service": "daemon", "rss_mib": 41, "started_at": "2026-11-26T08:00:00Z"},
    "policy": {"sha256": "ab" * 32, "applied_at": "2026-11-26T08:00:00Z"},
    "assistants": {
        "codex": {
            "state": "overridden",
            "cause": "other_endpoint",
            "version": "0.169.0",
            "used_at": "2026-11-26T09:00:00Z",
            "configured": True,
        }
    },
}


def shown(server: Serving, id: str = "laptop-1") -> Any:
    """Return the device as the operator API shows it."""
    lifecycle = server.app.services.single.devices
    device = found(server, id)
    return describe_device_details(DeviceWithState(device, lifecycle.machine_state(device)))


def calls(device: str, service: str) -> bytes:
    """Return a call of now that a coding assistant reports by a span. The resource names the device."""
    body = json.loads(traces(device, endTimeUnixNano=str(time.time_ns())))
    resource = body["resourceSpans"][0]["resource"]
    resource["attributes"].append({"key": "service.name", "value": {"stringValue": service}})
    return json.dumps(body).encode()


async def test_facts_are_stored_and_shown(serving: Serving) -> None:
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    answer = await ask(serving, "heartbeat", {"device_id": "laptop-1", **FACTS}, key)
    assert answer.status == 200
    assert {"device"} == said(answer).keys()
    device = shown(serving)
    assert {name: FACTS[name] for name in ("serial", "os", "agent", "policy")} == {
        name: device[name] for name in ("serial", "os", "agent", "policy")
    }
    assert [
        {
            "name": "codex",
            "state": "overridden",
            "cause": "other_endpoint",
            "setting": "overridden",
            "use": "none",
            "version": "0.169.0",
            "newest_call": None,
        }
    ] == device["assistants"]


def day(days_ago: int) -> str:
    return datetime.fromtimestamp(time.time() - days_ago * 86_400, UTC).date().isoformat()


@pytest.mark.parametrize(
    ("named", "numbers", "is_valid"),
    [
        (1, [100_000, 100_000, 25_000], True),
        (1, [100_001, 0, 0], False),
        (1, [5, 0, 0], True),
        (1, [5, 6, 2], False),
        (1, [5, 4, 5], False),
        (1, [5, 4, 0], False),
        (1, [5, -1, 0], False),
        (1, [5, True, True], False),
        (1, [5, 4.0, 1], False),
        (1, [5, 4], False),
        (1, "541", False),
        (-2, [5, 4, 1], False),
        ("", [5, 4, 1], False),
        ("2026-13-01", [5, 4, 1], False),
        ("20260101", [5, 4, 1], False),
    ],
)
async def test_an_invalid_day_of_counts_is_left_out(
    serving: Serving, named: int | str, numbers: Any, *, is_valid: bool
) -> None:
    """The other days of the heartbeat count, and so does the rest of it. A number is a day before today."""
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    name = day(named) if isinstance(named, int) else named
    fine = {day(0): [3, 2, 1]}
    codex = {"state": "reporting", "use": "losing", "slots": {**fine, name: numbers}}
    body = {"device_id": "laptop-1", "assistants": {"codex": codex}}
    assert (await ask(serving, "heartbeat", body, key)).status == 200
    stored = json.loads(found(serving).heartbeat)["assistants"]["codex"]
    assert stored == {**codex, "slots": {**fine, **({name: numbers} if is_valid else {})}}


@pytest.mark.parametrize("slots", [None, [], "x", 5])
async def test_counts_of_another_form_are_left_out(serving: Serving, slots: Any) -> None:
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    body = {"device_id": "laptop-1", "assistants": {"codex": {"state": "reporting", "slots": slots}}}
    assert (await ask(serving, "heartbeat", body, key)).status == 200
    assert json.loads(found(serving).heartbeat)["assistants"] == {"codex": {"state": "reporting"}}


async def test_the_newest_eight_days_of_counts_are_stored(serving: Serving) -> None:
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    slots = {day(ago): [ago, 0, 0] for ago in range(9)}
    body = {"device_id": "laptop-1", "assistants": {"codex": {"state": "reporting", "slots": slots}}}
    assert (await ask(serving, "heartbeat", body, key)).status == 200
    stored = json.loads(found(serving).heartbeat)["assistants"]["codex"]["slots"]
    assert stored == {day(ago): [ago, 0, 0] for ago in range(8)}


async def test_absent_facts_change_nothing(serving: Serving) -> None:
    """A heartbeat without facts, such as that of an older agent, keeps the earlier facts. A reset forgets them."""
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    await ask(serving, "heartbeat", {"device_id": "laptop-1", **FACTS}, key)
    sources = {"codex": {"records": 3}}
    await ask(serving, "heartbeat", {"device_id": "laptop-1", "os": "macos 26.2", "sources": sources}, key)
    device = shown(serving)
    assert ("macos 26.2", "C02XL0GYJGH5", "overridden") == (
        device["os"],
        device["serial"],
        device["assistants"][0]["state"],
    )
    assert sources["codex"]["records"] == device["sources"]["codex"]["records"]
    await ask(serving, "heartbeat", {"device_id": "laptop-1", "assistants": {}}, key)
    assert [] == shown(serving)["assistants"]
    await serving.app.services.single.devices.reset_device("laptop-1", ACTOR)
    assert (None, None) == (shown(serving)["serial"], shown(serving)["os"])


BAD: list[Any] = [
    None,
    True,
    -1,
    1e300,
    2**70,
    "",
    "x" * 65,
    "a\nb",
    "\u0000",
    "é" * 10,
    [],
    [[[]]],
    {},
    {"": {}},
    {"codex": None},
    {"codex": {"state": "broken"}},
    {"codex": {"state": ["reporting"]}},
    {"codex": {"state": {}}},
    {"codex": {"cause": "tls"}},
    {"sha256": "x", "applied_at": "yesterday", "error": "It failed: /home/ada"},
    {"service": 7, "rss_mib": -1, "started_at": 0},
    {"rss_mib": True, "started_at": "0001-01-01T00:00:00+14:00"},
    {"started_at": "9999-12-31T23:59:59-14:00"},
    {"../../etc": {"state": "unused"}, "x" * 65: {"state": "unused"}},
]


@pytest.mark.parametrize("value", part(BAD, every=3))
async def test_a_bad_value_never_costs_the_heartbeat(serving: Serving, value: Any) -> None:
    """
    A wrong value in any field of a heartbeat does not cost the heartbeat: it is stored, and nothing of the value
    is.
    """
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    for field in FACTS:
        answer = await ask(serving, "heartbeat", {"device_id": field, field: value, "hostname": "mill"}, key)
        assert answer.status == 200
        device = shown(serving, field)
        assert ("mill", True) == (device["hostname"], device["last_heartbeat"] is not None)
        assert not device[field]


async def test_bad_parts_of_an_assistant_are_left_out(serving: Serving) -> None:
    """
    If an assistant's entry has a cause of another state or an overlong version, only these parts are left out. The
    state stays.
    """
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    claim = {"state": "unknown", "cause": "tls", "version": "v" * 65, "used_at": "x", "more": {"a": 1}}
    await ask(serving, "heartbeat", {"device_id": "laptop-1", "assistants": {"codex": claim}}, key)
    assert json.loads(found(serving).heartbeat) == {"assistants": {"codex": {"state": "unknown"}}}


async def test_stored_facts_are_small(serving: Serving) -> None:
    """The largest facts of a device that are stored take less than 16 KiB. Unknown assistants are left out."""
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    claim = {
        "state": "not_configured",
        "cause": "policy_not_applied",
        "version": "1" * 64,
        "used_at": "2026-11-26T09:00:00.000000+00:00",
        "configured": False,
    }
    many = dict.fromkeys((*ASSISTANTS, *(f"{n:03}{'a' * 61}" for n in range(100))), claim)
    answer = await ask(serving, "heartbeat", {**FACTS, "device_id": "laptop-1", "assistants": many}, key)
    assert answer.status == 200
    assert set(ASSISTANTS) == {each["name"] for each in shown(serving)["assistants"]}
    assert 1024 < len(found(serving).heartbeat) < 16 * 1024


async def test_nested_too_deeply(serving: Serving) -> None:
    """A heartbeat that is nested too deeply gets a 400, and the server goes on."""
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    body = b'{"device_id": "laptop-1", "assistants": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    answer = await serving.send("/v1/ai-control-plane/heartbeat", body, key=key)
    assert answer.status == 400
    assert 200 == (await ask(serving, "heartbeat", {"device_id": "laptop-1"}, key)).status


async def test_only_calls_that_arrive_make_an_assistant_reporting(serving: Serving) -> None:
    """
    If an agent only claims that an assistant is `reporting`, the assistant is shown as unused. After a call of the
    Copilot CLI from this device, it is `reporting`.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    claims = {"copilot": {"state": "reporting"}, "gemini-cli": {"state": "reporting"}}
    for id in ("laptop-1", "laptop-2"):
        await ask(serving, "heartbeat", {"device_id": id, "assistants": claims}, key)
    assert ["unused", "unused"] == [each["state"] for each in shown(serving)["assistants"]]
    assert 200 == (await serving.send("/v1/traces", calls("laptop-1", "github-copilot"), key=key)).status
    states = [(each["name"], each["state"]) for each in shown(serving)["assistants"]]
    assert [("copilot", "reporting"), ("gemini-cli", "unused")] == states
    assert ["unused", "unused"] == [each["state"] for each in shown(serving, "laptop-2")["assistants"]]


@pytest.mark.parametrize(("service", "names"), [("opencode", ["opencode"]), ("shop", [])])
async def test_opencode_reports_by_its_service_name(serving: Serving, service: str, names: list[str]) -> None:
    """
    opencode reports with a library that other programs also use, so it is recognized by its service name. Calls of
    such other programs are calls of no assistant.
    """
    key = await serving.make_key("fleet", scopes=ALL)
    await ask(serving, "heartbeat", {"device_id": "laptop-1"}, key)
    body = json.loads(calls("laptop-1", service))
    [span] = body["resourceSpans"][0]["scopeSpans"][0]["spans"]
    operation = {"key": "ai.operationId", "value": {"stringValue": "ai.generateText.doGenerate"}}
    model = {"key": "ai.model.id", "value": {"stringValue": "gpt-5-mini"}}
    tokens = {"key": "ai.usage.promptTokens", "value": {"intValue": 812}}
    span["attributes"] = [operation, model, tokens]
    body["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": "ai"}
    assert 200 == (await serving.send("/v1/traces", json.dumps(body).encode(), key=key)).status
    [record] = await serving.records()
    assert ("vercel_ai", "laptop-1") == (record.source, record.device)
    device = shown(serving)
    assert "reporting" == device["state"]
    assert names == [each["name"] for each in device["assistants"] if each["state"] == "reporting"]


async def test_the_interval_grows_with_the_fleet(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The heartbeat interval is one minute for each full or begun step of devices, and never shorter than the setting.
    """
    monkeypatch.setattr(rules, "DEVICES_PER_STEP", 2)
    key = await serving.make_key("fleet", scopes=(ENROLL, HEARTBEAT))
    intervals = []
    for n in range(5):
        answer = await ask(serving, "heartbeat", {"device_id": f"laptop-{n}"}, key)
        intervals.append(said(answer)["device"]["heartbeat_interval_s"])
    assert [60, 60, 120, 120, 180] == intervals
