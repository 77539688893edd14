"""
Calls and the live tail: the newest records, the details of one, and records that arrive while the page is open.
"""

from __future__ import annotations

import csv
import io
import re
import secrets

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console
from tests.rounds import part

HELD_MS = 7000  # longer than the interval at which a list refreshes


def test_a_filter_is_in_the_address(console: Console) -> None:
    """
    A filter chosen on the page Calls appears in the address. A reload shows the same rows, and Back removes the
    filter.
    """
    console.open("/calls")
    page, rows = console.page, console.page.locator("tbody tr")
    # The rows must be visible first, so that their disappearance shows that the response arrived.
    expect(rows.filter(has_text="support")).not_to_have_count(0)
    page.get_by_label("Add a filter").select_option("team")
    page.get_by_label("Value of team").select_option("search")
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    expect(page).to_have_url(re.compile(r"#/calls\?team=search$"))
    expect(rows.filter(has_text="support")).to_have_count(0)
    shown = rows.all_inner_texts()
    page.reload()
    expect(rows).to_have_text(shown, use_inner_text=True)
    page.go_back()
    expect(page.get_by_role("link", name="team: search")).to_have_count(0)


@pytest.mark.parametrize("filters", part(["", "?team=search&status=ok", "?sort=cost&from=now-7d"], every=2))
def test_the_csv_of_calls_has_every_row_that_the_page_counts(console: Console, filters: str) -> None:
    """The button names the number of calls, and its file has a row for each, also for those that no page shows yet."""
    console.open(f"/calls{filters}")
    button = console.page.get_by_role("link", name=re.compile("^CSV of "))
    count = int(re.sub("[^0-9]", "", button.inner_text()))
    assert f"of {count:,} records" in console.page.get_by_role("main").inner_text()
    assert count > console.page.locator("tbody tr").count()
    with console.page.expect_download() as download:
        button.click()
    assert "tollhouse-records.csv" == download.value.suggested_filename
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert count == len({row["id"] for row in rows}) == len(rows)


def test_an_address_with_the_id_of_a_call_opens_it(console: Console) -> None:
    """
    An address with `id` opens the call, also without its row in the list, and so does the filter of this name. The
    operator API lists the call with this id.
    """
    last = console.ask("/records?kind=inference&sort_key=start_time&sort_order=asc&limit=1")["records"][0]
    console.open(f"/calls?id={last['id']}")
    page = console.page
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=2)).to_contain_text(last["request_model"])
    console.has_address(f"open={last['id']}")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.get_by_label("Add a filter").select_option("id")
    page.get_by_label("Value of id").fill(last["id"])
    page.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("heading", level=2)).to_contain_text(last["request_model"])
    [found] = console.ask(f"/records?id={last['id']}")["records"]
    assert last == found


def test_call_panel_shows_time_and_price_lines_with_reasons(console: Console) -> None:
    """
    A click on a call's row shows its time, the lines of the estimate with reasons, and the fields that are never
    stored.
    """
    console.open("/calls?team=search&cost_source=estimated&status=ok")
    expect(console.page.get_by_text("Prompts are dropped").first).to_be_visible()
    console.page.locator("tbody a").first.click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", level=2)).to_have_text(
        re.compile(r"^[\w.:/-]+, \$[\d.,]+, \d+ \w+ \d\d:\d\d$")
    )
    expect(dialog.get_by_text("start time", exact=True)).to_be_hidden()
    dialog.get_by_text("All fields").click()
    expect(dialog.get_by_text("start time", exact=True)).to_be_visible()
    expect(dialog.get_by_role("row", name="output")).to_contain_text("$")
    expect(dialog).to_contain_text("calculated from its tokens with the price list")
    expect(dialog.get_by_role("listitem").first).to_contain_text("began")
    assert [] == console.audit()


def test_a_call_shows_what_became_known_later(house: Tollhouse, open_console: OpenConsole) -> None:
    """Each correction is shown with its difference, and the call's cost includes all corrections."""
    id, key, console = "chatcmpl-" + secrets.token_hex(12), house.key("sender"), open_console(house)
    late = span(id)
    first = {**late, "attributes": [each for each in late["attributes"] if ".usage." not in each["key"]]}
    for report in (first, late):
        assert 200 == post(house.url, request([report]), key).status
    [record] = console.ask("/records?kind=inference")["records"]
    console.open(f"/calls?open={record['id']}")
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("row", name="late usage")).to_contain_text("120")
    expect(dialog.get_by_text("With these corrections, the call costs $")).to_be_visible()
    assert [] == console.audit()


