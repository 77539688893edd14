"""Contracts with providers: created, shown with the cost of their capacity, changed and deleted."""

from __future__ import annotations

from datetime import UTC, datetime

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW


def test_a_contract_from_its_first_day_to_its_end(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    A contract is created, shown and changed. If a word of a term is wrong, the form names it. Capacity is shown
    with its cost and the parts of the teams.
    """
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/contracts")
    expect(page.get_by_text("No contracts yet")).to_be_visible()
    page.get_by_role("button", name="Create a contract").click()
    dialog.locator("[name=name]").fill("Enterprise")
    dialog.locator("[name=provider]").fill("openai")
    dialog.locator("[name=since]").fill(datetime.now(UTC).replace(day=1).date().isoformat())
    dialog.locator("[name=terms]").fill("discount 10")
    assert [] == console.audit(within="dialog")
    dialog.get_by_role("button", name="Create a contract").click()
    expect(dialog.get_by_role("alert")).to_contain_text("10 is not FIELD=VALUE")
    terms = "discount percent=10 models=gpt-4o*,o3\ncapacity unit=ptu number=100 price=1 per=hour"
    dialog.locator("[name=terms]").fill(terms)
    dialog.get_by_role("button", name="Create a contract").click()
    first_day = datetime.now(UTC).replace(day=1).date().isoformat()
    expect(dialog.get_by_label("Recalculate from")).to_have_value(first_day)
    assert [] == console.audit(within="dialog")
    dialog.get_by_role("button", name="Recalculate").click()
    expect(dialog).to_contain_text("Recalculated all models")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)
    contracts = page.get_by_role("table", name="contracts", exact=True)
    expect(contracts).to_contain_text("discount, capacity")
    console.away()
    numbers = page.locator("dl.numbers").first
    expect(numbers).to_contain_text(f"${datetime.now(UTC).day * 2400:,}.00")
    expect(page.get_by_role("table", name="Parts of teams")).to_contain_text("Enterprise")
    assert [] == console.audit()
    console.resize(NARROW)
    assert [] == console.audit()
    contracts.get_by_role("link", name="Enterprise").click()
    expect(dialog).to_contain_text("discount models=gpt-4o*,o3 percent=10")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.locator("[name=terms]")).to_have_value(
        "discount models=gpt-4o*,o3 percent=10\ncapacity unit=ptu number=100 price=1 per=hour"
    )
    dialog.locator("[name=terms]").fill("discount percent=5")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog).to_contain_text("The contract is changed.")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_contain_text("discount percent=5")
    dialog.get_by_role("button", name="Close").click()
    console.away()  # a page loads nothing again while the pointer is on a row
    expect(page.get_by_role("table", name="Capacity in")).to_have_count(0)
    contracts.get_by_role("link", name="Enterprise").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("No contracts yet")).to_be_visible()
