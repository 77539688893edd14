"""The page Fleet: a machine list is imported, and a machine's panel names its earlier ids, token and disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW

MACHINE = "ab" * 32
ROWS = "".join(f"S{n},laptop-{n},team,macOS 26.1\n" for n in range(4))
HEAD = "serial number,computer name,department,operating system\n"


def ask(house: Tollhouse, key: str, verb: str, **body: Any) -> Any:
    """Send an enrolment or a heartbeat; return the answer."""
    request = Request(
        f"{house.url}/v1/ai-control-plane/{verb}",
        json.dumps(body).encode(),
        {"Authorization": key, "Content-Type": "application/json"},
    )
    with urlopen(request) as answer:
        return json.load(answer)


def test_a_machine_list_is_imported(house: Tollhouse, open_console: OpenConsole, tmp_path: Path) -> None:
    """
    A file that is no list of machines changes nothing, and a list that lacks half of the machines must be
    confirmed.
    """
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.expects("400", "409")
    file = tmp_path / "computers.csv"

    def send(text: str, admit: str = "false") -> None:
        file.write_text(text)
        dialog.get_by_label("Machines without a device").select_option(admit)
        dialog.locator("input[type=file]").set_input_files(file)
        dialog.get_by_label("Source").select_option("jamf")
        dialog.get_by_role("button", name="Import a machine list").click()
        console.away()

    console.open("/fleet")
    page.get_by_role("button", name="Import a machine list").click()
    send("colour\nred\n")
    expect(dialog.get_by_role("alert")).to_contain_text("column")
    assert [] == console.audit()
    console.screenshot("fleet-import")
    send(HEAD + ROWS)
    expect(dialog).to_contain_text("The inventory has 4 machines: 4 added, 0 removed.")
    dialog.get_by_role("button", name="Close").click()
    console.away()
    expect(page.get_by_text("0 of 4 report")).to_be_visible()
    expect(page.get_by_role("table", name="machines").get_by_role("link")).to_have_count(4)
    page.get_by_role("button", name="Import a machine list").click()
    send(HEAD + ROWS[: len(ROWS) // 2])
    expect(dialog.get_by_role("alert").first).to_contain_text(
        "the list lacks 2 of 4 machines of the inventory."
    )
    assert 4 == console.ask("/fleet/inventory")["inventory"]["machines"]
    console.resize(NARROW)
    assert [] == console.audit()
    assert 0 == console.overhang()
    console.screenshot("fleet-import-part")
    dialog.get_by_role("button", name="Import the list anyway").click()
    expect(dialog).to_contain_text("The inventory has 2 machines: 0 added, 2 removed.")
    dialog.get_by_role("button", name="Close").click()
    console.away()
    expect(page.get_by_role("table", name="machines").get_by_role("link")).to_have_count(2)
    page.get_by_role("button", name="Import a machine list").click()
    send(HEAD + ROWS[: len(ROWS) // 2], admit="true")
    expect(dialog).to_contain_text("2 machines enrolled as devices.")
    assert {"fleet.inventory", "device.admit"} <= console.actions()


def test_only_operators_import(house: Tollhouse, open_console: OpenConsole) -> None:
    """Without the right to operate, the page Fleet has no button for an import."""
    console = open_console(house, role="viewer")
    console.open("/fleet")
    expect(console.page.get_by_role("heading", name="No machines yet")).to_be_visible()
    expect(console.page.get_by_role("button", name="Import a machine list")).to_have_count(0)


@pytest.mark.proof
def test_a_machine_that_was_installed_again(
    house: Tollhouse, open_console: OpenConsole, tmp_path: Path
) -> None:
    """
    If a machine has an earlier and a later device, their panels name each other. The enrolment token is one click
    away.
    """
    tokens = {}
    machines = tmp_path / "machines.csv"
    machines.write_text("serial\nC02A\n")
    for name in ("first", "again"):
        made = house.run("devices", "tokens", "create", "--name", f"token-{name}", "--for", str(machines))
        tokens[name] = made.strip().rpartition(",")[2]
    facts = {"hardware_id": MACHINE, "serial": "C02A", "want_key": True}
    ask(house, tokens["first"], "enroll", device_id="laptop-1", fingerprint="one", **facts)
    key = ask(house, tokens["again"], "enroll", device_id="laptop-2", fingerprint="two", **facts)["key"]
    facts = {"device_id": "laptop-2", "key_storage": "tpm"}
    word = copied = ask(house, key, "heartbeat", seq=1, **facts)["next"]
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/fleet?open=laptop-2")
    expect(dialog).to_contain_text("Before it was installed again, this machine was laptop-1.")
    expect(dialog).to_contain_text(MACHINE)
    expect(dialog).to_contain_text("tpm")
    assert [] == console.audit()
    console.screenshot("fleet-installed-again")
    console.resize(NARROW)
    assert [] == console.audit(is_look=True)
    assert 0 == console.overhang()
    dialog.get_by_role("link", name="laptop-1").click()
    expect(page.get_by_role("dialog", name="laptop-1")).to_contain_text("installed again")
    expect(dialog).to_contain_text("The same machine is now laptop-2.")
    assert [] == console.audit()
    console.screenshot("device-installed-again")
    dialog.get_by_role("link", name="laptop-2").click()
    expect(page.get_by_role("dialog", name="laptop-2")).to_be_visible()
    token = console.ask("/devices/laptop-2")["device"]["token"]
    dialog.get_by_role("link", name=token).click()
    expect(page.get_by_role("dialog", name="token-again")).to_contain_text("C02A")
    for seq in (2, 3):
        word = ask(house, key, "heartbeat", seq=seq, next=word, **facts)["next"]
    ask(house, key, "heartbeat", seq=4, next=copied, **facts)
    console.open("/fleet?open=laptop-2")
    expect(dialog).to_contain_text("two machines may use one disk")
    assert [] == console.audit()
    console.screenshot("fleet-copied")
    console.open("/devices?state=copied")
    expect(page.locator("tbody tr .state.bad")).to_contain_text("copied disk")
    page.locator("tbody tr").get_by_role("link").click()
    dialog.get_by_role("button", name="Approve").click()
    dialog.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("No devices match.")).to_be_visible()
    assert "copied" != console.ask("/devices/laptop-2")["device"]["state"]
