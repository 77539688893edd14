"""A chart is saved as an SVG file that shows the same figures as its table, and needs nothing but itself."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console, day_text
from tests.rounds import part

SVG = "{http://www.w3.org/2000/svg}"
OF_A_BAR = re.compile(r"(.+), (.+): (.+)")
DRAWN = {"title", "rect", "path", "text", "g", "svg", "pattern"}
PAPER = "rgb(255, 255, 255)"


def saved(console: Console) -> ElementTree.Element:
    """Save the only chart of the page, and return its file after checking that it stands alone."""
    with console.page.expect_download() as download:
        console.choose("the chart", "Save as SVG")
    assert download.value.suggested_filename.endswith(".svg")
    text = Path(download.value.path()).read_text()
    root = ElementTree.fromstring(text)
    assert {f"{SVG}{name}" for name in DRAWN} >= {each.tag for each in root.iter()}
    names = {name for each in root.iter() for name in each.attrib}
    assert {"class", "style", "href", "data-group"}.isdisjoint(names)
    assert {"#stripes"} >= set(re.findall(r"url\(\W*([^)\"']+)", text)), "it refers only to itself"
    assert "var(" not in text
    return root


def words(root: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in root.iter(f"{SVG}text")]


def titles(root: ElementTree.Element, tag: str) -> dict[str, ElementTree.Element]:
    """Return the shapes of a kind by the title that states their figures."""
    found = {each.findtext(f"{SVG}title"): each for each in root.iter(f"{SVG}{tag}")}
    return {title: each for title, each in found.items() if title}


def table(console: Console) -> tuple[list[str], list[list[str]]]:
    """Return the names and the rows of the chart's table, and show the chart again."""
    button = console.page.get_by_role("button", name="Show as table")
    button.click()
    twin = console.page.locator("figure table")
    names = twin.locator("thead th").all_inner_texts()
    rows = [row.locator("th, td").all_inner_texts() for row in twin.locator("tbody tr").all()]
    expect(console.page.get_by_role("button", name="Actions for the chart")).to_have_count(0)
    button.click()
    return names, rows


def day_of(cell: str) -> str:
    """Return a day of the table, such as "2026-11-29 Sun", as the chart writes it."""
    day, weekday = cell.split()
    return f"{weekday} {day_text(date.fromisoformat(day))}"


def amount(text: str) -> float:
    return float(text.strip("<$").replace(",", ""))


@pytest.mark.parametrize("theme", part(("light", "dark"), every=2))
def test_a_file_has_the_figures_of_the_table(month: Tollhouse, open_console: OpenConsole, theme: str) -> None:
    """
    In the saved chart, each bar states the amount of its table cell and is as high as this amount. Title, days,
    axis, legend and totals are those of the page. The colours are those of the light theme, because slides and
    paper are white.
    """
    console = open_console(month, color_scheme=theme)
    console.open("/costs?from=now-7d&by=team&against=previous")
    (_, *names), rows = table(console)
    names = names[: names.index("Earlier period")]
    cells = {
        (day_of(row[0]), name): text
        for row in rows
        for name, text in zip(names, row[1:], strict=False)
        if amount(text)
    }
    root = saved(console)
    bars = {}
    for title, bar in titles(root, "rect").items():
        found = OF_A_BAR.fullmatch(title)
        assert found is not None, title
        bars[found[1], found[2]] = (found[3], float(bar.attrib["height"]))
    assert cells == {place: text for place, (text, _) in bars.items()}
    largest = max(bars.values(), key=lambda bar: bar[1])
    for text, height in bars.values():
        most = amount(largest[0])  # both amounts of the chart are rounded to a cent
        assert abs(height / largest[1] * most - amount(text)) < 0.011
    past = [title.rpartition(": ")[2] for title in titles(root, "path") if ", earlier period: " in title]
    assert [row[-2] for row in reversed(rows) if amount(row[-2])] == past

    said = words(root)
    page = console.page
    heading = page.locator("figcaption h2").inner_text()
    assert heading == said[0] == root.findtext(f"{SVG}title")
    first, last = (rows[place][0].split()[0] for place in (-1, 0))
    assert said[1].startswith(f"{first} to {last} (UTC). Total: $")
    for labels in (".axis span", ".days text"):
        assert set(page.locator(labels).all_text_contents()) <= set(said), labels
    for name in (*names, "earlier period"):
        assert name in "\n".join(said), name
    fills = {bar.attrib["fill"] for bar in titles(root, "rect").values()}
    assert len(names) >= len(fills) > 1
    assert PAPER == next(root.iter(f"{SVG}rect")).attrib["fill"]


@pytest.mark.proof
def test_a_file_of_lines_states_each_point(console: Console) -> None:
    """In the saved chart, a measure that cannot be added is drawn as lines, and each line states its points."""
    console.open("/costs?from=now-7d&by=team&measure=cost_per_call")
    (_, *names), rows = table(console)
    lines = titles(saved(console), "path")
    for place, name in enumerate(names, 1):
        points = "; ".join(f"{day_of(row[0])}: {row[place]}" for row in reversed(rows) if row[place] != "–")
        assert f"{name}: {points}" in lines


@pytest.mark.proof
def test_hidden_series_and_a_long_name(console: Console) -> None:
    """
    A hidden series is not in the saved chart, and the file names it. The overview's chart can be saved as well.
    """
    console.open("/costs?from=now-7d&by=team&hide=search")
    root = saved(console)
    assert not [title for title in titles(root, "rect") if ", search: " in title]
    assert words(root)[1].count("Hidden: search") == 1
    console.open("/")
    assert titles(saved(console), "rect")
