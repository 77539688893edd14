"""
Questions and tasks about sessions, agent runs and pull requests, each within three clicks, as an admin and as a person
with restricted access. Clicks count as in test_journeys.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from decimal import Decimal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.bench.server.page_weights import LOADED, packed_size
from tests.browser.conftest import OpenConsole
from tests.browser.console import MONTH, Console
from tests.browser.people.test_limited_person import limited
from tests.browser.test_journeys import ended
from tests.browser.test_layout import badly_laid_out
from tests.browser.test_pages import ANSWERS_OF_A_PAGE, FILES_OF_A_PAGE, look, unreached
from tests.rounds import part
from tests.waiting import wait_until

PULL_REQUEST = "acme/shop#42"
DAY_NS = 86_400 * 10**9


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tollhouse]:
    """
    A running Tollhouse with the same calls today and yesterday. For a pull request, the agent `lead` of the team search
    starts the agent `reviewer`, and the team ads makes a call. A session of search states no pull request.
    """
    tollhouse = Tollhouse(tmp_path_factory.mktemp("worked"), f'{MONTH}[ledger]\ntags = ["agent"]\n')
    tollhouse.start()
    calls = [call for day in range(2) for call in calls_of(time.time_ns() - day * DAY_NS)]
    assert 200 == post(tollhouse.url, request(calls), tollhouse.key("sender")).status
    asked = ("report", "--range", "last_7d", "--json")
    wait_until(lambda: tollhouse.json(*asked)["total"]["calls"] == len(calls), "the calls are counted")
    yield tollhouse
    tollhouse.stop()


def calls_of(begun: int) -> list[dict[str, object]]:
    lead, reviewer = "6f0c1d2e8a7b4c3d", "7a1b2c3d4e5f6071"
    stated = {"vcs__change__id": PULL_REQUEST, "session__id": "stated"}
    of_lead = {**stated, "tollhouse__run": lead, "gen_ai__agent__name": "lead"}
    of_reviewer = {
        **stated,
        "tollhouse__run": reviewer,
        "tollhouse__parent_run": lead,
        "gen_ai__agent__name": "reviewer",
    }
    foreign = {**stated, "session__id": "foreign"}
    return [
        span(f"lead {begun}", start_ns=begun, tokens=10_000, team="search", **of_lead),
        span(f"reviewer {begun}", start_ns=begun, tokens=50_000, team="search", **of_reviewer),
        span(f"unlinked {begun}", start_ns=begun, tokens=100_000, team="search", session__id="unlinked"),
        span(f"foreign {begun}", start_ns=begun, tokens=500_000, team="ads", **foreign),
    ]


@pytest.mark.parametrize(
    ("by", "title"),
    part([("session", "sessions"), ("run", "agent runs"), ("pull_request", "pull requests")], every=3),
)
def test_what_cost_most_yesterday(worked: Tollhouse, open_console: OpenConsole, by: str, title: str) -> None:
    """
    Journey from Overview: a range, then the list of the most expensive units. One more click opens the page of the
    first unit, with the same cost.
    """
    show_most_expensive(open_console(worked), by, title)


def show_most_expensive(console: Console, by: str, title: str) -> None:
    page = console.page
    console.open("/")
    page.get_by_label("Range").select_option(label="Yesterday")
    expect(page.get_by_role("heading", name="Cost by model, yesterday")).to_be_visible()
    page.get_by_role("link", name=title, exact=True).click()
    rows = console.ask(f"/report?by={by}&range=yesterday")["rows"]
    dearest = max((row for row in rows if row[by]), key=lambda row: Decimal(row["cost"]))
    link = page.locator("tbody").get_by_role("link").filter(has_not_text="unknown").first
    expect(link).to_have_text(f"{dearest[by]}{' (continues)' if dearest.get('continues') else ''}")
    ended(console, f"the most expensive {title} of yesterday")
    link.click()
    expect(page.locator(".numbers dd").first).to_have_attribute("title", f"${dearest['cost']}")
    expect(page.get_by_text("It has more calls in the day before or after this time.")).to_be_visible()


@pytest.mark.proof
def test_top_sessions_of_a_team(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Costs by team: the menu of a row, Top sessions, the session. Its page has the id that its calls
    state.
    """
    console = open_console(worked)
    console.open("/costs?by=team&from=yesterday")
    console.choose("search", "Top sessions")
    expect(console.page.get_by_role("link", name="team: search")).to_be_visible()
    console.page.locator("tbody").get_by_role("link").first.click()
    expect(console.page.get_by_text("Reported as unlinked.")).to_be_visible()
    ended(console, "the top sessions of a team")


