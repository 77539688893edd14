"""A name has one colour everywhere, painted by class. Forced colours keep squares and chosen links visible."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console
from tests.rounds import some

ADDRESSES = some(
    (
        "/costs?by=model_family",
        "/costs?by=model_family&from=now-7d",
        "/costs?by=model_family&team=search",
        "/",
        "/costs?by=model_family&from=now-30d&bin=weekly&measure=calls",
        "/?from=now-7d",
        "/costs?by=model_family&measure=cost_per_call",
    ),
    every=3,
)
SERIES = re.compile(r"\bs([1-8])\b")
# Names with their classes, in the legend of the chart, in the list beside it, and in the first column.
SHOWN = """[...document.querySelectorAll(".legend li, .shares li, main tbody th")].map((each) =>
  [each.querySelector("a, span").innerText, each.querySelector(".key")?.getAttribute("class") ?? ""])"""
PAINTED = """(query) => [...document.querySelectorAll(query)].map((each) => getComputedStyle(each).fill)"""


def shown(console: Console) -> Iterator[tuple[str, str]]:
    for name, classes in console.page.evaluate(SHOWN):
        series = SERIES.search(classes)
        if series:
            yield name, series[1]


@pytest.mark.proof
def test_a_name_has_one_colour(month: Tollhouse, open_console: OpenConsole) -> None:
    """
    On Overview and Costs, in any order of visits, time range, filter, measure and theme, and for another
    person, each name has one class.
    """
    found: set[tuple[str, str]] = set()
    for role, scheme, addresses in (("admin", "light", ADDRESSES), ("viewer", "dark", ADDRESSES[::-1])):
        console = open_console(month, role=role, color_scheme=scheme)
        for address in addresses:
            console.open(address)
            expect(console.page.locator("main .key").first).to_be_visible()
            here = set(shown(console))
            assert len(here) >= 2, address
            found |= here
    assert len(found) == len({name for name, _ in found}), found
    assert len(found) == len({series for _, series in found}), found  # there are fewer than nine names


def test_a_theme_repaints_without_a_script(console: Console) -> None:
    """
    A bar and its square in the table have the same colour. Another theme changes the colour, but not the class.
    """
    console.open("/costs?by=model_family")
    page, looks = console.page, []
    expect(page.locator("svg .part.s1").first).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        painted = {
            colour for query in ("svg .part.s1", "th .key.s1") for colour in page.evaluate(PAINTED, query)
        }
        assert 1 == len(painted), painted
        looks.append(painted)
    assert looks[0] != looks[1]


@pytest.mark.proof
def test_two_names_with_one_colour(console: Console) -> None:
    """
    If two names of a chart have the same colour, the smaller is hatched in the bars and in the table.
    A name without a stored colour is grey.
    """

    def same(route: Route) -> None:
        answer = route.fetch()
        payload = answer.json()
        if "colours" in payload:
            costs: dict[str, float] = defaultdict(float)
            for row in payload["rows"]:
                costs[row["model_family"]] += float(row["cost"])
            payload["colours"] = dict.fromkeys(sorted(costs, key=lambda name: -costs[name])[:2], 3)
        route.fulfill(response=answer, json=payload)

    console.page.route("**/api/report?*", same)
    console.open("/costs?by=model_family")
    page = console.page
    row = page.locator("main tbody th")
    expect(row.nth(0).locator(".key")).to_have_class("key s3")
    expect(row.nth(1).locator(".key")).to_have_class("key s3 hatched")
    expect(row.nth(1).locator(".key path")).to_have_count(1)
    expect(row.nth(2).locator(".key")).to_have_class("key s9")
    expect(page.locator("svg .part.s3.hatched").first).to_be_visible()
    assert page.locator("svg .hatching").count() == page.locator("svg .part.hatched").count()
    console.screenshot("costs-hatched")


def test_forced_colours(console: Console) -> None:
    """With forced colours, squares keep their colours, and the chosen page, row and button have an outline."""
    console.page.emulate_media(forced_colors="active")
    console.open("/costs?by=model_family")
    page = console.page
    expect(page.locator("th .key.s1")).to_be_visible()
    squares = page.evaluate(PAINTED, "th .key")
    assert len(set(squares)) >= 3, squares
    assert "rgb(0, 0, 0)" not in squares
    chosen = page.locator("header [aria-current]").first
    expect(chosen).to_have_css("outline-style", "solid")
    page.get_by_role("button", name="Show as table").click()
    expect(page.get_by_role("button", name="Show as table")).to_have_css("outline-style", "solid")
