"""
Budgets: a budget is created, shown with burn-up and forecast, edited past a threshold, and deleted by
its exact name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import MONTH, NARROW, filled, send_calls_of_today
from tests.browser.people.test_limited_person import limited
from tests.clients.loopback import Loopback


def test_the_life_of_a_budget(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    The figures of a budget equal those of the API. The form reports thresholds that a new amount has already
    passed, and a wrong name deletes nothing.
    """
    send_calls_of_today(busy, "docs")
    busy.json("views", "create", "--name", "All", "--principal", "User:Defined:CostCentre")
    console = open_console(busy)
    page, dialog, row = (
        console.page,
        console.page.get_by_role("dialog"),
        console.page.locator("main tbody tr"),
    )
    console.open("/views")
    expect(row).to_contain_text("Cost centre")
    expect(page.get_by_role("main")).not_to_contain_text("User:Defined")
    console.open("/budgets")
    expect(page.get_by_role("heading", name="No budgets yet")).to_be_visible()
    page.get_by_role("button", name="Create a budget").click()
    dialog.get_by_label("Name").fill("Everything")
    dialog.get_by_label("Limit").fill("1000000")
    dialog.get_by_label("For each").select_option("Cost centre")
    dialog.get_by_label("For each").select_option("all together")
    assert [] == console.audit()
    console.screenshot("budgets-create")
    dialog.get_by_role("button", name="Create a budget").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("within")
    [budget] = console.ask("/budgets?expand=current&expand=forecast")["budgets"]
    assert {"80": "Y", "100": "Y"} == budget["alerts"]
    cells = row.first.locator("td")
    expect(cells.nth(1)).to_have_attribute("title", budget["current"]["actual"])
    expect(cells.nth(2)).to_have_text("$1,000,000.00")
    assert [] == console.audit()
    console.screenshot("budgets")

    row.get_by_role("link").first.click()
    settings = dialog.locator("dl.fields").filter(has_text="for each")
    expect(settings).to_contain_text("counted")
    expect(settings).to_contain_text("the view's channels, otherwise every channel")
    expect(dialog.get_by_role("img", name="Spent so far")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("budgets-open")
    expect(dialog.get_by_role("table", name="Periods").locator("tbody tr")).to_have_count(1)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    bands = 0 if tomorrow.day == 1 else 1  # the last day of a month has no days ahead
    expect(dialog.locator("figure path.band")).to_have_count(bands)
    dialog.get_by_role("button", name="Show as table").click()
    twin = dialog.get_by_role("table", name="Spent so far")
    days = console.ask(f"/budgets/{budget['id']}?expand=burnup")["budget"]["burnup"]["daily"]
    today, *_ = sorted(days, reverse=True)
    spent = twin.locator("tr", has=page.get_by_role("rowheader", name=today)).locator("td").first
    expect(spent).to_have_text(money(days[today]["actual"]))
    dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Limit").fill("0.0001")
    dialog.get_by_label("Alert at percent of the forecast").fill("100")
    expect(dialog.get_by_role("group", name="Notify")).to_contain_text("Nobody will be notified")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_role("status")).to_contain_text("already over 100 %, so no alert is sent")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog.get_by_role("table", name="Alerts").locator("tbody tr")).to_have_count(2)
    expect(dialog.get_by_role("table", name="Thresholds").locator("tbody tr")).to_have_count(3)
    expect(dialog.get_by_role("table", name="Thresholds")).to_contain_text("fired")
    assert [] == console.audit()
    console.screenshot("budgets-past")
    dialog.get_by_role("button", name="Delete").click()
    for name in ("everything", "Everything"):
        dialog.get_by_label("Type Everything").fill(name)
        dialog.get_by_role("button", name="Delete").click()
        if name != "Everything":
            expect(dialog.get_by_role("alert")).to_contain_text("Type Everything exactly")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("heading", name="No budgets yet")).to_be_visible()
    assert {"budget.create", "budget.change", "budget.delete"} <= console.actions()


# Choose a view while the dialog closes and before the page is drawn again. Neither action may undo the other.
CHOOSE_AS_IT_CLOSES = """view => {
  const choose = () => {
    const picker = document.querySelector("header select");
    picker.value = view;
    picker.dispatchEvent(new Event("change", {bubbles: true}));
  };
  const dialog = document.querySelector("dialog");
  dialog.addEventListener("close", choose);
  dialog.close();
}"""


