"""The panel of a row: a summary for people, all fields of the API below it, and the list next to it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console, followed

ID = re.compile(r"[0-9a-f]{16,}|\d+")


def panel(console: Console) -> Locator:
    return console.page.locator("dialog.panel")


@pytest.mark.proof
def test_every_panel_shows_words_first_and_all_fields_below(console: Console) -> None:
    """
    The panel of each list uses words instead of names of the API, and no bare id as its title. The section with all
    fields is closed.
    """
    seen = []
    for name in followed(console):
        row = console.page.locator("main tbody tr.leads a").first
        if not row.count() or console.page.locator(".plot").count():
            continue
        row.click()
        if "open=" not in console.page.evaluate("location.hash"):
            continue
        expect(panel(console)).to_be_visible()
        console.settle()
        title = panel(console).get_by_role("heading", level=2).inner_text()
        assert not re.fullmatch(ID, title), f"{name}: {title}"
        heads = panel(console).locator("dt:visible").all_inner_texts()
        assert [] == [each for each in heads if "_" in each], name
        fields = panel(console).locator("details", has=console.page.get_by_text("All fields", exact=True))
        expect(fields).to_have_count(1)
        expect(fields.locator("dt")).to_have_count(0)
        fields.locator("summary").click()
        expect(fields.locator("dt").first).to_be_visible()
        seen.append(name)
        panel(console).get_by_role("button", name="Close").click()
    assert len(seen) > 8, seen


def test_keys_and_clicks_move_between_rows(console: Console) -> None:
    """The list stays visible next to the panel. Arrow keys, buttons and clicks open another row."""
    console.open("/calls")
    links = console.page.locator("main tbody tr.leads a")
    times = links.all_inner_texts()
    chosen = console.page.locator("tr.chosen th")
    links.first.click()
    expect(chosen).to_have_text(times[0])
    expect(panel(console).get_by_text("1 of 40")).to_be_visible()
    console.page.keyboard.press("ArrowUp")  # there is no row above the first one, so the key changes nothing
    console.page.keyboard.press("ArrowDown")
    expect(panel(console).get_by_text("2 of 40")).to_be_visible()
    panel(console).get_by_role("button", name="Next row").click()
    expect(chosen).to_have_text(times[2])
    right, left = console.still(links.nth(4)), console.still(panel(console))
    assert right["x"] + right["width"] <= left["x"]
    console.page.mouse.click(right["x"] + 2, right["y"] + right["height"] / 2)
    expect(chosen).to_have_text(times[4])
    console.page.keyboard.press("Escape")
    expect(panel(console)).to_have_count(0)
    expect(links.nth(4)).to_be_focused()


@pytest.mark.proof
def test_click_outside_the_list_closes_the_panel(console: Console) -> None:
    console.open("/calls")
    console.page.locator("main tbody tr.leads a").first.click()
    expect(panel(console)).to_be_visible()
    console.page.mouse.click(220, 60)
    expect(panel(console)).to_have_count(0)


@pytest.mark.proof
def test_price_lines_show_the_amount_on_a_phone(month: Tollhouse, open_console: OpenConsole) -> None:
    console = open_console(month, viewport=NARROW)
    console.open("/calls?sort=cost&order=desc")
    console.page.locator("main tbody a").first.click()
    lines = panel(console).get_by_role("table", name="Price lines")
    expect(lines.get_by_role("columnheader", name="Amount")).to_be_visible()
    expect(lines.get_by_role("rowheader").first).to_contain_text("per million")


def test_a_managed_object_names_its_file(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    For an object that comes from a file, the panel shows the file and the object's YAML. A change is refused, with
    the name of the file to change.
    """
    settings = house.directory / "settings"
    settings.mkdir()
    (settings / "tollhouse.yaml").write_text("set: platform\nformat: 1\n")
    item = "- name: Search\n  filter:\n    team:\n      - search\n  principal_dimension: team\n"
    (settings / "views.yaml").write_text(f"# the views\n{item}")
    house.run("apply", str(settings))
    console = open_console(house)
    console.open("/views")
    console.page.get_by_role("link", name="Search").click()
    shown = panel(console)
    expect(shown.get_by_text("Managed by platform, views.yaml:2.")).to_be_visible()
    shown.get_by_text("Copy as YAML").click()
    expect(shown.get_by_label("YAML", exact=True)).to_have_text(item)
    assert [] == console.audit()
    console.expects("409")
    shown.get_by_role("button", name="Edit").click()
    form = console.page.get_by_role("dialog")
    form.get_by_role("textbox", name=re.compile("^Name")).fill("Find")
    form.get_by_role("button", name="Edit").click()
    expect(form.get_by_role("alert")).to_contain_text("managed by platform, views.yaml:2. Change that file")
