"""
Costs and the overview: figures equal the operator API, each has a link to details, and the address
holds the view.
"""

from __future__ import annotations

import re
import secrets
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from math import ceil
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import Locator, Route, expect

from gateway.money.comparison.split import PARTS
from spool.ledger.work import UNITS
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console, day_text, first_day
from tests.rounds import part
from tests.waiting import wait_until

OWN_TITLES = {
    "run": "agent run",
    "pull_request": "pull request",
    "model_family": "model", "model": "model variant",
    "provider_family": "provider", "provider": "provider variant",
    "request_model": "requested model", "sender": "Tollhouse key", "api_key": "gateway's own key",
}  # fmt: skip


def report(console: Console, query: str) -> Any:
    """Query the operator API's report with the page's session."""
    return console.page.evaluate(
        "(query) => fetch(`api/report?${query}`).then((answer) => answer.json())", query
    )


def since(console: Console) -> str:
    """Return the first day of the shown table."""
    queries = [query for query in console.asked("/report?") if "compare=" in query]
    return first_day(queries[-1])


def shown_time(console: Console) -> str:
    """
    Return the time of the shown table, as parameters of a report. A table that is compared ends at the last full
    hour, and a report that is not compared would count the running hour too.
    """
    [*_, address] = (query for query in console.asked("/report?") if "compare=" in query)
    compared = report(console, address.partition("?")[2])["report"]["compared"]
    if compared is None:  # nothing is known of the time before
        return f"from={since(console)}"
    return urlencode({"from": compared["now"]["from"], "to": compared["now"]["to"]})


def until(console: Console) -> str:
    """Return the last day of the shown table."""
    queries = [query for query in console.asked("/report?") if "compare=" in query]
    return queries[-1].partition("&to=")[2][:10]


def cells(row: Locator) -> list[str]:
    return row.locator("th, td").all_inner_texts()


def test_the_table_is_the_report(console: Console) -> None:
    """The table of Costs has every group, the largest first. The total is exact, and the bars add up to it."""
    console.listen()
    console.open("/costs?from=now-7d&by=team")
    shown = shown_time(console)
    answer = report(console, f"{shown}&by=team")
    names = [row["team"] or "unknown" for row in sorted(answer["rows"], key=lambda row: -float(row["cost"]))]
    assert names == console.page.locator("tbody th").all_inner_texts()
    total = console.page.locator("tfoot tr")
    assert f"${answer['total']['cost']}" == total.locator("td").first.get_attribute("title")
    console.page.get_by_role("button", name="Show as table").click()
    twin = console.page.locator("figure tbody tr")
    begin, end = (datetime.fromisoformat(text) for _, text in parse_qsl(shown))
    # in the first hour of a day, the table ends at midnight, and has six days
    expect(twin).to_have_count(ceil((end - begin) / timedelta(days=1)))
    bars = sum(float(cells(row)[-1].strip("<$").replace(",", "")) for row in twin.all())
    # the tolerance is for seven bars, each rounded to a cent
    assert abs(bars - float(answer["total"]["cost"])) < 0.04


def test_click_on_a_cost_row_groups_by_the_next_dimension(console: Console) -> None:
    """
    A click on a row of Costs filters by the row and groups by the next dimension, down to the calls. Back reverses
    it.
    """
    console.listen()
    console.open("/costs?by=team")
    page = console.page
    page.locator("tbody").get_by_role("link", name="search", exact=True).click()
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    console.has_address("by=model")
    expect(page.locator("thead th").first).to_have_text("model")
    total = report(console, f"where=team=search&{shown_time(console)}")["total"]
    expect(page.locator("tfoot td").first).to_have_attribute("title", f"${total['cost']}")
    page.get_by_role("link", name="Show the calls").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Calls")
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.get_by_role("link", name="team: search")).to_have_count(0)
    expect(page.locator("thead th").first).to_have_text("team")


@pytest.mark.proof
def test_the_calls_of_a_page_are_those_of_its_days(console: Console) -> None:
    """The link below the table keeps days and filters, so that both pages are about the same calls."""
    console.open("/costs?from=last-week&by=team")
    console.page.locator("tbody th a").first.click()
    console.has_address("team=")
    console.settle()
    console.page.get_by_role("link", name="Show the calls").click()
    console.has_address("/calls", "team=", "from=last-week")
    expect(console.page.get_by_text("Top calls by cost, last week.")).to_be_visible()


def test_filters_are_chosen_from_what_there_is(console: Console) -> None:
    """
    The filter menu lists the field's values and `unknown` for missing values, and the figures match the filter.
    """
    console.listen()
    console.open("/costs")
    console.more()
    fields = console.page.get_by_label("Add a filter").locator("option").all_inner_texts()
    own_report = report(console, "")["report"]
    titles = {**own_report["names"], **OWN_TITLES}
    assert [
        titles.get(each, each.replace("_", " ")) for each in [*own_report["dimensions"], *UNITS]
    ] == fields[1:]
    console.page.get_by_label("Add a filter").select_option("user")
    console.page.get_by_label("Value of user").select_option("unknown")
    chip = console.page.get_by_role("link", name="user: unknown")
    expect(chip).to_be_visible()
    total = report(console, f"where=user=&{shown_time(console)}")["total"]
    expect(console.page.locator("tfoot td").first).to_have_attribute("title", f"${total['cost']}")
    chip.click()
    expect(chip).to_have_count(0)


