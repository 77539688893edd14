"""Billing: a connection is created, receives an hourly file, is disabled, and is deleted by its exact id."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole

ROW = {"time/usage_start": "2026-11-01T00:00:00Z", "cost/cost": "1", "resource/id": "r"}


EDITED = {
    "Name": "Atlas of production",
    "Provider such as": "Atlas Cloud",
    "Id in your cost service": "atlas-upstream",
    "Bucket where": "bills",
    "Path in the bucket": "atlas/2026",
    "Account of the bucket": "123456789012",
}


def drop(house: Tollhouse, id: str, key: str) -> None:
    """Send an hourly file with one row of November 2026."""
    body = json.dumps({"month": "2026-11", "operation": "sum", "data": [ROW]}).encode()
    address = f"{house.url}/v2/connections/billing/external/{id}/billing_drops"
    headers = {"Authorization": key, "Content-Type": "application/json"}
    with urlopen(Request(address, body, headers)) as answer:
        assert 200 == answer.status


def test_the_life_of_a_connection(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page Billing shows changes and received files at once. A wrong id deletes nothing, and the audit list has
    every change.
    """
    key = house.key("sender", "--use-case", "Send Billing Data")
    console = open_console(house)
    page, dialog, row = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/billing")
    page.get_by_role("button", name="Create a connection").click()
    dialog.get_by_label("Name").fill("Atlas")
    dialog.get_by_label("Provider such as").fill("MongoDB")
    dialog.get_by_label("Id that senders use").fill("atlas:1")
    assert [] == console.audit()
    console.screenshot("billing-create")
    dialog.get_by_role("button", name="Create a connection").click()
    expect(row).to_contain_text("Pending Data")
    drop(house, "atlas:1", key)
    expect(row).to_contain_text("Receiving Data")

    row.get_by_role("link").click()
    expect(dialog).to_contain_text("atlas:1")
    assert [] == console.audit()
    console.screenshot("billing-open")
    dialog.get_by_role("button", name="Edit").click()
    for label, text in EDITED.items():
        dialog.get_by_label(label).fill(text)
    console.screenshot("billing-edit")
    dialog.get_by_role("button", name="Edit").click()
    expect(row).to_contain_text("Atlas of production")
    expect(row).to_contain_text("Atlas Cloud")
    shown = console.ask("/connections/atlas:1")["connection"]
    bucket = {"bucket_name": "bills", "bucket_path": "atlas/2026", "cloud_account_id": "123456789012"}
    assert shown["upstream_connection_id"] == "atlas-upstream"
    assert shown["s3_bucket_info"] == bucket
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Id in your cost service")).to_have_value("atlas-upstream")
    for label in [name for name in EDITED if "ucket" in name]:
        dialog.get_by_label(label).fill("")
    dialog.get_by_label("Id in your cost service").fill("")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog).to_have_count(0)
    shown = console.ask("/connections/atlas:1")["connection"]
    assert shown["upstream_connection_id"] == "atlas:1"
    assert shown["s3_bucket_info"] is None
    row.get_by_role("link").click()
    dialog.get_by_role("link", name="Show hourly files and months").click()
    expect(page.get_by_role("status").filter(has_text="1 of 1 hourly files")).to_be_visible()
    month = page.get_by_role("link", name="2026-11")
    answer = console.context.request.get(str(month.evaluate("(link) => link.href"))).json()
    assert "r" == answer["billing_drop"][0]["resource/id"]
    assert [] == console.audit()
    console.screenshot("billing-drops")
    row.get_by_role("link").first.click()
    dialog.get_by_text("All fields").click()
    expect(dialog).to_contain_text("row count")
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("link", name="Connections", exact=True).click()
    expect(row).to_contain_text("Atlas of production")

    for action, state in (("Disable", "Disabled"), ("Enable", "Receiving Data")):
        row.get_by_role("link").click()
        dialog.get_by_role("button", name=action).click()
        dialog.get_by_role("button", name=action).click()
        expect(row).to_contain_text(state)
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("textbox").fill("Atlas of production")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_have_text("Type atlas:1 exactly.")
    assert [] == console.audit()
    console.screenshot("billing-delete")
    dialog.get_by_role("textbox").fill("atlas:1")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No billing connection yet")).to_be_visible()
    assert {"connection.create", "connection.change", "connection.delete"} <= console.actions()
