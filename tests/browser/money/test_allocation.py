"""Allocation: a definition is tried, published and found in the lists; faults are shown with their places."""

from __future__ import annotations

from playwright.sync_api import expect

from gateway.demo.allocation import DEFINITION as DEFINITION_OF_DEMO
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole

DEFINITION = "Dimensions: {Payer: {DefaultValue: Nobody, Rules: [{Type: GroupBy, Source: team}]}}"


def test_the_life_of_a_definition(busy: Tollhouse, open_console: OpenConsole) -> None:
    """Nothing is published before its difference was shown; what is published groups costs."""
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/allocation")
    box, publish = page.get_by_label("Definition"), page.get_by_role("button", name="Publish")
    expect(box).to_have_value(DEFINITION_OF_DEMO.decode())
    expect(publish).to_be_disabled()
    console.expects("422")
    box.fill(DEFINITION.replace("team", "taem"))
    page.get_by_role("button", name="Show what would change").click()
    expect(page.get_by_role("alert")).to_contain_text("Dimensions.Payer.Rules.0.Source")
    box.fill(DEFINITION)
    page.get_by_role("button", name="Show what would change").click()
    difference = page.get_by_role("region", name="What would change")
    expect(difference).to_contain_text("Payer")
    assert [] == console.audit()
    console.screenshot("allocation-diff")
    publish.click()
    dialog.get_by_role("button", name="Publish").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("Version 2, published by")).to_be_visible()
    expect(publish).to_be_disabled()

    page.get_by_role("link", name="Namespaces").click()
    page.get_by_role("button", name="Create a namespace").click()
    dialog.get_by_label("Id").fill("ml")
    dialog.get_by_label("Name").fill("Models")
    dialog.get_by_role("button", name="Create a namespace").click()
    expect(page.locator("tbody tr")).to_contain_text("Models")
    page.get_by_role("link", name="Versions").click()
    page.locator("tbody a").first.click()
    expect(dialog).to_contain_text("Nobody")
    assert [] == console.audit()
    console.open("/allocation?tab=jobs")
    expect(page.locator("tbody tr").first).to_contain_text("done")
    assert "User:Defined:Payer" in console.ask("/report?show=cost")["report"]["dimensions"]
    assert {"allocation.publish", "allocation_namespace.create"} <= console.actions()