def test_the_bars_answer_to_the_keyboard(console: Console) -> None:
    """
    In the chart, the arrow keys move from day to day, and the announced value equals the one in the chart's table.
    """
    console.open("/costs?from=now-7d")
    chart = console.page.locator("figure svg[role=img]")
    chart.focus()
    console.page.keyboard.press("ArrowLeft")
    console.page.keyboard.press("ArrowLeft")
    said = console.page.locator("figcaption [role=status]").inner_text()
    console.page.get_by_role("button", name="Show as table").click()
    yesterday = cells(console.page.locator("figure tbody tr").nth(1))
    day = date.fromisoformat(yesterday[0][:10])
    assert f"{day:%a} {day_text(day)}: {yesterday[-1]}" == said


def test_a_bar_is_opened_with_the_keyboard(console: Console) -> None:
    """In the chart, Enter opens the hours of the chosen day, like a click."""
    console.open("/")
    chart = console.page.locator("figure svg[role=img]")
    chart.focus()
    console.page.keyboard.press("ArrowLeft")
    console.page.keyboard.press("ArrowLeft")
    said = console.page.locator("figcaption [role=status]").inner_text()
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Costs")
    console.has_address("&to=")
    [(day, last)] = re.findall(r"from=([\d-]+)&to=([\d-]+)", console.page.url)
    assert day == last
    assert said.startswith(f"{date.fromisoformat(day):%a} {day_text(date.fromisoformat(day))}: ")


def test_a_bar_is_opened_with_a_finger(month: Tollhouse, open_console: OpenConsole) -> None:
    """A tap on the chart opens the hours of the day, although no pointer moved over the chart before."""
    console = open_console(month, viewport=NARROW, has_touch=True)
    console.open("/")
    console.press_bar(place=29, of=30, is_tap=True)
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Costs")
    yesterday = datetime.now(UTC).date() - timedelta(days=1)
    console.has_address(f"from={yesterday}&to={yesterday}")


def test_every_measure_is_drawn(console: Console) -> None:
    """Each measure of Costs has a chart and a column. Measures that do not add up have no share column."""
    console.open("/costs?by=model&by=team")
    menu = console.page.get_by_label("Measure", exact=True)
    for name in [option.get_attribute("value") for option in menu.locator("option").all()]:
        menu.select_option(name)
        title = menu.locator("option:checked").inner_text()
        heading = console.page.locator("figcaption h2")
        expect(heading).to_contain_text(title)
        expect(console.page.locator("thead th").get_by_text(title, exact=True)).to_have_count(1)
        adds = not title.startswith(("Cost of", "Cost per", "Saved by", "Latency"))
        assert adds == (console.page.locator("thead th", has_text="Share").count() == 1), title
        drawn = console.page.locator("figure svg[role=img] > :is(rect, path:not(.grid))").first
        if not title.startswith(
            "Cost per"
        ):  # no call in this test has a customer, so "per customer" shows nothing
            expect(drawn).to_be_attached()


def test_a_chart_has_no_thousands_of_bars(console: Console) -> None:
    """For a long range the page does not offer hours. An address with hours shows days instead."""
    console.open("/costs?from=now-60d&bin=hourly")
    expect(console.page.locator("figcaption h2")).to_have_text("Cost by model, per day")
    bars = console.page.get_by_role("combobox", name="Per", exact=True)
    console.more()
    expect(bars).to_have_value("daily")
    assert ["day", "week", "month"] == bars.locator("option").all_inner_texts()


def test_the_same_data_elsewhere(console: Console) -> None:
    """The page links to the JSON and CSV form of its data, and both have the data that the page shows."""
    console.open("/costs?from=now-7d&by=team&model=gpt-4.1")
    page = console.page
    json, csv = (
        page.get_by_role("link", name=name, exact=True).get_attribute("href") for name in ("JSON", "CSV")
    )
    as_json = page.evaluate("(address) => fetch(address).then((answer) => answer.json())", json)
    as_csv = page.evaluate("(address) => fetch(address).then((answer) => answer.text())", csv)
    names = sorted(row["team"] or "" for row in as_json["rows"])
    assert names == sorted(line.partition(",")[0] for line in as_csv.splitlines()[1:])
    assert len(names) == page.locator("tbody tr").count()


