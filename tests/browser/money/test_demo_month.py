"""
The console offers a demo month while no record has arrived, shows it separately, and removes it completely.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Route, expect

from gateway.service.demo.note import DemoNote, write_note
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, Console
from tests.waiting import wait_until


def loaded(console: Console) -> None:
    """Load a month from the empty Overview, in one click."""
    console.open("/")
    console.page.get_by_role("button", name="Load a demo month").click()
    expect(console.page.get_by_role("complementary", name="Demo month")).to_be_visible()
    console.settle()


def folders(house: Tollhouse) -> list[str]:
    return sorted(path.name for path in (house.directory / "tollhouse-data").glob("demo*"))


@pytest.mark.proof
def test_a_demo_month_is_loaded_and_removed(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    One click shows a demo month under a banner, and another removes it. Demo records never mix with real records.
    """
    console = open_console(house)
    loaded(console)
    assert console.page.url.partition("#")[0] == f"{house.url}/console/demo/"
    expect(console.page.get_by_role("heading", name="Models last 30 days")).to_be_visible()
    assert [] == console.audit()
    console.screenshot("demo-month")
    [dearest] = {row["pull_request"] for row in console.ask("/demo/report?by=pull_request&top=1")["rows"]} - {
        None,
        "(other)",
    }
    unit = f"/work?unit=pull_request&id={quote(dearest)}"
    for page in ("/costs?by=team", "/calls", "/reconciliation", unit):
        console.page.goto(f"{house.url}/console/demo/#{page}")
        console.settle()
        expect(console.page.locator("main tbody tr, main ul li").first).to_be_visible()
        expect(console.page.get_by_role("alert")).to_have_count(0)
    assert [] == house.json("spool", "status")["topics"]
    assert 403 == refused(console, "POST", "/demo/views")
    console.expects("404")  # the page may send requests while the month is deleted
    console.page.get_by_role("button", name="Remove the demo month").click()
    expect(console.page.get_by_role("button", name="Load a demo month")).to_be_visible()
    wait_until(lambda: not folders(house), "the folder is deleted")
    assert {"demo.load", "demo.remove"} <= console.actions()
    assert "no_demo" == console.ask("/demo/overview")["error"]["type"]


def refused(console: Console, method: str, path: str) -> int:
    """Send a change with a valid session and CSRF token; return the status."""
    token = console.ask("/session")["session"]["csrf_token"]
    headers = {"X-CSRF-Token": token, "Content-Type": "application/json"}
    address = f"{console.url}/console/api{path}"
    return console.context.request.fetch(address, method=method, headers=headers, data="{}").status


@pytest.mark.proof
def test_demo_month_is_not_offered_once_real_records_exist(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """Once a record has arrived, the Overview mentions a loaded demo month, and no new one can be loaded."""
    console = open_console(house, viewport=NARROW)
    loaded(console)
    assert console.overhang() <= 0
    console.expects("ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE")
    house.stop()
    house.start()
    key = house.directory / "key"
    key.write_text(house.key("gateway"))
    house.run("send", "--example", "litellm", "--to", house.url, "--key-file", str(key), config=False)
    console = open_console(house, viewport=NARROW)
    wait_until(lambda: house.json("spool", "status")["topics"][0]["accepted"], "the record is counted")
    console.open("/")
    expect(console.page.get_by_text("A demo month is loaded.")).to_be_visible()
    assert [] == console.audit()
    assert console.overhang() <= 0
    console.page.get_by_role("button", name="Remove the demo month").click()
    expect(console.page.get_by_role("heading", name="A demo month")).to_have_count(0)
    expect(console.page.get_by_role("button", name="Load a demo month")).to_have_count(0)
    wait_until(lambda: not folders(house), "the folder is deleted")
    assert 409 == refused(console, "POST", "/demo")


@pytest.mark.proof
def test_who_may_not_change_the_installation_is_not_offered_one(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """A viewer sees how to connect a sender, and the server refuses to load a demo month."""
    console = open_console(house, role="viewer")
    console.open("/")
    expect(console.page.get_by_text("No records yet")).to_be_visible()
    expect(console.page.get_by_role("button", name="Load a demo month")).to_have_count(0)
    assert 403 == refused(console, "POST", "/demo")


@pytest.mark.proof
def test_a_demo_month_that_fails_says_so(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    While a demo month loads, the page says so. After a failure it shows the server's message and the button.
    """
    console = open_console(house)
    console.expects("503")
    failure = {"error": {"type": "demo_failed", "message": "the demo month could not be loaded"}}

    def fail(route: Route) -> None:
        expect(console.page.get_by_text("Creating a month of calls.")).to_be_visible()
        route.fulfill(status=503, content_type="application/json", body=json.dumps(failure))

    console.open("/")
    console.page.route("**/api/demo", fail)
    console.page.get_by_role("button", name="Load a demo month").click()
    expect(console.page.get_by_role("alert")).to_contain_text("could not be loaded")
    expect(console.page.get_by_role("button", name="Load a demo month")).to_be_visible()
    assert not (Path(house.directory) / "tollhouse-data/demo").exists()


def test_a_demo_directory_says_that_it_is_made_up(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    On a directory that `tollhouse demo` filled, every page of the console has a banner with the planted problems.
    """
    house.stop()
    write_note(house.data, DemoNote(planted=["a key that nobody uses", "an unused seat"]))
    house.start()
    console = open_console(house)
    banner = console.page.get_by_role("complementary", name="Demo")
    for page in ("/", "/insights"):
        console.open(page)
        banner.get_by_text("2 problems are planted").click()
        expect(banner.get_by_text("a key that nobody uses")).to_be_visible()
    assert [] == console.audit(is_framed=True)
