"""The console for a person who may see the calls of one team: pages, figures and exports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import WIDE, Console
from tests.waiting import wait_until

EVA, PASSWORD = "eva@example.com", "correct horse battery"
OPEN = [
    "Overview",
    "Costs",
    "Calls",
    "Insights",
    "Budgets",
    "Recommendations",
    "Plans",
    "Connect",
    "Administration",
]
SETS = ["view_costs", "view_records", "view_operation", "modify_views_and_budgets", "work_on_insights"]


@contextmanager
def limited(browser: Browser, admin: Console, team: str, **changes: Any) -> Iterator[Console]:
    """
    Open the console with an account that sees the calls of one team, or as the arguments say. Delete the
    account and its role at the end.
    """
    headers = {"X-CSRF-Token": admin.ask("/session")["session"]["csrf_token"]}
    role = {"name": "One team", "data_access": "limited", "permission_sets": SETS, "members": [EVA],
            "filters": [{"dimension": "team", "values": [team]}], **changes}  # fmt: skip
    account = {"email": EVA, "password": PASSWORD, "role": "none"}
    api, send = f"{admin.url}/console/api", admin.context.request
    for path, body in (("/operators", account), ("/roles", role)):
        answer = send.post(f"{api}{path}", data=body, headers=headers)
        assert 201 == answer.status, answer.text()
    settings: dict[str, Any] = {"viewport": WIDE, "reduced_motion": "reduce"}
    with browser.new_context(**settings) as context:
        yield signed_in(Console(context, admin.tollhouse))
    send.patch(f"{api}/roles/One team", data={"members": []}, headers=headers)
    for path in ("/roles/One team", f"/operators/{EVA}"):
        assert 200 == send.delete(f"{api}{path}", headers=headers).status


def signed_in(console: Console) -> Console:
    console.expects("401", "403")
    console.page.goto(f"{console.url}/console/")
    console.page.get_by_label("E-mail").fill(EVA)
    console.page.get_by_label("Password").fill(PASSWORD)
    console.page.get_by_role("button", name="Sign in").click()
    expect(console.page.get_by_role("navigation", name="Pages", include_hidden=True)).to_be_attached()
    return console


def test_a_person_of_one_team(browser: Browser, month: Tollhouse, open_console: OpenConsole) -> None:
    """
    For a person who sees one team, the menu has only the permitted pages, figures and exports cover only the team,
    and a closed page gives the reason.
    """
    admin = open_console(month)
    rows = admin.ask("/report?by=team&range=last_30d")["rows"]
    own, *foreign = [row["team"] for row in rows if row["team"]]
    assert foreign
    with limited(browser, admin, own) as eva:
        look_around(eva, own, foreign)


@pytest.mark.proof
def test_a_person_of_billed_money_alone(
    browser: Browser, month: Tollhouse, open_console: OpenConsole
) -> None:
    """
    A person with the role for billed costs sees all billed costs and no other kind. Pages that need calls show why
    they are closed.
    """
    admin = open_console(month)
    query = "/report?range=last_month&by=team&cost_type=billed_cost"
    wait_until(lambda: admin.ask(query)["billed"]["days"]["open"] == 0, "the bill of last month")
    full = {"data_access": "full", "filters": [], "cost_types": ["billed_cost"]}
    with limited(browser, admin, "", **full) as eva:
        page = eva.page
        expect(page.get_by_role("alert").first).to_contain_text("your roles show only billed_cost")
        eva.open("/costs?from=last-month&by=team")
        eva.more()
        options = page.get_by_label("money").locator("option").all_inner_texts()
        assert ["billed"] == options
        total = admin.ask(query)["total"]["cost"]
        expect(page.locator("tfoot td").first).to_have_attribute("title", f"${total}")
        assert [] == eva.audit()


def look_around(eva: Console, own: str, foreign: list[str]) -> None:
    page = eva.page
    eva.settle()
    menu = page.get_by_role("navigation", name="Pages")
    assert OPEN == menu.locator("a").all_text_contents()
    expect(page.get_by_text("One team")).to_be_visible()
    assert [] == eva.audit(is_framed=True)
    shown = page.locator("main").inner_text()
    assert own in shown
    assert not [team for team in foreign if team in shown]

    menu.get_by_role("link", name="Costs").click()
    eva.open("/costs?from=now-30d&by=team")
    assert [own] == page.locator("tbody th").all_inner_texts()
    address = page.get_by_role("link", name="CSV", exact=True).get_attribute("href")
    table = page.evaluate("(address) => fetch(address).then((answer) => answer.text())", address)
    assert [own] == [line.partition(",")[0] for line in table.splitlines()[1:]]

    eva.open("/views")
    expect(page.get_by_role("button", name="Create a view")).to_be_visible()
    eva.open("/budgets")  # this person may not open the page of channels
    expect(page.get_by_text("there is no channel. Ask an Admin to add one.")).to_be_visible()
    eva.open("/")  # this person may not open the page of prices either
    expect(page.get_by_text("of the money is estimated from list prices")).to_be_visible()
    expect(page.locator("main a[href^='#/prices']")).to_have_count(0)
    expect(page.get_by_text("Nothing needs attention")).to_have_count(0)
    for address in ("/insights", "/recommendations"):  # the findings on these pages cover all calls
        eva.open(address)
        expect(page.get_by_role("button", name="Check now")).to_have_count(0)
    eva.open("/devices")
    expect(page.get_by_role("alert").first).to_contain_text("You do not have access to this.")
    expect(page.get_by_role("alert").first).to_contain_text(
        "an Admin can give you a role with full data access"
    )
    assert [] == eva.wrong