@pytest.mark.proof
def test_a_print_is_one_page_without_controls(console: Console) -> None:
    """
    The dark page prints in greys, one per series, on one landscape page: title, total, change, chart, at most twelve
    rows and the total of all.
    """
    page = console.page
    page.emulate_media(color_scheme="dark")
    console.open("/costs?by=team&from=now-21d")
    expect(page.get_by_role("button", name="Print", exact=True)).to_be_visible()
    page.emulate_media(media="print", color_scheme="dark")
    assert [] == page.evaluate(
        """[...document.querySelectorAll("header, nav, button, select, input, textarea, summary, a.button")]
          .filter((each) => each.checkVisibility() && !each.matches(".square, th button"))
          .map((each) => each.outerHTML)"""
    )
    for shown in ("h1", ".head .figure", ".head .drivers", ".plot svg[role=img]", "tfoot", ".legend"):
        expect(page.locator(shown).first).to_be_visible()
    assert 12 == sum(row.is_visible() for row in page.locator("tbody tr").all())
    fills = page.evaluate(
        """Object.fromEntries([...document.querySelectorAll(".plot .part")]
          .map((each) => [each.getAttribute("class"), getComputedStyle(each).fill]))"""
    )
    greys = [[float(part) for part in re.findall(r"[\d.]+", fill)] for fill in fills.values()]
    # browsers state a grey as in color(srgb 0.2 0.21 0.23)
    assert all(max(grey) - min(grey) < 0.05 for grey in greys), fills
    lights = sorted(sum(grey) / 3 for grey in greys)
    assert all(other - one > 0.05 for one, other in pairwise(lights)), fills
    assert len(lights) > 3
    sheets = page.pdf(prefer_css_page_size=True)
    assert 1 == len(re.findall(rb"/Type\s*/Page\b", sheets))
    assert re.search(rb"/MediaBox\s*\[0 0 84\d[.\d]* 59\d[.\d]*\]", sheets)


def test_what_changed_is_the_comparison(console: Console) -> None:
    """One click shows all parts of a cost change. The parts, the drivers and their sum equal the operator API's."""
    console.open("/costs?from=now-7d&by=model_family")
    page = console.page
    section = page.get_by_role("region", name="What changed", exact=True)
    expect(section).to_have_count(0)
    page.get_by_role("link", name="All parts of the change").click()
    drivers = section.get_by_role("region", name="What drives the change").locator("tbody tr")
    expect(drivers.first).to_be_visible()
    address = section.get_by_role("link", name="JSON of the change").get_attribute("href")
    found = page.evaluate("(address) => fetch(address).then((answer) => answer.json())", address)
    total, rows = found["total"], found["rows"]
    parts = [name for name in PARTS if any(Decimal(row[name]) for row in rows)]
    exact = [f"${row[name]}" for row in rows for name in ("change", *parts)]
    shown = [
        row.locator("td").nth(n).get_attribute("title")
        for row in drivers.all()
        for n in range(2, 3 + len(parts))
    ]
    assert exact == shown
    figures = section.locator("dl.numbers dd[title]")
    assert [f"${total[name]}" for name in ("change", *parts)] == [
        each.get_attribute("title") for each in figures.all()
    ]
    assert Decimal(total["change"]) == sum(Decimal(row["change"]) for row in rows)
    assert Decimal(total["change"]) == sum(Decimal(total[name]) for name in PARTS)
    expect(section).to_contain_text("Estimated share: ")
    assert [] == console.audit()
    drivers.first.get_by_role("link").click()
    expect(page.get_by_role("link", name=f"model: {rows[0]['model_family']}")).to_be_visible()
    console.has_address("parts=1")


@pytest.mark.proof
def test_why_a_day_rose_is_said_above_the_table(console: Console) -> None:
    """
    One choice from a list shows last week, and one click opens the bar of a day. The page then compares the day
    with the same weekday. All parts are one click away, and nothing overflows on a phone.
    """
    console.open("/costs?by=team")
    page = console.page
    page.get_by_label("Range").select_option(label="Last week")
    expect(page.get_by_text("Last week (UTC)")).to_be_visible()
    expect(page.locator(".head .faint").get_by_text(" against ")).to_be_visible()
    console.settle()
    # the text above the chart appears only when it is known, and then moves the chart down
    expect(page.locator(".head .drivers")).to_be_visible()
    console.press_bar(place=4, of=7)
    expect(page).to_have_url(re.compile(r"from=\d{4}-"))
    day = dict(parse_qsl(urlsplit(page.url).fragment.partition("?")[2]))["from"]
    week_before = day_text(date.fromisoformat(day) - timedelta(days=7))
    spans = f"{day_text(date.fromisoformat(day))} against {week_before} (the same weekdays before)"
    expect(page.get_by_text(spans)).to_be_visible()
    assert 3 == console.clicks()
    comparison = console.ask(f"/comparison?by=team&from={day}&to={day}&top=3&against=same_weekdays")[
        "comparison"
    ]
    rows = page.locator(".head .drivers li")
    for place, driver in enumerate(comparison["drivers"]):
        # by its place, because the name of one team is part of another's
        expect(rows.nth(place)).to_contain_text(driver["names"][0])
        expect(rows.nth(place)).to_contain_text(driver["reason"])
    assert comparison["drivers"]
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    console.resize(NARROW)
    assert 0 == console.overhang()
    page.get_by_role("link", name="All parts of the change").click()
    expect(page.get_by_role("region", name="What changed", exact=True)).to_contain_text(
        comparison["sentence"]
    )


