"""Streams and events: types of usage events, and the newest events of a type."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Route, expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post
from tests.browser.conftest import OpenConsole


def send(house: Tollhouse, types: str) -> None:
    """Send one usage event of each type, one after the other."""
    key = house.key(f"events-{types}", "--scope", "events_v1:create_event")
    body = json.dumps(
        [{"id": f"{n}-{types}", "type": type, "subject": "ada"} for n, type in enumerate(types.split())]
    )
    headers = {"Authorization": key, "Content-Type": "application/json"}
    with urlopen(Request(f"{house.url}/v1/events", body.encode(), headers)) as answer:
        assert 200 == answer.status


@pytest.mark.proof
def test_the_newest_events_of_a_type(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The list of types links to the events of one, and an event to its stored content. New events appear
    without a reload.
    """
    console = open_console(house)
    page, dialog, rows = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/")
    console.do("Pause updates")
    console.open("/streams")
    expect(page.get_by_role("heading", name="No usage events yet")).to_be_visible()
    send(house, "store")
    console.do("Resume updates")  # the page also shows events that were sent before it connected
    expect(rows).to_have_count(1)

    held: list[Route] = []
    page.route("**/api/changes", lambda route: held.append(route))
    page.reload()
    expect(rows).to_have_count(1)
    while not held:
        page.wait_for_timeout(50)
    send(house, "login login")
    held.pop().continue_()
    expect(rows).to_have_count(2)
    page.unroute_all()
    rows.filter(has_text="login").get_by_role("link").click()
    dialog.get_by_role("link", name="Show the newest events").click()
    expect(page.get_by_role("status").filter(has_text="2 of 2 usage events")).to_be_visible()
    console.screenshot("streams-newest")
    console.away()
    send(house, "login")
    expect(rows).to_have_count(3)
    rows.first.get_by_role("link").click()
    expect(dialog).to_contain_text("ada")
    assert [] == console.audit()


def test_a_metric_stream_leads_to_what_one_of_it_costs(house: Tollhouse, open_console: OpenConsole) -> None:
    """The list of streams links to Costs with the stream as measure. A stream of costs has no such link."""
    key = house.key("streams", "--scope", "unit-cost_v1:manage_telemetry_records")
    record = {"timestamp": datetime.now(UTC).date().isoformat(), "granularity": "DAILY", "value": 2}
    for path, more in (("metric/orders", {}), ("allocation/shares", {"element_name": "acme"})):
        body = json.dumps({"records": [{**record, **more}]}).encode()
        assert 200 == post(house.url, body, key, f"/unit-cost/v1/telemetry/{path}/sum").status
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/streams?tab=streams&open=shares")
    expect(dialog).to_contain_text("allocation")
    expect(dialog.get_by_role("link", name="Cost per unit")).to_have_count(0)
    console.open("/streams?tab=streams&open=orders")
    assert [] == console.audit()
    dialog.get_by_role("link", name="Cost per unit").click()
    expect(page.get_by_label("Measure")).to_have_value("unit:stream:orders")


MAPPED = """
[upstream]
base_url = "http://127.0.0.1:9"
[upstream.events."order.made"]
stream = "orders"
value = "pages"
"""


def test_a_mapped_type_leads_to_its_stream(installations: Any, open_console: OpenConsole) -> None:
    """
    The list of types names the stream of a mapped type, and links to it. For another type, the sender's response
    and the page name the lines of the configuration that would send it.
    """
    house = installations(more=MAPPED)
    house.start()
    key = house.key("shop", "--scope", "events_v1:create_event")
    headers = {"Authorization": key, "Content-Type": "application/json"}
    answers = []
    for type in ("order.made", "login"):
        body = json.dumps({"id": "1", "type": type, "subject": "ada", "data": {"pages": 2}}).encode()
        with urlopen(Request(f"{house.url}/v1/events", body, headers)) as answer:
            answers.append(answer.read().decode())
    assert ["hint" in answer for answer in answers] == [False, True]
    assert "[upstream.events]" in answers[1]
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/streams?open=login")
    expect(page.locator("tbody tr").filter(has_text="login")).to_contain_text("stored, not forwarded")
    expect(dialog).to_contain_text('[upstream.events."login"]')
    console.open("/streams?open=order.made")
    expect(page.locator("tbody tr").filter(has_text="order.made")).to_contain_text("unit-cost stream orders")
    assert [] == console.audit()
    dialog.get_by_role("link", name="orders").click()
    expect(page.locator("tbody tr")).to_contain_text("orders")
