"""The page Fleet: coverage, causes that lead to their machines, a machine's panel, and the import of an inventory."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, WIDE
from tests.gateway.normalise.otlp.payloads import attribute
from tests.rounds import part
from tests.waiting import wait_until

SCOPES = ("ai-control-plane:enroll-device", "ai-control-plane:heartbeat-device")
ELSEWHERE = {"state": "overridden", "cause": "other_endpoint", "version": "0.169.0"}
MACHINES = "serial,hostname,user,team,os\n" + "".join(
    f"S{n},laptop-{name},{name},{team},macOS 26.1\n"
    for n, (name, team) in enumerate((("ada", "search"), ("ben", "search"), ("eva", "docs"), ("zoe", "docs")))
)


def beat(house: Tollhouse, key: str, name: str, assistants: Mapping[str, Any], **facts: Any) -> None:
    body = {
        "device_id": f"laptop-{name}",
        "hostname": f"laptop-{name}",
        "user": name,
        "assistants": assistants,
        **facts,
    }
    request = Request(
        f"{house.url}/v1/ai-control-plane/heartbeat",
        json.dumps(body).encode(),
        {"Authorization": key, "Content-Type": "application/json"},
    )
    with urlopen(request) as answer:
        assert answer.status == 200


def test_a_cause_leads_to_its_machines(house: Tollhouse, open_console: OpenConsole, tmp_path: Path) -> None:
    """
    An administrator imports a list of machines, sees who is not covered and why, and opens one of the machines.
    """
    created = house.json("keys", "create", "--name", "fleet", *(f"--scope={scope}" for scope in SCOPES))
    for name, assistants in (
        ("ada", {"codex": ELSEWHERE, "claude-code": {"state": "unused"}}),
        ("ben", {"codex": ELSEWHERE, "copilot": {"state": "not_configured", "cause": "no_policy"}}),
        ("eva", {"claude-code": {"state": "unused"}}),
    ):
        beat(house, created["secret"], name, assistants)
    console = open_console(house)
    page = console.page
    console.open("/fleet")
    expect(page.get_by_text("1 of 3 report")).to_be_visible()
    expect(page.get_by_text("This includes 1 machine that nobody uses for AI.")).to_be_visible()
    expect(page.get_by_text("No inventory is imported, so all devices count.")).to_be_visible()
    file = tmp_path / "machines.csv"
    file.write_text(MACHINES)
    house.run("fleet", "inventory", "import", str(file), "--source", "csv")
    console.open("/fleet")
    expect(page.get_by_text("1 of 4 report")).to_be_visible()
    expect(page.get_by_role("img", name="1 unused, 2 at risk, 1 never seen")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("fleet")
    console.resize(NARROW)
    console.settle()
    assert 0 == console.overhang()
    console.screenshot("fleet-phone")
    repair = page.get_by_role("table", name="Causes").locator(
        "small", has_text="Ask the person who uses this endpoint"
    )
    expect(repair).to_be_visible()
    console.resize(WIDE)
    causes = page.get_by_role("table", name="Causes")
    cell = causes.get_by_role("row", name="sends to another endpoint").get_by_role("link", name="2")
    cell.click()
    status = page.get_by_role("status").filter(has_text="2 of 2 machines")
    expect(status).to_be_visible()
    page.get_by_role("table", name="machines").get_by_role("link", name="laptop-ben").click()
    dialog = page.get_by_role("dialog", name="laptop-ben")
    expect(dialog).to_contain_text("Codex sends to another endpoint; Copilot was never set up")
    expect(dialog).to_contain_text("S1")
    assert [] == console.audit()
    console.screenshot("fleet-machine")
    dialog.get_by_role("link", name="Show the device").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Devices")
    page.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="Fleet", exact=True).first.click()
    page.get_by_role("link", name="1 never seen").click()
    expect(page.get_by_role("table", name="machines").get_by_role("link", name="laptop-zoe")).to_be_visible()


def send_call(house: Tollhouse, key: str, device: str, cost: float) -> None:
    """Send Claude Code's report of a call of a device."""
    attributes = {
        "event.name": "api_request",
        "session.id": "a",
        "model": "claude-sonnet-4-5",
        "request_id": f"req_{device}",
        "input_tokens": 10,
        "output_tokens": 5,
        "cost_usd": cost,
    }
    record = {
        "timeUnixNano": str(time.time_ns()),
        "body": {"stringValue": "claude_code.api_request"},
        "attributes": [attribute(*each) for each in attributes.items()],
    }
    logs = {
        "resource": {"attributes": [attribute("device.id", device)]},
        "scopeLogs": [{"scope": {"name": "com.anthropic.claude_code.events"}, "logRecords": [record]}],
    }
    body = json.dumps({"resourceLogs": [logs]}).encode()
    request = Request(
        f"{house.url}/v1/logs", body, {"Authorization": key, "Content-Type": "application/json"}
    )
    with urlopen(request) as answer:
        assert answer.status == 200


