"""
Views: created from the filters of Costs, chosen in the menu, applied to every page of costs and calls,
deleted by name.
"""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console


def asked_inside(console: Console, part: str) -> set[str]:
    """Return the views used in requests of an API address since the page was opened, with "" for none."""
    queries = [
        urlsplit(request.url).query for request in console.requests if f"/console/api/{part}?" in request.url
    ]
    return {parse_qs(query).get("view", [""])[0] for query in queries}


def test_the_life_of_a_view(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    A view saved from Costs shows the same total. It can be edited and renamed, and deleted only by its exact name.
    """
    console = open_console(busy)
    page, dialog, row = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/views")
    expect(page.get_by_role("heading", name="No views yet")).to_be_visible()
    console.open("/costs?from=now-7d&by=user&by=model&team=search&model!=gpt-4.1")
    total = page.locator("tfoot td").nth(1).get_attribute("title")
    page.get_by_role("button", name="Save as view").click()
    expect(dialog.get_by_label("Filter")).to_have_value("team=search\nmodel!=gpt-4.1")
    expect(dialog.get_by_label("Group by")).to_have_value("user, model")
    expect(dialog.get_by_label("Time range")).to_have_value("last_7d")
    assert [] == console.audit()
    console.screenshot("views-save")
    dialog.get_by_label("Name").fill("Search")
    dialog.get_by_role("button", name="Save as view").click()
    expect(dialog).to_have_count(0)
    picker = page.get_by_role("combobox", name="View")
    expect(picker.locator("option:checked")).to_have_text("Search")
    expect(page.locator("a.chip")).to_have_count(0)
    expect(page.locator("tfoot td").nth(1)).to_have_attribute("title", total or "")

    console.follow("Views")
    row.get_by_role("link", name="Search", exact=True).click()
    expect(dialog).to_contain_text("model variant!=gpt-4.1")
    assert [] == console.audit()
    console.screenshot("views-open")
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Name").fill("Search team")
    dialog.get_by_label("Filter").fill("search")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_role("alert")).to_contain_text('"search" is not a filter')
    dialog.get_by_label("Filter").fill("team=search\nteam=")
    dialog.get_by_label("Alert on unusual days").select_option("a percentage")
    dialog.get_by_role("spinbutton").fill("40")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("team=search, team=")
    expect(picker.locator("option:checked")).to_have_text("Search team")
    [view] = console.ask("/views")["views"]
    assert {"team": ["search", None]} == view["filter"]
    assert {"enabled": True, "threshold_type": "Percent", "threshold_value": 40} == view["anomalies"]

    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Delete").click()
    for name in ("search", "Search team"):
        dialog.get_by_label("Type Search team").fill(name)
        dialog.get_by_role("button", name="Delete").click()
        if name == "search":
            expect(dialog.get_by_role("alert")).to_contain_text("Type Search team exactly")
    expect(row).to_have_count(0)
    expect(picker.locator("option:checked")).to_have_text("unknown view")
    picker.select_option("Everything")
    expect(picker.locator("option")).to_have_text(["Everything"])
    assert {"view.create", "view.change", "view.delete"} <= console.actions()


@pytest.mark.proof
def test_a_chosen_view_holds_on_every_page(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    When a view is chosen, the address contains it, menu links and shortcuts include it, and requests for
    costs and calls use it.
    """
    made = busy.json("views", "create", "--name", "Docs", "--principal", "model", "--where", "team=docs")
    id = made["view"]["id"]
    console = open_console(busy)
    console.listen()
    page = console.page
    console.open("/")
    page.get_by_role("combobox", name="View").focus()
    page.get_by_role("combobox", name="View").select_option("Docs")
    page.wait_for_url(f"**view={id}")
    for title, part in (
        ("Costs", "report"),
        ("Calls", "records"),
        ("Live tail", "tail"),
        ("Overview", "overview"),
    ):
        console.requests.clear()
        with page.expect_request(lambda request, part=part: f"/console/api/{part}?" in request.url):  # type: ignore[misc]
            console.follow(title)
        console.settle()
        console.has_address(f"view={id}")
        assert {id} == asked_inside(console, part), title
        assert [] == console.audit(), title
        if title == "Calls":
            teams = {row["team"] for row in console.ask(f"/records?view={id}")["records"]}
            assert {"docs"} == teams
        console.screenshot(f"view-{part}")
    console.shortcut("gc", "Costs")
    console.has_address(f"view={id}")
    page.get_by_role("combobox", name="View").select_option("Everything")
    page.wait_for_url("**#/costs")


def test_deleted_view_shows_the_error_and_can_be_cleared(busy: Tollhouse, open_console: OpenConsole) -> None:
    """An address with a deleted view shows the server's message, and the menu can clear the view."""
    console = open_console(busy)
    console.expects("400")
    console.open("/calls?view=Nowhere")
    expect(console.page.get_by_role("alert")).to_contain_text("view")
    console.page.get_by_role("combobox", name="View").select_option("Everything")
    expect(console.page.get_by_role("table", name="records")).to_be_visible()
