"""Scheduled reports: a report is created in three clicks, viewed, and sent at once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW
from tests.exporters.notifications.examples import SECRET

CHANNEL = """
[[notify]]
name = "finance"
type = "webhook"
url = "http://127.0.0.1:1/hook"
secret_file = "{file}"
"""


@pytest.fixture
def telling(installations: Any, tmp_path: Any) -> Tollhouse:
    """A running Tollhouse with one channel and one view."""
    (tmp_path / "secret").write_text(SECRET)
    tollhouse: Tollhouse = installations(more=CHANNEL.format(file=tmp_path / "secret"))
    tollhouse.start()
    tollhouse.run("views", "create", "--name", "everything", "--principal", "team")
    return tollhouse


def test_a_report_is_scheduled_and_sent_now(telling: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks schedule a report: Schedule, a name, Schedule. The page shows the report's text, and a button sends
    it without waiting for Monday.
    """
    console = open_console(telling)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/reports")
    expect(page.get_by_role("heading", name="No scheduled reports yet")).to_be_visible()
    assert [] == console.audit()
    page.get_by_role("button", name="Schedule a report").click()
    assert [] == console.audit()
    console.screenshot("scheduled-reports-new")
    dialog.get_by_label("Name").fill("Weekly costs")
    dialog.get_by_role("button", name="Schedule a report").click()
    row = page.locator("main tbody tr")
    expect(row).to_contain_text("every Monday at 08:00")
    console.screenshot("scheduled-reports")
    row.get_by_role("rowheader").get_by_role("link").click()
    expect(dialog).to_contain_text("AI costs of everything")
    assert [] == console.audit()
    console.screenshot("scheduled-reports-open")
    dialog.get_by_role("button", name="Send now").click()
    dialog.get_by_role("button", name="Send now").click()
    dialog.get_by_role("link", name="See whether it arrived").click()
    dialog.get_by_text("All fields").click()
    expect(dialog).to_contain_text("report.view")


@pytest.mark.proof
def test_reports_on_a_phone(telling: Tollhouse, open_console: OpenConsole) -> None:
    """A viewer can read a scheduled report, but has no button. A failed request is shown with a button to retry."""
    telling.run(
        "scheduled-reports",
        "create",
        "--name",
        "monthly",
        "--view",
        "everything",
        "--channel",
        "finance",
        "--every",
        "month",
    )
    console = open_console(telling, role="viewer", viewport=NARROW, color_scheme="dark")
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/reports")
    expect(page.locator("main tbody tr")).to_contain_text("monthly")
    assert console.audit() == []
    assert console.overhang() <= 0
    console.expects("503")
    failed = {"status": 503, "json": {"error": {"type": "unavailable", "message": "the disk is full"}}}
    page.route("**/preview", lambda route: route.fulfill(**failed))
    page.locator("main tbody th").get_by_role("link", name="monthly").click()
    expect(dialog.get_by_role("alert")).to_contain_text("The disk is full")
    page.unroute("**/preview")
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog).to_contain_text("AI costs of everything")
    expect(dialog.get_by_role("button", name="Send now")).to_have_count(0)
    assert [] == console.audit()
    console.screenshot("scheduled-reports-phone-dark")
