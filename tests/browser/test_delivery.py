"""Delivery, and streams and events: an operator finds a stuck route, reads the reason, and fixes it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from gateway.configuration.reader import load_config
from gateway.configuration.sections import Config
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console
from tests.browser.trouble import ARCHIVE, CALLS, DEAD, LAKE, REFUSED, UPSTREAM, RefusingUpstream
from tests.waiting import wait_until


def test_paused_route_shows_its_reason_and_the_remedy(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    The list of routes shows each route's state and reason. The details of a route say what to do and link to its
    requests.
    """
    console = open_console(troubled)
    console.open("/delivery")
    row = console.page.get_by_role("row", name="upstream/ai-telemetry")
    expect(row).to_contain_text("paused")
    expect(row).to_contain_text("403")
    row.get_by_role("link").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("your cost service refuses Tollhouse's key costs (403). Nothing is lost")
    expect(dialog).to_contain_text("tollhouse check")
    expect(dialog.locator(".fields > div", has_text="oldest record waits")).to_contain_text(
        re.compile(r"\d (ms|s|min|h)$")
    )
    console.page.get_by_role("link", name="Requests in progress").click()
    expect(console.page.get_by_role("row", name="upstream/ai-telemetry")).to_contain_text("403")
    assert [] == console.audit()


@pytest.mark.proof
def test_paused_route_is_retried_from_its_details(
    troubled: Tollhouse, refusing: RefusingUpstream, open_console: OpenConsole
) -> None:
    """
    Three clicks from the overview lead to the details of a paused route, and to *Try now*. The details say
    since when the route waits, which key was refused, and that nothing is lost. A replay is not needed and is
    one click further away.
    """
    console = open_console(troubled)
    console.open("/")
    page = console.page
    page.locator("details.attention > summary").click()
    row = page.locator(".attention li", has_text="your cost service refuses Tollhouse's key costs")
    row.get_by_role("link").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("your cost service refuses Tollhouse's key costs (403). Nothing is lost")
    expect(dialog.locator(".fields > div", has_text="Since")).to_contain_text("ago")
    expect(dialog.get_by_role("button", name="Replay")).to_be_hidden()
    assert [] == console.audit()
    said = dialog.get_by_role("status")
    dialog.get_by_role("button", name="Try now").click()
    expect(said).to_contain_text(
        "refuses Tollhouse's key costs (403). Nothing is lost. Another attempt did not change this"
    )
    assert 3 == console.clicks()
    refusing.mended.set()
    dialog.get_by_role("button", name="Try now").click()
    expect(said).to_contain_text(f"{REFUSED} is running again")
    expect(dialog).not_to_contain_text("refuses Tollhouse's key")
    troubled.wait_until_drained(REFUSED)
    assert "route.try" in console.actions()


@pytest.mark.proof
def test_an_orphaned_route_is_dropped_by_its_exact_name(
    troubled: Tollhouse, open_console: OpenConsole
) -> None:
    """
    To drop an orphaned route, its name must be typed. A wrong name drops nothing. The audit list has the drop.
    """
    console = open_console(troubled)
    console.open(f"/delivery?open={LAKE}")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Drop the route").click()
    dialog.get_by_role("textbox").fill("old-lake")
    dialog.get_by_role("button", name="Drop the route").click()
    expect(dialog.get_by_role("alert")).to_contain_text(LAKE)
    dialog.get_by_role("textbox").fill(LAKE)
    dialog.get_by_role("button", name="Drop the route").click()
    expect(console.page.get_by_role("row", name=LAKE)).to_have_count(0)
    assert LAKE not in {route["route"] for route in troubled.json("spool", "status")["routes"]}
    assert "route.drop" in console.actions()


