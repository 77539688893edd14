"""Settings: accounts, sessions, and the audit list."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console

ANN = "ann@example.com"
PASSWORD = "correct horse battery staple"


def sign_in(console: Console, password: str) -> None:
    """Sign in with an account."""
    console.page.goto("about:blank")
    console.page.goto(f"{console.tollhouse.url}/console/")
    console.page.get_by_label("E-mail").fill(ANN)
    console.page.get_by_label("Password").fill(password)
    console.page.get_by_role("button", name="Sign in").click()


def fill(console: Console, action: str, **values: str) -> None:
    """Fill in and submit the open dialog of an action, and wait until it closes."""
    dialog = console.page.get_by_role("dialog")
    for label, value in values.items():
        field = dialog.get_by_label(label)
        if label == "Role":
            field.select_option(value)
        else:
            field.fill(value)
    dialog.get_by_role("button", name=action).click()
    expect(dialog).to_have_count(0)


def choose(console: Console, row: str, action: str) -> None:
    console.page.get_by_role("row", name=row).get_by_role("link").click()
    console.page.get_by_role("dialog").get_by_role("button", name=action).click()


def test_an_account_lives_and_ends(house: Tollhouse, open_console: OpenConsole) -> None:
    """An account can sign in. A new role or password ends its sessions. It is deleted only by its exact name."""
    console, anns = open_console(house), open_console(house)
    anns.expects("401")
    anns.open("/")
    anns.do("Sign out")
    console.open("/settings?tab=operators")
    console.page.get_by_role("button", name="Add an operator").click()
    fill(console, "Add an operator", Password=PASSWORD, Role="operator", **{"E-mail": ANN})
    expect(console.page.get_by_role("row", name=ANN)).to_contain_text("Operator")
    sign_in(anns, PASSWORD)
    expect(anns.page.get_by_role("button", name=f"{ANN}, Operator")).to_be_visible()
    anns.follow("Settings")
    expect(anns.page.get_by_role("link", name="Configuration")).to_be_visible()
    expect(anns.page.get_by_role("link", name="Audit")).to_have_count(0)
    choose(console, ANN, "Set role")
    fill(console, "Set role", Role="viewer")
    expect(console.page.get_by_role("row", name=ANN)).to_contain_text("Member")
    sign_in(anns, PASSWORD)
    expect(anns.page.get_by_role("button", name=f"{ANN}, Member")).to_be_visible()
    anns.follow("Settings")
    expect(anns.page.get_by_role("main")).to_contain_text("need the permission set Operate the Spool")
    choose(console, ANN, "Set password")
    fill(console, "Set password", Password=PASSWORD + "!")
    sign_in(anns, PASSWORD)
    expect(anns.page.get_by_role("alert")).not_to_be_empty()
    choose(console, ANN, "Set password")
    fill(console, "Set password", Password=PASSWORD)
    console.page.get_by_role("row", name=ANN).get_by_role("link").click()
    console.page.get_by_role("dialog").get_by_role("link", name="What this person").click()
    expect(console.page.get_by_role("region", name="What this person")).to_contain_text(f"{ANN} has Member")
    console.page.go_back()
    console.page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    fill(console, "Disable")
    expect(console.page.get_by_role("row", name=ANN)).to_contain_text("disabled")
    assert [] == console.audit()
    sign_in(anns, PASSWORD)
    expect(anns.page.get_by_role("alert")).not_to_be_empty()
    choose(console, ANN, "Enable")
    fill(console, "Enable")
    expect(console.page.get_by_role("row", name=ANN)).to_contain_text("enabled")
    sign_in(anns, PASSWORD)
    expect(anns.page.get_by_role("button", name=f"{ANN}, Member")).to_be_visible()
    choose(console, ANN, "Remove")
    fill(console, "Remove", Type=ANN)
    expect(console.page.get_by_role("heading", name="No operator accounts yet")).to_be_visible()
    assert {"operator.add", "operator.role", "operator.password", "operator.remove"} <= console.actions()


@pytest.mark.proof
def test_the_settings_in_effect_are_shown(installations: Any, open_console: OpenConsole) -> None:
    """Each setting shows its source, also after the file was changed and reloaded. The CLI shows the same."""
    house: Tollhouse = installations()
    house.start({"TOLLHOUSE_LOG__LEVEL": "error"})
    console = open_console(house)
    console.open("/settings")
    expect(console.page.locator("tbody tr").first).not_to_contain_text("default")
    console.open("/settings?section=log")
    expect(console.page.get_by_role("row", name="log.level")).to_contain_text("error")
    expect(console.page.get_by_role("row", name="log.level")).to_contain_text("environment")
    assert [] == console.audit()
    sections = console.page.get_by_role("combobox", name="Section", exact=True)
    sections.select_option("spool")
    expect(console.page.get_by_role("row", name="spool.retention")).to_be_visible()
    expect(sections).to_have_value("spool")
    assert [] == console.audit()
    console.screenshot("settings-section")
    house.config.write_text(house.config.read_text().replace('hold = "0s"', 'hold = "0s"\nretention = "9d"'))
    house.config.write_text(
        house.config.read_text() + '\n[prices]\noverride = [{model = "toll-1", input = "1"}]\n'
    )
    house.run("reload")
    console.open("/settings?source=file")
    expect(console.page.get_by_role("row", name="prices.override")).to_contain_text("toll-1")
    expect(console.page.get_by_role("row", name="spool.retention")).to_have_count(0)
    rows = house.json("configuration", "--source", "file")["configuration"]
    assert rows == console.ask("/configuration?source=file")["configuration"]
    offline = {row["name"]: row["value"] for row in stopped(house)}
    assert offline["spool.retention"] == "9d"
    assert offline["log.level"] == "info"


def stopped(house: Tollhouse) -> list[dict[str, Any]]:
    """Return the settings that a command reads without a server."""
    house.stop()
    rows: list[dict[str, Any]] = house.json("configuration", "--limit", "200")["configuration"]
    return rows


def test_a_session_is_ended(house: Tollhouse, open_console: OpenConsole) -> None:
    """If a session is ended, its browser has to sign in at its next request."""
    console, other = open_console(house), open_console(house, role="viewer")
    other.expects("401")
    other.open("/")
    console.open("/settings?tab=sessions&role=viewer")
    expect(console.page.get_by_role("rowheader")).to_have_count(1)
    assert [] == console.audit()
    choose(console, "Member", "End")
    fill(console, "End")
    expect(console.page.get_by_text("No sessions match")).to_be_visible()
    # reload instead of using the menu, because the menu disappears when the session's event stream ends
    other.page.reload()
    expect(other.page.get_by_label("Password")).to_be_visible()


def test_every_change_is_in_the_audit_list(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Each row of the audit list has who, when, from which address, and the previous value. The list filters by an
    action named in its row.
    """
    house.key("sender")
    house.run("keys", "disable", "sender")
    console = open_console(house)
    console.open("/settings?tab=audit&action=key.disable")
    expect(console.page.get_by_role("rowheader")).to_have_count(1)
    console.page.get_by_role("rowheader").get_by_role("link").click()
    dialog = console.page.get_by_role("dialog")
    for text in ("sender", "operator socket", "Enabled", "Disabled"):
        expect(dialog).to_contain_text(text)
    assert [] == console.audit()


@pytest.mark.proof
def test_the_audit_list_leads_to_what_was_changed(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Rows of the audit list show the name of an object instead of its id. A deleted object has its name
    and no link.
    """
    for name in ("Search", "Ads"):
        house.run("views", "create", "--name", name, "--where", "team=search", "--principal", "model")
    house.run("views", "delete", "Ads")
    console = open_console(house)
    console.open("/settings?tab=audit&action=view.create")
    gone = console.page.get_by_role("row", name="Ads (deleted)")
    expect(gone.get_by_role("link", name="Ads")).to_have_count(0)
    console.page.get_by_role("link", name="Search", exact=True).click()
    expect(console.page.get_by_role("heading", name="Search", exact=True)).to_be_visible()
