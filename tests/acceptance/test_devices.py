"""
Devices with the installed command: agent, gateway and upstream as processes, kill -9, revoked keys, paused syncs.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST, PING
from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE, post, request, span
from tests.free_ports import free_port
from tests.waiting import wait_until

PLANE = "/v1/ai-control-plane/"
AGENT_MIB = 100  # limit in MiB for the agent's resident memory, the same as for an idle gateway
BACKLOG_MIB = (
    12  # additional MiB for a start with a backlog, because the agent reads the backlog piece by piece
)
FLEET = tuple(word for scope in (ENROLL, HEARTBEAT, PING, INGEST) for word in ("--scope", scope))
PLANE_KEY = tuple(word for scope in (ENROLL, HEARTBEAT) for word in ("--scope", scope))

UPSTREAM = """
[devices]
heartbeat_interval = "1s"
[upstream]
base_url = "{url}"
[[upstream.keys]]
name = "telemetry"
secret_file = "telemetry.key"
use_cases = ["Send AI Telemetry"]
[[upstream.keys]]
name = "plane"
secret_file = "plane.key"
scopes = ["ai-control-plane:enroll-device", "ai-control-plane:heartbeat-device"]
"""

AGENT = """
[server]
listen = "127.0.0.1:0"
grpc_listen = "127.0.0.1:0"
[spool]
hold = "0s"
[agent]
gateway = "{url}"
enrolment_key_file = "enrolment.key"
[agent.labels]
team = "search"
"""


class Agent(Tollhouse):
    """An installation whose server is `tollhouse agent`."""

    verb = "agent"

    @property
    def device(self) -> str:
        id: str = json.loads((self.data / "device.json").read_text())["device_id"]
        return id

    def drained(self) -> bool:
        return self.queued("upstream/ai-telemetry") == 0


def ask(tollhouse: Tollhouse, what: str, key: str, **body: Any) -> tuple[int, Any]:
    answer = post(tollhouse.url, json.dumps(body).encode(), key, path=PLANE + what)
    return answer.status, answer.json()


def listed(tollhouse: Tollhouse) -> dict[str, dict[str, Any]]:
    found = tollhouse.json("devices", "list") if tollhouse.process is None else tollhouse.asked("/devices")
    return {row["id"]: row for row in found["devices"]}


@pytest.fixture
def chained(installations: Any, tmp_path: Path) -> tuple[Tollhouse, Tollhouse]:
    """Start an upstream, and a gateway with keys for it."""
    far: Tollhouse = installations("far", server='chain_keys = ["telemetry of near"]')
    telemetry, plane = far.key("telemetry of near"), far.key("plane of near", *PLANE_KEY)
    far.start()
    near: Tollhouse = installations("near", more=UPSTREAM.format(url=far.url))
    (near.directory / "telemetry.key").write_text(telemetry)
    (near.directory / "plane.key").write_text(plane)
    return near, far


@pytest.fixture
def agent(installations: Any) -> Any:
    def make(gateway: Tollhouse) -> Agent:
        made: Agent = installations("laptop", config=AGENT.format(url=gateway.url), kind=Agent)
        (made.directory / "enrolment.key").write_text(gateway.key("enrolment", *FLEET))
        return made

    return make


def test_a_heartbeat_of_a_device_that_nobody_enrolled(chained: tuple[Tollhouse, Tollhouse]) -> None:
    """
    With a key that may enrol, the response is 200, the device is listed, and the upstream gets enrolment and
    heartbeat. With another key, 403 gives the reason.
    """
    near, far = chained
    fleet, beat = near.key("fleet", *FLEET), near.key("beat", "--scope", HEARTBEAT)
    near.start()
    status, answer = ask(near, "heartbeat", fleet, device_id="laptop-1", hostname="mill", user="ada")
    assert status == 200
    assert answer["device"] == {"id": "laptop-1", "state": "enrolled", "heartbeat_interval_s": 1}
    status, answer = ask(near, "heartbeat", beat, device_id="laptop-2")
    assert status == 403
    assert answer["error"]["type"] == "missing_scope"
    assert ENROLL in answer["error"]["message"]
    assert {"laptop-1"} == set(listed(near))
    fields = {
        "id", "state", "link", "hostname", "platform", "agent_version", "user", "labels", "enrolled", "last_seen",
    }  # fmt: skip
    assert fields == set(listed(near)["laptop-1"])
    wait_until(lambda: "laptop-1" in listed(far), "the enrolment upstream")
    wait_until(lambda: shown(far, "laptop-1")["last_heartbeat"], "the heartbeat upstream")
    row = shown(far, "laptop-1")
    assert row["hostname"] == "mill"
    assert row["user"] == "ada"
    assert datetime.fromisoformat(row["enrolled"]) <= datetime.fromisoformat(row["last_heartbeat"])
    # the test changes this text once the upstream's response has arrived
    sent = {"id": "laptop-1", "sent": True, "held": None}
    wait_until(lambda: shown(near, "laptop-1")["upstream"] == sent, "the answer to the heartbeat")


def shown(tollhouse: Tollhouse, id: str) -> dict[str, Any]:
    device: dict[str, Any] = tollhouse.asked(f"/devices/{id}")["device"]
    return device


def test_the_operators_commands(installations: Any) -> None:
    """
    The commands approve, label, revoke and reset work with and without a server, and each change is in the audit
    list.
    """
    tollhouse: Tollhouse = installations(more='[devices]\npolicy = "approve"\n')
    fleet = tollhouse.key("fleet", *FLEET)
    tollhouse.start()
    assert "pending" == ask(tollhouse, "enroll", fleet, device_id="d1", want_key=True)[1]["device"]["state"]
    tollhouse.run("devices", "approve", "d1")
    key = ask(tollhouse, "enroll", fleet, device_id="d1", want_key=True)[1]["key"]
    assert 200 == post(tollhouse.url, request([span("chatcmpl-" + "a" * 24)]), key).status
    tollhouse.run("devices", "revoke", "d1")
    assert 401 == post(tollhouse.url, request([span("chatcmpl-" + "b" * 24)]), key).status
    assert 410 == ask(tollhouse, "heartbeat", fleet, device_id="d1")[0]
    tollhouse.wait_until_drained()
    tollhouse.stop()
    tollhouse.run("devices", "edit", "d1", "--label", "team=search", "--label", "floor=3")
    tollhouse.run("devices", "edit", "d1", "--label", "floor=")
    tollhouse.run("devices", "reset", "d1")
    assert {"team": "search"} == listed(tollhouse)["d1"]["labels"]
    assert ["d1"] == [
        each["id"] for each in tollhouse.json("devices", "list", "--state", "revoked")["devices"]
    ]
    tollhouse.run("devices", "show", "nobody", code=2)
    tollhouse.run("devices", "revoke", "d1", code=2)
    assert ["d1"] == [record["device"] for record in tollhouse.records()]
    assert [
        "device.enrol", "device.approve", "device.revoke", "device.label", "device.label", "device.reset",
    ] == audited(tollhouse)  # fmt: skip


def audited(tollhouse: Tollhouse) -> list[str]:
    with sqlite3.connect(tollhouse.directory / "tollhouse-data" / "registry.sqlite") as connection:
        rows = connection.execute(
            "SELECT action FROM audit WHERE action LIKE 'device.%' ORDER BY rowid"
        ).fetchall()
    connection.close()
    return [action for (action,) in rows]


def test_a_control_plane_key_that_the_upstream_refuses(chained: tuple[Tollhouse, Tollhouse]) -> None:
    """
    If the upstream refuses the key for devices, telemetry continues, and status and readiness show the devices as
    paused. When the key is enabled again, no device is lost.
    """
    near, far = chained
    far.run("keys", "disable", "plane of near")
    fleet = near.key("fleet", *FLEET)
    near.start()
    for n in range(20):
        assert 200 == ask(near, "heartbeat", fleet, device_id=f"d{n}")[0]
    wait_until(lambda: near.route("upstream/devices")["state"] == "parked", "the sync is parked")
    assert (
        200 == post(near.url, request([span("chatcmpl-" + "c" * 24)]), fleet, **{"X-Device-Id": "d7"}).status
    )
    far.wait_until_drained("archive/ai-telemetry")
    wait_until(lambda: len(far.records()) == 1, "the telemetry upstream")
    assert far.records()[0]["device"] == "d7"
    assert listed(far) == {}
    ready = KEEP_ALIVE.request("GET", near.url + "/readyz")
    routes = {row["route"]: row for row in ready.json()["routes"]}
    assert ready.status == 200
    assert routes["upstream/devices"]["state"] == "parked"
    assert routes["upstream/devices"]["queued"] == 20
    far.run("keys", "enable", "plane of near")
    assert near.process is not None
    near.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(listed(far)) == 20, "every device upstream")
    assert "running" == near.route("upstream/devices")["state"]


def test_a_device_that_heard_yes_is_there_after_a_kill(installations: Any) -> None:
    """After kill -9 directly after a 200, the device is enrolled with its heartbeat, and its key works."""
    tollhouse: Tollhouse = installations()
    fleet = tollhouse.key("fleet", *FLEET)
    tollhouse.start()
    keys = [ask(tollhouse, "enroll", fleet, device_id=f"d{n}", want_key=True)[1]["key"] for n in range(20)]
    for n, key in enumerate(keys):
        assert 200 == ask(tollhouse, "heartbeat", key, device_id=f"d{n}", spool={"records": n})[0]
    tollhouse.kill()
    tollhouse.start()
    assert {f"d{n}" for n in range(20)} == set(listed(tollhouse))
    assert {"records": 19, "oldest_age_s": None} == shown(tollhouse, "d19")["spool"]
    assert 200 == post(tollhouse.url, request([span("chatcmpl-" + "f" * 24)]), keys[7]).status


def test_an_outage_of_the_gateway(chained: tuple[Tollhouse, Tollhouse], agent: Any) -> None:
    """
    The gateway between agent and upstream is killed for a while. Every event arrives once, under the right device.
    """
    near, far = chained
    # fixed port, so that no other process gets it while the gateway is down
    near.config.write_text(near.config.read_text().replace(":0", f":{free_port()}", 1))
    near.start()
    laptop: Agent = agent(near)
    laptop.start(is_new=True)
    assert 0o600 == (laptop.data / "device.json").stat().st_mode & 0o777
    wait_until(lambda: (laptop.data / "device.key").exists(), "the device's own key")
    assert 0o600 == (laptop.data / "device.key").stat().st_mode & 0o777
    sent = 0

    def report(n: int) -> None:
        nonlocal sent
        for number in range(sent, sent + n):
            assert 200 == post(laptop.url, request([span(f"chatcmpl-{number:024d}")]), "").status
        sent += n

    report(20)
    wait_until(lambda: len(far.records()) == 20, "the first events upstream")
    near.kill()
    report(100)
    assert laptop.queued("upstream/ai-telemetry") > 0
    near.start()
    report(20)
    wait_until(lambda: len(far.records()) >= sent, "every event upstream")
    wait_until(laptop.drained, "the agent's backlog")
    records = far.records()
    assert sent == len(records) == len({record["id"] for record in records})
    assert {(laptop.device, "search")} == {(record["device"], record["team"]) for record in records}
    wait_until(lambda: laptop.device in listed(far), "the device upstream")
    row = shown(far, laptop.device)
    assert {"team": "search"} == row["labels"]
    wait_until(
        lambda: shown(near, laptop.device)["sources"].get("otel", {}).get("records", 0) > 0, "the sources"
    )
    assert [row["records_today"] for row in laptop.json("agent", "status")["assistants"]] == [0] * 6
    for tollhouse in (laptop, near, far):
        tollhouse.json("spool", "verify")
    used = memory_kib(laptop)
    print(f"agent: {used / 1024:.1f} MiB resident")
    assert used < AGENT_MIB * 1024


@pytest.mark.proof
def test_a_backlog_costs_an_agent_no_memory(installations: Any) -> None:
    """The backlog of an agent that was offline for weeks stays on disk after a restart."""
    laptop: Agent = installations("laptop", config=AGENT.format(url="http://127.0.0.1:9"), kind=Agent)
    (laptop.directory / "enrolment.key").write_text("of a gateway that cannot be reached")
    laptop.start(is_new=True)
    empty = memory_kib(laptop)
    for number in range(0, 10_000, 100):
        spans = [span(f"chatcmpl-{each:024d}") for each in range(number, number + 100)]
        assert 200 == post(laptop.url, request(spans), "").status
    laptop.stop()
    laptop.start(is_new=True)
    assert 10_000 == laptop.queued("upstream/ai-telemetry")
    used = memory_kib(laptop)
    print(f"agent: {empty / 1024:.1f} MiB resident, with a backlog {used / 1024:.1f}")
    assert used < empty + BACKLOG_MIB * 1024
    assert used < AGENT_MIB * 1024


def memory_kib(tollhouse: Tollhouse) -> int:
    assert tollhouse.process is not None
    status = Path(f"/proc/{tollhouse.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_agent_needs_no_key_but_accepts_only_loopback_addresses(installations: Any, agent: Any) -> None:
    """
    On an agent, local programs may use any key or none. Browser pages, other host names and other listen addresses
    are refused.
    """
    near: Tollhouse = installations("near")
    near.start()
    laptop: Agent = agent(near)
    laptop.start()
    body = request([span("chatcmpl-" + "d" * 24)])
    assert [200, 200] == [post(laptop.url, body, key).status for key in ("", "Bearer of-another-collector")]
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example:4318"}):
        assert 403 == post(laptop.url, body, "", **headers).status
    assert 401 == post(laptop.url, b"{}", "", path=PLANE + "enroll").status
    laptop.stop()
    done = laptop.attempt("agent", "--listen", "0.0.0.0:0")
    assert done.returncode == 2
    assert "loopback" in done.stderr


def test_a_revoked_agent_keeps_what_it_has(installations: Any, agent: Any) -> None:
    """
    After a revocation the agent's route pauses and nothing is lost. When the agent is approved again, it gets
    a new key and everything arrives.
    """
    near: Tollhouse = installations("near", more='[devices]\nheartbeat_interval = "1s"\n')
    near.start()
    laptop: Agent = agent(near)
    laptop.start()
    wait_until(lambda: (laptop.data / "device.key").exists(), "the device's own key")
    first = (laptop.data / "device.key").read_text()
    near.run("devices", "revoke", laptop.device)
    assert 200 == post(laptop.url, request([span("chatcmpl-" + "e" * 24)]), "").status
    wait_until(lambda: laptop.route("upstream/ai-telemetry")["state"] == "parked", "the route is parked")
    near.run("devices", "approve", laptop.device)
    laptop.stop()
    laptop.start()
    wait_until(lambda: len(near.records()) == 1, "what waited")
    assert laptop.device == near.records()[0]["device"]
    assert first != (laptop.data / "device.key").read_text()


def test_setup_and_undo(tmp_path: Path) -> None:
    """
    `agent setup` shows the changes to a person's existing settings, writes them, reports the status, and restores
    every byte.
    """
    home = tmp_path / "home"
    tollhouse = Tollhouse(tmp_path, ARCHIVE.format(server="", hold="0s", more=""))
    files = {
        "claude-code": (home / ".claude/settings.json", '{\n    // mine\n    "model": "opus",\n}\n'),
        "codex": (home / ".codex/config.toml", 'model = "gpt-5" # mine\n[tui]\nx = 1'),
        "gemini-cli": (home / ".gemini/settings.json", '{"theme":"Atom One","telemetry":{"enabled":false}}'),
        "copilot": (home / ".config/Code/User/settings.json", '{\r\n\t"editor.fontSize": 12 // big\r\n}\r\n'),
    }
    for path, text in files.values():
        path.parent.mkdir(parents=True)
        path.write_bytes(text.encode())
    where = ("--data", str(tmp_path / "agent"))
    names = (*files, "qwen-code")
    env = {**os.environ, "HOME": str(home)}
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        env.pop(variable, None)

    def run(*words: str, code: int = 0) -> str:
        done = tollhouse.attempt("agent", *words, *where, config=False, env=env)
        assert code == done.returncode, done.stderr
        return done.stdout

    def configured() -> list[str]:
        rows = json.loads(run("status", "--json"))["assistants"]
        return [row["assistant"] for row in rows if row["configured"] == "yes"]

    difference = run("setup", *names)
    assert '+    "env": {' in difference and "+[otel]" in difference
    assert [text.encode() for _, text in files.values()] == [path.read_bytes() for path, _ in files.values()]
    assert [] == configured()
    run("setup", *names, "--write")
    assert sorted(names) == sorted(configured())
    assert "// mine" in files["claude-code"][0].read_text()
    assert "needs no change" in run("setup", *names)
    run("setup", *names, "--undo")
    assert [text.encode() for _, text in files.values()] == [path.read_bytes() for path, _ in files.values()]
    assert not (home / ".qwen/settings.json").exists()
    assert [] == [path for path in home.rglob("*") if "tollhouse" in path.name]
    run("setup", "codex", "--undo", code=1)
