"""The console works behind a proxy that adds a path prefix."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.clients.loopback import Loopback, body_of

PREFIX = "/tools/tollhouse"


class Proxy(Loopback):
    """Forwards requests under PREFIX without the prefix."""

    def __init__(self, url: str) -> None:
        super().__init__(_passing(urlsplit(url).netloc))


def _passing(netloc: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            connection = HTTPConnection(netloc)
            if not self.path.startswith(PREFIX):
                self.send_error(404)
                return
            connection.request(
                self.command, self.path.removeprefix(PREFIX), body_of(self), dict(self.headers)
            )
            answer = connection.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name not in ("Transfer-Encoding", "Connection"):
                    self.send_header(name, value)
            self.end_headers()
            try:
                while part := answer.read1():
                    self.wfile.write(part)
            except ConnectionError:
                self.close_connection = True  # the browser closed an event stream
            finally:
                connection.close()

        do_GET = do_POST = do_PATCH = do_DELETE = pass_on

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler


@pytest.fixture
def proxy(house: Tollhouse) -> Iterator[Proxy]:
    proxy = Proxy(house.url)
    yield proxy
    house.stop()  # the stop ends the event streams that the proxy forwards
    proxy.close()


def test_console_works_under_a_path_prefix(house: Tollhouse, proxy: Proxy, open_console: OpenConsole) -> None:
    """
    Files, sign-in, data, changes and the event stream work under the prefix, and no request goes outside it.
    """
    console = open_console(house, url=proxy.url + PREFIX)
    console.listen()
    link = house.json("console", "link", "--role", "admin")["link"]
    console.page.goto(link.replace(house.url, console.url))
    expect(console.page.get_by_role("navigation", name="Pages")).to_be_attached()
    console.open("/keys")
    expect(console.page.get_by_role("button", name="live")).to_be_visible()
    console.page.get_by_role("button", name="Create a key").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("textbox").first.fill("behind")
    dialog.get_by_label("Send AI Telemetry", exact=True).check()
    dialog.get_by_role("button", name="Create a key").click()
    expect(dialog.get_by_label("the secret", exact=True)).to_be_visible()
    assert ["behind"] == [key["name"] for key in house.json("keys", "list")["keys"]]
    assert [] == [
        request.url
        for request in console.requests
        if PREFIX not in request.url and "blank" not in request.url
    ]
