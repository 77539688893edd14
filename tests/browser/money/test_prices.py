"""A model without a price gets one in the console, with a preview, in three clicks from Overview."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from spool.processing import PRICED_TIERS
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, TWO_MONTHS, filled


def test_a_model_without_a_price_gets_one(tmp_path: Path, open_console: OpenConsole) -> None:
    """
    Three clicks set a price for a model: the model, its price and Preview, Set a price. The model leaves the list
    when earlier calls are recalculated there, and the price can be changed and deleted.
    """
    tollhouse = filled(tmp_path / "prices", *TWO_MONTHS)
    tollhouse.start()
    try:
        console = open_console(tollhouse)
        console.expects("400")  # the preview of an impossible price gets a 400
        page, dialog = console.page, console.page.get_by_role("dialog")
        console.open("/prices")
        unpriced = page.locator("section").filter(
            has=page.get_by_role("heading", name="Models without a price")
        )
        model = unpriced.locator("tbody a").first
        name = model.inner_text()
        assert [] == console.audit()
        console.screenshot("prices-empty")
        model.click()
        expect(dialog.get_by_label("Model")).to_have_value(name)
        dialog.get_by_label("Input").fill("2.00")
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.get_by_role("status")).to_contain_text("$0.00 before")
        dialog.get_by_label("Input").fill("many")
        # the shown preview is about another price, so no result is stated
        expect(dialog.get_by_role("status")).to_be_empty()
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.locator("fieldset [role=alert]")).to_contain_text("input must be a decimal number")
        dialog.get_by_label("Input").fill("2.00")
        dialog.get_by_label("Output").fill("8.00")
        tiers = dialog.get_by_label("Service tier").locator("option").all_inner_texts()
        assert sorted(PRICED_TIERS) == sorted(tiers[1:])
        assert [] == console.audit(within="dialog")
        console.screenshot("prices-new")
        dialog.get_by_role("button", name="Set a price").click()
        expect(dialog).to_contain_text("The price is set.")
        dialog.get_by_role("button", name="Recalculate").click()
        expect(dialog).to_contain_text("Recalculated all models: $0.00 before")
        assert [] == console.audit(within="dialog")
        console.screenshot("prices-recalculated")
        dialog.get_by_role("button", name="Close").click()
        row = page.locator("tbody tr").filter(has_text="$8.00")
        expect(row).to_contain_text(name)
        console.open("/prices?sort=since")
        expect(unpriced.get_by_role("link", name=name, exact=True)).to_have_count(0)
        console.resize(NARROW)
        assert [] == console.audit()
        console.screenshot("prices-narrow")
        row.get_by_role("link").click()
        dialog.get_by_role("button", name="Delete").click()
        dialog.get_by_role("button", name="Delete").click()
        expect(row).to_have_count(0)
    finally:
        tollhouse.stop()


@pytest.mark.proof
def test_a_viewer_sees_prices_and_sets_none(tmp_path: Path, open_console: OpenConsole) -> None:
    """
    Without the right to change billing, the list of models without a price has no buttons, and the link of a model
    opens no form.
    """
    tollhouse = filled(tmp_path / "prices", *TWO_MONTHS)
    tollhouse.run("prices", "create", "--model", "zeta-9", "--input", "2")
    tollhouse.start()
    try:
        console = open_console(tollhouse, role="viewer")
        console.open("/prices?new=acme")
        expect(console.page.locator("tbody tr").filter(has_text="zeta-9")).to_have_count(1)
        expect(console.page.get_by_role("button", name="Set a price")).to_have_count(0)
        expect(console.page.get_by_role("dialog")).to_have_count(0)
    finally:
        tollhouse.stop()
