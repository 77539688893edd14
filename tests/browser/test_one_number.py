"""
Two numbers that claim the same are the same: on Overview and Costs, in the sentence, the chart, the table and
the operator API, over a ledger of 400 days and for several time ranges and comparisons.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import LARGE, NARROW, Console, filled
from tests.rounds import some
from tests.waiting import wait_until

TODAY = datetime.now(UTC).date()
OWN = f"{TODAY - timedelta(days=200)}..{TODAY - timedelta(days=180)}"
STATES = [
    {"from": "now-24h"}, {"from": "yesterday"}, {"from": "now-7d"}, {"from": "last-week"}, {},
    {"from": "now-90d"}, {"from": "this-month"}, {"from": "last-month"}, {"from": "this-quarter"},
    {"from": "last-quarter"}, {"from": "now-300d"}, {"from": "today"}, {"from": "this-week"}, {"from": "this-year"},
    {"from": "now-24h", "against": OWN}, {"from": "now-7d", "against": "last_month"},
    {"against": "same_weekdays"}, {"from": "now-90d", "against": "same_weekdays"},
    {"from": "now-90d", "against": OWN}, {"from": "now-90d", "against": "none"},
    {"from": "now-90d", "by": "user"}, {"from": "now-90d", "measure": "calls"},
    {"from": "now-90d", "tz": "Europe/Berlin"}, {"team": "search"},
]  # fmt: skip
FIGURE = re.compile(r"-?\$[\d,]+\.\d+")
CENT = Decimal("0.01")
# Texts of other sizes and weights than those of the style sheet, and a number of largest texts other than one.
OFF_SCALE = """() => {
  const texts = [...document.querySelectorAll("main *")].filter((each) => each.checkVisibility()
    && [...each.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim()));
  const looks = texts.map((each) => [each, getComputedStyle(each)]);
  const isOff = ({fontSize, fontWeight}) => !["12px", "13px", "15px", "20px", "36px"].includes(fontSize)
    || !["400", "500", "600"].includes(fontWeight);
  const largest = looks.filter(([, {fontSize}]) => fontSize === "36px");
  return [...looks.filter(([, look]) => isOff(look)), ...(largest.length === 1 ? [] : largest)]
    .map(([each, {fontSize, fontWeight}]) => `${fontSize} ${fontWeight} ${each.outerHTML.slice(0, 80)}`);
}"""
TITLES = "(cells) => cells.map((cell) => cell.getAttribute('title'))"


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """A running Tollhouse with 400 days of traffic, whose older sums are whole days. Tests must not change it."""
    tollhouse = filled(tmp_path_factory.mktemp("year"), "--days", "400", "--records", "9000")
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


@pytest.fixture
def yearly(year: Tollhouse, open_console: OpenConsole) -> Console:
    console = open_console(year, role="viewer", timezone_id="Europe/Berlin")
    wait_until(lambda: console.ask("/ledger")["ledger"]["hourly_since"], "old hours are deleted")
    return console


def within_an_hour(check: Callable[[], None]) -> None:
    """Repeat a check if the hour changed meanwhile, because time ranges end with the running hour."""
    begun = datetime.now(UTC).hour
    try:
        check()
    except AssertionError:
        if datetime.now(UTC).hour == begun:
            raise
        check()


def amount(text: str | None) -> Decimal:
    """Return a written amount. An amount below a cent is written as `<$0.01` or `>-$0.01`."""
    return Decimal(re.sub(r"[$,+<>]", "", text or ""))


def has_calls(console: Console, state: Mapping[str, str]) -> bool:
    """
    Wait for the table of Costs. Early in a day, a week or a month, the running one may have no call: then the page says
    so, and the operator API has no rows.
    """
    no_calls = console.page.get_by_text(re.compile("^No calls: "))
    expect(console.page.locator("tfoot td").first.or_(no_calls)).to_be_visible()
    if not no_calls.count():
        return True
    assert [] == console.ask(f"/report?range={state['from'].replace('-', '_')}&by=team")["rows"], state
    return False


@pytest.mark.proof
def test_one_past_in_the_whole_page(yearly: Console) -> None:
    """Costs shows one earlier period with one sum in each state, and this is the sum of the operator API."""
    for state in some(STATES, every=2):
        within_an_hour(lambda state=state: compare_page(yearly, state))  # type: ignore[misc]


def compare_page(console: Console, state: dict[str, str]) -> None:
    query = {"by": "team", **state}
    console.open(f"/costs?{urlencode(query)}")
    page = console.page
    if not has_calls(console, state):
        return
    expect(page.get_by_text("Comparing ...")).to_have_count(0)
    expect(page.get_by_role("alert")).to_have_count(0)
    address = page.get_by_role("link", name="JSON", exact=True).get_attribute("href")
    report = page.evaluate("(address) => fetch(address).then((answer) => answer.json())", address)
    measure = state.get("measure", "cost")
    total, times = report["total"], report["report"]["compared"]
    heads = [text.partition(" ")[0] for text in page.locator(".table thead th").all_inner_texts()]
    foot = page.locator(".table tfoot tr").locator("th, td")
    exact = foot.evaluate_all(TITLES)
    texts = foot.all_inner_texts()
    head = page.locator(".head")
    figure = head.locator(".figure")
    assert texts[1] == figure.inner_text(), state
    assert exact[1] == figure.get_attribute("title")
    if measure == "cost":
        assert f"${total['cost']}" == exact[1], state
        assert amount(exact[1]) == sum(
            amount(title) for title in page.locator("tbody tr td:nth-child(2)").evaluate_all(TITLES)
        )
    is_whole = state.get("against") != "none" and report["report"]["past"]["state"] == "whole"
    assert (times is not None) == is_whole, state
    assert ("Before" in heads) == ("previous" in total)
    if "previous" not in total:
        expect(page.get_by_text("earlier period")).to_have_count(0)
        expect(head.get_by_text("Counting began on")).to_have_count(
            int(state.get("against") != "none" and not times)
        )
        return
    past, before_text = times["before"], times["before"]["text"]
    before = texts[heads.index("Before")]
    told = head.inner_text().replace("\n", " ")
    assert f"{times['now']['text']} against {before_text}" in told, state
    assert f", {before}." in told, state
    if measure != "cost":
        return
    assert f"${total['previous']['cost']}" == exact[heads.index("Before")], state
    assert sum(Decimal(row["previous"]["cost"]) for row in report["rows"]) == amount(
        exact[heads.index("Before")]
    )
    legend = page.locator(".legend li").filter(has_text="earlier period")
    # the chart of an old time that is stored by day has no bars of hours
    if legend.count():
        # the bars of the chart leave out rows without a name
        named = [row for row in report["rows"] if row[query["by"]] is not None]
        drawn = sum(Decimal(row["previous"]["cost"]) for row in named)
        assert abs(amount(legend.locator("span.faint").inner_text()) - drawn) <= CENT, state
    change = Decimal(total["cost"]) - Decimal(total["previous"]["cost"])
    assert abs(amount(texts[heads.index("Change")]) - change) <= CENT, state
    asked = {"from": times["now"]["from"], "to": times["now"]["to"], "by": query["by"].split(",")[0]}
    compared = console.ask(
        f"/comparison?{urlencode({**asked, 'against': past['from'] + '..' + past['to'], 'top': 3})}"
        + "".join(f"&where={name}={value}" for name, value in state.items() if name == "team")
    )
    drivers = compared["comparison"]["drivers"]
    expect(head.locator(".drivers li")).to_have_count(len(drivers) + 1)
    for row, driver in zip(head.locator(".drivers li").all(), drivers, strict=False):
        assert row.inner_text().startswith(driver["names"][0]), state
        assert row.inner_text().endswith(driver["reason"]), state
        written = amount(row.locator(".number").inner_text())
        assert abs(written - Decimal(driver["change"])) <= CENT, state
    share = texts[heads.index("in")]
    assert (Decimal(total["previous"]["cost"]) >= 1) == share.endswith("%"), (state, share)


@pytest.mark.proof
def test_overview_and_costs_say_one_number(yearly: Console) -> None:
    """Overview and Costs show the same spend, change and forecast."""

    def check() -> None:
        page = yearly.page
        yearly.open("/")
        tile = page.locator(".numbers > div").filter(has_text="Spend in").inner_text()
        drivers = page.locator(".numbers .drivers li").all_inner_texts()
        spent = FIGURE.findall(tile)[0]
        forecast = re.search(
            r"Forecast for (\w+)\n+(\$\S+)", page.locator(".numbers > div").nth(1).inner_text()
        )
        yearly.open("/costs?from=this-month&by=team&against=none")
        if not has_calls(yearly, {"from": "this-month"}):
            assert 0 == amount(spent)
            return
        assert spent == page.locator(".head .figure").inner_text()
        # the forecast is drawn over days, and on the first day of a month the page would show hours
        yearly.open("/costs?from=this-month&by=team&bin=daily")
        if not has_calls(yearly, {"from": "this-month"}):
            return
        change = page.locator(".head p > b").all_inner_texts()
        assert [text for text in change if text not in tile] == []
        if drivers:
            page.get_by_label("Group by").select_option("model_family")
            expect(page.locator(".head .drivers li")).to_have_text(drivers, use_inner_text=True)
        told = page.get_by_text(re.compile("^Forecast: "))
        if forecast is None:
            expect(told).to_have_count(0)
        else:
            expect(told).to_contain_text(f"Forecast: {forecast[2]} by the end of {forecast[1]}")

    within_an_hour(check)


def test_what_needs_attention_is_one_number(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    What needs attention is one number before and after the detectors run: in the status line on Overview, in the
    menu's badge, on the tab Critical, and as its number of rows. On a phone, the first amount is still near the
    top.
    """
    console = open_console(troubled)
    page = console.page
    for has_insights in (False, True):
        if has_insights:
            troubled.run("insights", "check")
        console.open("/")
        number = console.ask("/attention")["attention"]["count"]
        assert number > 2
        line = page.locator("details.attention")
        expect(line.locator("summary")).to_contain_text(f"{number} critical")
        expect(page.locator("nav .badge")).to_have_text(f"{number} critical")
        line.locator("summary").click()
        expect(line.locator("li.bad")).to_have_count(number)
        expect(line.locator("li.wait")).to_have_text(re.compile("Nobody is notified: there is no channel"))
        assert [] == console.audit(("minor", "moderate", "serious", "critical"), is_framed=True)
        console.follow("Insights")
        page.get_by_role("link", name=f"Critical {number}", exact=True).click()
        expect(page.locator("tbody tr, section.attention li")).to_have_count(number)
        expect(page.locator("nav .badge")).to_have_text(f"{number} critical")
        expect(page.locator("section.attention")).to_have_count(0 if has_insights else 1)
        assert [] == console.audit(("minor", "moderate", "serious", "critical"), is_framed=True)
    console.resize(NARROW)
    console.open("/")
    assert console.still(page.locator(".numbers dd").first)["y"] <= 210
    assert 0 == console.overhang()


