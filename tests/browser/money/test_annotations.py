"""Annotations: a day is annotated in three clicks from its chart, and charts mark it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console


def days_ago(count: int) -> str:
    return (datetime.now(UTC) - timedelta(days=count)).date().isoformat()


def on_the_day(console: Console) -> None:
    """Select the fifth of the ten days of the chart by keyboard."""
    chart = console.page.locator(".plot svg[role=img]")
    chart.focus()
    for _ in range(5):
        chart.press("ArrowRight")


def test_a_day_is_annotated_where_it_is_looked_at(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks annotate a day: Annotate, the text, Annotate. The chart then has a line, and the text appears at
    its day and in the list.
    """
    busy.run("views", "create", "--name", "search only", "--principal", "model", "--where", "team=search")
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open(f"/costs?from={days_ago(9)}&by=model&bin=daily")
    page.get_by_role("button", name="Annotate a day").click()
    expect(dialog.get_by_label("Day")).to_have_value(days_ago(0))
    dialog.get_by_label("Day").fill(days_ago(5))
    dialog.get_by_label("What happened").fill("Checkout 4.2 went live")
    assert [] == console.audit(within="dialog")
    console.screenshot("annotations-new")
    dialog.get_by_role("button", name="Annotate a day").click()
    expect(dialog).to_have_count(0)
    expect(page.locator(".plot .mark")).not_to_have_count(0)
    on_the_day(console)
    expect(page.locator("figure [role=status]")).to_contain_text("Checkout 4.2 went live")
    expect(page.locator(".tip")).to_contain_text("Checkout 4.2 went live")
    page.locator(".marks summary").click()
    console.screenshot("annotations-costs")
    assert [] == console.audit()
    console.open("/")
    expect(page.locator(".plot .mark")).not_to_have_count(0)
    page.locator(".marks summary").click()
    assert [] == console.audit()
    console.screenshot("annotations-overview")
    page.get_by_role("link", name="Checkout 4.2 went live").click()
    expect(dialog).to_contain_text(f"{days_ago(5)}, shown in charts of all calls.")
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Shown in charts of").select_option("search only")
    dialog.get_by_role("button", name="Edit").click()
    expect(page.locator("main tbody tr")).to_contain_text("search only")
    assert [] == console.audit()


@pytest.mark.proof
def test_the_marks_of_a_view_on_a_phone(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    On a phone in the dark theme, a viewer sees an annotated day in the chart of its view and not in another view. A
    failed request is reported next to the chart with a button to retry.
    """
    for team in ("search", "support"):
        busy.run("views", "create", "--name", team, "--principal", "model", "--where", f"team={team}")
    busy.run("annotations", "create", "--day", days_ago(5), "--text", "Index built", "--view", "search")
    console = open_console(busy, role="viewer", viewport=NARROW, color_scheme="dark")
    page = console.page
    console.open(f"/costs?from={days_ago(9)}&by=model&view=search")
    expect(page.locator(".marks li").filter(has_text="Index built")).to_have_count(1)
    expect(page.get_by_role("button", name="Annotate a day")).to_have_count(0)
    on_the_day(console)
    expect(page.locator("figure [role=status]")).to_contain_text("Index built")
    console.screenshot("annotations-phone-dark")
    assert console.audit() == []
    assert console.overhang() <= 0
    console.expects("503")
    failed = {"status": 503, "json": {"error": {"type": "unavailable", "message": "the disk is full"}}}
    page.route("**/marks?*", lambda route: route.fulfill(**failed))
    console.open(f"/costs?from={days_ago(9)}&by=model&view=support")
    expect(page.get_by_role("alert")).to_contain_text("The disk is full")
    page.unroute("**/marks?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(".marks summary")).to_contain_text("Notes (")
    expect(page.locator(".marks li").filter(has_text="Index built")).to_have_count(0)
    console.open("/annotations")
    expect(page.locator("main tbody tr")).to_contain_text("Index built")
    assert console.audit() == []
    assert console.overhang() <= 0