def test_dead_letters_are_retried_and_discarded(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    If a rejected record is retried, it arrives. Discarding gives up only the remaining records that match the
    filters.
    """
    console = open_console(troubled)
    console.open("/delivery?tab=dead")
    expect(console.page.get_by_role("status").filter(has_text="rejected records")).to_have_text(
        f"{DEAD} of {DEAD} rejected records"
    )
    console.page.get_by_role("rowheader").get_by_role("link", name="1", exact=True).click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text("model toll-1 is not known")
    dialog.get_by_role("button", name="Retry", exact=True).click()
    dialog.get_by_role("button", name="Retry", exact=True).click()
    wait_until(lambda: CALLS - DEAD + 1 == len(troubled.records()), "the retried record in the record file")
    console.open("/delivery?tab=dead&status=400")
    console.page.get_by_role("button", name=f"Discard all {DEAD - 1}").click()
    console.page.get_by_role("dialog").get_by_role("textbox").fill("discard")
    console.page.get_by_role("dialog").get_by_role("button", name="Discard all that match").click()
    expect(console.page.get_by_text("No rejected records match")).to_be_visible()
    assert [] == troubled.json("spool", "dead", "list")["dead"]
    assert {"dead.retry", "dead.discard"} <= console.actions()


def test_a_dead_letter_is_edited_and_sent(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    When a rejected record is edited, invalid JSON and forbidden changes are reported. With the name that the
    upstream knows, the record arrives.
    """
    console = open_console(troubled)
    console.expects("400")
    console.open("/delivery?tab=dead&open=1")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name="Edit and retry").click()
    box, button = dialog.get_by_role("textbox"), dialog.get_by_role("button", name="Edit and retry")
    record = json.loads(box.input_value())
    for text, problem in (("{", "JSON"), (json.dumps({**record, "source": "mine"}), "source")):
        box.fill(text)
        button.click()
        expect(dialog.get_by_role("alert")).to_contain_text(problem)
    box.fill(json.dumps({**record, "request_model": "gpt-4o"}))
    button.click()
    expect(dialog).to_have_count(0)
    wait_until(lambda: CALLS - DEAD + 1 == len(troubled.records()), "the edited record in the record file")
    assert "gpt-4o" in {each["request_model"] for each in troubled.records()}
    assert "dead.edit" in console.actions()


@pytest.mark.proof
def test_a_replay_shows_its_number_before_it_begins(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    A replay first shows the number of records and a warning; after a confirmation, the records arrive a second
    time.
    """
    console = open_console(troubled)
    assert CALLS - DEAD == len(troubled.records())
    console.open(f"/delivery?open={ARCHIVE}")
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_text("More", exact=True).click()
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_label("Received since").fill("2026-01-01T00:00:00Z")
    dialog.get_by_role("button", name="Replay").click()
    expect(dialog.get_by_role("status")).to_contain_text("counts them twice")
    assert CALLS - DEAD == len(troubled.records())
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("status")).to_contain_text("Tollhouse sends")
    wait_until(lambda: CALLS - DEAD < len(troubled.records()), "the records a second time")


@pytest.mark.proof
def test_an_unconfirmed_delivery_is_settled(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    The details of a route link to the exact records that were sent. Once they are settled, none of them is
    unconfirmed.
    """
    console = open_console(troubled)
    console.open(f"/delivery?open={UPSTREAM}")
    console.page.get_by_role("link", name="Resolve unanswered deliveries").click()
    row = console.page.get_by_role("row", name="the connection ended")
    expect(row.get_by_role("cell").get_by_role("link")).to_have_text(UPSTREAM)
    row.get_by_role("rowheader").get_by_role("link").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog).to_contain_text('"element_name": "acme"')
    assert [] == console.audit()
    dialog.get_by_role("button", name="Mark as arrived").click()
    dialog.get_by_role("button", name="Mark as arrived").click()
    expect(console.page.get_by_text("No deliveries without an answer match")).to_be_visible()
    assert 0 == troubled.route(UPSTREAM)["unknown"]
    assert "streams.resolve" in console.actions()


