"""The frame around every page: shortcuts, search, theme, pause."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console


@pytest.mark.proof
def test_shortcuts_can_be_switched_off(console: Console) -> None:
    """
    g and a letter open pages, j and k move through rows, and / opens the search. If shortcuts are switched off,
    none of them works.
    """
    console.open("/")
    page = console.page
    console.shortcut("gd", "Fleet")
    expect(page).to_have_title("Fleet · Tollhouse")
    page.keyboard.press("?")
    switch = page.get_by_label("Use keyboard shortcuts")
    switch.uncheck()
    page.keyboard.press("Escape")
    expect(switch).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.keyboard.press("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")
    assert "INPUT" != page.evaluate("document.activeElement.tagName")


def test_rows_are_reached_and_opened(console: Console) -> None:
    """
    j selects the next row, k the previous, Enter opens it and Esc closes it. The address contains the open row.
    """
    console.open("/costs?by=team")
    page = console.page
    rows = page.locator("tbody tr a")
    expect(rows.nth(1)).to_be_visible()
    for key in "jjk":
        page.keyboard.press(key)
    expect(rows.first).to_be_focused()
    name = rows.first.inner_text()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=f"team: {name}")).to_be_visible()


def test_the_search_leads_to_pages_costs_and_calls(console: Console) -> None:
    """The search accepts a part of a page's title, a field with a value, or a record id."""
    console.open("/devices")
    page = console.page
    for text, address in [
        ("cost", "#/costs"),
        ("team:search", "#/costs?team=search"),
        ("0af7651916cd43dd8448eb211c80319c", "#/calls?open=0af7651916cd43dd8448eb211c80319c"),
    ]:
        page.keyboard.press("/")
        expect(page.get_by_role("searchbox")).to_be_focused()
        page.keyboard.type(text)
        if address.startswith("#/calls"):
            console.expects("404")  # the record of this address does not exist, and the page says so
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/{address}")
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")


def test_pause_of_the_console_survives_a_reload(console: Console) -> None:
    """While the console is paused, even after a reload, no event stream is open. Then it resumes."""
    console.listen()
    console.open("/")
    page = console.page
    console.do("Pause updates")
    expect(page.get_by_role("button", name="paused")).to_be_visible()
    before = len(console.asked("/changes"))
    console.open("/devices")
    expect(page.get_by_role("button", name="paused")).to_be_visible()
    assert before == len(console.asked("/changes"))
    page.keyboard.press("r")
    expect(page.get_by_role("button", name="live")).to_be_visible()


def test_chosen_theme_survives_a_reload(console: Console) -> None:
    console.open("/")
    page = console.page
    for theme in ("system", "light"):
        console.do(f"Theme: {theme}")
    console.open("/")
    page.locator("button.me").click()
    expect(page.get_by_role("menuitem", name="Theme: dark")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("button.me")).to_be_focused()
    colour = [
        int(part)
        for part in re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))
    ]
    assert sum(colour[:3]) < 150


@pytest.mark.proof
def test_it_is_used_with_colours_of_the_system(month: Tollhouse, open_console: OpenConsole) -> None:
    """With forced system colours, selections are still marked and bars are still drawn."""
    console = open_console(month, forced_colors="active")
    console.open("/delivery")
    for chosen in console.page.locator("[aria-current]").all():
        assert "none" != chosen.evaluate("(link) => getComputedStyle(link).outlineStyle")
    assert 3 == console.page.locator("[aria-current]").count()  # the entry, its tab, and the tab of the page
    assert [] == console.audit(is_framed=True)
    console.open("/")
    expect(console.page.locator("figure svg .part").first).to_be_visible()
    console.screenshot("overview-forced-colours")


@pytest.mark.proof
def test_who_is_signed_out_elsewhere_sees_the_sign_in(house: Tollhouse, open_console: OpenConsole) -> None:
    """When a session ends elsewhere, its event stream ends and the open page shows the sign-in."""
    console = open_console(house)
    console.expects("401")
    console.open("/devices")
    console.page.get_by_role("button", name="live").wait_for()
    [session] = house.json("operators", "sessions", "list")["sessions"]
    house.run("operators", "sessions", "delete", session["id"])
    expect(console.page.get_by_role("button", name="Sign in")).to_be_visible()


