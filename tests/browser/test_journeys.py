"""
Questions and tasks of people, each within a few clicks or one command. The text on the screen answers them.
test_work_journeys.py has those about sessions, agent runs and pull requests.

Clicks count from the page where the question comes up. A choice from a list counts two, a filled field one.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console, filled
from tests.browser.trouble import REFUSED, RefusingUpstream
from tests.waiting import wait_until

pytestmark = pytest.mark.proof

MOST_CLICKS = 3
PLANTS = "spike,missing-price,doubled-source,stopped-sender,losing-laptop"
TEAMS = "https://example.com/workflows/1"  # a made-up address of a Teams workflow, to which nothing is sent


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """A running Tollhouse with a month and planted problems. Tests must not change it."""
    tollhouse = filled(tmp_path_factory.mktemp("planted"), "--days", "62", "--plant", PLANTS)
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """A running Tollhouse with a month. Each test adds things of its own to it."""
    tollhouse = filled(
        tmp_path_factory.mktemp("own"), "--days", "40", "--records", "2000", "--plant", "missing-price"
    )
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


def ended(console: Console, journey: str, most: int = MOST_CLICKS) -> None:
    """Check and print the number of clicks."""
    clicks = console.clicks()
    print(f"{journey}: {clicks} clicks")
    assert 0 < clicks <= most, journey


def yesterday() -> str:
    return (datetime.now(UTC).date() - timedelta(days=1)).isoformat()


# -- costs ---------------------------------------------------------------------------------------------------


def test_a_why_did_a_day_rise(planted: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey: Costs of last week by team, then the bar of a day. The page says why the day differs from a week
    before.
    """
    console = open_console(planted)
    page = console.page
    console.open("/costs?by=team")
    page.get_by_label("Range").select_option(label="Last week")
    expect(page.get_by_text("Last week (UTC)")).to_be_visible()
    console.press_bar(place=2, of=7)
    expect(page.get_by_text("(the same weekdays before)")).to_be_visible()
    expect(page.locator(".head .faint").first).to_have_text(
        re.compile(r"^\d+ \w{3}( \d{4})? against \d+ \w{3}( \d{4})? \(the same weekdays before\), \$")
    )
    expect(page.locator(".head .drivers li").first).to_contain_text("$")
    ended(console, "a: why did a day rise")


