"""
Connect: the person chooses a sender, gets its settings with a new key, and sees its first record with its cost.
"""

from __future__ import annotations

import os
import re
import urllib.request

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW
from tests.gateway.normalise.otlp.payloads import in_json, span, traces


def test_a_sender_is_connected_in_three_clicks(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Three clicks connect a sender: Connect, Claude Code, Create a key. The settings contain the key, and the page
    updates without a further click.
    """
    console = open_console(house)
    page = console.page
    console.open("/")
    page.get_by_role("link", name="Connect an assistant, a gateway or an SDK").click()
    assert [] == console.audit()
    console.screenshot("connect")
    page.get_by_role("link", name="Claude Code", exact=True).first.click()
    settings = page.get_by_label(re.compile("^settings"), exact=False).first
    expect(settings).to_contain_text("authorization=KEY")
    page.get_by_role("button", name="Create a key").click()
    expect(page.get_by_text("Waiting for the first record")).to_be_visible()
    text = settings.inner_text()
    [secret] = re.findall("authorization=(.+)", text)
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT={house.url}" in text and secret != "KEY"
    assert [] == console.audit()
    console.screenshot("connect-waits")
    words = ("send", "--example", "litellm", "--to", house.url)
    assert 0 == house.attempt(*words, config=False, env={**os.environ, "TOLLHOUSE_KEY": secret}).returncode
    expect(page.get_by_role("heading", name="It works. The first record has arrived")).to_be_visible()
    assert 3 == console.clicks()
    expect(page.get_by_text(re.compile(r"tokens in, .*\$"))).to_be_visible()
    assert [] == console.audit()
    console.screenshot("connect-arrived")
    page.get_by_role("link", name="See how it was counted").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert secret not in page.content()


@pytest.mark.proof
def test_the_test_of_an_export_is_shown_as_a_test(house: Tollhouse, open_console: OpenConsole) -> None:
    """The page shows the test span of the Claude Console, and still waits for the first call."""
    console = open_console(house)
    page = console.page
    console.open("/connect?tool=claude-api")
    page.get_by_role("button", name="Create a key").click()
    expect(page.get_by_text("Waiting for the first record")).to_be_visible()
    [secret] = re.findall(r"with the value (th_\S+)", page.locator(".steps").inner_text())
    payload = traces(span(1, {}, name="anthropic.test"), scope="com.anthropic.claude-platform")
    request = urllib.request.Request(
        f"{house.url}/v1/traces",
        data=in_json(payload),
        headers={"Authorization": secret, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200
    expect(
        page.get_by_text(re.compile("A test span of claude-api-.* arrived .* It is not counted"))
    ).to_be_visible()
    expect(page.get_by_text("Waiting for the first record")).to_be_visible()
    assert [] == console.audit()


def test_viewer_without_key_rights_sees_whom_to_ask(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    A viewer, who may not create keys, sees whom to ask. The page is checked on a phone in the dark theme. For
    senders that are not listed, it points to OpenTelemetry.
    """
    console = open_console(house, role="viewer", viewport=NARROW, color_scheme="dark")
    page = console.page
    console.open("/connect")
    assert console.audit() == []
    assert console.overhang() <= 0
    choices = page.locator("ul.choices")
    expect(choices.first.get_by_role("link")).to_have_count(7)
    expect(choices.first.get_by_role("link").last).to_have_text("Anything else: OpenTelemetry")
    page.get_by_label("Find").fill("nothing of this name")
    page.get_by_role("link", name="OpenTelemetry SDKs").click()
    expect(page.get_by_text("Somebody who manages API keys can create it")).to_be_visible()
    expect(page.get_by_role("button", name="Create a key")).to_have_count(0)
    console.screenshot("connect-phone-dark")
    assert console.audit() == []
    assert console.overhang() <= 0
