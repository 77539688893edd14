"""
API keys: an admin creates a key, copies its secret, changes and deletes it. Other roles can only view keys.
"""

from __future__ import annotations

import os
import re

import pytest
from playwright.sync_api import Locator, expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import NARROW, WIDE, Console
from tests.browser.test_calls import send
from tests.waiting import wait_until

NAME = re.compile("^Name")
ALL = ("minor", "moderate", "serious", "critical")


def accepted(house: Tollhouse, secret: str) -> bool:
    env = {**os.environ, "TOLLHOUSE_KEY": secret}
    sent = house.attempt("send", "--example", "litellm", "--to", house.url, "--again", config=False, env=env)
    return sent.returncode == 0


def created(console: Console, name: str, *grants: str) -> str:
    """Create a key on the open page; return the secret that it shows."""
    console.page.get_by_role("button", name="Create a key").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("textbox", name=NAME).fill(name)
    for grant in grants:
        if ":" in grant:
            dialog.get_by_label("Exact permissions").check()
        dialog.get_by_label(grant, exact=True).check()
    dialog.get_by_role("button", name="Create a key").click()
    return secret_of(dialog)


def secret_of(dialog: Locator) -> str:
    """Read the secret, which is shown once, and close the dialog."""
    secret = dialog.get_by_label("the secret", exact=True).inner_text()
    dialog.get_by_role("button", name="Close").click()
    return secret


def act(console: Console, key: str, action: str) -> Locator:
    """Open a key by its row and choose an action; return the confirmation dialog."""
    console.page.get_by_role("row", name=key).get_by_role("link").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("button", name=action, exact=True).click()
    return dialog


