"""
Devices: found by a filter, labelled, revoked by exact name, approved again. Each change is in the audit list.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import filled
from tests.integration.container_agent import BASE, HEADERS, SCOPES, SHIPPER, query


@pytest.fixture
def laptops(tmp_path: Path) -> Tollhouse:
    """A running Tollhouse with the twelve devices of a demo, which a test may change."""
    return filled(tmp_path, "--records", "300")


def test_a_device_is_worked_on(laptops: Tollhouse, open_console: OpenConsole) -> None:
    """A wrong id revokes no device. Changes of devices show at once, and the audit list has them."""
    laptops.start()
    console = open_console(laptops)
    page = console.page
    console.open("/devices?hostname=ada-laptop")
    expect(page.get_by_role("status").filter(has_text="1 of 1 devices")).to_be_visible()
    row = page.locator("tbody tr")
    row.get_by_role("link").click()
    page.get_by_role("button", name="Label").click()
    page.get_by_label("Labels").fill("team=search\nfloor=3")
    page.get_by_role("button", name="Label").click()
    expect(row).to_contain_text("floor=3, team=search")
    expect(row.get_by_role("link")).to_be_focused()
    row.get_by_role("link").click()
    page.get_by_role("button", name="Revoke").click()
    asks = page.get_by_role("dialog", name="Revoke")
    expect(asks.get_by_role("textbox")).to_be_focused()
    asks.get_by_role("textbox").fill("laptop-ben")
    asks.get_by_role("button", name="Revoke").click()
    expect(asks.get_by_role("alert")).to_have_text("Type laptop-ada exactly.")
    asks.get_by_role("textbox").fill("laptop-ada")
    asks.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    row.get_by_role("link").click()
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("dialog", name="Approve").get_by_role("button", name="Approve").click()
    expect(row).not_to_contain_text("revoked")
    done = page.evaluate("fetch('api/audit').then((answer) => answer.json())")["audit"]
    assert {"device.label", "device.revoke", "device.approve"} <= {row["action"] for row in done}
    laptops.stop()


def test_a_viewer_is_offered_no_changes(laptops: Tollhouse, open_console: OpenConsole) -> None:
    """On Devices, changes that the role does not permit have no button."""
    laptops.start()
    console = open_console(laptops, role="viewer")
    console.open("/devices?open=laptop-ada")
    dialog = console.page.get_by_role("dialog", name="laptop-ada")
    expect(dialog).to_contain_text("ada-laptop")
    state = console.ask("/devices/laptop-ada")["device"]["state"].replace("_", " ")
    expect(dialog.get_by_role("table", name="Changes of the state")).to_contain_text(state)
    labels = [button.get_attribute("aria-label") for button in dialog.get_by_role("button").all()]
    assert ["Close", "Previous row", "Next row"] == labels
    laptops.stop()


def test_a_device_is_admitted_and_deleted(house: Tollhouse, open_console: OpenConsole) -> None:
    """A device is added by hand before it reports, and deleted by its exact id."""
    console = open_console(house)
    page, dialog, row = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/devices")
    page.get_by_role("button", name="Admit a device").click()
    dialog.get_by_label("Device").fill("laptop-eva")
    console.screenshot("devices-admit")
    dialog.get_by_role("button", name="Admit a device").click()
    expect(row).to_contain_text("never seen")
    # the device has not reported yet, so the row says "never"
    expect(row.get_by_role("cell", name="never", exact=True)).to_have_count(1)
    row.get_by_role("link").click()
    expect(dialog.get_by_role("button", name="Delete")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("devices-admitted")
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("textbox").fill("laptop")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_have_text("Type laptop-eva exactly.")
    console.screenshot("devices-delete")
    dialog.get_by_role("textbox").fill("laptop-eva")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
    assert {"device.admit", "device.delete"} <= console.actions()


def test_a_cluster_is_worked_on(house: Tollhouse, open_console: OpenConsole) -> None:
    """A cluster, reported by a device of the kind cluster, is renamed, disabled, enabled and deleted."""
    enrol_cluster(house, "yard")
    console = open_console(house)
    page, dialog, row = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/devices?tab=clusters")
    expect(row).to_contain_text("yard")
    assert [] == console.audit()
    console.screenshot("clusters")
    row.get_by_role("link").click()
    expect(dialog.get_by_role("button", name="Disable")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("clusters-open")
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Display name").fill("The yard")
    dialog.get_by_label("Labels").fill("team=search")
    console.screenshot("clusters-edit")
    dialog.get_by_role("button", name="Edit").click()
    expect(row).to_contain_text("The yard")
    for action in ("Disable", "Enable"):
        row.get_by_role("link").click()
        expect(dialog.get_by_text("Copy as YAML")).to_be_visible()
        dialog.get_by_role("button", name=action).click()
        dialog.get_by_role("button", name=action).click()
        (expect(row).to_contain_text if action == "Disable" else expect(row).not_to_contain_text)("disabled")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("textbox").fill("yard")
    console.screenshot("clusters-delete")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No clusters yet")).to_be_visible()
    assert {"cluster.update", "cluster.delete"} <= console.actions()


@pytest.mark.proof
def test_a_container_file_is_given_up(house: Tollhouse, open_console: OpenConsole) -> None:
    """The files of a cluster are listed as they arrive. A waiting file can be discarded by its exact reference."""
    announce_and_send(house, {"one.parquet": b"metrics"}, also=["two.parquet"])
    console = open_console(house)
    dialog, rows = console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/devices?tab=files&sort=state")
    expect(rows).to_have_count(2)
    one = rows.filter(has_text="one.parquet")
    expect(one).to_contain_text("uploaded")
    assert [] == console.audit()
    console.screenshot("container-files")
    rows.filter(has_text="two.parquet").get_by_role("link").click()
    expect(dialog).to_contain_text("announced")
    expect(dialog.get_by_role("button", name="Discard")).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()
    one.get_by_role("link").click()
    dialog.get_by_role("button", name="Discard").click()
    dialog.get_by_role("textbox").fill("one.parquet")
    dialog.get_by_role("button", name="Discard").click()
    expect(one).to_contain_text("discarded")
    console.away()
    announce_and_send(house, {"three.parquet": b"metrics"})
    expect(rows).to_have_count(3)  # the event stream updates the list
    assert "container_file.discard" in console.actions()


def announce_and_send(house: Tollhouse, files: dict[str, bytes], *, also: Sequence[str] = ()) -> None:
    """Announce and send files like a cluster's agent. The files in `also` are only announced."""
    key = house.key(
        f"agent-{len(files)}-{min(files)}", *(each for scope in SCOPES for each in ("--scope", scope))
    )
    names = [*files, *also]
    body = json.dumps({"shipperId": SHIPPER, "files": [{"reference_id": name} for name in names]}).encode()
    words = query(count=len(names), shipper_id=SHIPPER, expiration=3600)
    headers = {"Authorization": key, "Content-Type": "application/json", **HEADERS}
    with urlopen(Request(f"{house.url}{BASE}/upload{words}", body, headers)) as answer:
        addresses = json.load(answer)
    for name, data in files.items():
        with urlopen(Request(addresses[name], data, method="PUT")) as answer:
            assert 200 == answer.status


def enrol_cluster(house: Tollhouse, name: str) -> None:
    """Enrol a cluster like its agent."""
    key = house.key("fleet", "--scope", "ai-control-plane:enroll-device")
    labels = {"kind": "cluster", "account": "123", "region": "eu-west-1", "cluster": name}
    body = json.dumps({"device_id": f"{name}-agent", "labels": labels, "agent_version": "1"}).encode()
    headers = {"Authorization": key, "Content-Type": "application/json"}
    with urlopen(Request(f"{house.url}/v1/ai-control-plane/enroll", body, headers)) as answer:
        assert 200 == answer.status