@pytest.mark.proof
def test_days_before_the_counting_are_not_compared(console: Console) -> None:
    """
    If the earlier period is not counted, the page says when counting began, and offers the longest range that has
    an earlier period. The calls without a pull request are a sentence below the chart, and bars, shares and names
    leave them out.
    """
    page = console.page
    console.open("/costs?from=now-90d&by=pull_request")
    begun = console.ask("/report?range=last_90d&compare=previous")["report"]["past"]["known_from"]
    words = (
        f"Counting began on {day_text(date.fromisoformat(begun[:10]))}, so there is nothing to compare with."
    )
    expect(page.locator(".head")).to_contain_text(words)
    heads = page.locator("thead th")
    assert {"Before", "Change", "in %"}.isdisjoint(heads.all_inner_texts())
    expect(page.get_by_text("earlier period")).to_have_count(0)
    expect(
        page.get_by_text(re.compile(r"^\$[\d,.]+ of \$[\d,.]+ has no pull request\. Connect CI$"))
    ).to_be_visible()
    assert "unknown" not in page.locator(".legend").inner_text()
    assert "unknown" == page.locator("tbody tr").last.locator("th").inner_text().split("\n")[0].strip()
    page.get_by_role("link", name="Compare the last 31 days").click()
    expect(heads.filter(has_text="Before")).to_be_visible()


@pytest.mark.proof
def test_costs_are_compared_with_days_of_ones_own(console: Console) -> None:
    """
    The two date fields of the range work by keyboard, and the address contains the dates. An end before the start
    shows an error.
    """
    console.open("/costs?from=now-7d&by=team")
    page = console.page
    first, last = page.evaluate(
        "[35, 29].map((days) => new Date(Date.now() - days * 86400000).toISOString().slice(0, 10))"
    )
    console.more()
    page.get_by_label("Compare with").select_option(label="Choose days ...")
    page.get_by_label("First day of the earlier period").fill(first)
    page.get_by_label("Last day of the earlier period").fill(last)
    page.get_by_label("Last day of the earlier period").press("Enter")
    section = page.get_by_role("region", name="What changed", exact=True)
    times = console.ask(f"/comparison?range=last_7d&against={first}..{last}")["comparison"]["compared"]
    shown = times["before"]["text"]
    expect(page.get_by_text(f"against {shown}")).to_be_visible()
    page.get_by_role("link", name="All parts of the change").click()
    expect(section).to_contain_text(shown)
    console.has_address(f"against={first}..{last}")
    console.expects("400")
    console.more()
    page.get_by_label("First day of the earlier period").fill(last)
    page.get_by_label("Last day of the earlier period").fill(first)
    page.get_by_role("button", name="Compare").click()
    expect(section.get_by_role("alert")).to_be_visible()
    console.has_address(f"against={last}..{first}")


@pytest.mark.proof
def test_every_figure_of_the_overview_leads_somewhere(console: Console) -> None:
    """
    Every link leads to an existing page with content. If links to one page differ only in a filter's value,
    the test follows one.
    """
    console.open("/")
    links = console.page.locator("main a[href^='#/']")
    addresses = sorted({link.get_attribute("href") or "" for link in links.all()})
    assert len(addresses) > 20
    urls = {address: urlsplit(address.removeprefix("#")) for address in addresses}
    followed = {(url.path, *dict(parse_qsl(url.query))): address for address, url in urls.items()}
    assert len(followed) > 8
    for address in followed.values():
        console.open(address.removeprefix("#"))
        expect(console.page.get_by_role("heading", level=1)).not_to_have_text("Page not found")
        expect(console.page.get_by_role("alert")).to_have_count(0)


