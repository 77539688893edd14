"""
Roles: the console shows the effect of a role before it is saved, and a person's access. A role in use
cannot be deleted.
"""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console

ANN = "ann@example.com"


def test_the_life_of_a_role(busy: Tollhouse, open_console: OpenConsole) -> None:
    """A role is tried, created, listed for its member, changed, and deleted when it has no member."""
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    held: list[Route] = []
    page.route("**/api/permission-sets?*", lambda route: held.append(route))
    with page.expect_request("**/api/permission-sets?*"):
        console.begin("/roles")
    row = page.get_by_role("row", name="Search only")
    expect(page.get_by_role("rowheader")).to_have_text(["Member", "Operator", "Admin"])
    page.get_by_role("button", name="Create a role").click()
    # Let the held requests continue: the form opens when its checkboxes have loaded.
    expect(dialog).to_have_count(0)
    page.unroute_all()
    dialog.get_by_role("textbox", name="Name").fill("Search only")
    dialog.get_by_role("textbox", name="Filters").fill("teem=search")
    dialog.get_by_role("checkbox", name=re.compile("^View Costs")).check()
    dialog.get_by_role("textbox", name="Members").fill(ANN)
    console.expects("400")
    show, tried = dialog.get_by_role("button", name="Preview"), dialog.get_by_role("status")
    show.click()
    expect(dialog.get_by_role("alert").filter(has_text="teem")).to_be_visible()
    dialog.get_by_role("textbox", name="Filters").fill("team=search")
    show.click()
    expect(tried).to_contain_text("has Search only and sees only calls that match all filters: team=search")
    [seen] = tried.get_by_role("table", name="Visible by team").locator("tbody tr").all()
    expect(seen).to_contain_text("search")
    total = tried.locator("dd").first.get_attribute("title")
    report = console.ask("/report?range=last_30d&where=team%3Dsearch&by=team&show=cost")
    assert f"${report['total']['cost']}" == total
    expect(tried).to_contain_text(
        "Overview, Costs, Views, Annotations, Unit of work, Insights, Scheduled reports, Budgets, Plans"
    )
    expect(tried).not_to_contain_text("Billing")
    assert [] == console.audit()
    console.screenshot("roles-tried")
    dialog.get_by_role("textbox", name="Description").fill("Those of the search team")
    expect(tried).to_be_empty()
    dialog.get_by_role("button", name="Create a role").click()
    expect(dialog).to_have_count(0)
    expect(row).to_contain_text("team=search")
    expect(row).to_contain_text(ANN)
    assert [] == console.audit()
    console.screenshot("roles")

    row.get_by_role("link").click()
    dialog.get_by_role("link", name=ANN).click()
    section = page.get_by_role("region", name="What this person may do and see")
    expect(section).to_contain_text(f"{ANN} has Search only")
    expect(section.locator("dd").first).to_have_attribute("title", total or "")
    assert [] == console.audit()
    console.screenshot("roles-person")
    page.get_by_label("Account").select_option("admin")
    page.get_by_role("button", name="Show").click()
    expect(section).to_contain_text("sees all calls")

    console.follow("Roles")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog).to_contain_text(f"These members have the role: {ANN}")
    console.expects("409")
    dialog.get_by_label("Type").fill("Search only")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text(ANN)
    dialog.get_by_role("button", name="Close").click()
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_role("checkbox", name=re.compile("^View Costs"))).to_be_checked()
    dialog.get_by_role("textbox", name="Members").fill("")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog).to_have_count(0)
    [kept] = [each for each in console.ask("/roles")["roles"] if not each["is_builtin"]]
    assert kept["members"] == []
    assert kept["filters"] == [{"dimension": "team", "values": ["search"], "mode": "is"}]
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_label("Type").fill("Search only")
    dialog.get_by_role("button", name="Delete").click()
    expect(row).to_have_count(0)
    page.get_by_role("row", name="Member").get_by_role("link").click()
    expect(dialog).to_contain_text("Accounts with this account role have it")
    # the buttons in the panel go to other rows, and close the panel
    expect(dialog.get_by_role("button")).to_have_count(3)
    assert {"role.create", "role.change", "role.delete"} <= console.actions()


@pytest.mark.proof
def test_somebody_is_limited_from_a_row_of_costs(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    Four clicks limit a person to a row of Costs: the menu of the row, its item, the person, Create. The role's
    effect is shown before Create. The role shows only this row, even if the page shows more values of its
    dimension. A view has a link to the same page.
    """
    console = open_console(busy)
    page = console.page
    console.open("/costs?by=team&team=search&team=payments")
    console.choose("search", "Restrict access")
    section = page.get_by_role("region", name="What this person may do and see")
    expect(section).to_contain_text("sees only calls that match all filters: team=search.")
    page.get_by_label("E-mail").click()
    page.get_by_label("E-mail").fill(ANN)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Created")).to_contain_text("Only team=search")
    expect(section).to_contain_text(f"{ANN} has Only team=search and sees only calls")
    assert 4 == console.clicks()
    [role] = [each for each in console.ask("/roles")["roles"] if not each["is_builtin"]]
    assert [{"dimension": "team", "values": ["search"], "mode": "is"}] == role["filters"]
    assert role["members"] == [ANN]
    assert role["permission_sets"] == ["view_costs"]
    console.resize(NARROW)
    assert max(0, console.overhang()) == 0
    assert console.audit() == []

    headers = {"X-CSRF-Token": console.ask("/session")["session"]["csrf_token"]}
    view = {"name": "payments", "filter": {"!team": ["search"]}, "principal_dimension": "team"}
    answer = console.context.request.post(f"{console.url}/console/api/views", data=view, headers=headers)
    assert 201 == answer.status, answer.text()
    console.open(f"/views?open={answer.json()['view']['id']}")
    page.get_by_role("link", name="Restrict access to this view's calls").click()
    expect(section).to_contain_text("team!=search")


@pytest.mark.proof
def test_a_phone_shows_whole_names_of_permission_sets(console: Console) -> None:
    console.resize(NARROW)
    console.open("/roles?tab=sets")
    name = console.page.get_by_role("link", name="Answer Privacy Requests")
    expect(name).to_be_visible()
    assert not name.evaluate("(each) => each.closest('th').scrollWidth > each.closest('th').clientWidth")