def test_what_a_record_names_leads_to_it(busy: Tollhouse, open_console: OpenConsole) -> None:
    """Team, user and key link to their costs, and the key that sent the record links to its page."""
    key, console = busy.key("billing team"), open_console(busy)
    assert 200 == post(busy.url, request([span("chatcmpl-" + secrets.token_hex(12))]), key).status
    [record] = console.ask("/records?sender=billing team")["records"]
    console.open(f"/calls?open={record['id']}")
    page, dialog = console.page, console.page.get_by_role("dialog")
    dialog.get_by_role("link", name="billing team").first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("API Keys")
    expect(dialog).to_contain_text("billing team")
    [record] = console.ask("/records?team=search&limit=1")["records"]
    console.open(f"/calls?open={record['id']}")
    assert [] == console.audit(within="dialog")
    dialog.get_by_role("link", name="search", exact=True).first.click()
    expect(page.get_by_role("link", name="team: search")).to_be_visible()
    console.has_address(f"from={record['start_time'][:10]}")
    looking = open_console(busy, role="viewer")
    looking.open(f"/calls?open={record['id']}")
    expect(
        looking.page.get_by_role("dialog").get_by_role("link", name="search", exact=True).first
    ).to_be_visible()


def test_a_record_is_found_by_its_id(console: Console) -> None:
    """The search on Calls finds a record that is not on the shown page."""
    oldest = console.ask("/records?sort_order=asc&limit=1")["records"][0]["id"]
    console.open("/")
    console.page.keyboard.press("/")
    console.page.get_by_role("searchbox").fill(oldest)
    console.page.keyboard.press("Enter")
    expect(console.page.get_by_role("dialog").get_by_role("listitem").last).to_contain_text(
        "was stored on disk as number 1 "
    )


def test_record_shows_its_state_per_route(troubled: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page shows a record's state per route: set aside on the first, being retried with an error on the
    second, and waiting on the third.
    """
    console = open_console(troubled)
    console.open("/delivery?tab=dead&open=1")
    console.page.get_by_role("link", name="Show the record's history").click()
    dialog = console.page.get_by_role("dialog")
    expect(
        dialog.get_by_role("row", name="archive/ai-telemetry rejected model toll-1 is not known")
    ).to_be_visible()
    expect(dialog.get_by_role("row", name="upstream/ai-telemetry open 403")).to_be_visible()
    expect(dialog.get_by_role("row", name="old-lake/ai-telemetry waiting")).to_be_visible()


def test_records_arrive_live_and_wait_for_the_reader(house: Tollhouse, open_console: OpenConsole) -> None:
    """A new call appears without a reload. While the pointer is on a row, new records wait and nothing moves."""
    key = house.key("sender")
    console = open_console(house)
    console.open("/tail")
    expect(console.page.get_by_role("main").locator(".state").first).to_contain_text("live")
    rows = console.page.locator("tbody tr")
    send(house, key, "gpt-4.1")
    expect(rows).to_have_count(1)
    rows.first.hover()
    place = console.still(rows.first)
    send(house, key, "gpt-4o")
    expect(console.page.get_by_role("button", name="Show 1 new")).to_be_visible()
    assert console.still(rows.first) == place
    assert rows.count() == 1
    console.away()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("gpt-4o")
    assert [] == console.audit()


@pytest.mark.proof
def test_a_list_waits_for_the_reader(house: Tollhouse, open_console: OpenConsole) -> None:
    """While the pointer is on a row, the list adds no new records. Otherwise it adds them without a click."""
    key = house.key("sender")
    send(house, key, "gpt-4.1")
    console = open_console(house)
    console.open("/calls")
    rows = console.page.locator("tbody tr")
    expect(rows).to_have_count(1)
    rows.first.hover()
    send(house, key, "gpt-4o")
    console.page.wait_for_timeout(HELD_MS)
    assert 1 == rows.count()
    console.away()
    expect(rows).to_have_count(2)


@pytest.mark.proof
def test_rows_that_were_on_their_way_wait_for_the_reader(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    If an update of the list began before the pointer came to a row, it changes nothing until the pointer leaves the
    row.
    """
    key = house.key("sender")
    send(house, key, "gpt-4.1")
    console = open_console(house)
    console.open("/calls")
    page, rows = console.page, console.page.locator("tbody tr")
    expect(rows).to_have_count(1)
    held: list[Route] = []
    page.route("**/api/records?*", lambda route: held.append(route))
    with page.expect_request("**/api/records?*"):
        send(house, key, "gpt-4o")
    rows.first.hover()
    page.unroute_all()  # let the held requests continue
    console.settle()
    assert 1 == rows.count()
    console.away()
    expect(rows).to_have_count(2)


@pytest.mark.proof
def test_the_tail_is_filtered_and_paused(house: Tollhouse, open_console: OpenConsole) -> None:
    """The live tail omits records that do not match the filter, and shows no record while it is paused."""
    key = house.key("sender")
    console = open_console(house)
    console.open("/tail?model=gpt-4o")
    state = console.page.get_by_role("main").locator(".state").first
    expect(state).to_contain_text("live")
    for model in ("gpt-4.1", "gpt-4o"):
        send(house, key, model)
    rows = console.page.locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("gpt-4o")
    console.page.keyboard.press("r")
    expect(state).to_contain_text("paused")
    send(house, key, "gpt-4o")
    house.wait_until_drained()
    expect(rows).to_have_count(1)


def send(house: Tollhouse, key: str, model: str) -> None:
    call = span(
        "chatcmpl-" + secrets.token_hex(12), gen_ai__request__model=model, gen_ai__response__model=model
    )
    assert 200 == post(house.url, request([call]), key).status