def test_the_first_record_turns_the_page(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Without a record, the overview explains how to send one to the address in use. It changes when a record arrives.
    """
    console = open_console(house)
    console.open("/")
    expect(console.page.get_by_text("No records yet")).to_be_visible()
    expect(console.page.get_by_text(f"tollhouse send --example litellm --to {house.url}")).to_be_visible()
    console.page.get_by_role("button", name="live").wait_for()
    key = house.directory / "key"
    key.write_text(house.key("first"))
    house.run("send", "--example", "litellm", "--to", house.url, "--key-file", str(key), config=False)
    expect(console.page.get_by_text("Spend in")).to_be_visible()


@pytest.mark.proof
def test_costs_by_a_published_dimension(console: Console) -> None:
    """
    A published dimension is listed by its name, and groups and filters like any other. The total stays the same.
    """
    console.open("/costs?by=team")
    page = console.page
    total = page.locator("tfoot td").first
    spent = total.get_attribute("title")
    page.get_by_label("Group by").select_option(label="By Cost centre")
    expect(page.locator("thead th").first).to_have_text("Cost centre")
    expect(page.locator("tbody th").first).to_be_visible()
    expect(total).to_have_attribute("title", str(spent))
    console.settle()
    held: list[Route] = []
    page.route("**/api/report?*", lambda route: held.append(route))
    page.locator("tbody").get_by_role("link", name="Product", exact=True).click()
    expect(page.locator(".old").first).to_be_visible()
    assert [] == console.audit()  # text must be readable even while it is greyed out
    page.unroute_all()  # let the held requests continue
    console.settle()
    assert [] == console.audit()
    chip = page.get_by_role("link", name="Cost centre: Product")
    expect(chip).to_be_visible()
    console.open("/costs?by=source&model=gpt-4o&team=search&user=a&api_key=b&User:Defined:CostCentre=Product")
    expect(page.get_by_text("No calls: ")).to_be_visible()
    chip.click()
    expect(chip).to_have_count(0)


@pytest.mark.proof
def test_people_who_are_codes_say_why(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    If people are shown as codes, the cell's tooltip and a note below the table name the setting that shows names,
    in Costs and in Calls.
    """
    key = house.key("sender")
    call = span(
        "chatcmpl-" + secrets.token_hex(12), gen_ai__request__model="gpt-4o", user__id="ada@example.com"
    )
    assert 200 == post(house.url, request([call]), key).status
    house.wait_until_drained()
    console = open_console(house)
    for page in ("/costs?by=user", "/calls"):
        console.open(page)
        cell = console.page.locator("tbody").get_by_text("email:").first
        expect(cell).to_be_visible()
        tooltip = cell.evaluate("(found) => found.closest('th, td').title")
        assert 'privacy.emails is "hash"' in tooltip
        expect(console.page.get_by_text('privacy.emails = "hash"')).to_be_visible()
        assert [] == console.audit(("minor", "moderate", "serious", "critical"))


def test_a_wrong_date_in_the_address_is_said(console: Console) -> None:
    """
    If the address has a wrong date, the page says which range it shows instead. A valid date shows no message.
    """
    console.open("/costs?from=2026-13-45&by=team")
    said = console.page.get_by_text("The address has an unknown time range (from=2026-13-45")
    expect(said).to_contain_text("so the page shows last 30 days")
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    console.open("/costs?from=last-quarter&by=team")
    expect(console.page.get_by_text("The address has an unknown time range")).to_have_count(0)


def test_changes_are_two_columns_and_percentiles_have_none(console: Console) -> None:
    """
    Amount and percentage of a change are separate columns. Percentiles are estimates, which cannot be subtracted.
    """
    console.open("/costs?from=now-7d&by=team")
    heads = console.page.locator("thead th")
    for title in ("Change", "in %"):
        expect(heads.get_by_text(title, exact=True)).to_have_count(1)
    console.open("/costs?from=now-7d&by=team&measure=latency_p95_ms")
    expect(heads.get_by_text("Latency (p95)")).to_have_count(1)
    expect(heads.filter(has_text="Change")).to_have_count(0)
    shown = console.page.locator("tbody td:first-of-type").all_inner_texts()
    assert all(text.startswith("≈ ") for text in shown), shown
    assert (
        len(set(shown)) > len(shown) / 2
    )  # without interpolation, nearly all teams would show the same bucket bound


def test_a_series_is_hidden_by_its_square(console: Console) -> None:
    """
    The square of a row hides its series, so the chart's legend has only what no row names. The address contains the
    hidden series, and chart, total and table mention it.
    """
    console.open("/costs?from=last-week&by=team")
    page = console.page
    heights = page.locator("figure svg[role=img] rect[data-group]")
    name = page.locator("tbody th").first.inner_text()
    spent = page.locator("tfoot td[title]").first.get_attribute("title")
    drawn = heights.count()
    assert ["(other)", "earlier period"] == page.locator(".legend li span:not(.faint)").all_inner_texts()
    page.get_by_role("button", name=f"Hide {name}", exact=True).click()
    expect(page.get_by_text(f"Hidden: {name}")).to_be_visible()
    console.has_address(f"hide={name}")
    assert 0 < heights.count() < drawn
    expect(page.locator(f"rect[data-group='{name}']")).to_have_count(0)
    expect(page.get_by_role("rowheader", name=f"{name} (hidden)")).to_be_visible()
    expect(page.locator("tfoot th")).to_contain_text("including 1 hidden")
    expect(page.locator("tfoot td[title]").first).to_have_attribute("title", str(spent))
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    page.get_by_role("button", name="Show as table").click()
    expect(page.locator("figure thead th").last).to_have_text(f"Total, without {name}")
    page.get_by_role("button", name="Show as table").click()
    page.get_by_role("button", name="Show all").click()
    expect(heights).to_have_count(drawn)


@pytest.mark.proof
def test_a_segment_leads_to_its_group_on_its_day(console: Console) -> None:
    """
    A segment works by click and by keyboard. The tooltip at the bar names the group and the previous period.
    """
    console.open("/costs?from=last-week&by=team")
    page = console.page
    name = page.locator("tbody th").first.inner_text()
    segment = page.locator(f"rect[data-group='{name}']").nth(2)
    segment.hover()
    tip = page.locator(".tip")
    expect(tip.locator(".pointed")).to_contain_text(name)
    shown = tip.locator("strong").inner_text()
    # the bar of the earlier period is of the same weekday
    expect(tip).to_contain_text(f"earlier period, {shown[:3]} ")
    segment.click()
    expect(page.get_by_role("link", name=f"team: {name}")).to_be_visible()
    console.has_address("&to=")
    asked = dict(parse_qsl(urlsplit(page.url).fragment.partition("?")[2]))
    day, last = asked["from"], asked["to"]
    assert day == last
    assert f"{date.fromisoformat(day):%a} {day_text(date.fromisoformat(day))}" == shown
    page.go_back()
    console.away()
    console.has_address("from=last-week")
    expect(page.locator("tbody th").first).to_contain_text(name)
    console.settle()
    expect(tip).to_have_count(0)
    chart = page.locator("figure svg[role=img]")
    chart.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowUp")
    expect(page.locator("figcaption [role=status]")).to_contain_text(f": {name} $")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name=f"team: {name}")).to_be_visible()


