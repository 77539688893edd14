"""The menu of a table row: keyboard, focus, clicks outside, and the size of its targets on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.console import LARGE, NARROW, Console

ADDRESS = "/costs?by=team&from=now-7d"
PHONE_TARGET_PX = 40
# After a frame, the pixels between the open menu and its button: below it, or above it if there is more room.
GAP = """() => new Promise((told) => {
  const edges = (selector) => document.querySelector(selector).getBoundingClientRect();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    const [menu, button] = [edges("[role=menu]:popover-open"), edges("[aria-expanded=true]")];
    told(Math.round(Math.max(menu.top - button.bottom, button.top - menu.bottom)));
  }));
})"""
GAP_PX = 4


def dots(console: Console, row: int) -> Locator:
    return console.page.locator("tbody tr").nth(row).locator("button.dots")


def test_a_menu_by_keyboard(console: Console) -> None:
    """
    Enter and Space open a row's menu at its first item, arrow keys go around, and Escape closes it and returns the
    focus. Keys in the menu are no shortcuts of the page.
    """
    console.open(ADDRESS)
    keys, items = console.page.keyboard, console.page.get_by_role("menuitem")
    button = dots(console, 0)
    expect(items).to_have_count(0)
    for key in ("Enter", "Space"):
        button.press(key)
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(items.first).to_be_focused()
        keys.press("ArrowUp")
        expect(items.last).to_be_focused()
        keys.press("ArrowDown")
        expect(items.first).to_be_focused()
        keys.press("End")
        expect(items.last).to_be_focused()
        keys.press("?")  # the help of the page on other elements
        expect(console.page.get_by_role("dialog")).to_have_count(0)
        assert [] == console.audit(("minor", "moderate", "serious", "critical"))
        keys.press("Escape")
        expect(items).to_have_count(0)
        expect(button).to_be_focused()
        expect(button).to_have_attribute("aria-expanded", "false")
    button.press("Enter")
    expect(items.first).to_be_focused()
    keys.press("Tab")
    expect(items).to_have_count(0)


@pytest.mark.proof
def test_one_menu_is_open_and_a_click_outside_closes_it(console: Console) -> None:
    """A menu stays inside the window, also at its edges. A click outside opens no row."""
    console.open(ADDRESS)
    menus = console.page.get_by_role("menu")
    for size in (LARGE, NARROW):
        console.resize(size)
        for row in (0, 1, -1):
            if row == -1:
                dots(console, row).scroll_into_view_if_needed()
            dots(console, row).press("Enter")
            expect(menus).to_have_count(1)
            expect(menus).to_be_in_viewport(ratio=1)
            assert 0 == console.overhang()
            if row == 1:
                dots(console, row).click()  # a second click on the button closes the menu
                expect(menus).to_have_count(0)
            else:
                address = console.page.url
                console.page.mouse.click(5, 5)
                expect(menus).to_have_count(0)
                assert address == console.page.url
    console.resize(LARGE)
    dots(console, 1).press("Enter")
    expect(menus).to_have_count(1)
    dots(console, 0).click()  # the menu is below its row, so it does not cover this button
    expect(menus).to_have_count(1)
    expect(dots(console, 0)).to_have_attribute("aria-expanded", "true")
    console.page.keyboard.press("Escape")


@pytest.mark.proof
def test_a_menu_follows_its_row(console: Console) -> None:
    """If something above grows while a menu is open, as data arrives, the menu moves with its row."""
    console.open(ADDRESS)
    page = console.page
    dots(console, 1).press("Enter")
    expect(page.get_by_role("menuitem").first).to_be_focused()
    assert GAP_PX == page.evaluate(GAP)
    page.evaluate("document.querySelector('main').style.paddingTop = '60px'")
    assert GAP_PX == page.evaluate(GAP)


def test_a_dialog_from_a_menu_returns_the_focus(console: Console) -> None:
    """
    An item of a menu acts after the menu has closed. When the dialog of an item closes, the row's button has the
    focus.
    """
    console.open(ADDRESS)
    dots(console, 0).click()
    console.page.get_by_role("menuitem", name="Set a budget").click()
    expect(console.page.get_by_role("menu")).to_have_count(0)
    expect(console.page.get_by_role("dialog")).to_be_visible()
    console.page.keyboard.press("Escape")
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    expect(dots(console, 0)).to_be_focused()


@pytest.mark.proof
def test_space_follows_a_link(console: Console) -> None:
    """Space activates an item that is a link."""
    console.open(ADDRESS)
    dots(console, 0).press("Space")
    expect(console.page.get_by_role("menuitem", name="Top calls")).to_be_focused()
    console.page.keyboard.press("Space")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Calls")


@pytest.mark.proof
def test_targets_on_a_phone(console: Console) -> None:
    """The button of a row's menu and each item are at least 40 px high, and the button is as wide."""
    console.resize(NARROW)
    console.open(ADDRESS)
    dots(console, 0).press("Enter")
    items = console.page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    for target in (dots(console, 0), *items.all()):
        box = console.still(target)
        assert min(box["height"], box["width"]) >= PHONE_TARGET_PX
