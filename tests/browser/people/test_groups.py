"""The console under `privacy.min_group`: groups of people for a viewer, and no calls of others."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import OpenConsole
from tests.browser.console import TWO_MONTHS, filled

DPO = "dpo@example.com"
SETTING = "[privacy]\nmin_group = 2\n"


def test_a_viewer_sees_groups(tmp_path: Path, open_console: OpenConsole) -> None:
    """
    For a viewer under `privacy.min_group`, the menu leads to the groups, which can be added up by another
    dimension. Costs shows nothing of other people.
    """
    tollhouse = filled(tmp_path, *TWO_MONTHS)
    tollhouse.config.write_text(tollhouse.config.read_text() + SETTING)
    tollhouse.start()
    try:
        role = ("--name", "Privacy", "--data-access", "full", "--permission-set", "answer_privacy_requests")
        tollhouse.json("roles", "create", *role, "--member", DPO)
        viewer = open_console(tollhouse, role="viewer")
        page = viewer.page
        viewer.open("/groups")
        rows = page.locator("main tbody tr")
        expect(rows.first).to_be_visible()
        expect(page.get_by_text("at least 2 people besides you")).to_be_visible()
        assert [] == viewer.audit()
        assert viewer.overhang() <= 0
        viewer.open("/groups?by=model")
        newest = viewer.ask("/group-costs?by=model")["group_costs"][0]
        expect(rows.first).to_contain_text(newest["model"])
        viewer.screenshot("groups")
        page.get_by_role("link", name="Overview").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        assert [] == viewer.ask("/report?by=user&range=last_30d")["rows"]
        admin = open_console(tollhouse)
        admin.expects("403")
        page = admin.page
        page.once("dialog", lambda asked: asked.dismiss())
        admin.begin("/costs?by=user")
        expect(page.get_by_text("the reason why you look at them").first).to_be_visible()
        page.once("dialog", lambda asked: asked.accept("Ticket 7: größer"))
        page.reload()
        expect(page.locator("main tbody tr").first).to_be_visible()
        admin.open("/costs?by=user")
        expect(page.locator("main tbody tr").first).to_be_visible()
        assert {"Ticket 7: größer"} == {
            row["reason"] for row in tollhouse.json("people", "viewings", "--as", DPO)["viewings"]
        }
    finally:
        tollhouse.stop()
