"""
Plans: created, viewed, changed and deleted. Paid, included and extra usage are shown next to each other.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW


def last_month() -> datetime:
    return datetime.now(UTC).replace(day=1) - timedelta(days=1)


def its_first_day() -> str:
    return last_month().replace(day=1).date().isoformat()


def test_a_plan_from_its_first_seat_to_its_end(busy: Tollhouse, open_console: OpenConsole) -> None:
    """Create a plan, see the fee paid and the idle seats, edit and delete it."""
    busy.run("views", "create", "--name", "assistant", "--principal", "user", "--where", "source=claude_code")
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/plans")
    expect(page.get_by_text("No plans yet")).to_be_visible()
    assert [] == console.audit()
    page.get_by_role("button", name="Create a plan").click()
    dialog.locator("[name=name]").fill("Claude Team")
    dialog.locator("[name=view]").select_option("assistant")
    dialog.locator("[name=fee]").fill("31")
    dialog.locator("[name=included]").fill("20")
    dialog.locator("[name=seats]").fill("ann@example.com")
    assert [] == console.audit(within="dialog")
    dialog.get_by_role("button", name="Create a plan").click()
    expect(dialog.get_by_role("alert")).to_contain_text("is not a seat: write USER,SINCE")
    dialog.locator("[name=seats]").fill(
        f"ann@example.com,{its_first_day()}\nbob@example.com,{its_first_day()},,search"
    )
    dialog.get_by_role("button", name="Create a plan").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("table", name="plans", exact=True)).to_contain_text("Claude Team")
    console.open(f"/plans?month={last_month():%Y-%m}")
    numbers = page.locator("dl.numbers").first
    expect(numbers).to_contain_text("$62.00 fees")
    expect(numbers).to_contain_text("value at list prices; covered by the fees")
    idle = page.get_by_role("table", name="Unused seats")
    expect(idle.locator("tbody tr")).to_have_count(2)
    expect(idle).to_contain_text("$31.00")
    page.locator("details summary", has_text="2 seats").click()
    expect(page.get_by_role("table", name="Seats", exact=True)).to_contain_text("search")
    assert [] == console.audit()
    console.screenshot("plans")
    page.get_by_role("table", name="plans", exact=True).get_by_role("link", name="Claude Team").click()
    expect(dialog.get_by_role("table", name="Seats")).to_contain_text("bob@example.com")
    assert [] == console.audit(within="dialog")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.locator("[name=seats]")).to_have_value(
        f"ann@example.com,{its_first_day()}\nbob@example.com,{its_first_day()},,search"
    )
    dialog.locator("[name=seats]").fill(f"ann@example.com,{its_first_day()}")
    dialog.get_by_role("button", name="Edit").click()
    console.away()
    expect(numbers).to_contain_text("$31.00 fees")
    page.get_by_role("table", name="plans", exact=True).get_by_role("link", name="Claude Team").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No plans yet")).to_be_visible()


@pytest.mark.proof
def test_plans_on_a_phone_for_who_may_change_nothing(busy: Tollhouse, open_console: OpenConsole) -> None:
    """On Plans, a viewer sees sums and seats and no button."""
    busy.run("views", "create", "--name", "assistant", "--principal", "user", "--where", "source=claude_code")
    options = ("--fee", "31", "--seat", f"ann@example.com,{its_first_day()}")
    busy.run("plans", "create", "--name", "Claude Team", "--view", "assistant", *options)
    console = open_console(busy, role="viewer", viewport=NARROW, color_scheme="dark")
    console.open(f"/plans?month={last_month():%Y-%m}")
    page = console.page
    expect(page.locator("dl.numbers").first).to_contain_text("$31.00 fees")
    expect(page.get_by_role("button", name="Create a plan")).to_have_count(0)
    console.screenshot("plans-phone-dark")
    assert console.audit() == []
    assert console.overhang() <= 0


@pytest.mark.proof
def test_fees_are_in_costs_and_on_the_overview(busy: Tollhouse, open_console: OpenConsole) -> None:
    """With a plan, Costs offers paid costs by charge and plan, and the overview shows what was paid in all."""
    console = open_console(busy)
    page = console.page
    console.open("/")
    expect(page.locator("dl.numbers")).to_contain_text("Calls in")
    expect(page.get_by_text("seat fees")).to_have_count(0)
    console.open("/costs")
    page.locator("summary", has_text="More").click()
    money = page.locator("label", has=page.get_by_text("Money", exact=True)).locator("select")
    expect(money.locator("option", has_text="counted").first).to_be_attached()
    expect(money.locator("option", has_text="seat fees")).to_have_count(0)
    busy.run("views", "create", "--name", "assistant", "--principal", "user", "--where", "source=claude_code")
    options = ("--fee", "31", "--seat", f"ann@example.com,{its_first_day()},,search")
    busy.run("plans", "create", "--name", "Claude Team", "--view", "assistant", *options)
    console.open("/")
    expect(page.locator("dl.numbers")).to_contain_text(re.compile(r"\$\d.* for calls, \$\d.* seat fees"))
    assert [] == console.audit()
    console.screenshot("overview-with-plans")
    page.locator("dl.numbers div", has_text="seat fees").get_by_role("link").click()
    expect(page.locator("tbody th", has_text="seat_fee")).to_have_count(1)
    expect(page.locator("tbody th", has_text="usage")).to_have_count(1)
    console.open(f"/costs?cost_type=paid_cost&by=plan&from={its_first_day()}&to={last_month():%Y-%m-%d}")
    row = page.locator("tbody tr", has_text="Claude Team")
    expect(row.locator("td").first).to_have_attribute("title", "$31")
    expect(page.get_by_text("Calls that seats cover are left out")).to_have_count(1)
    expect(page.get_by_role("link", name="Show the calls")).to_have_count(0)
    assert [] == console.audit()
    console.screenshot("costs-paid")
    page.locator("summary", has_text="More").click()
    money.select_option("counted")
    # counted costs have no plans, so the first column is another dimension
    expect(page.locator("thead th").first).to_have_text("model")
    money.select_option("paid, with seat fees")
    # the row of the fee has no model, so it is shown as unknown
    expect(page.locator("tbody th", has_text="unknown")).to_have_count(1)
