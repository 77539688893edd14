"""An operator's questions to the console: each is answered within three clicks from the overview."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console, filled, first_day
from tests.browser.trouble import DEAD, UPSTREAM

MOST_CLICKS = 3
INGEST = "ai-telemetry-ingest:ingest-ai-telemetry"


class Reader:
    """Starts at the overview and counts clicks. A choice in a menu is one click."""

    def __init__(self, console: Console) -> None:
        self.console, self.page = console, console.page
        console.open("/")
        expect(self.page.get_by_text("Spend in").first).to_be_visible()
        self.clicks = 0

    def click(self, where: Locator) -> None:
        where.click()
        self.clicks += 1

    def open(self, title: str) -> None:
        """Open a page by the menu: a click on its group, and another unless it is the group's first page."""
        self.clicks += self.console.follow(title)

    def choose(self, label: str, value: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(value)
        self.clicks += 1

    def arrives(self, title: str) -> None:
        """Check that this page opened within three clicks."""
        expect(self.page.get_by_role("heading", level=1)).to_have_text(title)
        self.console.settle()
        assert 0 < self.clicks <= MOST_CLICKS


@pytest.fixture(scope="module")
def jumpy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """
    A running Tollhouse with a month in which spend jumped and a model has no price. Tests must not change it.
    """
    tollhouse = filled(
        tmp_path_factory.mktemp("jumpy"), "--records", "16000", "--plant", "spike,missing-price"
    )
    tollhouse.start()
    yield tollhouse
    tollhouse.stop()


@pytest.fixture
def reader(jumpy: Tollhouse, open_console: OpenConsole) -> Reader:
    return Reader(open_console(jumpy, role="viewer"))


def largest(console: Console, query: str, field: str) -> str:
    """Return the group with the highest cost by the operator API."""
    rows = console.ask(f"/report?{query}&by={field}")["rows"]
    name: str = max(rows, key=lambda row: float(row["cost"]))[field]
    return name


@pytest.mark.proof
def test_which_team_spent_most_last_week_and_on_which_model(reader: Reader) -> None:
    """
    To find what a team spent most on: Teams, the last seven days, the first row. The page lists its models, the
    largest first.
    """
    reader.console.listen()
    reader.click(reader.page.get_by_role("link", name="Teams", exact=True))
    first = reader.page.locator("tbody th").first.get_by_role("link")
    expect(first).to_be_visible()
    with reader.page.expect_request(lambda request: "compare=" in request.url) as week:
        reader.choose("Range", "now-7d")
    team = largest(reader.console, f"from={first_day(week.value.url)}", "team")
    expect(first).to_have_text(team)
    reader.click(first)
    expect(reader.page.get_by_role("link", name=f"team: {team}")).to_be_visible()
    reader.arrives("Costs")
    asked = next(query for query in reversed(reader.console.asked("/report?")) if "compare=" in query)
    start = first_day(asked)
    assert start == first_day(week.value.url)
    expect(reader.page.locator("tbody th a").first).to_have_text(
        largest(reader.console, f"from={start}&where=team={team}", "model_family")
    )


@pytest.mark.proof
def test_why_did_spend_jump(reader: Reader) -> None:
    """
    The insight about a jump in spend names who, when and the largest part, and links to the costs of that time.
    """
    reader.click(reader.page.get_by_role("link", name="was expected").first)
    dialog = reader.page.get_by_role("dialog")
    expect(dialog).to_contain_text("The largest part was")
    reader.click(dialog.get_by_role("link", name="Show costs of that time"))
    reader.arrives("Costs")
    expect(reader.page.get_by_role("columnheader", name="Change", exact=True)).to_be_visible()


@pytest.mark.proof
def test_what_is_unpriced(reader: Reader) -> None:
    """
    The overview's number of calls without a price leads to the models, where the same number is shown. Costs show no
    amount for such a model.
    """
    link = reader.page.get_by_role("link", name="have no price")
    number = (link.inner_text()).partition(" ")[0]
    reader.click(link)
    reader.arrives("Prices")
    expect(reader.page.get_by_role("rowheader", name="acme-large-2026")).to_be_visible()
    expect(reader.page.get_by_text(f"{number} calls of the last 30 days have no price")).to_be_visible()
    reader.open("Costs")
    expect(reader.page.get_by_role("row", name="acme-large-2026")).to_contain_text("no price")


@pytest.mark.proof
def test_the_bill_against_what_was_counted(console: Console) -> None:
    """
    The menu leads to the reconciliation, which shows a loading message at once. A month that agrees is not
    highlighted. Both hold at 390 px.
    """
    reader = Reader(console)
    held: list[Route] = []
    reader.page.route(re.compile(r"/console/api/reconciliation"), lambda route: held.append(route))
    reader.open("Reconciliation")
    expect(reader.page.get_by_text(re.compile(r"Comparing \d{4}-\d{2} \.\.\."))).to_be_visible()
    expect(reader.page.locator(".skeleton")).to_have_count(1)
    reader.page.unroute_all()  # let the held requests continue
    reader.arrives("Reconciliation")
    assert console.clicks() == reader.clicks <= 2
    expect(reader.page.get_by_role("region", name="anthropic by day").locator(".state.bad")).to_have_count(0)
    console.resize(NARROW)
    assert max(0, console.overhang()) == 0
    assert console.audit() == []


@pytest.mark.proof
def test_a_budget_for_a_team(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    Four clicks create a budget for a team: the menu of its row, Set a budget, the amount, Create. The view is created
    as well, with alerts at 80 and 100 %. The page names thresholds that are already passed, and the next alert.
    """
    console = open_console(busy)
    console.open("/costs?by=team")
    page = console.page
    team = page.locator("tbody th").first.inner_text()
    console.choose(team, "Set a budget")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("link", name="Add Slack, Teams or mail")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("budget-of-a-team")
    dialog.get_by_label("Limit per month in dollars").fill("100000")
    dialog.get_by_role("button", name=f"Budget for team {team}").click()
    expect(dialog.get_by_role("status")).to_contain_text("It alerts at 80 % and 100 %")
    assert 4 == console.clicks()
    [budget] = console.ask("/budgets")["budgets"]
    assert budget["name"] == f"team {team}"
    assert budget["alerts"] == {"80": "Y", "100": "Y"}
    [view] = [each for each in console.ask("/views")["views"] if each["id"] == budget["view"]["id"]]
    assert {"team": [team]} == view["filter"]
    dialog.get_by_role("button", name="Close").click()
    console.choose(team, "Set a budget")
    dialog.get_by_label("Limit per month in dollars").fill("0.0001")
    dialog.get_by_role("button", name=f"Budget for team {team}").click()
    expect(dialog.get_by_role("status")).to_contain_text("Spending is already over 100 %")
    assert 2 == len(console.ask("/budgets")["budgets"])
    assert 1 == len([each for each in console.ask("/views")["views"] if each["filter"] == {"team": [team]}])


@pytest.mark.proof
def test_the_dearest_calls_on_a_phone(reader: Reader) -> None:
    """
    At a width of 390 px, three clicks lead to the most expensive calls. Name, time and cost are visible
    without scrolling the table.
    """
    page = reader.page
    reader.console.resize(NARROW)
    reader.click(page.get_by_role("button", name="Menu"))
    reader.open("Calls")
    reader.click(page.get_by_role("link", name="Top calls by cost"))
    reader.arrives("Calls")
    cost = page.locator("tbody tr").first.locator("td.number").first
    expect(cost).to_be_visible()
    box = reader.console.still(cost)
    assert box["x"] + box["width"] <= 390
    assert 0 == reader.console.overhang()
    assert [] == reader.console.audit(("minor", "moderate", "serious", "critical"))


@pytest.mark.proof
def test_is_this_laptop_reporting(reader: Reader) -> None:
    """Fleet shows each laptop's state and last report."""
    reader.open("Fleet")
    reader.arrives("Fleet")
    expect(reader.page.get_by_role("row", name="laptop-ada")).to_contain_text("ago")


@pytest.mark.proof
def test_who_may_send(reader: Reader) -> None:
    """The page of keys, filtered by telemetry, lists exactly the keys whose use cases or scopes permit it."""
    reader.open("API Keys")
    reader.choose("Add a filter", "scope")
    reader.choose("Value of scope", INGEST)
    expect(reader.page.get_by_role("row", name="Demo reader")).to_have_count(0)
    expect(reader.page.get_by_role("row", name="Demo sender")).to_contain_text("Enabled")
    reader.arrives("API Keys")


def test_is_anything_lost_or_stuck(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """The overview counts rejected records and names each stopped route. Two clicks show the reason."""
    reader = Reader(open_console(troubled))
    reader.click(reader.page.locator("details.attention > summary"))
    reader.click(reader.page.get_by_role("link", name=f"{DEAD} rejected records"))
    reader.click(reader.page.get_by_role("rowheader").first.get_by_role("link"))
    expect(reader.page.get_by_role("dialog")).to_contain_text("is not known")
    reader.arrives("Delivery")
    reader = Reader(reader.console)
    reader.click(reader.page.locator("details.attention > summary"))
    row = reader.page.locator(
        ".attention li", has_text="your cost service refuses Tollhouse's key costs (403)"
    )
    reader.click(row.get_by_role("link"))
    expect(reader.page.get_by_role("dialog")).to_contain_text("Nothing is lost")
    reader.arrives("Delivery")
    expect(reader.page.get_by_role("row", name=UPSTREAM)).to_be_attached()