@pytest.mark.proof
def test_another_question_has_other_groups_to_point_at(console: Console) -> None:
    """
    If the grouping changes, the bars change under a pointer that does not move, as after a click on a segment.
    """
    console.open("/costs?from=last-week&by=team")
    page = console.page
    name = page.locator("tbody th").first.inner_text()
    page.locator(f"rect[data-group='{name}']").nth(2).hover()
    expect(page.locator(".tip .pointed")).to_contain_text(name)
    page.evaluate("location.hash = location.hash.replace('by=team', 'by=model')")
    expect(page.locator(f"rect[data-group='{name}']")).to_have_count(0)
    expect(page.locator("figure svg[role=img]")).to_have_count(1)


@pytest.mark.proof
def test_a_month_has_its_forecast_and_the_period_before(console: Console) -> None:
    """
    The forecast on the page equals the operator API's. The bars of the previous period add up to its figure in the
    total row.
    """
    console.open(
        "/costs?from=this-month&by=team&bin=daily"
    )  # the first day of a month has bars of hours otherwise
    page = console.page
    forecast = console.ask("/forecast")["forecast"]
    if forecast["total"] is not None:
        expect(page.get_by_text("Forecast: $")).to_contain_text("by the end of ")
        expect(page.locator("figure path.forecast")).to_have_count(1)
    before = page.locator(".legend li", has_text="earlier period").locator("span.faint").inner_text()
    assert before in page.locator("tfoot td").all_inner_texts()
    console.resize(NARROW)
    assert 0 == console.overhang()
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    page.get_by_role("button", name="Hide earlier period").click()
    # the only remaining line of the earlier period is in the legend
    expect(page.locator("figure path.past")).to_have_count(1)


@pytest.mark.proof
def test_what_a_user_costs_is_a_measure(console: Console) -> None:
    """
    With the measure "cost per user", the page shows the number of users, or a dash where no user is known.
    The address contains the measure.
    """
    console.listen()
    console.open("/costs?by=team")
    page = console.page
    page.get_by_label("Measure").select_option("unit:user")
    expect(page.locator("thead th").nth(1)).to_contain_text("Cost per user")
    console.settle()
    answer = report(console, f"{shown_time(console)}&by=team&unit=user&show=units,cost_per_unit")
    unit_cost = f"${answer['total']['cost_per_unit']}"
    expect(page.locator("tfoot td").first).to_have_attribute("title", unit_cost)
    expect(page.locator("tfoot td").nth(1)).to_have_text(str(answer["total"]["units"]))
    console.has_address("measure=unit%3Auser")
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))


def test_costs_as_if_on_another_model(console: Console) -> None:
    """
    For a typed or chosen model, "what if" shows the operator API's sentence, assumptions and groups. It reports a
    model without a price.
    """
    console.listen()
    console.open("/costs?by=team")
    page = console.page
    console.more()
    page.get_by_label("If all ran on").fill("gpt-4o-mini")
    page.get_by_role("button", name="Calculate").click()
    section = page.get_by_role("region", name="As if", exact=True)
    expect(section).to_contain_text("a month at this rate")
    expect(section).to_contain_text("The other model needs the same number of tokens.")
    estimate = console.ask(f"/what-if?model=gpt-4o-mini&by=team&from={since(console)}")
    total = section.locator("tfoot td[title]")
    assert [f"${estimate['total'][name]}" for name in ("cost", "as_if", "saves")] == [
        each.get_attribute("title") for each in total.all()
    ]
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    console.resize(NARROW)
    assert 0 == console.overhang()
    console.expects("400")
    console.more()
    page.get_by_label("If all ran on").fill("no-such-model")
    page.get_by_role("button", name="Calculate").click()
    expect(section.get_by_role("alert")).to_contain_text("No list price is known")