@pytest.mark.parametrize(("lost", "calls", "is_on_costs"), part([(10, 3, True), (1, 1, False)], every=2))
def test_lost_calls_and_their_cost_are_shown_apart_from_the_total(
    house: Tollhouse, open_console: OpenConsole, *, lost: int, calls: int, is_on_costs: bool
) -> None:
    """Slots of 4 cents each were heard for 8 dollars. Below one percent of the total, Costs shows no estimate."""
    scopes = (*SCOPES, "ai-telemetry-ingest:ingest-ai-telemetry")
    key = house.json("keys", "create", "--name", "fleet", *(f"--scope={each}" for each in scopes))["secret"]
    now = datetime.now(UTC)
    earlier, yesterday, today = ((now - timedelta(days=ago)).date().isoformat() for ago in (2, 1, 0))
    slots = {earlier: [9, 0, 0], yesterday: [200, 0, 0], today: [lost, lost, calls]}
    claude = {"state": "reporting", "use": "losing", "slots": slots}
    beat(house, key, "ada", {"claude-code": claude})
    send_call(house, key, "laptop-ada", 8.0)
    cost = f"{lost * 0.04:.2f}"
    wait_until(
        lambda: house.asked("/fleet/coverage")["losses"]["estimated_cost"] == cost, "the estimated cost"
    )
    console = open_console(house)
    console.open("/fleet")
    note = console.page.get_by_role("note").filter(has_text="of 1 person")
    expect(note).to_contain_text(f"missing, about ${cost}, in the last 7 days.")
    expect(note).to_contain_text("% of the cost of coding assistants is counted.")
    assert [] == console.audit()
    console.open("/costs?from=now-7d")
    expect(console.page.locator("p.figure")).to_contain_text("$8.00")
    line = console.page.get_by_role("note").filter(has_text=f"about ${cost}, and not included.")
    expect(line).to_have_count(int(is_on_costs))
    printed = house.run("fleet", "coverage")
    assert f"at least {calls} of 1 person, about {cost} USD" in printed


def test_a_gateway_without_calls_names_machines_that_lose_them(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """
    Overview names lost calls before the first call arrives. The figure of Fleet leaves out machines whose calls wait
    for long, and says so.
    """
    created = house.json("keys", "create", "--name", "fleet", *(f"--scope={scope}" for scope in SCOPES))
    off = {"state": "telemetry_off", "cause": "settings", "use": "losing"}
    beat(house, created["secret"], "ada", {"codex": off})
    waits = {"state": "unreachable", "cause": "dns"}
    beat(house, created["secret"], "ben", {"codex": waits}, spool={"records": 3, "oldest_age_s": 2 * 86400})
    console = open_console(house)
    console.open("/")
    expect(console.page.get_by_role("heading", name="No records yet")).to_be_visible()
    expect(console.page.locator("details.attention")).to_contain_text("Lost calls on 1 laptop")
    console.open("/fleet")
    expect(console.page.get_by_text("0 of 2 report")).to_be_visible()
    expect(
        console.page.get_by_text("Not included: 1 machine whose calls wait longer than a day.")
    ).to_be_visible()