@pytest.mark.proof
def test_a_budget_for_each_team(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    For a budget with owners, every owner is listed with its own share. In another view the budget is hidden,
    with a link back.
    """
    send_calls_of_today(busy, "docs")
    busy.json("views", "create", "--name", "All", "--principal", "team")
    other = busy.json("views", "create", "--name", "Docs", "--principal", "team", "--where", "team=docs")
    words = ("--name", "Teams", "--view", "All", "--amount", "1000", "--per", "team", "--alert", "90")
    busy.json("budgets", "create", *words, "--tz", "Europe/Berlin")
    console = open_console(busy, color_scheme="dark")
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/budgets")
    page.locator("main tbody tr").get_by_role("link").first.click()
    owners = dialog.get_by_role("table", name="Owners")
    expect(owners).to_contain_text("docs")
    expect(dialog.get_by_text("per team")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("budgets-owners-dark")
    page.evaluate(CHOOSE_AS_IT_CLOSES, other["view"]["id"])
    page.wait_for_url(f"**view={other['view']['id']}")
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("No budgets match")).to_be_visible()
    page.get_by_role("link", name="Remove the filters").click()
    expect(page.locator("main tbody tr")).to_have_count(1)


@pytest.mark.proof
def test_channels_are_picked(busy: Tollhouse, browser: Browser, open_console: OpenConsole) -> None:
    """
    Channels are chosen from a list, even by people who may not see the state of channels. This works in the
    form of Budgets and in the row form of Costs. The window is 390 px wide.
    """
    admin = open_console(busy)
    [team, *_] = [row["team"] for row in admin.ask("/report?by=team&range=last_30d")["rows"] if row["team"]]
    headers = {"X-CSRF-Token": admin.ask("/session")["session"]["csrf_token"]}
    for name in ("finance", "on-call"):
        channel = {"name": name, "type": "alertmanager", "url": "http://127.0.0.1:1"}
        answer = admin.context.request.post(
            f"{admin.url}/console/api/notification-channels", data=channel, headers=headers
        )
        assert 201 == answer.status, answer.text()
    with limited(browser, admin, team) as eva:
        page, dialog = eva.page, eva.page.get_by_role("dialog")
        eva.open("/costs?by=team")
        eva.choose(team, "Set a budget")
        dialog.get_by_label("Limit per month in dollars").fill("100000")
        dialog.get_by_label("Notify at 80 % and 100 %").select_option("on-call")
        dialog.get_by_role("button", name=f"Budget for team {team}").click()
        expect(dialog.get_by_role("status")).to_contain_text("It alerts at 80 % and 100 %")
        assert [["on-call"]] == [each["channels"] for each in eva.ask("/budgets")["budgets"]]
        eva.resize(NARROW)
        eva.open("/budgets")
        page.locator("main tbody tr").get_by_role("link").first.click()
        dialog.get_by_role("button", name="Edit").click()
        expect(dialog.get_by_label("on-call")).to_be_checked()
        dialog.get_by_label("finance").check()
        assert max(0, eva.overhang()) == 0
        assert eva.audit() == []
        dialog.get_by_label("on-call").uncheck()
        dialog.get_by_role("button", name="Edit").click()
        expect(dialog.get_by_label("finance")).to_have_count(0)
        assert [["finance"]] == [each["channels"] for each in eva.ask("/budgets")["budgets"]]


def test_a_budget_in_one_line(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks create a budget: name, amount, Create. Its view is created with the first budget and reused by the
    second. Nothing overflows at 390 px, and a refusal of the server is shown.
    """
    console = open_console(busy, viewport=NARROW)
    page = console.page
    console.open("/budgets")
    expect(console.page.locator("main button.main")).to_have_text("Create")
    line = page.get_by_role("form", name="Quick budget")
    fields = [line.get_by_label("Name"), line.get_by_label("Dollars a month")]
    expect(line.locator("datalist option").first).to_be_attached()
    for amount in ("100000", "200000"):
        for field, text in zip(fields, ("search", amount), strict=True):
            field.click()
            field.fill(text)
        line.get_by_role("button", name="Create").click()
        expect(line.get_by_role("status")).to_contain_text("It alerts at 80 % and 100 %")
    expect(page.locator("main tbody tr")).to_have_count(2)
    assert [{"team": ["search"]}] == [each["filter"] for each in console.ask("/views")["views"]]
    budgets = console.ask("/budgets?sort_key=name")["budgets"]
    assert ["team search", "team search (2)"] == [each["name"] for each in budgets]
    assert [] == console.audit()
    assert console.overhang() <= 0
    console.screenshot("budget-line-phone")
    console.expects("400", "422")
    fields[0].fill("search")
    fields[1].fill("much")
    line.get_by_role("button", name="Create").click()
    expect(line.get_by_role("alert")).to_be_visible()


def test_who_changes_no_budget_has_no_line(month: Tollhouse, open_console: OpenConsole) -> None:
    console = open_console(month, role="viewer")
    console.open("/budgets")
    expect(console.page.get_by_role("form", name="Quick budget")).to_have_count(0)


def money(text: str) -> str:
    """Format an amount like the console, which shows more digits below a cent."""
    places = 2 if float(text) >= 0.01 else 4
    return f"${float(text):,.{places}f}"


@pytest.mark.proof
def test_nobody_is_notified_without_a_channel(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page Budgets states that no channel exists, before and after a budget is created. It shows the budget's
    months from the running one on, without quarters. Scheduled reports state the same.
    """
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/budgets")
    warning = page.get_by_text("Nobody will be notified: there is no channel. Add Slack, Teams or mail")
    expect(warning).to_be_visible()
    page.get_by_label("Name", exact=True).first.fill("docs")
    page.get_by_label("Dollars a month").fill("10")
    page.get_by_role("form", name="Quick budget").get_by_role("button", name="Create").click()
    created = page.get_by_role("form", name="Quick budget").get_by_role("status")
    expect(created).to_contain_text("but nobody will be notified: there is no channel")
    expect(warning).to_be_visible()
    assert [] == console.audit()
    console.screenshot("budgets-without-channel")
    console.resize(NARROW)
    console.screenshot("budgets-without-channel-narrow")
    created.get_by_role("link").click()
    periods = dialog.get_by_role("table", name="Periods").locator("tbody tr")
    expect(periods).to_have_count(1)
    expect(periods).to_contain_text("monthly")
    expect(dialog.get_by_role("heading", name="Periods", exact=True)).to_be_visible()
    console.open("/reports")
    expect(warning).to_be_visible()
    assert [] == console.audit()
    warning.get_by_role("link", name="Add Slack, Teams or mail").click()
    expect(page.get_by_role("heading", name="No channels yet")).to_be_visible()


@pytest.mark.proof
def test_a_budget_in_another_currency(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    Amounts of a budget are shown in the budget's currency. Without an exchange rate, the budget says why it is not
    evaluated.
    """
    busy.run("views", "create", "--name", "Everything", "--principal", "team")
    limit = ("--amount", "1500.5", "--currency", "CHF", "--per", "team")
    busy.run("budgets", "create", "--name", "Francs", "--view", "Everything", *limit)
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/budgets")
    row = page.locator("main tbody tr")
    expect(row).to_contain_text("1,500.50 CHF per team")
    expect(row).to_contain_text("not evaluated")
    row.get_by_role("link").first.click()
    expect(dialog).to_contain_text("no exchange rate from USD to CHF is known for today")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.locator("[name=currency]")).to_have_value("CHF")
    dialog.locator("[name=currency]").fill("usd")
    dialog.get_by_role("button", name="Edit").click()
    expect(row).to_contain_text("$1,500.50 per team")
    expect(row).not_to_contain_text("not evaluated")


@pytest.mark.proof
def test_a_field_without_a_place_of_its_own_is_shown(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page names no fields of the API in its code, so a field of a newer release appears in the panel and in the
    form.
    """
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    busy.run("views", "create", "--name", "Everything", "--principal", "team")
    busy.run("budgets", "create", "--name", "Search", "--view", "Everything", "--amount", "100")
    contact = {"name": "contact", "type": "text", "note": "The person to ask about it."}

    def with_contact(route: Route) -> None:
        answer = route.fetch()
        before, mark, after = answer.text().partition('"budget": [')
        route.fulfill(response=answer, body=f"{before}{mark}{json.dumps(contact)}, {after}")

    def with_value(route: Route) -> None:
        if route.request.method == "PATCH":
            changes.append(route.request.post_data_json)
            route.fulfill(json={"budget": {"alerts": {}}})
            return
        answer = route.fetch()
        route.fulfill(response=answer, json={"budget": {**answer.json()["budget"], "contact": "Ada Park"}})

    changes: list[Any] = []
    page.route("**/app.mjs", with_contact)
    page.route(re.compile(r"/console/api/budgets/\w{32}(\?|$)"), with_value)
    console.open("/budgets")
    page.locator("main tbody tr").get_by_role("link").first.click()
    expect(dialog.locator("dl.fields").filter(has_text="for each")).to_contain_text("Ada Park")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("contact")).to_have_value("Ada Park")
    dialog.get_by_label("contact").fill("Eva Lind")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog).to_have_count(0)
    assert ["Eva Lind"] == [change["contact"] for change in changes]


class OpenAI(BaseHTTPRequestHandler):
    """A simulated OpenAI with the limits of an organization and of a project, which accepts one key."""

    def do_GET(self) -> None:
        limit = {"threshold_amount": 50_000, "interval": "month", "enforcement": {"status": "enforcing"}}
        projects = {"data": [{"id": "proj_1", "name": "docs <b>"}], "has_more": False}
        status = 200 if self.headers["Authorization"] == "Bearer sk-right" else 403
        body = json.dumps(projects if "projects?" in self.path else limit).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def enforced(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse with a month of traffic that reads the limits of a simulated OpenAI."""
    openai = Loopback(OpenAI)
    tollhouse = filled(tmp_path / "enforced", "--days", "40", "--records", "1500")
    key = tollhouse.directory / "admin-key"
    key.write_text("sk-right")
    enforcer = f'name = "our-openai"\ntype = "openai"\nbase_url = "{openai.url}"\nkey_file = "{key}"\n'
    tollhouse.config.write_text(f"{MONTH}[[enforcers]]\n{enforcer}")
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()
    openai.close()


@pytest.mark.proof
def test_limits_elsewhere(enforced: Tollhouse, browser: Browser, open_console: OpenConsole) -> None:
    """
    A button reads the limits of enforcers, and the page lists them with what is wrong or why they are not compared.
    A failed reading is reported. People who may not see all calls have no such tab.
    """
    enforced.json("views", "create", "--name", "OpenAI", "--principal", "team", "--where", "provider=openai")
    enforced.json("budgets", "create", "--name", "Month", "--view", "OpenAI", "--amount", "1000")
    console = open_console(enforced)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/budgets")
    page.get_by_role("link", name="Limits elsewhere").click()
    page.get_by_role("button", name="Read limits").click()
    dialog.get_by_role("button", name="Read limits").click()
    expect(dialog).to_contain_text("1 of 1 enforcer read.")
    dialog.get_by_role("button", name="Close").click()
    rows = page.get_by_role("table", name="limits").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="organization")).to_contain_text("differs")
    expect(rows.filter(has_text="docs <b>")).to_contain_text("not compared")
    expect(rows.first.locator("td").filter(has_text="$500.00")).to_have_count(1)
    assert [] == console.audit()
    console.screenshot("budgets-elsewhere")
    rows.filter(has_text="organization").get_by_role("link").click()
    expect(dialog).to_contain_text("allows $500.00, budget Month $1,000.00")
    assert [] == console.audit()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_label("Add a filter").select_option("state")
    page.get_by_label("Value of state").select_option("not_compared")
    expect(rows).to_have_count(1)
    rows.get_by_role("link").click()
    expect(dialog).to_contain_text("Not compared: records do not name the project.")
    dialog.get_by_role("button", name="Close").click()

    (enforced.directory / "admin-key").write_text("sk-wrong")
    page.get_by_role("button", name="Read limits").click()
    dialog.get_by_role("button", name="Read limits").click()
    expect(dialog).to_contain_text("0 of 1 enforcer read.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_text("our-openai cannot be read")).to_contain_text("check the rights of the key")
    expect(page.get_by_role("main")).not_to_contain_text("sk-wrong")
    with limited(browser, console, "docs") as theirs:
        theirs.listen()
        theirs.open("/budgets?tab=elsewhere")
        expect(theirs.page.get_by_role("heading", level=1)).to_have_text("Budgets")
        expect(theirs.page.get_by_role("link", name="Limits elsewhere")).to_have_count(0)
        assert not [each for each in theirs.asked() if "enforcer" in each]