@pytest.mark.proof
def test_amounts_without_a_rate_are_shown_in_their_currency(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """Amounts without an exchange rate are shown in their own currency, with a link to the remedy."""
    call = span(
        "chatcmpl-" + secrets.token_hex(12), gen_ai__usage__cost="3.5", gen_ai__usage__cost__currency="CHF"
    )
    assert 200 == post(house.url, request([call]), house.key("sender")).status
    house.wait_until_drained()
    console = open_console(house)
    console.open("/costs?by=model")
    note = console.page.get_by_role("note").filter(
        has_text="do not include 3.5 CHF, because no exchange rate to USD is known."
    )
    expect(note).to_be_visible()
    assert [] == console.audit(("minor", "moderate", "serious", "critical"))
    note.get_by_role("link", name="Insights").click()
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Insights")


@pytest.mark.proof
def test_the_money_of_the_costs_is_chosen(console: Console) -> None:
    """
    Billed costs have no other measure and only the dimensions of bill rows. The address contains the choice.
    Switching back removes filters that counted costs do not have.
    """
    console.listen()
    page = console.page
    console.open("/costs?from=last-month&by=team&measure=tokens&bin=hourly")
    picker, total = page.get_by_label("money"), page.locator("tfoot td").first
    end = datetime.now(UTC).date().replace(day=1) - timedelta(days=1)
    last = end.isoformat()
    query = f"from={end.replace(day=1).isoformat()}&to={last}&cost_type=billed_cost"
    # bills are divided over the calls in the background, day by day
    wait_until(lambda: report(console, query)["billed"]["through"] == last, "the bill of last month")
    console.more()
    picker.select_option("billed_cost")
    expect(page.get_by_label("Measure", exact=True)).to_have_count(0)
    billed = report(console, query)
    expect(total).to_have_attribute("title", f"${billed['total']['cost']}")
    days = billed["billed"]["days"]
    expect(page.locator("main")).to_contain_text(f"{days['closed']} days closed")
    console.has_address("from=last-month", "cost_type=billed_cost", without=["measure=", "bin="])
    page.get_by_label("Days without a bill").select_option("counted")
    filled = report(console, f"{query}&missing=counted")
    expect(total).to_have_attribute("title", f"${filled['total']['cost']}")
    console.has_address("missing=counted")
    assert [] == console.audit()
    page.get_by_label("Days without a bill").select_option("")
    page.get_by_label("Group by").select_option("charge")
    expect(page.locator("tbody").get_by_role("link", name="usage", exact=True)).to_be_visible()
    page.reload()
    expect(picker).to_have_value("billed_cost")
    console.more()
    page.locator("tbody").get_by_role("link", name="usage", exact=True).click()
    expect(page.get_by_role("link", name="charge: usage")).to_be_visible()
    usage = report(console, f"{query}&where=charge=usage")["total"]["cost"]
    expect(total).to_have_attribute("title", f"${usage}")
    console.more()
    picker.select_option("real_cost")
    expect(page.get_by_role("link", name="charge: usage")).to_have_count(0)
    counted = report(console, query.partition("&cost_type")[0])["total"]["cost"]
    expect(total).to_have_attribute("title", f"${counted}")
    console.has_address(without=["cost_type", "missing"])


@pytest.mark.parametrize("chosen", part(["Last 30 days", "Last 7 days"], every=2))
def test_the_overview_says_one_figure_of_a_model(console: Console, chosen: str) -> None:
    """
    Chart and lists of the overview cover the chosen days, name them in each heading, and link to the costs
    of these days.
    """
    console.listen()
    console.open("/")
    page = console.page
    page.get_by_label("Range").select_option(chosen)
    models = page.locator(".lists section").first
    expect(models.get_by_role("heading")).to_have_text(f"Models {chosen.lower()}")
    expect(page.get_by_text(f"Cost by model, {chosen.lower()}").first).to_be_visible()
    assert [] == console.audit()
    name = models.locator("a.name").first.inner_text()
    listed = models.locator(".number").first.inner_text()
    expect(page.locator(".legend")).to_have_count(0)
    drawn = page.locator("figure rect[data-group]")
    many = drawn.count()
    models.get_by_role("button", name=f"Hide {name}", exact=True).click()
    expect(page.get_by_text(f"Hidden: {name} ({listed})")).to_be_visible()
    assert 0 < drawn.count() < many
    models.get_by_role("button", name=f"Hide {name}", exact=True).click()
    expect(drawn).to_have_count(many)
    models.locator("a.name").first.click()
    expect(page.get_by_role("link", name=f"model: {name}")).to_be_visible()
    expect(page.locator("tfoot td").first).to_be_visible()
    total = report(console, f"where=model_family={name}&{shown_time(console)}")["total"]["cost"]
    expect(page.locator("tfoot td").first).to_have_attribute("title", f"${total}")
    assert listed == page.locator("tfoot td").first.inner_text()


SPELLINGS = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "claude-sonnet-4-5-20250929",
    "claude-sonnet-4-5@20250929",
)
SOLD_BY = ("gcp.gemini", "vertex", "gcp.gen_ai")


