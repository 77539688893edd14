"""Page Allocation: people try, publish and list a definition, and errors are shown with their position."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from gateway.service.demo.samples import DEFINITION as DEFINITION_OF_DEMO
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, send_calls_of_today

DEFINITION = "Dimensions: {Payer: {DefaultValue: Nobody, Rules: [{Type: GroupBy, Source: team}]}}"


@pytest.mark.proof
def test_the_life_of_a_definition(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    A definition can be published only after the page has shown the difference. A published dimension groups costs.
    """
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/allocation")
    box, publish = page.get_by_label("Definition"), page.get_by_role("button", name="Publish")
    page.get_by_text("Advanced: the definition as YAML").click()
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


def test_a_dimension_by_form(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    A person builds a definition with a source, one click per value, and Publish. Each tick updates the money of its
    group and the difference below. Hand-written parts of the definition stay unchanged. The window is 390 px wide.
    """
    send_calls_of_today(busy, "support")
    console = open_console(busy, viewport=NARROW)
    page = console.page
    console.open("/allocation")
    expect(page.get_by_text("because they use other rules: CostCentre.")).to_be_visible()
    form_of_groups, values = (
        page.get_by_role("region", name="Groups"),
        page.get_by_role("region", name="Values"),
    )
    costs = {
        row["team"]: row["cost"] for row in console.ask("/report?by=team&range=last_90d&show=cost")["rows"]
    }
    publish = page.get_by_role("button", name="Publish")
    expect(publish).to_be_disabled()
    values.get_by_label("search", exact=True).check()
    expect(form_of_groups.locator("li")).to_contain_text(f"${float(costs['search']):,.2f}")
    form_of_groups.get_by_role("button", name="Add a group").click()
    values.get_by_label("support", exact=True).check()
    difference = page.get_by_role("region", name="What would change")
    expect(difference.get_by_role("table", name="Team")).to_contain_text("support")
    assert [] == console.audit()
    assert console.overhang() <= 0
    console.screenshot("allocation-form-phone")
    publish.click()
    expect(page.get_by_text("Version 2, published by")).to_be_visible()
    assert 4 == console.clicks()  # one click for each of two values, one for the second group, and Publish
    expect(publish).to_be_disabled()
    published = console.ask("/allocation/versions/2?namespace=")["version"]["definition"]
    assert published.startswith(DEFINITION_OF_DEMO.decode())
    rows = console.ask("/report?by=User:Defined:Team&range=last_90d&show=cost")["rows"]
    found = {row["User:Defined:Team"]: row["cost"] for row in rows}
    assert costs["search"] == found["search"]
    assert costs["support"] == found["support"]

    page.get_by_label("Dimension").select_option("Team")
    expect(values.get_by_label("search", exact=True)).to_be_checked()
    form_of_groups.get_by_label("Name of group 1").fill("Finders")
    page.get_by_text("Advanced: the definition as YAML").click()
    box = page.get_by_label("Definition", exact=True)
    expect(box).to_have_value(re.compile('Name: "Finders"'))
    box.fill(box.input_value().replace("Finders", "Seekers"))
    expect(form_of_groups.get_by_label("Name of group 1")).to_have_value("Seekers")


def test_a_form_where_nothing_is_published(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The form for a definition starts with a new dimension, says that no call has a value, and explains how a tag
    gets into the list.
    """
    console = open_console(house)
    page = console.page
    console.open("/allocation")
    expect(page.get_by_text("Nothing has been published yet")).to_be_visible()
    expect(page.get_by_text("No call has a value.")).to_be_visible()
    page.get_by_text("A tag is missing?").click()
    page.get_by_label("Tag", exact=True).fill("squad")
    expect(page.get_by_label("the setting", exact=True)).to_contain_text('"squad"]')
    page.get_by_label("Name", exact=True).fill("Squads")
    page.get_by_label("Keep other values under their own names").check()
    expect(page.get_by_role("region", name="What would change")).to_contain_text("Squads")
    assert [] == console.audit()