@pytest.mark.proof
def test_events_without_a_mapping_are_named(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    For an event type without a stream, the page says that its events are stored but not sent, and shows the
    configuration lines that would send them.
    """
    console = open_console(troubled, role="operator")
    console.open("/streams")
    expect(console.page.get_by_role("row", name="page.rendered")).to_contain_text("stored, not forwarded")
    console.page.get_by_role("link", name="page.rendered").click()
    expect(console.page.get_by_role("dialog")).to_contain_text('[upstream.events."page.rendered"]')
    assert [] == console.audit()


@pytest.mark.proof
def test_forwarding_has_settings_to_copy(console: Console, tmp_path: Path) -> None:
    """
    The settings that forward records are one click away from Delivery, for each kind of receiver. Each
    configuration loads.
    """
    console.open("/delivery")
    page = console.page
    page.get_by_role("link", name="Forward", exact=True).last.click()
    # the first of these sections tests an address and a key
    expect(page.get_by_role("heading", level=2)).to_have_count(6)
    assert 1 == console.clicks()
    texts = page.locator("pre code").all_inner_texts()
    found = [loaded(tmp_path, text) for text in texts]
    assert ["https://cost.example.com", "", "", "", ""] == [each.upstream.base_url for each in found]
    assert ["otlp", "webhook", "ndjson", "focus"] == [each.destinations[0].type for each in found[1:]]
    console.resize(NARROW)
    assert max(0, console.overhang()) == 0
    assert console.audit() == []


def test_a_receiver_is_tested_before_its_lines_are_copied(
    house: Tollhouse, refusing: RefusingUpstream, open_console: OpenConsole, tmp_path: Path
) -> None:
    """
    Three clicks test a receiver: address, key, Test. A refused key is named. The configuration lines load, and no
    page and no audit row contains the key. Addresses of metadata services are refused. An operator gets no form.
    """
    secret = "k" * 40
    console = open_console(house)
    page = console.page
    console.open("/delivery?tab=forward")
    page.locator("input[name=url]").fill(refusing.url)
    page.locator("input[name=secret]").fill(secret)
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("The receiver refuses this address or key.")).to_be_visible()
    assert 3 == console.clicks()
    refusing.mended.set()
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_text("The receiver accepts records with this key.")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("delivery-first-receiver")
    lines = page.get_by_label("lines for the configuration").first.inner_text()
    assert refusing.url == loaded(tmp_path, lines).upstream.base_url
    assert secret not in page.get_by_role("main").inner_text()
    assert secret not in str(console.ask("/audit"))
    page.get_by_role("button", name="Reload the configuration").click()
    expect(page.get_by_text("The file has no changes.")).to_be_visible()
    assert "forwarding.test" in console.actions()
    console.resize(NARROW)
    assert max(0, console.overhang()) == 0
    console.expects("400")
    page.locator("input[name=url]").fill("https://169.254.169.254/")
    page.get_by_role("button", name="Test").click()
    expect(page.get_by_role("alert")).to_contain_text("to which Tollhouse sends nothing")
    other = open_console(house, role="operator")
    other.open("/delivery?tab=forward")
    expect(other.page.get_by_role("heading", name="Test a receiver")).to_have_count(0)


def loaded(directory: Path, text: str) -> Config:
    (directory / "tollhouse.toml").write_text(text)
    return load_config(directory / "tollhouse.toml", env={})


@pytest.mark.proof
def test_a_viewer_is_offered_no_action(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """On Delivery, a viewer sees the same rows, without buttons that the server would refuse."""
    console = open_console(troubled, role="viewer")
    console.open("/delivery?tab=dead&open=1")
    expect(console.page.get_by_role("dialog")).to_contain_text("model toll-1 is not known")
    expect(console.page.get_by_role("button", name="Retry")).to_have_count(0)
    expect(console.page.get_by_role("button", name="Discard")).to_have_count(0)
