"""The most expensive calls: one click from each row of Costs, with their users, and on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console

ALL = ("minor", "moderate", "serious", "critical")


def costs_of(page: Page) -> list[float]:
    """Return the known costs in the table of calls, in dollars."""
    shown = page.locator("tbody td:nth-child(3)")
    titles = [cell.get_attribute("title") for cell in shown.all()]
    return [float(title) for title in titles if title]


@pytest.mark.proof
def test_the_dearest_calls_are_in_the_menu_of_a_row(console: Console) -> None:
    """
    The menu of a row of Costs lists the calls of its team in the same time range, most expensive first,
    with the user.
    """
    console.open("/costs?from=now-7d&by=team")
    page = console.page
    console.choose("search", "Top calls")
    expect(page.get_by_role("heading", level=1)).to_have_text("Calls")
    assert 2 == console.clicks()
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    expect(page.get_by_text("Top calls by cost, last 7 days.")).to_be_visible()
    answer = console.ask("/records?sort_key=cost&sort_order=desc&team=search&range=last_7d&limit=40")
    shown = costs_of(page)
    assert len(shown) > 10
    assert shown == sorted(shown, reverse=True)
    expect(page.locator("tbody tr")).to_have_count(len(answer["records"]))
    expect(page.locator("tbody tr").first).to_contain_text(answer["records"][0]["user"] or "unknown")
    expect(page.get_by_text("Tollhouse searched")).to_be_visible()
    assert [] == console.audit(ALL)
    console.resize(NARROW)
    assert 0 == console.overhang()
    console.screenshot("top-calls-narrow")


def test_calls_are_sorted_by_a_click_on_a_heading(console: Console) -> None:
    """In the list of calls, a click on cost, tokens or duration sorts by it, the highest first."""
    console.open("/calls")
    page = console.page
    for title, said in (("Cost", "cost"), ("Tokens", "number of tokens"), ("Duration", "duration")):
        page.locator("thead").get_by_role("button", name=title).click()
        expect(page.get_by_text(f"Top calls by {said}, last 30 days.")).to_be_visible()
        expect(page.locator("thead th[aria-sort=descending]")).to_contain_text(title)
    page.get_by_label("Range").select_option("now-7d")
    expect(page.get_by_text("Top calls by duration, last 7 days.")).to_be_visible()
    page.get_by_role("link", name="Newest calls").click()
    expect(page.get_by_role("link", name="Top calls by cost")).to_be_visible()


def test_a_bound_is_typed_in_the_search(console: Console) -> None:
    """The filter `cost>0.01` shows only calls above this amount. A plain number in the filter is a lower bound."""
    console.open("/")
    page = console.page
    page.keyboard.press("/")
    page.get_by_role("searchbox").fill("cost>0.01")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="cost: >0.01")).to_be_visible()
    expect(page.get_by_text("Top calls by cost")).to_be_visible()
    assert min(costs_of(page)) > 0.01
    page.get_by_label("Add a filter").select_option("tokens")
    page.get_by_label("Value of tokens").fill("1000000000")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("link", name="tokens: >1000000000")).to_be_visible()
    expect(page.get_by_text("No records match.")).to_be_visible()
    assert [] == console.audit(ALL)


def test_while_it_looks_and_when_it_cannot(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page of the most expensive calls has a message while it loads and one for an empty installation. A refusal
    is shown with a button to retry.
    """
    console = open_console(house)
    console.open("/calls?sort=cost&order=desc")
    expect(console.page.get_by_role("heading", name="No records yet")).to_be_visible()
    held: list[Route] = []
    console.page.route("**/api/records?*", lambda route: held.append(route))
    console.page.goto("about:blank")
    with console.page.expect_request("**/api/records?*"):
        console.page.goto(f"{console.url}/console/#/calls?sort=cost&order=desc")
    expect(console.page.get_by_text("Loading ...")).to_be_visible()
    console.expects("503", "/records")
    for route in held:
        route.fulfill(status=503, json={"error": {"type": "busy", "message": "Try again later."}})
    console.page.unroute("**/api/records?*")
    expect(console.page.get_by_role("alert")).to_contain_text("Try again later.")
    console.page.get_by_role("button", name="Try again").click()
    expect(console.page.get_by_role("heading", name="No records yet")).to_be_visible()
    assert [] == console.audit(ALL)
