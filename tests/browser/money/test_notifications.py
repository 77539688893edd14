"""Notifications: a channel is tested, and failed notifications are sent again or discarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW
from tests.clients.loopback import Loopback, body_of

CHANNEL = """
[[notify]]
name = "alertmanager"
type = "alertmanager"
url = "{url}"
"""


class Receiver(Loopback):
    """An Alertmanager that answers everything with `status` and counts requests."""

    def __init__(self) -> None:
        self.status = 200
        self.bodies: list[bytes] = []
        super().__init__(_handler(lambda: self.status, self.bodies.append))


def _handler(status: Callable[[], int], got: Callable[[bytes], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got(body_of(self))
            self.send_response(status())
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def telling(installations: Any, receiver: Receiver) -> Tollhouse:
    """A running Tollhouse with one channel."""
    tollhouse: Tollhouse = installations(more=CHANNEL.format(url=receiver.url))
    tollhouse.start()
    return tollhouse


@pytest.mark.proof
def test_a_channel_is_tested(telling: Tollhouse, receiver: Receiver, open_console: OpenConsole) -> None:
    """
    A refused notification shows the receiver's response. If it is sent again, it arrives. If it is discarded, it is
    never sent.
    """
    console = open_console(telling, role="operator")
    page, dialog, row = (
        console.page,
        console.page.get_by_role("dialog"),
        console.page.locator("main tbody tr"),
    )
    console.open("/notifications")
    expect(page.get_by_role("heading", name="No notifications yet")).to_be_visible()
    receiver.status = 422
    for _ in range(2):
        console.open("/notifications?tab=channels")
        row.get_by_role("link").click()
        assert [] == console.audit()
        dialog.get_by_role("button", name="Test").click()
        dialog.get_by_role("button", name="Test").click()
        dialog.get_by_role("link", name="See whether it arrived").click()
        expect(dialog.get_by_text("Nothing has happened")).to_be_visible()
        console.open("/notifications")
    expect(row.filter(has_text="failed")).to_have_count(2)
    console.screenshot("notifications")
    row.first.get_by_role("link").click()
    expect(dialog).to_contain_text("422")
    assert [] == console.audit()
    console.screenshot("notifications-open")
    receiver.status = 200
    dialog.get_by_role("button", name="Send again").click()
    dialog.get_by_role("button", name="Send again").click()
    console.away()
    expect(row.filter(has_text="sent")).to_have_count(1)
    row.filter(has_text="failed").get_by_role("link").click()
    dialog.get_by_role("button", name="Discard").click()
    dialog.get_by_role("button", name="Discard").click()
    expect(row.filter(has_text="discarded")).to_have_count(1)
    assert 3 == len(receiver.bodies)


@pytest.mark.proof
def test_a_paused_channel_is_named_where_it_is_chosen(
    telling: Tollhouse, receiver: Receiver, open_console: OpenConsole
) -> None:
    """
    If the receiver refuses the secret of a channel, Budgets and Scheduled reports say so, and link to the reason.
    """
    receiver.status = 401
    telling.run("notifications", "channels", "test", "alertmanager")
    console = open_console(telling)
    console.open("/budgets")
    words = console.page.get_by_text("The channel alertmanager is paused, so it sends nothing.")
    expect(words).to_be_visible()
    assert [] == console.audit()
    words.get_by_role("link", name="Show why").click()
    expect(console.page.get_by_role("dialog", name="alertmanager")).to_contain_text("401")
    viewer = open_console(telling, role="viewer")
    viewer.open("/budgets")
    expect(viewer.page.get_by_text("The channel alertmanager is paused")).to_be_visible()


@pytest.mark.proof
def test_channels_on_a_phone(telling: Tollhouse, open_console: OpenConsole) -> None:
    """On Notifications, a viewer sees the state of each channel and no button."""
    telling.run("notifications", "channels", "test", "alertmanager")
    console = open_console(telling, role="viewer", viewport=NARROW, color_scheme="dark")
    console.open("/notifications?tab=channels")
    expect(console.page.locator("main tbody tr")).to_contain_text("running")
    assert console.audit() == []
    assert console.overhang() <= 0
    console.page.locator("main tbody tr").get_by_role("link").click()
    expect(console.page.get_by_role("dialog").get_by_role("button", name="Test")).to_have_count(0)
    console.screenshot("notifications-channels-phone-dark")


def test_a_channel_is_made_tested_and_deleted(
    house: Tollhouse, receiver: Receiver, open_console: OpenConsole
) -> None:
    """Three clicks add a channel: Add, its address, Add. No page and no response contains its secret."""
    console = open_console(house)
    page, dialog, row = (
        console.page,
        console.page.get_by_role("dialog"),
        console.page.locator("main tbody tr"),
    )
    console.open("/notifications?tab=channels")
    page.get_by_role("button", name="Add a channel").click()
    assert [] == console.audit()
    console.screenshot("channels-new")
    console.expects("400")
    dialog.get_by_label("Name").fill("team-chat")
    dialog.get_by_label("Address of the incoming webhook").fill("not-an-address")
    dialog.get_by_role("button", name="Add a channel").click()
    expect(dialog.get_by_role("alert")).to_contain_text("secret must begin with http:// or https://")
    dialog.get_by_label("Address of the incoming webhook").fill(f"{receiver.url}/s3cret")
    dialog.get_by_role("button", name="Add a channel").click()
    expect(row).to_contain_text("console")
    console.screenshot("channels")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Test").click()
    dialog.get_by_role("button", name="Test").click()
    dialog.get_by_role("link", name="See whether it arrived").click()
    expect(dialog.get_by_text("Nothing has happened")).to_be_visible()
    console.open("/notifications")
    expect(row.filter(has_text="sent")).to_have_count(1)
    assert 1 == len(receiver.bodies)
    console.open("/notifications?tab=channels")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Address of the incoming webhook")).to_have_value("")
    answers = [console.ask("/notification-channels/team-chat"), console.ask("/audit")]
    assert "s3cret" not in page.content() + str(answers)
    dialog.get_by_role("button", name="Close").click()
    dialog.get_by_role("button", name="Delete").click()
    dialog.get_by_role("textbox").fill("team-chat")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="No channels yet")).to_be_visible()


def test_without_a_channel_it_says_how_to_make_one(house: Tollhouse, open_console: OpenConsole) -> None:
    """Without a channel, the page shows lines to copy into the configuration file."""
    console = open_console(house)
    console.open("/notifications?tab=channels")
    box = console.page.get_by_label("a channel of the configuration", exact=True)
    assert "[[notify]]" == box.inner_text().splitlines()[0]
    assert [] == console.audit()