def test_a_key_is_made_used_seen_and_deleted(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Overview shows the first record of a new key without a reload. After the key is deleted by its exact name, it is
    refused.
    """
    console = open_console(house)
    console.open("/keys")
    secret = created(console, "laptop-ann", "Send AI Telemetry")
    expect(console.page.get_by_role("row", name="laptop-ann")).to_contain_text("Not In Use")
    expect(console.page.get_by_text(secret)).to_have_count(0)
    console.page.get_by_role("link", name="Overview").click()
    expect(console.page.get_by_text("No records yet")).to_be_visible()
    assert accepted(house, secret)
    expect(console.page.get_by_text("Spend in").first).to_be_visible()
    console.follow("API Keys")
    expect(console.page.get_by_role("row", name="laptop-ann")).not_to_contain_text("Not In Use")
    dialog = act(console, "laptop-ann", "Delete")
    dialog.get_by_role("textbox").fill("Laptop-Ann")
    dialog.get_by_role("button", name="Delete").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Type laptop-ann exactly")
    assert accepted(house, secret)
    dialog.get_by_role("textbox").fill("laptop-ann")
    dialog.get_by_role("button", name="Delete").click()
    expect(console.page.get_by_role("row", name="laptop-ann")).to_have_count(0)
    expect(console.page.get_by_role("dialog")).to_have_count(0)
    assert not accepted(house, secret)
    assert {"key.create", "key.delete"} <= console.actions()


def test_a_key_has_use_cases_or_scopes(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    In the form of a key, choosing scopes clears use cases, and vice versa. A key with neither is refused, and the
    form retains its values.
    """
    console = open_console(house)
    console.expects("400")
    console.open("/keys")
    console.page.get_by_role("button", name="Create a key").click()
    dialog = console.page.get_by_role("dialog")
    dialog.get_by_role("textbox", name=NAME).fill("reader")
    dialog.get_by_role("textbox", name="Labels").fill("team=search")
    dialog.get_by_label("Send AI Telemetry", exact=True).check()
    dialog.get_by_label("Exact permissions").check()
    dialog.get_by_role("button", name="Create a key").click()
    expect(dialog.get_by_role("alert")).to_contain_text("at least one scope")
    assert [] == console.audit()
    dialog.get_by_label("Filter scopes").fill("read_costs")
    expect(dialog.get_by_label("billing:read_dimensions", exact=True)).to_be_hidden()
    dialog.get_by_label("billing:read_costs", exact=True).check()
    dialog.get_by_role("button", name="Create a key").click()
    secret_of(dialog)
    key = house.json("keys", "show", "reader")["key"]
    assert key["use_cases"] == []
    assert key["scopes"] == ["billing:read_costs"]
    assert key["labels"] == {"team": "search"}


@pytest.mark.proof
def test_a_key_is_changed(house: Tollhouse, open_console: OpenConsole) -> None:
    """A key's name, use cases and state can change. A new secret can replace the old one at once."""
    console = open_console(house)
    console.open("/keys")
    first = created(console, "gateway", "events_v1:create_event")
    dialog = act(console, "gateway", "Edit")
    expect(dialog.get_by_label("events_v1:create_event", exact=True)).to_be_checked()
    dialog.get_by_role("textbox", name=NAME).fill("gateway-prod")
    dialog.get_by_label("By use case").check()
    dialog.get_by_label("Send AI Telemetry", exact=True).check()
    dialog.get_by_role("button", name="Edit").click()
    expect(console.page.get_by_role("row", name="gateway-prod")).to_contain_text("Send AI Telemetry")
    assert accepted(house, first)
    act(console, "gateway-prod", "Disable").get_by_role("button", name="Disable").click()
    expect(console.page.get_by_role("row", name="gateway-prod")).to_contain_text("Disabled")
    assert not accepted(house, first)
    act(console, "gateway-prod", "Enable").get_by_role("button", name="Enable").click()
    expect(console.page.get_by_role("row", name="gateway-prod")).to_contain_text("Enabled")
    act(console, "gateway-prod", "Rotate")
    dialog.get_by_label("Hours").fill("0")
    dialog.get_by_role("button", name="Rotate").click()
    second = secret_of(dialog)
    assert accepted(house, first) is False
    assert accepted(house, second) is True
    assert {"key.edit", "key.disable", "key.enable", "key.rotate"} <= console.actions()


@pytest.mark.proof
def test_a_key_expires(house: Tollhouse, open_console: OpenConsole) -> None:
    """Editing a key sets its expiry, the list shows it, and other edits do not change it. It can be removed."""
    console = open_console(house)
    console.open("/keys")
    created(console, "gateway", "events_v1:create_event")
    for typed, shown in (
        ("2100-01-31", "2100-02-01T00:00:00.000Z"),
        (None, "2100-02-01T00:00:00.000Z"),
        ("", None),
    ):
        dialog = act(console, "gateway", "Edit")
        if typed is not None:
            dialog.get_by_label("Expires").fill(typed)
        dialog.get_by_role("button", name="Edit").click()
        expect(dialog).to_have_count(0)
        assert shown == house.json("keys", "show", "gateway")["key"].get("expires_at")


@pytest.mark.proof
def test_an_expired_key_that_is_still_used(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Overview says that a key has expired and is still used, and leads to the key, which shows its state and the number
    of refused requests. With a later date, the key works again.
    """
    send(house, house.key("other"), "gpt-4o")
    secret = house.key("short", "--use-case", "Send AI Telemetry", "--expires-in", "1s")
    wait_until(lambda: house.asked("/keys/short")["key"]["state"] == "Expired", "the end of the key")
    assert not accepted(house, secret)
    refused = house.asked("/keys/short")["key"]["refused_since_expiry"]
    console = open_console(house)
    console.open("/")
    attention = console.page.locator("details.attention")
    expect(attention).to_contain_text("The API key short expired on")
    attention.locator("summary").click()
    attention.get_by_role("link", name="Show key").click()
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_text("Expired", exact=False).first).to_be_visible()
    expect(dialog.get_by_text("Refused since expiry")).to_be_visible()
    expect(dialog.locator("div", has_text="Refused since expiry").last).to_contain_text(str(refused))
    assert [] == console.audit(ALL, within="dialog")
    dialog.get_by_role("button", name="Edit", exact=True).click()
    dialog.get_by_label("Expires").fill("2100-01-31")
    dialog.get_by_role("button", name="Edit").click()
    expect(console.page.get_by_role("row", name="short")).to_contain_text("Enabled")
    assert accepted(house, secret)


def test_a_leaked_key_is_disabled_and_what_came_in_is_shown(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """
    Two clicks disable a leaked key: the key, then the button. The key's panel shows how much it sent, from
    which tools and when. The linked page shows only the calls of that key, with the most expensive one click
    away. A key without calls shows none.
    """
    leaked = house.key("leaked")
    send(house, leaked, "gpt-4.1")
    send(house, house.key("other"), "gpt-4o")
    console = open_console(house)
    console.open("/keys")
    page = console.page
    page.get_by_role("row", name="leaked").get_by_role("link").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Sent with this key")).to_be_visible()
    expect(dialog.get_by_text("otel (1)")).to_be_visible()
    assert [] == console.audit(ALL, within="dialog")
    console.resize(NARROW)
    assert 0 == console.overhang()
    console.resize(WIDE)
    dialog.get_by_role("button", name="Disable and show its calls").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Costs")
    expect(page.get_by_role("link", name="Tollhouse key: leaked")).to_be_visible()
    assert 2 == console.clicks()
    expect(page.locator("tfoot")).to_contain_text("Total of 1")
    console.choose("otel", "Top calls")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("gpt-4.1")
    assert "Disabled" == house.json("keys", "show", "leaked")["key"]["status"]
    assert "Enabled" == house.json("keys", "show", "other")["key"]["status"]
    house.json("keys", "create", "--name", "unused", "--use-case", "Send AI Telemetry", "--json")
    console.open("/keys?open=unused")
    expect(page.get_by_text("No call was sent with unused.")).to_be_visible()


@pytest.mark.proof
def test_what_came_in_cannot_be_loaded(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    If its figures cannot be loaded, the panel of a key reports the error, still shows the known details, and can
    retry.
    """
    house.key("laptop")
    console = open_console(house)
    console.expects("503")
    answer = {"error": {"type": "busy", "message": "Try again later."}}
    console.page.route("**/api/report?*", lambda route: route.fulfill(status=503, json=answer))
    console.open("/keys?open=laptop")
    dialog = console.page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("Try again later.")
    expect(dialog.get_by_text("Enabled")).to_be_visible()
    console.page.unroute("**/api/report?*")
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_text("No call was sent with laptop.")).to_be_visible()
    assert [] == console.audit(ALL)


def test_a_viewer_sees_who_may_send_and_changes_nothing(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    On a phone, the list of keys and each key are shown without actions, and a filter in the address shows the same
    view.
    """
    house.key("sender")
    house.key("reader", "--scope", "billing:read_costs")
    console = open_console(house, role="viewer", viewport=NARROW)
    console.open("/keys?scope=ai-telemetry-ingest:ingest-ai-telemetry")
    expect(console.page.get_by_role("row", name="sender")).to_be_visible()
    expect(console.page.get_by_role("row", name="reader")).to_have_count(0)
    expect(console.page.get_by_role("button", name="Create a key")).to_have_count(0)
    console.page.get_by_role("row", name="sender").get_by_role("link").click()
    expect(console.page.get_by_role("dialog")).to_contain_text("Enabled")
    assert ["✕"] == console.page.get_by_role("dialog").get_by_role("button").all_inner_texts()
    assert [] == console.audit()


def test_keys_unused_for_a_quarter_are_one_click_away(house: Tollhouse, open_console: OpenConsole) -> None:
    """The choices for the age of a key include 90 days, and a new key is not among the results."""
    console = open_console(house)
    house.json("keys", "create", "--name", "fresh", "--use-case", "Send AI Telemetry", "--json")
    console.open("/keys")
    expect(console.page.get_by_role("row", name="fresh")).to_be_visible()
    console.page.get_by_role("navigation", name="Unused for").get_by_role(
        "link", name="90d", exact=True
    ).click()
    expect(console.page.get_by_role("row", name="fresh")).to_have_count(0)
    assert ["unused_for=90d"] == [
        part for part in console.page.url.split("?")[1].split("&") if "unused" in part
    ]