@pytest.mark.proof
def test_what_a_pull_request_cost(worked: Tollhouse, open_console: OpenConsole, browser: Browser) -> None:
    """
    Journey from Overview: pull requests, the pull request. Its page has its cost, and each run with its agent. A
    person who sees one team sees only the calls of this team.
    """
    admin = open_console(worked)
    runs = [
        ["lead", "$0.05", "$0.30", "2", "1"],
        ["reviewer", "$0.25", "$0.25", "2", "0"],
        ["calls without a run", "$2.50", "$2.50", "2", "–"],
    ]
    show_pull_request(admin, "$2.80", runs)
    with limited(browser, admin, "search") as eva:
        show_most_expensive(eva, "session", "sessions")
        show_pull_request(eva, "$0.30", runs[:2])
        expect(eva.page.get_by_role("region", name="Links")).to_have_count(0)
        assert [] == eva.wrong


def show_pull_request(console: Console, cost: str, runs: list[list[str]]) -> None:
    page = console.page
    console.open("/")
    page.get_by_role("link", name="pull requests", exact=True).click()
    page.locator("tbody").get_by_role("link", name=PULL_REQUEST).click()
    rows = page.get_by_role("region", name="Agent runs").locator("tbody tr")
    expect(rows).to_have_count(len(runs))
    shown = [[text.strip() for text in row.locator("th, td").all_inner_texts()[:5]] for row in rows.all()]
    assert runs == shown
    expect(page.locator(".numbers dd").first).to_have_text(cost)
    console.settle()
    assert [] == console.audit()
    ended(console, "what a pull request cost, and which run of which agent")