def test_names_are_searched(console: Console) -> None:
    """
    While somebody types, the search finds teams by a part of the name, with a link to their costs, as well as
    machines and actions. Arrow keys select a result. If nothing matches, it names the kinds that it searched.
    """
    console.open("/")
    page = console.page
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("create a bud")
    page.keyboard.press("Enter")
    expect(
        page.get_by_role("dialog", name="Create a budget").get_by_label("Name", exact=True)
    ).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Search").click()
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("laptop-ada")
    expect(dialog.get_by_role("listitem")).to_have_text(["laptop-ada device", "laptop-ada machine"])
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="laptop-ada")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("earc")
    expect(dialog.get_by_role("link", name="search", exact=True)).to_be_visible()
    assert [] == console.audit(("minor", "moderate", "serious", "critical"), is_framed=True)
    dialog.get_by_role("link", name="search", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    page.keyboard.press("/")
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.go_back()  # another address closes the search
    expect(page.get_by_role("dialog", name="Search")).to_have_count(0)
    page.keyboard.press("/")
    expect(dialog.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type("no such name")
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("Nothing has this name. Searched: page, ")
    expect(dialog).to_contain_text("machine")


ENTRIES = (
    "Overview Costs Calls Insights Budgets Recommendations Reconciliation Prices Contracts Plans Allocation Connect"
    " Fleet People Administration"
)


def test_the_menu_is_always_open(console: Console) -> None:
    """
    The menu shows each entry, and an entry's other pages are tabs beside the heading. On a phone a button opens the
    menu, and choosing a page closes it.
    """
    page = console.page
    console.open("/budgets")
    menu = page.get_by_role("navigation", name="Pages")
    expect(menu.get_by_role("link")).to_have_text([re.compile(rf"^{name}") for name in ENTRIES.split()])
    expect(menu.get_by_role("group", name="Terms").get_by_role("link")).to_have_count(4)
    expect(page.get_by_role("navigation", name="Budgets")).to_have_count(0)
    assert 2 == console.follow("Delivery")
    expect(page.get_by_role("heading", level=1)).to_have_text("Delivery")
    expect(menu.locator("[aria-current]")).to_have_text("Administration")
    assert 1 == console.follow("API Keys")
    expect(page.get_by_role("heading", level=1)).to_have_text("API Keys")
    console.resize(NARROW)
    expect(menu).to_have_count(0)
    assert console.still(page.locator("header"))["height"] < 80
    page.get_by_role("button", name="Menu").click()
    assert console.audit(is_framed=True) == []
    assert console.overhang() <= 0
    console.screenshot("menu-phone")
    menu.get_by_role("link", name="Costs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Costs")
    expect(menu).to_have_count(0)


def test_the_persons_menu_is_used_with_keys(console: Console) -> None:
    """Arrow keys move in the menu of the person. After a dialog that it opened, its button has the focus again."""
    console.open("/devices")
    page, button = console.page, console.page.locator("button.me")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("menuitem", name="Theme")).to_be_focused()
    assert [] == console.audit(is_framed=True)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(button).to_be_focused()


@pytest.mark.parametrize("is_blocked", [False, True])
def test_the_text_has_its_own_font(console: Console, is_blocked: bool) -> None:
    """The console's font is used where it has the characters. Without its file, the page is readable at once."""
    if is_blocked:
        console.expects("inter.woff2", "ERR_FAILED")
        console.page.route("**/inter.woff2", lambda route: route.abort())
    console.open("/devices")
    assert is_blocked is not console.page.evaluate("document.fonts.check('13px Inter')")
    expect(console.page.get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.proof
def test_letters_typed_before_the_search_loads_appear_in_it(console: Console) -> None:
    """
    The file of the search is loaded when the search is first used. Letters typed meanwhile appear in its field, and
    Enter opens the result.
    """
    console.open("/costs")
    waiting: list[Route] = []
    path = re.compile(r"search\.mjs$")
    console.page.route(path, lambda route: waiting.append(route))
    with console.page.expect_request(path):
        console.page.keyboard.press("/")
    console.page.keyboard.type("ketx")
    for _ in "tx":
        console.page.keyboard.press("Backspace")
    waiting.pop().continue_()
    box = console.page.get_by_role("searchbox")
    expect(box).to_have_value("ke")
    console.page.keyboard.type("ys\n")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("API Keys")
    console.page.keyboard.press("/")
    console.page.keyboard.type("fleet\n")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Fleet")