@pytest.mark.proof
def test_a_row_has_one_control_and_a_phone_begins_with_the_number(yearly: Console) -> None:
    """
    At 1440 px the columns of Costs are in a fixed order within the window, and a row has its name and one menu. At
    390 px the total begins within 200 px. Rarer choices are in a sheet, whose button counts those that are set.
    """
    page = yearly.page
    yearly.resize(LARGE)
    yearly.open("/costs?by=team&by=model&tz=Europe/Berlin")
    expect(page.locator("details.more > summary")).to_have_text("More · 2 set")
    yearly.open("/costs?by=team")
    heads = page.locator(".table thead th")
    names = [text.split(" ")[0] for text in heads.all_inner_texts()]
    assert ["team", "Cost", "Share", "Before", "Change", "in", "Calls", "Tokens", "Per", "By"] == names[:10]
    for cell in heads.all():
        box = yearly.still(cell)
        assert box["x"] + box["width"] <= 1440
    rows = page.locator(".table tbody tr")
    assert {1} == {row.locator("button:not(.square)").count() for row in rows.all()}
    assert [] == page.evaluate(OFF_SCALE)
    places = {len(text.partition(".")[2]) for text in page.locator("tbody td:nth-child(2)").all_inner_texts()}
    assert {2} == places
    more = page.locator("details.more > summary")
    assert "More" == more.inner_text()
    more.click()
    for label in ("Compare with", "Then by", "Money", "Per", "Add a filter", "If all ran on"):
        expect(page.get_by_role("combobox", name=label, exact=True)).to_be_visible()
    assert [] == yearly.audit(("minor", "moderate", "serious", "critical"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Then by")).to_be_hidden()
    yearly.resize(NARROW)
    assert yearly.still(page.locator(".head .figure"))["y"] <= 200
    assert 0 == yearly.overhang()
    yearly.resize(LARGE)
    yearly.open("/")
    assert [] == page.evaluate(OFF_SCALE)


@pytest.mark.proof
def test_a_copied_link_has_fixed_days(yearly: Console) -> None:
    """The menu of a row copies the row's address, with fixed days instead of today's range."""
    yearly.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = yearly.page
    yearly.open("/costs?from=now-7d&by=team")
    name = page.locator("tbody th").first.get_by_role("link").inner_text()
    page.get_by_role("button", name=f"Actions for {name}").click()
    page.get_by_role("menuitem", name="Copy link").click()
    wait_until(lambda: page.evaluate("navigator.clipboard.readText()"), "the link is copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    today = datetime.now(UTC).date()
    assert f"from={today - timedelta(days=6)}&" in copied
    assert f"to={today}" in copied
    assert f"team={name}" in copied
