"""Tables show a hash as a name to people who may see names, and as a code to all others."""

from __future__ import annotations

import secrets

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW


def test_a_hash_gets_a_name(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks name a person: Add names, a line, Add names. Costs shows the name at once; a viewer still sees the
    code.
    """
    call = span(
        "chatcmpl-" + secrets.token_hex(12), gen_ai__request__model="gpt-4o", user__id="ada@example.com"
    )
    assert 200 == post(house.url, request([call]), house.key("sender")).status
    house.wait_until_drained()
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    [user] = [each["user"] for each in console.ask("/report?by=user&range=last_7d")["rows"]]
    console.open("/settings?tab=names")
    expect(page.get_by_role("heading", name="No names yet")).to_be_visible()
    assert [] == console.audit()
    page.get_by_role("button", name="Add names").click()
    dialog.get_by_label("Names").fill(f"{user}, Lovelace, Ada")
    dialog.get_by_role("button", name="Add names").click()
    expect(page.locator("main tbody tr")).to_contain_text("Lovelace, Ada")
    assert [] == console.audit()
    console.screenshot("people-names")
    console.open(f"/costs?by=user&from=now-7d&user={user}")
    expect(page.locator("main tbody tr").first).to_contain_text("Lovelace, Ada")
    viewer = open_console(house, role="viewer", viewport=NARROW, color_scheme="dark")
    viewer.listen()
    viewer.open(f"/costs?by=user&from=now-7d&user={user}")
    expect(viewer.page.locator("main tbody tr").first).to_contain_text(user)
    assert [] == viewer.asked("/people")
