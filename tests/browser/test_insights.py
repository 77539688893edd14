"""Insights: the most urgent comes first, and people decide on it and comment it."""

from __future__ import annotations

import json
import re
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole

SPIKE = {
    "title": "Team search spent $900.00, $100.00 was expected",
    "description": "What was seen: <b>a jump</b>\n\nWhat to do: ask.",
    "category": "spend",
    "cost_impact": "800.00",
    "link": "https://wiki.example/spend",
}
GAP = {"title": "No price for toll-1", "category": "prices", "cost_impact": "12.50"}
BILL = {
    "title": "openai billed $9.00, but $7.00 was counted",
    "description": "What to do: `tollhouse reconcile report --month 2026-10` shows every cause.",
    "category": "prices",
}
STUCK = {"title": "The route archive is paused", "category": "delivery", "cost_impact": "9504"}


@pytest.fixture
def informed(house: Tollhouse) -> Tollhouse:
    """A Tollhouse with three insights, of which the one with the lowest cost was written last."""
    write(house, GAP, SPIKE, STUCK)
    return house


def write(house: Tollhouse, *insights: dict[str, str]) -> None:
    secret = house.key(f"writer of {len(insights)}", "--scope", "insights:create_insight")
    for insight in insights:
        headers = {"Authorization": secret, "Content-Type": "application/json"}
        urlopen(Request(f"{house.url}/v2/insights", json.dumps(insight).encode(), headers)).close()


def test_an_insight_is_read_decided_and_commented(informed: Tollhouse, open_console: OpenConsole) -> None:
    """
    Insights show money separately from operations, and text from senders as plain text. A decision removes an
    insight from the open list, and its comment stays.
    """
    console = open_console(informed, role="operator")
    console.open("/insights")
    titles = console.page.locator("tbody th > a")
    expect(titles).to_have_text([STUCK["title"], SPIKE["title"], GAP["title"]])
    assert ["Insight", "Cost impact"] == console.page.get_by_role("columnheader").all_inner_texts()
    facts = console.page.locator("tbody small").first
    expect(facts).to_have_text(re.compile(r"^✕ critical · \d+ (s|min) ago ?$"))
    expect(console.page.locator("a.chip")).to_have_text(
        ["Critical 1", "Open 3", "On hold 0", "Done 0", "Money 2", "Operations 1"]
    )
    console.page.get_by_role("link", name="Operation").click()
    expect(titles).to_have_text([STUCK["title"]])
    expect(console.page.get_by_role("row", name=STUCK["title"])).to_contain_text("critical")
    expect(console.page.get_by_role("row", name=STUCK["title"])).to_contain_text("$9,504.00 affected")
    console.page.get_by_role("link", name="Money").last.click()
    chosen = console.page.locator("a.chip[aria-current]")
    expect(chosen).to_have_text("Money 2")
    expect(titles).to_have_text([SPIKE["title"], GAP["title"]])
    console.page.get_by_role("link", name=SPIKE["title"]).click()
    dialog = console.page.get_by_role("dialog", name=SPIKE["title"])
    expect(dialog).to_contain_text("<b>a jump</b>")
    expect(dialog.get_by_role("link", name="https://wiki.example/spend")).to_be_visible()
    assert [] == console.audit()
    dialog.get_by_role("button", name="Comment").click()
    console.page.get_by_role("textbox", name="Comment").fill("It was the\nbatch run.")
    console.page.get_by_role("dialog").get_by_role("button", name="Comment").click()
    console.page.get_by_role("link", name=SPIKE["title"]).click()
    expect(dialog).to_contain_text("batch run.")
    expect(dialog.get_by_role("button", name="Delete a comment")).to_be_visible()
    dialog.get_by_role("button", name="Set status").click()
    status = console.page.get_by_role("combobox", name="Status")
    words = ["new", "in progress", "on hold", "addressed", "ignored"]
    assert words == status.locator("option").all_inner_texts()
    status.select_option("addressed")
    console.page.get_by_role("dialog").get_by_role("button", name="Set status").click()
    expect(titles).to_have_text([GAP["title"]])
    expect(console.page.get_by_role("link", name=SPIKE["title"])).to_have_count(0)
    found = informed.json("insights", "list", "--status", "addressed")["insights"]
    assert [SPIKE["title"]] == [insight["title"] for insight in found]


def test_an_insight_leads_to_what_it_is_about(informed: Tollhouse, open_console: OpenConsole) -> None:
    """
    An insight links to the costs of its time range, grouped by its subject, and to the page of its category. If the
    advice names a command of bills or machines, the link leads to their page.
    """
    write(
        informed,
        {**BILL, "category": "prices"},
        {**BILL, "title": "Budget search is past 100 %", "category": "budget", "description": ""},
    )
    console = open_console(informed, role="viewer")
    console.open("/insights?sort=title&order=asc")
    console.page.get_by_role("link", name=GAP["title"]).click()
    dialog = console.page.get_by_role("dialog")
    assert "&by=model&by=cost_source" in (
        dialog.get_by_role("link", name="Costs").get_attribute("href") or ""
    )
    dialog.get_by_role("button", name="Close").click()
    console.page.get_by_role("link", name=STUCK["title"]).click()
    expect(dialog.get_by_role("button")).to_have_text(["✕", "↑", "↓"])
    for title, name in ((BILL["title"], "Reconciliation"), ("Budget search is past 100 %", "Budgets")):
        dialog.get_by_role("button", name="Close").click()
        console.page.get_by_role("link", name=title).click()
        expect(dialog.get_by_role("link", name=name, exact=True)).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    console.page.get_by_role("link", name=STUCK["title"]).click()
    dialog.get_by_role("link", name="Delivery").click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Delivery")


def test_detectors_run_on_request_and_report_their_result(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """Without an insight, the page lists the detectors. A run reports its result."""
    console = open_console(house)
    console.open("/insights")
    expect(console.page.get_by_role("heading", name="No insights")).to_be_visible()
    console.page.get_by_role("button", name="Check now").click()
    console.page.get_by_role("dialog").get_by_role("button", name="Check now").click()
    expect(console.page.get_by_role("dialog").get_by_role("status")).to_contain_text("0 new")


def test_a_filtered_view_is_an_address(informed: Tollhouse, open_console: OpenConsole) -> None:
    """After a reload, Insights shows the same filters. Back and Forward work, and a chip removes a filter."""
    console = open_console(informed)
    console.open("/insights")
    page = console.page
    page.get_by_label("Add a filter").select_option("status")
    page.get_by_label("Value of status").select_option("ignored")
    expect(page.get_by_text("No insights match")).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/insights\?status=ignored$"))
    page.go_back()
    expect(page.get_by_role("rowheader")).to_have_count(3)
    page.go_forward()
    expect(page.get_by_text("No insights match")).to_be_visible()
    console.open("/insights?status=ignored")
    expect(page.get_by_text("No insights match")).to_be_visible()
    page.get_by_role("link", name="status: ignored").click()
    expect(page.get_by_role("rowheader")).to_have_count(3)