def test_a_session_is_linked_to_a_pull_request(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    Journey from Costs by session: the session, the link form, Link. The pull request then has the session's cost,
    and its page says who linked it. Unlink takes three clicks. A person without the right sees the link but no
    buttons.
    """
    console, viewer = open_console(worked), open_console(worked, role="viewer")
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/costs?by=session&team=search")
    page.locator("tbody").get_by_role("link").first.click()
    page.get_by_role("button", name="Link to a pull request or ticket").click()
    expect(dialog.get_by_label("Pull request or ticket")).to_be_focused()
    page.keyboard.type(PULL_REQUEST)
    dialog.get_by_role("button", name="Link to a pull request or ticket").click()
    linked = page.get_by_role("region", name="Links").locator("tbody tr")
    expect(linked).to_contain_text(f"pull request {PULL_REQUEST}")
    ended(console, "a session is linked to a pull request")
    linked.get_by_role("link").click()
    expect(page.locator(".numbers dd").first).to_have_text("$3.30")
    expect(linked).to_contain_text("root@")
    console.has_address("unit=pull_request")
    viewer.open(f"/work?{page.url.partition('?')[2]}")  # the address of the page can be given to other people
    expect(viewer.page.get_by_role("region", name="Links").locator("tbody tr")).to_have_count(1)
    expect(viewer.page.get_by_role("region", name="Links").get_by_role("button")).to_have_count(0)
    console.open(f"/work?{page.url.partition('?')[2]}")
    [session] = console.ask("/work/links")["work_links"]
    console.choose(f"session {session['session']}", "Unlink")
    dialog.get_by_role("button", name="Unlink").click()
    expect(linked).to_have_count(0)
    expect(page.locator(".numbers dd").first).to_have_text("$2.80")
    ended(console, "a session is unlinked")
    assert {"work_link.create", "work_link.delete"} <= console.actions()


def test_a_session_shows_what_was_paid_again(worked: Tollhouse, open_console: OpenConsole) -> None:
    """The calls of a program that states no lane are listed, and their cost is not judged."""
    console = open_console(worked)
    console.open("/work?unit=session&id=stated")
    console.page.get_by_role("button", name="Show what was paid again").click()
    waste = console.page.locator("section[aria-label=Waste]")
    expect(waste.locator("tbody tr")).to_have_count(4)
    expect(waste).to_contain_text("Of $0.30, $0.00 was useful, and $0.30 is not judged.")
    expect(waste.locator("tbody tr").first).to_contain_text("(no lane)")
    console.settle()
    assert [] == console.audit()


@pytest.mark.proof
def test_a_fork_is_shown_with_its_session(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    A session that is linked to the session that started it appears on that session's page, and the other way round.
    """
    words = ("work", "link", "--session", "unlinked", "--parent-session", "stated", "--json")
    link = worked.json(*words)["work_link"]
    console = open_console(worked)
    console.open("/work?unit=session&id=stated")
    runs = console.page.locator("section[aria-label='Agent runs']")
    expect(runs).to_contain_text(f"Linked as started by it: session {link['session']}")
    runs.get_by_role("link", name=link["session"]).click()
    expect(runs).to_contain_text(f"Started by session {link['parent_session']}")
    rows = console.page.locator("section[aria-label=Links] tbody tr")
    expect(rows).to_contain_text(f"session {link['parent_session']}")
    assert [] == console.audit()
    worked.run("work", "unlink", link["id"])


@pytest.mark.proof
def test_the_page_of_a_unit_is_for_everybody(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page of a unit of work is checked like the others in test_pages.py: Tab reaches each control, axe finds
    nothing, nothing overflows, the page is small. An address without a unit shows where to find one.
    """
    console = open_console(worked)
    console.listen()
    [session] = {row["session"] for row in console.ask("/report?by=session&where=team=ads")["rows"]}
    for unit, id in (("pull_request", PULL_REQUEST), ("session", session), ("commit", "9fceb02d" * 5)):
        begun = len(console.requests)
        console.open(f"/work?unit={unit}&id={quote(id)}")
        files = sum(map(packed_size, console.page.evaluate(LOADED)))
        sent = [
            each for each in console.requests[begun:] if "/api/" in each.url and "/changes" not in each.url
        ]
        answers = sum(each.sizes()["responseBodySize"] for each in sent if each.response())
        assert 0 < files < FILES_OF_A_PAGE
        assert answers < ANSWERS_OF_A_PAGE
        assert [] == unreached(console, is_framed=False)
        look(console, f"work-{unit}")
        assert [] == badly_laid_out(console)


@pytest.mark.proof
def test_a_budget_of_a_pull_request(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks set a budget for a pull request: the menu of its row in Costs, Set a budget, Create. Views filter
    by pull request but not by session, and group by no unit.
    """
    console = open_console(worked)
    page, dialog = console.page, console.page.get_by_role("dialog")
    save = page.get_by_role("button", name="Save as view")
    for address, is_allowed in (
        (f"team&pull_request={quote(PULL_REQUEST)}", True),
        ("team&session=stated", False),
        ("pull_request", False),
    ):
        console.open(f"/costs?by={address}")
        expect(page.locator("tbody tr")).not_to_have_count(0)
        expect(save).to_be_enabled(enabled=is_allowed)
    console.choose(PULL_REQUEST, "Set a budget")
    expect(dialog.get_by_label("Limit per month in dollars")).to_be_focused()
    page.keyboard.type("100")
    dialog.get_by_role("button", name=f"Budget for pull request {PULL_REQUEST}").click()
    expect(dialog.get_by_role("status")).to_contain_text("Created")
    ended(console, "a budget of a pull request")
    [view] = console.ask("/views")["views"]
    assert {"pull_request": [PULL_REQUEST]} == view["filter"]


def test_a_wrong_link_says_why(worked: Tollhouse, open_console: OpenConsole) -> None:
    """
    If a link between units is refused, its form stays open with the reason, for example if a branch has no
    repository.
    """
    console = open_console(worked)
    console.expects("400")
    console.open("/work?unit=ticket&id=SHOP-7")
    expect(console.page.get_by_text("Choose other days, or check the id.")).to_be_visible()
    console.page.get_by_role("button", name="Link a session, branch or commit").click()
    dialog = console.page.get_by_role("dialog")
    console.page.keyboard.type("fix-totals")
    dialog.get_by_label("Kind").select_option("branch")
    dialog.get_by_role("button", name="Link a session, branch or commit").click()
    expect(dialog.get_by_role("alert")).to_contain_text("branch and repository belong together")
    assert [] == console.audit()


@pytest.mark.proof
def test_without_units_the_page_says_how_to_send_them(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    If no call has a ticket, Costs by ticket links to the page that says how calls get units of work. The search
    opens one unit.
    """
    assert 200 == post(house.url, request([span("plain")]), house.key("sender")).status
    console = open_console(house)
    wait_until(lambda: console.ask("/report?by=team")["total"]["calls"] == 1, "the call is counted")
    console.open("/costs?by=ticket")
    console.page.get_by_role("link", name="How calls get units of work").click()
    expect(console.page.get_by_text("OTEL_RESOURCE_ATTRIBUTES")).to_be_visible()
    console.page.keyboard.press("/")
    console.page.get_by_role("searchbox").fill(f"pull_request:{PULL_REQUEST}")
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("heading", level=2).first).to_have_text(f"Pull request {PULL_REQUEST}")
