"""
In a fleet of 300 laptops with the installed program, the console's API, the command and the metric name each laptop
that does not report, with its cause.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from spool.registry.scopes import ENROLL, HEARTBEAT, INGEST
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE, post
from tests.integration.payloads import json_span

HEARTBEATS = "/v1/ai-control-plane/heartbeat"
FLEET = tuple(word for scope in (ENROLL, HEARTBEAT, INGEST) for word in ("--scope", scope))
# The laptops of each kind: what their agents claim for the Copilot, and the state and cause that the fleet must show.
CLAIMS: Mapping[str, dict[str, Any]] = {
    "fine": {"state": "unused", "configured": True},
    "idle": {"state": "unused", "configured": True},
    "new": {"state": "not_configured", "cause": "no_policy"},
    "elsewhere": {"state": "overridden", "cause": "other_endpoint", "configured": True},
    "down": {"state": "unreachable", "cause": "agent_down", "configured": True},
    "liar": {"state": "reporting", "configured": True},
}
NUMBERS = {"fine": 180, "idle": 20, "new": 30, "elsewhere": 25, "down": 20, "liar": 5, "missing": 20}
CAUSES = {
    "new": "not_configured.no_policy",
    "elsewhere": "overridden.other_endpoint",
    "down": "unreachable.agent_down",
}


def laptops(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(NUMBERS[kind])]


def calls(names: list[str]) -> bytes:
    """Return one call of the Copilot CLI on each of these laptops."""
    resources = [
        {
            "resource": {
                "attributes": [
                    {"key": key, "value": {"stringValue": value}}
                    for key, value in (("device.id", name), ("service.name", "github-copilot"))
                ]
            },
            "scopeSpans": [{"spans": [json_span(endTimeUnixNano=str(time.time_ns()))]}],
        }
        for name in names
    ]
    return json.dumps({"resourceSpans": resources}).encode()


def pages(house: Tollhouse, query: str) -> Iterator[dict[str, Any]]:
    """Yield the machines of a filtered list over all its pages."""
    address = f"/fleet/devices?{query}&limit=40"
    while True:
        found = house.asked(address)
        yield from found["devices"]
        cursor = found["pagination"]["cursor"]["next_cursor"]
        if cursor is None:
            return
        address = f"/fleet/devices?cursor={cursor}"


def test_each_laptop_that_does_not_report_is_named_with_its_cause(installations: Any) -> None:
    house: Tollhouse = installations()
    key = house.key("fleet", *FLEET)
    house.start()
    listed = "serial number,computer name,email address,department\n" + "".join(
        f"S-{name},{name}.example.com,{name}@example.com,{kind}\n"
        for kind in NUMBERS
        for name in laptops(kind)
    )
    (house.directory / "jamf.csv").write_text(listed)
    imported = house.json("fleet", "inventory", "import", "jamf.csv", "--source", "jamf")
    assert (300, 0) == (imported["added"], imported["removed"])

    def beat(name: str) -> int:
        claim = CLAIMS[name.partition("-")[0]]
        body = {"device_id": name, "hostname": name, "assistants": {"copilot": claim}}
        return post(house.url, json.dumps(body).encode(), key, path=HEARTBEATS).status

    with ThreadPoolExecutor(8) as threads:
        answers = Counter(threads.map(beat, [name for kind in CLAIMS for name in laptops(kind)]))
    assert {200: 280} == answers
    assert 200 == post(house.url, calls(laptops("fine")), key, path="/v1/traces").status

    coverage = house.asked("/fleet/coverage")
    assert {"reporting": 180, "unused": 25, "losing": 20, "at_risk": 55, "missing": 20} == {
        state: number for state, number in coverage["states"].items() if number
    }
    assert (300, 205, 68.3, 0) == tuple(
        coverage[name] for name in ("machines", "covered", "covered_percent", "unexpected")
    )
    # the console's API: each kind is found by its cause, with every laptop of the kind and no other
    for kind, cause in CAUSES.items():
        assert set(laptops(kind)) == {row["id"] for row in pages(house, f"cause=copilot.{cause}")}
    assert {f"S-{name}" for name in laptops("missing")} == {
        row["id"] for row in pages(house, "state=missing")
    }
    first = next(pages(house, "state=losing&sort_key=id"))
    assert ("down-0", "is used while the agent is stopped") == (first["id"], first["causes"][0]["words"])
    # no call arrived from the laptops whose agents claim that an assistant reports
    assert {"unused"} == {
        row["state"] for row in pages(house, "state=unused") if row["id"] in laptops("liar")
    }
    # the command
    table = house.run("fleet", "causes")
    for kind, cause in CAUSES.items():
        state, word = cause.split(".")
        [line] = [line for line in table.splitlines() if word in line]
        assert line.startswith(state) and f"copilot={NUMBERS[kind]}" in line
    missing = house.run("fleet", "missing", "--csv").splitlines()[1:]
    assert {f"S-{name}" for name in laptops("missing")} == {line.partition(",")[0] for line in missing}
    assert re.search(r"covered +205 \(68\.3 %\)", house.run("fleet", "coverage"))
    # the metric
    text = KEEP_ALIVE.request("GET", f"{house.url}/metrics").data.decode()
    assert 'tollhouse_fleet_devices{state="at_risk"} 55.0' in text
    assert 'tollhouse_devices{state="losing"} 20.0' in text
    assert 'tollhouse_fleet_devices{state="missing"} 20.0' in text
    for state, number in (
        ("overridden", 25),
        ("not_configured", 30),
        ("unreachable", 20),
        ("reporting", 180),
    ):
        assert f'tollhouse_fleet_assistants{{assistant="copilot",state="{state}"}} {number}.0' in text
    # the insights about the fleet: one for all lost calls, and others per team
    found = house.json("insights", "check") and house.json("insights", "list", "--limit", "100")["insights"]
    texts = {row["title"]: row["description"] for row in found}
    assert {
        "Calls of coding assistants are lost on 20 machines",
        "20 machines of the team missing never reported",
    } <= texts.keys()
    lost = texts["Calls of coding assistants are lost on 20 machines"]
    assert "30 machines: Copilot was never set up" in lost
    assert "25 machines: Copilot sends to another endpoint" in lost
