"""
Every page at several widths: nothing is clipped, words are separate, and headings are in order. `test_pages.py` checks
the pages with and without data, because a walk over all pages takes half a minute of processor time.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console, followed
from tests.rounds import IS_LONG

WIDTHS = (1440, 1240, 1024, 901, 768, 701, 600, 390)
EACH_LAYOUT = (1440, 901, 701, 390)  # wide windows, tablets and phones
# Neighbouring texts of different elements on one line without a gap, of which one ends and the other begins
# with a letter, a digit or a sign that stands beside a word.
GLUED = r"""() => {
  const found = [];
  const UNREAD = ".unseen, pre, svg, option, datalist";
  const [ENDS, BEGINS] = [/[\p{L}\p{N},.;:)]$/u, /^[\p{L}\p{N}(]/u];
  for (const root of document.querySelectorAll("main, dialog[open]")) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    let before = null;
    for (let text = walker.nextNode(); text; text = walker.nextNode()) {
      const parent = text.parentElement;
      if (!text.data.trim() || !parent.checkVisibility() || parent.closest(UNREAD)) continue;
      const isBeside = before && ENDS.test(before.data) && BEGINS.test(text.data);
      if (isBeside && before.parentElement !== parent) {
        const [one, other] = [document.createRange(), document.createRange()];
        one.setStart(before, before.length - 1);
        one.setEnd(before, before.length);
        other.setStart(text, 0);
        other.setEnd(text, 1);
        const [left, right] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
        const isOneLine = left.top < right.bottom && right.top < left.bottom;
        const isGlued = isOneLine && right.left - left.right < 1.5 && right.left >= left.left;
        if (isGlued) found.push(`${before.data.slice(-20)}|${text.data.slice(0, 20)}`);
      }
      before = text;
    }
  }
  return found;
}"""
# Levels of visible headings that skip one, within the page and within each open dialog.
SKIPPED = """() => [...document.querySelectorAll("main, dialog[open]")].flatMap((root) => {
  const isDialog = root.matches("dialog");
  const all = [...root.querySelectorAll("h1, h2, h3, h4, h5, h6")]
    .filter((each) => each.checkVisibility() && (isDialog || !each.closest("dialog")));
  const levels = all.map((each) => Number(each.tagName[1]));
  const before = (at) => (at ? levels[at - 1] : isDialog ? 1 : 0);
  return all.filter((_, at) => levels[at] > before(at) + 1).map((each) => each.outerHTML.slice(0, 100));
})"""
# Elements that end right of the window, tables in a box that scrolls, a last row that stays hidden, and on wide screens
# cells and causes without the end of their text, because no name of the demo is so long.
CLIPPED = """() => {
  const found = [];
  const name = (each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 60)}`;
  const isShort = (each) => each && (getComputedStyle(each).textOverflow === "ellipsis" || isShort(each.parentElement));
  for (const each of document.querySelectorAll("main *, main")) {
    if (!each.checkVisibility() || each.closest("pre, .unseen, svg, select")) continue;
    if (each.getBoundingClientRect().right <= innerWidth + 0.5 || isShort(each.parentElement)) continue;
    found.push(`right of the window: ${name(each)}`);
  }
  for (const table of document.querySelectorAll("main table")) {
    for (let box = table; box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      const isWhole = [style.overflowX, style.overflowY].every((each) => each === "visible");
      if (!isWhole || style.maxHeight !== "none") found.push(`a box that scrolls: ${name(box)}`);
    }
  }
  const whole = "main td:not(:has(code)), .attention summary span";
  for (const each of innerWidth >= 1440 ? document.querySelectorAll(whole) : []) {
    const isCut = each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 2;
    const hides = each.checkVisibility() && getComputedStyle(each).overflow !== "visible";
    if (hides && isCut) found.push(`cut: ${name(each)}`);
  }
  scrollTo(0, document.documentElement.scrollHeight);
  for (const table of document.querySelectorAll("main table")) {
    const rows = [...table.rows].filter((row) => row.checkVisibility());
    const last = rows.at(-1)?.getBoundingClientRect();
    if (last && last.bottom > innerHeight + 0.5) found.push(`a hidden last row: ${name(table)}`);
  }
  scrollTo(0, 0);
  return found;
}"""
# Hints that are no text
WITHOUT_TEXT = """() => [...document.querySelectorAll("[title*='[object'], [aria-label*='[object']")]
  .map((each) => each.outerHTML.slice(0, 100))"""
HEAD_TOP = "document.querySelector('main thead th').getBoundingClientRect().top"


def widths_of(number: int) -> Sequence[int]:
    """
    Return the widths for a page with rows. Only long runs try each width on each page, because a change of the window
    takes 40 ms of processor time; else a page has a phone's width and one other.
    """
    return WIDTHS if IS_LONG else (WIDTHS[number % (len(WIDTHS) - 1)], WIDTHS[-1])


def badly_laid_out(console: Console, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Return clipped texts at one of the widths, glued words, hints without text, and headings that skip a level."""
    found = [text for check in (GLUED, SKIPPED, WITHOUT_TEXT) for text in console.page.evaluate(check)]
    found += clipped(console, widths)
    return sorted({each[:90] for each in found})[:6]


def clipped(console: Console, widths: Sequence[int]) -> list[str]:
    found = []
    size = console.page.viewport_size
    assert size is not None
    for width in widths:
        console.resize({"width": width, "height": 900})
        found += [f"{width} px: {each}" for each in console.page.evaluate(CLIPPED)]
    console.resize(size)
    return found


@pytest.mark.proof
def test_every_page_in_trouble(troubled: Tollhouse, open_console: OpenConsole) -> None:
    console = open_console(troubled, viewport={"width": 1440, "height": 900})
    wrong = {name: badly_laid_out(console, EACH_LAYOUT) for name in followed(console)}
    assert {} == {name: found for name, found in wrong.items() if found}


def test_the_head_of_a_table_sticks(console: Console) -> None:
    """While the page scrolls, the head of a long table stays at the top of the window."""
    console.open("/calls")
    expect(console.page.locator("main tbody tr").nth(20)).to_be_attached()
    console.page.locator("main tbody tr").nth(20).scroll_into_view_if_needed()
    console.page.evaluate(
        "scrollTo(0, document.querySelector('main tbody tr:nth-child(20)').offsetTop + 200)"
    )
    assert 0 == round(console.page.evaluate(HEAD_TOP))


LONG = ("a" * 200, "نموذج-اللغة-الكبير" * 8, "大型语言模型" * 30, "👩‍🚀🛰️" * 40)
AMOUNTS = """() => [...document.querySelectorAll("main tbody tr, main tfoot tr")].map((row) => {
  const hasMoney = (cell) => cell.tagName === "TD" && cell.checkVisibility() && cell.innerText.includes("$");
  const amount = [...row.cells].find(hasMoney);
  const range = document.createRange();
  if (amount) range.selectNodeContents(amount);
  const lines = new Set([...range.getClientRects()].map(({top}) => Math.round(top / 8))).size;
  const {height} = row.getBoundingClientRect();
  return {text: amount?.innerText, lines, right: amount?.getBoundingClientRect().right, height};
})"""


@pytest.mark.proof
def test_a_phone_shows_the_name_and_the_amount_of_each_row(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """
    From a width of 320 px on, a row has its name in one line, the whole amount next to it, and the facts below,
    whatever the name is.
    """
    key = house.key("phone")
    calls = [
        span(
            f"chatcmpl-{secrets.token_hex(12)}", gen_ai__request__model=name, gen_ai__response__model=name,
            gen_ai__provider__name="openai", user__id=name, gen_ai__usage__cost="900000.01",
        )
        for name in LONG for _ in range(112)
    ]  # fmt: skip
    assert 200 == post(house.url, request(calls), key).status
    house.wait_until_drained()
    console = open_console(house, viewport={"width": 320, "height": 800})
    for address in ("/costs?by=model", "/costs?by=user", "/calls", "/"):
        console.open(address)
        assert [] == clipped(console, (320, 390, 560, 700, 701, 900)), address
        if address == "/":
            continue
        for width in (320, 700):
            console.resize({"width": width, "height": 800})
            expect(console.page.locator("td:visible").first).to_be_visible()
            rows = console.page.evaluate(AMOUNTS)
            assert len(rows) >= len(LONG)
            for row in rows:
                assert row["text"] and row["lines"] == 1 and row["right"] <= width, row
                assert row["height"] < 70, row


# The pages with names of senders or people, and those whose figures stand in a panel
PAGES_WITH_NAMES = (
    "/", "/costs?by=user&by=model", "/calls", "/budgets", "/reconciliation", "/insights", "/contracts",
    "/recommendations",
)  # fmt: skip
# Elements of a printed page that end beyond its paper
BEYOND_PAPER = """() => [...document.querySelectorAll("main *")].filter((each) => each.checkVisibility()
  && !each.closest("svg, .unseen") && each.getBoundingClientRect().right > innerWidth + 0.5
  && !each.closest("td, th, .name, .drivers a")).map((each) => each.outerHTML.slice(0, 100))"""


@pytest.mark.proof
def test_hostile_names_stay_in_every_page(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    With names of 200 letters, in any script, and amounts of nine digits, no page overflows from 320 to 1920 px, in
    print or in forced colours. The names of models that changed the cost most are cut, and amounts stay whole.
    """
    key = house.key("a" * 60)
    calls = [
        span(
            f"chatcmpl-{secrets.token_hex(12)}", gen_ai__request__model=name, gen_ai__response__model=name,
            gen_ai__provider__name="openai", user__id=name, team__id=name, gen_ai__usage__cost="900000000.01",
        )
        for name in LONG for _ in range(3)
    ]  # fmt: skip
    assert 200 == post(house.url, request(calls), key).status
    house.wait_until_drained()
    console = open_console(house, viewport={"width": 1440, "height": 900})
    page = console.page

    def with_drivers(route: Route) -> None:
        answer = route.fetch()
        overview = answer.json()["overview"]
        times = {side: {"from": "", "to": "", "text": "1 Dec until 13:00"} for side in ("now", "before")}
        overview["month"] |= {
            "past": {"state": "whole"},
            "compared": {**times, "rest": None, "since_cut": None},
            "previous": {"cost": "100000000.01", "calls": 1, "errors": 0, "unpriced": 0},
            "drivers": [
                {"names": [name], "change": "900000000.01", "reason": "it made 4 % more calls"}
                for name in LONG
            ],
        }
        route.fulfill(response=answer, json={"overview": overview})

    page.route(re.compile("/api/overview"), with_drivers)
    found = {}
    for address in PAGES_WITH_NAMES:
        console.open(address)
        texts = clipped(console, (320, 390, 600, 701, 901, 1240, 1440, 1920))
        page.emulate_media(forced_colors="active")
        texts += clipped(console, (320, 1440))
        page.emulate_media(forced_colors="none", media="print")
        texts += page.evaluate(BEYOND_PAPER)
        page.emulate_media(media="screen")
        if address == "/":
            expect(page.locator(".drivers .number")).to_have_count(len(LONG))
            for row in page.locator(".drivers .number").all():
                assert "+$900,000,000.01" == row.inner_text()
        # a cell of a wide window ends with an ellipsis if the name is as long as here
        found[address] = [text for text in texts if " px: cut: " not in text]
    assert {} == {address: each for address, each in found.items() if each}
