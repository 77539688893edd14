"""The console as a container publishes it: on a separate address without TLS, opened over loopback."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, expect

from tests.browser.console import PATIENCE_MS
from tests.free_ports import free_port


def test_a_published_console_is_signed_in_to_over_loopback(installations: Any, browser: Browser) -> None:
    """
    The link comes from `console link --public`. With it, the browser stores the session cookie although the address
    has no https.
    """
    port = free_port()
    tollhouse = installations(
        server=f'operator_listen = "0.0.0.0:{port}"\noperator_plaintext = true', hold="1s"
    )
    tollhouse.start()
    link = tollhouse.run("console", "link", "--public", f"http://127.0.0.1:{port}").strip()
    page = browser.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(link)
    signed_in = page.get_by_role("navigation", name="Pages")
    expect(signed_in).to_be_attached()
    page.reload()
    expect(signed_in).to_be_attached()
    page.close()
