"""Streams and events: types of usage events, and the newest events of a type."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.request import Request, urlopen

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


def test_the_newest_events_of_a_type(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    The list of types links to the events of one, and an event to its stored content. New events appear
    without a reload.
    """
    console = open_console(house)
    page, dialog, rows = console.page, console.page.get_by_role("dialog"), console.page.locator("tbody tr")
    console.open("/")
    page.get_by_role("button", name="live").click()
    console.open("/streams")
    expect(page.get_by_role("heading", name="No usage events yet")).to_be_visible()
    send(house, "store")
    page.get_by_role(
        "button", name="paused"
    ).click()  # the page also shows events that were sent before it connected
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


UPSTREAM = """
[upstream]
base_url = "http://127.0.0.1:9"
"""


def test_a_type_is_mapped_with_a_preview_of_stored_events(
    installations: Any, open_console: OpenConsole
) -> None:
    """
    Three clicks map an event type to a stream: Map to a stream, the amount, Map to a stream. The stream then has
    the sum of new events, and Replay adds the earlier ones. A viewer gets the lines for the configuration instead.
    """
    house = installations(more=UPSTREAM)
    house.start()
    events = [{"id": str(n), "type": "order.made", "subject": "ada", "data": {"pages": n}} for n in (1, 2, 3)]
    key = house.key("shop", "--scope", "events_v1:create_event")
    headers = {"Authorization": key, "Content-Type": "application/json"}

    def send_events(bodies: list[dict[str, Any]]) -> str:
        with urlopen(Request(f"{house.url}/v1/events", json.dumps(bodies).encode(), headers)) as answer:
            return str(answer.read().decode())

    assert "page Streams and events" in send_events(events)
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/streams?open=order.made")
    viewer = open_console(house, role="viewer")
    viewer.open("/streams?open=order.made")
    expect(viewer.page.get_by_role("dialog")).to_contain_text('[upstream.events."order.made"]')
    dialog.get_by_role("button", name="Map to a stream").click()
    expect(dialog.get_by_role("status")).to_contain_text(
        "All of the newest 3 stored events have an amount and an element: 3 in total."
    )
    dialog.locator("select[name=value]").select_option("pages")
    expect(dialog.get_by_role("status")).to_contain_text("6 in total")
    expect(dialog.locator("input[name=stream]")).to_have_value("order.made")
    assert [] == console.audit()
    console.screenshot("streams-mapping")
    dialog.get_by_role("button", name="Map to a stream").click()
    expect(dialog).to_contain_text("The mapping is set.")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("tbody tr")).to_contain_text("unit-cost stream order.made")
    assert "hint" not in send_events([{**events[0], "id": "4"}])
    console.open("/streams?tab=streams")
    expect(page.locator("tbody tr")).to_contain_text("order.made")
    assert "event_mapping.create" in console.actions()
    console.open("/streams?open=order.made")
    dialog.get_by_role("button", name="Delete the mapping").click()
    dialog.get_by_role("button", name="Delete the mapping").click()
    expect(page.locator("tbody tr")).to_contain_text("stored, not forwarded")
