"""
Recommendations: sorted by savings, shown with their formula, decided one by one or together, and
configured by type.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import expect

from spool.record import NS
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import MONTH, NARROW
from tests.waiting import wait_until

# Work whose calls could cost less: the priority tier of a model, and a model with a cheaper successor.
WORK: Sequence[tuple[str, str, dict[str, str]]] = (
    ("openai", "gpt-6.1-terra", {"openai__response__service_tier": "priority"}),
    ("anthropic", "claude-sonnet-4-5", {}),
)


@pytest.fixture
def advised(tmp_path: Path) -> Iterator[Tollhouse]:
    """A running Tollhouse with two savings that the test may change."""
    tollhouse = Tollhouse(tmp_path / "advised", MONTH)
    tollhouse.start()
    hour_ns = 3600 * NS
    calls = [
        span(
            f"call-{provider}-{number}",
            tokens=100_000 + number,  # no call repeats another one
            start_ns=time.time_ns() - number * 6 * hour_ns,
            gen_ai__provider__name=provider,
            gen_ai__request__model=model,
            gen_ai__response__model=model,
            **more,
        )
        for number in range(8, 100)
        for provider, model, more in WORK
    ]
    assert 200 == post(tollhouse.url, request(calls), tollhouse.key("calls")).status
    total = "/report?range=last_30d"
    wait_until(lambda: tollhouse.asked(total)["total"]["calls"] == len(calls), "the calls are counted")
    tollhouse.run("recommendations", "check")
    yield tollhouse
    tollhouse.stop()


def test_recommendations_are_read_and_decided(advised: Tollhouse, open_console: OpenConsole) -> None:
    """
    The recommendation with the largest saving comes first, with formula and evidence. Its comment is stored, and
    several can be decided together.
    """
    console = open_console(advised, role="operator")
    page, dialog, rows = (
        console.page,
        console.page.get_by_role("dialog"),
        console.page.locator("main tbody tr"),
    )
    console.open("/recommendations")
    expect(console.page.locator("a.chip[aria-current]")).to_have_text("All")
    listed = console.ask("/recommendations")["recommendations"]
    assert [each["title"] for each in listed] == page.get_by_role("rowheader").all_inner_texts()
    assert 2 <= len(listed)
    assert [] == console.audit()
    console.screenshot("recommendations")
    rows.first.get_by_role("link").click()
    expect(dialog.locator("code").first).to_have_attribute("title", listed[0]["formula"])
    expect(dialog.locator("code").first).to_have_text(re.compile(r"^\$[\d,]+\.\d\d \D.* − \$[\d,]+\.\d\d \D"))
    expect(dialog).to_contain_text(listed[0]["evidence"]["first_day"])
    said = {"exact": "certain", "strong": "very likely", "weak": "likely"}[listed[0]["confidence"]]
    expect(dialog).to_contain_text(f"· {said} ·")
    assert [] == console.audit()
    console.screenshot("recommendations-open")
    dialog.get_by_role("button", name="Comment").click()
    dialog.get_by_role("textbox", name="Comment").fill("Asked <b>them</b>.")
    dialog.get_by_role("button", name="Comment").click()
    rows.first.get_by_role("link").click()
    expect(dialog).to_contain_text("Asked <b>them</b>.")
    dialog.get_by_role("button", name="Decide").click()
    dialog.get_by_label("Status").select_option("in_progress")
    dialog.get_by_label("Assignee").fill("ada@example.com")
    dialog.get_by_role("button", name="Decide").click()
    expect(rows.first).to_contain_text("in progress")
    expect(rows.first).to_contain_text("ada@example.com")

    page.get_by_role("button", name="Decide on several").click()
    dialog.get_by_label("Status").select_option("addressed")
    assert [] == console.audit()
    console.screenshot("recommendations-several")
    dialog.get_by_role("button", name="Decide on several").click()
    expect(dialog).to_have_count(0)
    decided = console.ask("/recommendations")["recommendations"]
    assert {"addressed"} == {each["status"] for each in decided}
    assert "ada@example.com" in {each["assignee"] for each in decided}
    undecided, all_of_them = (
        page.get_by_role("link", name=name, exact=True) for name in ("Undecided", "All")
    )
    expect(all_of_them).to_have_attribute("aria-current", "true")
    undecided.click()
    expect(undecided).to_have_attribute("aria-current", "true")
    expect(page.locator("a.chip[aria-current]")).to_have_text("Undecided")
    expect(page.get_by_text("No recommendations match")).to_be_visible()
    page.get_by_role("button", name="Check now").click()
    dialog.get_by_role("button", name="Check now").click()
    expect(dialog.get_by_role("status")).to_contain_text("unchanged")


@pytest.mark.proof
def test_a_type_is_switched(advised: Tollhouse, open_console: OpenConsole) -> None:
    """
    When a type of recommendations gets a minimum or is disabled, its findings are closed. The page is checked on a
    phone in the dark theme.
    """
    console = open_console(advised, viewport=NARROW, color_scheme="dark")
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/recommendations?tab=types")
    row = page.locator("main tbody tr", has=page.get_by_role("link", name="priority tier"))
    row.get_by_role("link").click()
    assert [] == console.audit()
    dialog.get_by_role("button", name="Set minimums").click()
    dialog.get_by_label("Dollars per month").fill("2.50")
    dialog.get_by_role("button", name="Set minimums").click()
    expect(row).to_contain_text("$2.50")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Disable").click()
    dialog.get_by_role("button", name="Disable").click()
    expect(row).to_contain_text("disabled")
    console.open("/recommendations?type=priority_tier")
    expect(page.locator("main tbody tr")).to_contain_text("closed")
    assert console.overhang() <= 0
    console.screenshot("recommendations-phone-dark")
