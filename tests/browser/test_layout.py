"""
Every page at several widths: nothing is clipped, words are separate, and headings are in order. `test_pages.py` checks
the pages with and without data, because a walk over all pages takes half a minute of processor time.
"""

from __future__ import annotations

from collections.abc import Sequence

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console, followed

WIDTHS = (1440, 1240, 1024, 901, 768, 701, 600, 390)
EACH_LAYOUT = (1440, 901, 701, 390)  # for pages without rows: wide windows, tablets and phones
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
# Elements that end right of the window, tables in a box that scrolls, and a last row that stays hidden.
CLIPPED = """() => {
  const found = [];
  const name = (each) => `${each.tagName} ${each.className}: ${each.textContent.slice(0, 60)}`;
  for (const each of document.querySelectorAll("main *, main")) {
    if (!each.checkVisibility() || each.closest("pre, .unseen, svg, select")) continue;
    if (each.getBoundingClientRect().right > innerWidth + 0.5) found.push(`right of the window: ${name(each)}`);
  }
  for (const table of document.querySelectorAll("main table")) {
    for (let box = table; box !== document.body; box = box.parentElement) {
      const style = getComputedStyle(box);
      const isWhole = [style.overflowX, style.overflowY].every((each) => each === "visible");
      if (!isWhole || style.maxHeight !== "none") found.push(`a box that scrolls: ${name(box)}`);
    }
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
HEAD_TOP = "document.querySelector('main thead th').getBoundingClientRect().top"


def badly_laid_out(console: Console, widths: Sequence[int] = WIDTHS) -> list[str]:
    """Return texts that are clipped at one of the widths, glued words, and headings that skip a level."""
    found = [*console.page.evaluate(GLUED), *console.page.evaluate(SKIPPED), *clipped(console, widths)]
    return sorted({each[:90] for each in found})[:6]


def clipped(console: Console, widths: Sequence[int]) -> list[str]:
    found = []
    size = console.page.viewport_size
    assert size is not None
    for width in widths:
        console.page.set_viewport_size({"width": width, "height": 900})
        console.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        found += [f"{width} px: {each}" for each in console.page.evaluate(CLIPPED)]
    console.page.set_viewport_size(size)
    return found


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