@pytest.mark.proof
def test_one_model_is_one_row(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    All variants of a model, with any region prefix or date, share one row on Overview, Costs and Calls, and
    so do the variants of a provider. One click lists the variants, which can be filtered. Nothing overflows
    at 390 px.
    """
    key = house.key("sender")
    for model, provider in zip(SPELLINGS, SOLD_BY, strict=True):
        call = span(
            "msg_" + secrets.token_hex(12), gen_ai__request__model=model, gen_ai__response__model=model,
            gen_ai__provider__name=provider,
        )  # fmt: skip
        assert 200 == post(house.url, request([call]), key).status
    house.wait_until_drained()
    console = open_console(house)
    page = console.page
    console.open("/")
    expect(page.locator(".lists section").first.locator("li")).to_have_count(1)
    page.locator(".lists section").first.locator("a.name").click()
    expect(page.get_by_role("link", name="model: claude-sonnet-4-5")).to_be_visible()
    console.open("/costs")
    expect(page.locator("tbody th a")).to_have_text(["claude-sonnet-4-5"])
    total = page.locator("tfoot td").first.get_attribute("title")
    assert [] == console.audit()
    console.screenshot("one-model")
    page.get_by_role("button", name="Actions for claude-sonnet-4-5").click()
    page.get_by_role("menuitem", name="Variants").click()
    expect(page.locator("tbody th")).to_have_count(3)
    assert sorted(SPELLINGS) == sorted(page.locator("tbody th").all_inner_texts())
    expect(page.locator("thead th").first).to_have_text("model variant")
    expect(page.locator("tfoot td").first).to_have_attribute("title", str(total))
    console.resize(NARROW)
    assert max(0, console.overhang()) == 0
    assert console.audit() == []
    page.locator("tbody").get_by_role("link", name=SPELLINGS[0]).click()
    expect(page.get_by_role("link", name=f"model variant: {SPELLINGS[0]}")).to_be_visible()
    expect(page.locator("thead th").first).to_have_text("team")
    console.open("/costs?by=provider_family")
    expect(page.locator("tbody th a")).to_have_text(["Google"])
    console.open("/calls?model_family=claude-sonnet-4-5")
    expect(page.get_by_role("link", name="model: claude-sonnet-4-5")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(3)
    rows = house.json("report", "--by", "model_family,provider_family", "--json")["rows"]
    assert [("claude-sonnet-4-5", "Google", 3)] == [
        (row["model_family"], row["provider_family"], row["calls"]) for row in rows
    ]


@pytest.mark.proof
def test_a_source_shows_when_its_newest_record_arrived(house: Tollhouse, open_console: OpenConsole) -> None:
    """Costs by source has the column Last seen, and Costs by team does not. API Keys shows the same time."""
    assert 200 == post(house.url, request([span("chatcmpl-seen")]), house.key("sender")).status
    console = open_console(house)
    console.open("/costs?by=source&from=2020-01-01")
    page = console.page
    heads = page.locator("thead th")
    expect(heads.filter(has_text="Last seen")).to_have_count(1)
    expect(page.locator("tbody tr").first).to_contain_text(re.compile(r"\d+ (s|min) ago"))
    console.open("/costs?by=team&from=2020-01-01")
    expect(page.locator("tbody tr").first).to_be_visible()
    expect(heads.filter(has_text="Last seen")).to_have_count(0)
    console.open("/keys")
    expect(heads.filter(has_text="Last record")).to_have_count(1)
    expect(page.locator("tbody tr").first).to_contain_text(re.compile(r"\d+ (s|min) ago.*\d+ (s|min) ago"))


@pytest.mark.proof
def test_the_cost_of_a_pull_request_and_its_runs(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks lead from Costs to the cost of a pull request and of each agent run. A run shows the runs that it
    started.
    """
    name = f"acme/shop#{secrets.randbelow(10**6)}"
    lead, helper = secrets.token_hex(8), secrets.token_hex(8)
    of_calls: Any = {"tokens": 10_000, "vcs__change__id": name, "session__id": secrets.token_hex(8)}
    calls = [
        span(secrets.token_hex(4), tollhouse__run=lead, **of_calls),
        span(secrets.token_hex(4), tollhouse__run=helper, tollhouse__parent_run=lead, **of_calls),
        span(secrets.token_hex(4), **of_calls),
    ]
    assert 200 == post(house.url, request(calls), house.key("sender")).status
    asked = ("report", "--by", "team", "--where", f"pull_request={name}", "--json")
    wait_until(lambda: house.json(*asked)["total"]["calls"] == 3, "the calls are counted")
    shown = house.run("work", "show", "pull_request", name)
    assert re.search(
        rf"\n  run:\w+ +- +1 +0 +\$0.03 +\$0.03\n\(no run\).*\npull request {name} +- +3 ", shown
    ), shown
    console = open_console(house)
    console.open("/costs")
    page = console.page
    # one click opens the list "Group by", and one chooses a value
    page.get_by_label("Group by").select_option("pull_request")
    page.locator("tbody").get_by_role("link", name=name).click()
    runs = page.get_by_role("region", name="Agent runs").locator("tbody tr")
    expect(runs).to_have_count(3)
    assert [["1"], ["1"], ["1"]] == [cells(row)[3:4] for row in runs.all()]
    first, second, _ = (cells(row) for row in runs.all())
    assert Decimal(first[2].strip("$")) == 2 * Decimal(second[2].strip("$")) > 0
    assert [] == console.audit()
    runs.first.get_by_role("link").first.click()
    expect(page.locator(".numbers")).to_contain_text("2 calls, also of other sessions")
    expect(runs).to_have_count(2)
    runs.last.get_by_role("link").first.click()
    expect(page.get_by_text("Started by run")).to_be_visible()
    calls_shown = page.get_by_role("region", name="Calls").locator("tbody tr")
    expect(calls_shown).to_have_count(1)
    calls_shown.first.get_by_role("link").click()  # a link leads from a call back to its pull request
    page.get_by_role("dialog").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", level=2).first).to_have_text(f"Pull request {name}")
    expect(runs).to_have_count(3)


def test_pages_of_costs_wait_for_the_totals(console: Console) -> None:
    """While the totals are counted again, pages of costs say so and ask again by themselves, after `Retry-After`."""
    message = "The totals are counted again, and 40 % is done. Repeat the request when this is finished."
    answer = {"error": {"type": "totals_incomplete", "message": message}}
    costs = re.compile(r"/api/(report|overview|forecast|comparison)\b")
    page = console.page
    for path in ("/", "/costs?from=now-7d&by=team"):
        console.expects("503")
        page.route(costs, lambda route: route.fulfill(status=503, json=answer, headers={"Retry-After": "1"}))
        console.open(path)
        expect(page.get_by_role("alert").first).to_contain_text(message)
        page.unroute(costs)
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.get_by_text("search").first).to_be_visible()
