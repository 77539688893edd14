"""Enrolment tokens: created, used by a machine, and revoked with its device. Other roles can only view them."""

from __future__ import annotations

import json
import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, WIDE

TOKENS = "/devices?tab=tokens"


def enrol(house: Tollhouse, token: str, device: str) -> int:
    """Enrol a device with a token; return the status of the answer."""
    request = Request(
        f"{house.url}/v1/ai-control-plane/enroll",
        json.dumps({"device_id": device, "hostname": device}).encode(),
        {"Authorization": token, "Content-Type": "application/json"},
    )
    try:
        with urlopen(request) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_a_token_is_created_used_and_revoked(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The secret of an enrolment token is shown once. A revocation can include the devices, and the audit list has
    each change.
    """
    console = open_console(house)
    page, dialog, row = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/devices")
    page.get_by_role("link", name="Enrolment tokens").click()
    expect(page.get_by_role("heading", name="No enrolment tokens yet")).to_be_visible()
    page.get_by_role("button", name="Create a token").click()
    dialog.get_by_role("textbox", name=re.compile("^Name")).fill("jamf-q1")
    console.expects("400")
    dialog.get_by_label("Uses").fill("0")
    dialog.get_by_label("Labels").fill("team=search")
    dialog.get_by_role("button", name="Create a token").click()
    expect(dialog.get_by_role("alert")).to_contain_text("number of uses")
    dialog.get_by_label("Uses").fill("2")
    last_day = dialog.get_by_label("Expires").input_value()
    assert [] == console.audit()
    console.screenshot("tokens-create")
    dialog.get_by_role("button", name="Create a token").click()
    expect(dialog.get_by_role("button", name="Copy the token")).to_be_visible()
    token = dialog.get_by_label("the token", exact=True).inner_text()
    assert token.startswith("the_")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text(token)).to_have_count(0)
    expect(row).to_contain_text("0 of 2")
    expect(row).to_contain_text(last_day)
    expect(row).to_contain_text("team=search")
    console.away()
    assert 200 == enrol(house, token, "laptop-ada")
    expect(row).to_contain_text("1 of 2")
    expect(row).to_contain_text("active")
    assert [] == console.audit()
    console.screenshot("tokens")
    console.resize(NARROW)
    console.settle()
    assert 0 == console.overhang()
    assert [] == console.audit(is_look=True)
    console.resize(WIDE)
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Revoke").click()
    dialog.get_by_label("Devices that it enrolled").select_option("Revoke them as well")
    assert [] == console.audit()
    console.screenshot("tokens-revoke")
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog).to_contain_text("revoked the token and 1 of its devices")
    dialog.get_by_role("button", name="Close").click()
    expect(row).to_contain_text("revoked")
    assert 401 == enrol(house, token, "laptop-ben")
    assert "revoked" == console.ask("/devices/laptop-ada")["device"]["state"]
    assert {"token.create", "token.revoke", "device.revoke"} <= console.actions()


def test_other_roles_only_view_tokens(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Revoking an enrolment token keeps the devices by default. Roles without the right have no buttons for changes.
    """
    token = house.run("devices", "tokens", "create", "--name", "kandji", "--uses", "3").strip()
    assert 200 == enrol(house, token, "laptop-eva")
    viewer = open_console(house, role="viewer")
    viewer.open(TOKENS)
    expect(viewer.page.locator("tbody tr")).to_contain_text("1 of 3")
    expect(viewer.page.get_by_role("button", name="Create a token")).to_have_count(0)
    viewer.page.locator("tbody tr").get_by_role("link").click()
    expect(viewer.page.get_by_role("dialog", name="kandji")).to_contain_text("active")
    expect(viewer.page.get_by_role("button", name="Revoke")).to_have_count(0)
    admin = open_console(house)
    admin.open(TOKENS)
    admin.page.locator("tbody tr").get_by_role("link").click()
    dialog = admin.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Revoke").click()
    dialog.get_by_role("button", name="Revoke").click()
    expect(dialog).to_have_count(0)
    assert "revoked" != admin.ask("/devices/laptop-eva")["device"]["state"]
