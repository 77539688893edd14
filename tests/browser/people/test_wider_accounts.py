"""
If a limited role's member has an account that shows everything, the console warns and offers to limit the account.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole

LEAD = "lead@example.com"


@pytest.mark.proof
def test_a_limited_role_offers_to_limit_the_account(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    The warning about a member whose account shows more appears when a role is created and in the role's
    details. It disappears when the account has the role `none`.
    """
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/settings?tab=operators")
    page.get_by_role("button", name="Add an operator").click()
    dialog.get_by_role("textbox", name="E-mail").fill(LEAD)
    dialog.get_by_role("combobox", name="Role").select_option("viewer")
    dialog.get_by_role("textbox", name="Password").fill("correct horse battery")
    dialog.get_by_role("button", name="Add an operator").click()
    expect(dialog).to_have_count(0)
    console.open("/roles")
    page.get_by_role("button", name="Create a role").click()
    dialog.get_by_role("textbox", name="Name").fill("Payments only")
    dialog.get_by_role("textbox", name="Filters").fill("team=payments")
    dialog.get_by_role("textbox", name="Members").fill(LEAD)
    dialog.get_by_role("button", name="Create a role").click()
    status = dialog.get_by_role("status")
    expect(status).to_contain_text(f"{LEAD} has the account role Member and therefore sees everything.")
    assert [] == console.audit()
    console.screenshot("roles-wider")
    status.get_by_role("button", name="Set account role to none").click()
    expect(status).to_be_empty()
    assert "none" == next(
        row["role"] for row in console.ask("/operators")["operators"] if row["email"] == LEAD
    )
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("row", name="Payments only").get_by_role("link").click()
    expect(dialog).to_contain_text(LEAD)
    expect(dialog.get_by_role("button", name="Set account role to none")).to_have_count(0)