def test_b_the_calls_that_cost_most(planted: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Overview: Costs, the menu of a row, Top calls. The first row has the highest cost, and its user.
    """
    console = open_console(planted)
    console.open("/")
    console.follow("Costs")
    model = console.page.locator("tbody th a").first.inner_text()
    console.choose(model, "Top calls")
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Calls")
    expect(console.page.get_by_text("Top calls by cost")).to_be_visible()
    [first] = console.ask(
        f"/records?sort_key=cost&sort_order=desc&model_family={model}&range=last_30d&limit=1"
    )["records"]
    expect(console.page.locator("tbody tr").first).to_contain_text(first["user"] or "unknown")
    ended(console, "b: the calls that cost most")
    printed = planted.run("report", "--calls", "--top", "10")
    assert 10 <= len([line for line in printed.splitlines() if "$" in line])


def test_1_which_session_cost_most_yesterday(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: the bar of yesterday, then Group by session. A command states the same."""
    console = open_console(planted)
    console.open("/")
    console.press_bar(place=29, of=30)
    expect(console.page.get_by_role("heading", level=1)).to_have_text("Costs")
    console.has_address(f"from={yesterday()}")
    console.page.get_by_label("Group by").select_option("session")
    rows = console.ask(f"/report?by=session&from={yesterday()}&to={yesterday()}&top_by=cost&top=200")["rows"]
    named = [row for row in rows if row["session"] and row["session"] != "(other)"]
    dearest = max(named, key=lambda row: Decimal(row["cost"]))["session"]
    expect(console.page.locator("tbody").get_by_role("link", name=dearest)).to_be_visible()
    ended(console, "1: which session cost most yesterday")
    words = ("report", "--by", "session", "--from", yesterday(), "--to", yesterday())
    assert dearest in planted.run(*words)


def test_4_why_has_this_call_its_price(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Calls, the call. Its panel has the quantities, the prices and the rule of its cost."""
    console = open_console(planted)
    console.open("/")
    console.follow("Calls")
    console.page.locator("tbody tr", has_text="est.").first.get_by_role("link").click()
    panel = console.page.get_by_role("dialog")
    expect(panel.get_by_role("heading", name="How the estimate was calculated")).to_be_visible()
    expect(panel.get_by_role("table", name="Price lines")).to_contain_text("million")
    expect(panel).to_contain_text("with the price list")
    ended(console, "4: why has this call its price")


def test_5_a_month_for_finance(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey: Costs by team, last month, CSV. The command prints the same sum as CSV."""
    console = open_console(planted)
    console.open("/costs?by=team")
    console.page.get_by_label("Range").select_option(label="Last month")
    expect(console.page.get_by_text("Last month (UTC)")).to_be_visible()
    console.settle()
    address = console.page.get_by_role("link", name="CSV", exact=True).get_attribute("href") or ""
    console.page.get_by_role("link", name="CSV", exact=True).dispatch_event("pointerdown")
    text = console.context.request.get(address).text()
    ended(console, "5: a month for finance")
    total = console.ask("/report?by=team&range=last_month")["total"]["cost"]
    column = text.splitlines()[0].split(",").index("cost")
    assert Decimal(total) == sum(Decimal(line.split(",")[column]) for line in text.splitlines()[1:])
    printed = planted.run("report", "--by", "team", "--range", "last_month", "--csv")
    assert "team" in printed.splitlines()[0]


def test_6_a_price_for_a_new_model(own: Tollhouse, open_console: OpenConsole) -> None:
    """Journey: Prices, the model without a price, its input price, Set a price."""
    console = open_console(own)
    console.open("/prices")
    dialog = console.page.get_by_role("dialog")
    console.page.locator("section", has_text="Models without a price").locator("tbody a").first.click()
    dialog.get_by_label("Input").fill("2.00")
    dialog.get_by_role("button", name="Set a price").click()
    expect(dialog).to_contain_text("The price is set. New calls use it at once.")
    ended(console, "6: a price for a new model")


# -- bills and budgets ---------------------------------------------------------------------------------------


def test_c_and_3_a_budget_that_notifies_teams(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey: Budgets, the team, the amount, Create. The budget notifies every channel, one of which is Teams. A
    Teams channel is created once, with five clicks: the kind counts two, then its name, its address and the button.
    """
    console = open_console(own)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/notifications?tab=channels")
    page.get_by_role("button", name="Add a channel").click()
    dialog.get_by_label("Kind").select_option("teams")
    dialog.get_by_label("Name").fill("finops")
    dialog.get_by_label("Address of the workflow").fill(TEAMS)
    dialog.get_by_role("button", name="Add a channel").click()
    expect(page.locator("main tbody tr")).to_contain_text("teams")
    ended(console, "3: a Teams channel, once", most=6)
    console.open("/budgets")
    form = page.get_by_role("form", name="Quick budget")
    form.get_by_label("Name", exact=True).fill("search")
    form.get_by_label("Dollars a month").fill("100000")
    form.get_by_role("button", name="Create").click()
    expect(form.get_by_role("status")).to_contain_text("It alerts at 80 % and 100 %.")
    ended(console, "c, 3: a budget that is told in Teams")
    [budget] = console.ask("/budgets")["budgets"]
    assert {"80": "Y", "100": "Y"} == budget["alerts"]


def test_g_the_bill_against_what_was_counted(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Money, Reconciliation. The rows of each provider add up to its bill."""
    console = open_console(planted)
    console.open("/")
    console.follow("Reconciliation")
    expect(console.page.get_by_role("region", name=re.compile("by day$")).first).to_be_visible()
    expect(console.page.get_by_text("Billed").first).to_be_visible()
    ended(console, "g: the bill against what was counted")


def test_8_a_bill_is_imported_without_a_shell(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey: Reconciliation, Import a bill, the file, Import. The preview appears as soon as the file is chosen.
    """
    report = Path(__file__).parents[1] / "statements/openai_costs/page.json"
    console = open_console(own)
    dialog = console.page.get_by_role("dialog")
    console.open("/reconciliation?month=2026-08")
    console.page.get_by_role("button", name="Import a bill").click()
    dialog.locator("input[type=file]").set_input_files(report)
    expect(dialog.get_by_role("region", name="Preview")).to_contain_text("$5.82")
    dialog.get_by_role("button", name="Import", exact=True).click()
    expect(console.page.get_by_role("region", name="openai", exact=True)).to_contain_text("$5.82")
    ended(console, "8: a bill is imported")


# -- operation -----------------------------------------------------------------------------------------------


def test_2_which_laptop_does_not_report_and_why(planted: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Overview: the line of what needs attention, its link, the laptop. A command lists the same laptops.
    """
    console = open_console(planted)
    page = console.page
    console.open("/")
    page.locator("details.attention > summary").click()
    page.locator(".attention").get_by_role("link", name="Show laptops").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Fleet")
    row = page.get_by_role("table", name="machines").locator("tbody tr").first
    expect(row).to_contain_text("loses calls")
    name = row.get_by_role("link").inner_text()
    row.get_by_role("link").click()
    expect(page.get_by_role("dialog")).to_contain_text("has telemetry switched off in its settings")
    ended(console, "2: which laptop does not report and why")
    assert name


def test_9_which_gateway_stopped(planted: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Overview: Alerts, the insight. It names the silent source, its last record and its usual silence.
    """
    console = open_console(planted)
    console.open("/")
    console.follow("Insights")
    console.page.get_by_role("link", name="has stopped sending").first.click()
    panel = console.page.get_by_role("dialog")
    expect(panel).to_contain_text("Its last records arrived at")
    expect(panel).to_contain_text("longest usual silence")
    ended(console, "9: which gateway stopped")


def test_e_a_paused_route(troubled: Tollhouse, refusing: RefusingUpstream, open_console: OpenConsole) -> None:
    """Journey from Overview: the line of what needs attention, its link, Try now. No record is lost."""
    console = open_console(troubled)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/")
    page.locator("details.attention > summary").click()
    page.locator(".attention li", has_text="refuses Tollhouse's key costs").get_by_role("link").click()
    expect(dialog).to_contain_text("Nothing is lost")
    refusing.mended.set()
    dialog.get_by_role("button", name="Try now").click()
    expect(dialog.get_by_role("status")).to_contain_text(f"{REFUSED} is running again")
    ended(console, "e: a paused route")


def test_d_and_7_a_leaked_key(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from API Keys: the key, Disable and show its calls. Costs shows only calls that arrived under the key.
    """
    leaked = own.key("leaked")
    words = ("send", "--example", "litellm", "--to", own.url)
    sent = own.attempt(*words, config=False, env={**os.environ, "TOLLHOUSE_KEY": leaked})
    assert 0 == sent.returncode, sent.stderr
    console = open_console(own)
    asked = "/report?by=sender&range=last_90d&where=sender%3Dleaked"
    wait_until(lambda: console.ask(asked)["total"]["calls"] == 1, "the call is counted")
    console.open("/keys")
    console.page.get_by_role("row", name="leaked").get_by_role("link").click()
    expect(console.page.get_by_role("dialog")).to_contain_text("litellm (1)")
    console.page.get_by_role("button", name="Disable and show its calls").click()
    expect(console.page.get_by_role("link", name="Tollhouse key: leaked")).to_be_visible()
    expect(console.page.locator("tfoot")).to_contain_text("Total of 1")
    ended(console, "d, 7: a leaked key")


def test_f_a_developer_connects_claude_code(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from the empty Overview: Connect, Claude Code, Create a key. The settings have the address and the key.
    """
    console = open_console(house)
    page = console.page
    console.open("/")
    page.get_by_role("link", name="Connect an assistant, a gateway or an SDK").click()
    page.get_by_role("link", name="Claude Code", exact=True).first.click()
    page.get_by_role("button", name="Create a key").click()
    expect(page.get_by_text("Waiting for the first record")).to_be_visible()
    settings = page.get_by_label(re.compile("^settings")).first
    expect(settings).to_contain_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={house.url}")
    expect(settings).not_to_contain_text("authorization=KEY")
    ended(console, "f: a developer connects Claude Code")


def test_j_forwarding(own: Tollhouse, refusing: RefusingUpstream, open_console: OpenConsole) -> None:
    """Journey to forward records: address, key, Test. The configuration lines have the tested address."""
    refusing.mended.set()
    console = open_console(own)
    page = console.page
    console.open("/delivery?tab=forward")
    page.locator("input[name=url]").fill(refusing.url)
    page.locator("input[name=secret]").fill("k" * 40)
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("The receiver accepts records with this key.")).to_be_visible()
    expect(page.get_by_label("lines for the configuration").first).to_contain_text(refusing.url)
    ended(console, "j: forwarding")


def test_10_to_a_new_machine(own: Tollhouse, tmp_path: Path) -> None:
    """One command writes a backup of everything, and one restores it. The copy reports the same sum."""
    before = json.loads(own.run("report", "--range", "last_month", "--json"))["total"]["cost"]
    own.run("backup", str(tmp_path / "copy"))
    words = ("restore", str(tmp_path / "copy"), "--no-erasures", "--data", str(tmp_path / "new"))
    restored = own.attempt(*words, config=False)
    assert 0 == restored.returncode, restored.stderr
    report = own.attempt(
        "report", "--range", "last_month", "--json", "--data", str(tmp_path / "new"), config=False
    )
    assert before == json.loads(report.stdout)["total"]["cost"]
    print("10: to a new machine: 2 commands, one on each machine")


# -- people and dimensions -----------------------------------------------------------------------------------


def test_h_somebody_sees_one_team(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey: Costs by team, the menu of a row, Restrict access, Create. The field for the person has the focus, and
    what the person sees is shown before.
    """
    console = open_console(own)
    page = console.page
    console.open("/costs?by=team")
    team = page.locator("tbody th a").first.inner_text()
    console.choose(team, "Restrict access")
    expect(page.get_by_label("E-mail")).to_be_focused()
    page.keyboard.type("lead@example.com")
    page.get_by_role("button", name="Create", exact=True).click()
    section = page.get_by_role("region", name="What this person may do and see")
    expect(section).to_contain_text(f"lead@example.com has Only team={team} and sees only calls")
    ended(console, "h: somebody sees one team")


def test_i_a_dimension_of_ones_own(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey: Allocation, a value of the first group, Publish. The page shows the changes before they are published.
    """
    console = open_console(own)
    page = console.page
    console.open("/allocation")
    page.get_by_role("region", name="Values").get_by_label("search", exact=True).check()
    expect(page.get_by_role("region", name="What would change")).to_contain_text("Team")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text(re.compile(r"Version \d+, published by"))).to_be_visible()
    ended(console, "i: a dimension of one's own")


# -- by search and by age --------------------------------------------------------------------------------------


def seek(console: Console, text: str) -> None:
    """Open the search with one click, and type. The first result is opened with Enter."""
    console.page.get_by_role("button", name="Search or jump to").click()
    expect(console.page.get_by_role("searchbox")).to_be_focused()
    console.page.keyboard.type(text)
    console.page.keyboard.press("Enter")


def test_k_the_most_expensive_pull_request_of_last_week(
    planted: Tollhouse, open_console: OpenConsole
) -> None:
    """Journey from Overview: the search opens Costs by pull request, then last week."""
    console = open_console(planted)
    console.open("/")
    seek(console, "costs by pull request")
    console.page.get_by_label("Range").select_option(label="Last week")
    rows = console.ask("/report?by=pull_request&range=last_week&top_by=cost&top=200")["rows"]
    named = [row for row in rows if row["pull_request"] and row["pull_request"] != "(other)"]
    most = max(named, key=lambda row: Decimal(row["cost"]))["pull_request"]
    expect(console.page.locator("tbody th a").first).to_have_text(most)
    ended(console, "k: the most expensive pull request of last week")


def test_l_a_pull_request_by_its_number(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: the search finds a pull request by its number, with # and without it."""
    console = open_console(planted)
    rows = console.ask("/report?by=pull_request&range=last_30d&top=200")["rows"]
    names = {row["pull_request"] for row in rows if "#" in (row["pull_request"] or "")}
    number = sorted(names)[0].rpartition("#")[2]
    for text in (number, f"#{number}"):
        console.open("/")
        seek(console, text)
        heading = console.page.get_by_role("heading", level=2, name=re.compile(rf"Pull request .*#{number}$"))
        expect(heading).to_be_visible()
        ended(console, "l: a pull request by its number", most=2)


def test_m_machines_without_a_report_for_three_days(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Administration, Fleet, 3d. The command lists the same machines."""
    console = open_console(planted)
    console.open("/")
    console.follow("Fleet")
    console.page.get_by_role("navigation", name="No report for").get_by_role("link", name="3d").click()
    expect(console.page.get_by_role("link", name="no report for: 3d")).to_be_visible()
    silent = console.ask("/fleet/devices?no_report_for=3d")["pagination"]["total_count"]
    expect(console.page.get_by_text(f"{silent} of {silent} machines")).to_be_visible()
    ended(console, "m: machines without a report for three days")
    listed = json.loads(planted.run("fleet", "devices", "--no-report-for", "3d", "--json"))
    assert silent == listed["pagination"]["total_count"]


def test_n_a_page_for_the_board(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Costs, last month, Print."""
    console = open_console(planted)
    console.open("/")
    console.page.evaluate("window.print = () => { document.title = 'printed'; }")
    console.follow("Costs")
    console.page.get_by_label("Range").select_option(label="Last month")
    expect(console.page.get_by_text("Last month (UTC)")).to_be_visible()
    console.page.get_by_role("button", name="Print").click()
    expect(console.page).to_have_title("printed")
    ended(console, "n: a page for the board", most=4)


def test_o_which_team_rose_and_why(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Costs, by team, All parts of the change."""
    console = open_console(planted)
    console.open("/")
    console.follow("Costs")
    console.page.get_by_label("Group by").select_option("team")
    console.page.get_by_role("link", name="All parts of the change").click()
    expect(console.page.locator("dl.numbers dt", has_text="Change")).to_be_visible()
    ended(console, "o: which team rose and why", most=4)


def test_q_a_missing_price(own: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Overview: the calls without a price, the model, Set a price. The field for the price has the focus.
    """
    console = open_console(own)
    dialog = console.page.get_by_role("dialog")
    console.open("/")
    console.page.get_by_role("link", name="have no price").click()
    console.page.locator("section", has_text="Models without a price").locator("tbody a").first.click()
    expect(dialog.get_by_label("Input")).to_be_focused()
    console.page.keyboard.type("2.00")
    dialog.get_by_role("button", name="Set a price").click()
    expect(dialog).to_contain_text("The price is set. New calls use it at once.")
    ended(console, "q: a missing price")


def test_p_a_key_for_a_contractor(own: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: the search opens the form for a key, then a use case, in 7 days, Create a key."""
    console = open_console(own)
    dialog = console.page.get_by_role("dialog", name="Create a key")
    console.open("/")
    seek(console, "create a key")
    expect(dialog.get_by_label("Name", exact=False).first).to_be_focused()
    console.page.keyboard.type("contractor")
    dialog.get_by_role("checkbox", name="Send AI Telemetry").check()
    dialog.get_by_role("button", name="in 7 days").click()
    ends = (datetime.now(UTC).date() + timedelta(days=7)).isoformat()
    expect(dialog.get_by_label("Expires")).to_have_value(re.compile(ends[:8]))
    dialog.get_by_role("button", name="Create a key").click()
    expect(dialog).to_contain_text("This is the secret.")
    ended(console, "p: a key for a contractor", most=4)
    assert console.ask("/keys/contractor")["key"]["expires_at"].startswith(ends[:8])


@pytest.fixture
def of_months(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse with calls in the last quarter, whatever day it is."""
    tollhouse = filled(tmp_path, "--days", "150", "--records", "600")
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


def test_r_last_quarter_as_focus(of_months: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Costs, last quarter, FOCUS. The command writes the same bytes."""
    console = open_console(of_months)
    console.open("/")
    console.follow("Costs")
    console.page.get_by_label("Range").select_option(label="Last quarter")
    expect(console.page.get_by_text("Last quarter (UTC)")).to_be_visible()
    with console.page.expect_download() as download:
        console.page.get_by_role("link", name="FOCUS", exact=True).click()
    ended(console, "r: last quarter as FOCUS", most=4)
    _, first, last = re.split(r"focus-(.{10})-(.{10})\.csv", download.value.suggested_filename)[:3]
    written = of_months.run("export", "focus", "--from", first, "--to", last)
    assert written == download.value.path().read_text()
    assert 1 < len(written.splitlines())


def test_s_a_focus_file_with_options(planted: Tollhouse, open_console: OpenConsole) -> None:
    """
    A FOCUS download has options for a version and for price lines. Plans need whole months, and bills have neither
    plans nor lines.
    """
    console = open_console(planted)
    console.open("/costs?from=now-7d")
    console.page.get_by_role("button", name="FOCUS options").click()
    dialog = console.page.get_by_role("dialog")
    link = dialog.get_by_role("link", name="Download")
    dialog.get_by_label("Seats of plans").check()
    expect(dialog.get_by_role("status")).to_contain_text("Plans need whole months")
    expect(link).to_have_count(0)
    dialog.get_by_label("First day").fill("2026-09-01")
    dialog.get_by_label("Last day").fill("2026-09-30")
    expect(link).to_be_visible()
    dialog.get_by_label("Final bills").check()
    expect(dialog.get_by_label("Seats of plans")).to_be_disabled()
    dialog.get_by_label("Final bills").uncheck()
    first = (datetime.now(UTC).date() - timedelta(days=3)).isoformat()
    dialog.get_by_label("Last day").fill(yesterday())
    dialog.get_by_label("First day").fill(first)
    dialog.get_by_label("Version").select_option("1.4")
    dialog.get_by_label("A row per price line").check()
    with console.page.expect_download() as download:
        link.click()
    words = ("--from", first, "--to", yesterday(), "--focus-version", "1.4", "--lines", "meters")
    assert planted.run("export", "focus", *words) == download.value.path().read_text()


def test_t_two_budgets_to_other_people(own: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview, for each view: the search, Edit, and the channel of these people. Enter saves."""
    names = ("first limit", "second limit")
    own.run("views", "create", "--name", "of limits", "--principal", "user", "--where", "team=search")
    mail = ("--server", "127.0.0.1:9", "--tls", "none", "--sender", "a@example.com", "--to", "b@example.com")
    own.run("notifications", "channels", "create", "owners", "email", *mail)
    for name in names:
        own.run("budgets", "create", "--name", name, "--view", "of limits", "--amount", "100000")
    console = open_console(own)
    dialog = console.page.get_by_role("dialog")
    console.open("/")
    for name in names:
        seek(console, name)
        dialog.get_by_role("button", name="Edit").click()
        dialog.get_by_role("checkbox", name="owners").check()
        console.page.keyboard.press("Enter")
        expect(dialog).to_have_count(0)
    ended(console, "t: two budgets to other people", most=6)
    channels = {each["name"]: each["channels"] for each in console.ask("/budgets")["budgets"]}
    assert [["owners"]] * 2 == [channels[name] for name in names]


def test_u_who_pays_most_for_a_call(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Costs, by user, the head of the column."""
    console = open_console(planted)
    console.open("/")
    console.follow("Costs")
    console.page.get_by_label("Group by").select_option("user")
    console.page.get_by_role("columnheader").get_by_role("button", name="Per call").click()
    costs = console.ask("/report?by=user&range=last_30d&top=200")["rows"]
    named = [row for row in costs if row["user"] and row["calls"]]
    most = max(named, key=lambda row: Decimal(row["cost"]) / row["calls"])["user"]
    expect(console.page.locator("tbody th a").first).to_have_text(most)
    ended(console, "u: who pays most for a call", most=4)


def test_v_what_another_model_would_cost(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Costs, More, the model, Calculate."""
    console = open_console(planted)
    console.open("/")
    console.follow("Costs")
    console.more()
    console.page.get_by_label("If all ran on").fill("gpt-4.1-mini")
    console.page.get_by_role("button", name="Calculate").click()
    section = console.page.get_by_role("region", name="As if", exact=True)
    expect(section).to_contain_text("a month at this rate")
    ended(console, "v: what another model would cost", most=4)


def test_w_a_note_on_a_day(own: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: Annotate a day, and the text. Enter saves it, and the chart shows it."""
    console = open_console(own)
    dialog = console.page.get_by_role("dialog")
    console.open("/")
    console.page.get_by_role("button", name="Annotate a day").click()
    dialog.get_by_label("What happened").fill("a new release")
    console.page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    ended(console, "w: a note on a day")
    assert "a new release" in {each["text"] for each in console.ask("/annotations")["annotations"]}


def test_x_who_made_a_key(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: the search finds a key. Its panel says who created it, when, and its last use."""
    console = open_console(planted)
    console.open("/")
    seek(console, "Demo reader")
    dialog = console.page.get_by_role("dialog", name="Demo reader")
    expect(dialog).to_contain_text("demo@example.com")
    expect(dialog).to_contain_text("Last used")
    ended(console, "x: who made a key", most=1)


def test_y_the_costs_of_a_person_as_csv(planted: Tollhouse, open_console: OpenConsole) -> None:
    """Journey from Overview: the search finds the person, then CSV."""
    console = open_console(planted)
    console.open("/")
    seek(console, "faye")
    with console.page.expect_download() as download:
        console.page.get_by_role("link", name="CSV", exact=True).click()
    expect(console.page.get_by_role("link", name="user: faye")).to_be_visible()
    total = (console.page.locator(".head .figure").get_attribute("title") or "").removeprefix("$")
    rows = csv.DictReader(io.StringIO(download.value.path().read_text()))
    assert Decimal(total) == sum(Decimal(row["cost"]) for row in rows)
    ended(console, "y: the costs of a person as CSV", most=2)
