"""Privacy requests in the console: only with the right, what would be erased, an export, and a typed confirmation."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import Console
from tests.browser.test_layout import badly_laid_out
from tests.browser.test_pages import look

OFFICER, PASSWORD = "dpo@example.com", "correct horse battery"
PERSON = '"><img src=x onerror=alert(1)> Ada'


def as_officer(house: Tollhouse, console: Console) -> None:
    """Create a role and an account with the right, and sign in with the account."""
    house.run("roles", "create", "--name", "Privacy", "--data-access", "full", "--permission-set",
              "answer_privacy_requests", "--member", OFFICER)  # fmt: skip
    token = console.ask("/session")["session"]["csrf_token"]
    account = {"email": OFFICER, "role": "none", "password": PASSWORD}
    api = f"{console.url}/console/api"
    made = console.context.request.post(f"{api}/operators", data=account, headers={"X-CSRF-Token": token})
    assert made.ok, made.text()
    signed = console.context.request.post(f"{api}/sessions", data={"email": OFFICER, "password": PASSWORD})
    assert signed.ok, signed.text()


def test_a_person_is_previewed_exported_and_erased(
    house: Tollhouse, open_console: OpenConsole, tmp_path: Path
) -> None:
    key = house.key("sender", "--scope", "ai-telemetry-ingest:ingest-ai-telemetry")
    calls = [span(f"chatcmpl-{secrets.token_hex(12)}", user__id=PERSON) for _ in range(2)]
    assert 200 == post(house.url, request(calls), key).status
    house.wait_until_drained()
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/privacy")
    expect(page.get_by_role("main")).to_contain_text("you need a role with the permission set")
    as_officer(house, console)
    # the person's role shows no costs, so this request gets a 404
    console.expects("404", "api/views?limit=1000")
    console.open("/privacy")
    expect(page.get_by_role("link", name="People")).to_have_attribute("href", "#/privacy")
    page.get_by_role("textbox", name="Person").fill("nobody")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("alert").first).to_contain_text("has this name")
    page.get_by_role("textbox", name="Person").fill(PERSON)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("main")).to_contain_text("1 name with 2 calls")
    expect(page.get_by_role("row", name="senders")).to_contain_text("ask")
    console.settle()
    assert [] == badly_laid_out(console)
    look(console, "privacy-preview")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download the data").click()
    downloading.value.save_as(tmp_path / "person.ndjson")
    person, *own = map(json.loads, (tmp_path / "person.ndjson").read_text().splitlines())
    assert ([PERSON], 2) == (person["names"], len(own))

    page.get_by_role("button", name="Erase").click()
    dialog.get_by_role("textbox").fill("Ada")
    dialog.get_by_role("button", name="Erase").click()
    expect(dialog.get_by_role("alert")).to_contain_text("exactly")
    assert [] == console.audit()
    dialog.get_by_role("textbox").fill(PERSON)
    dialog.get_by_role("button", name="Erase").click()
    expect(page.get_by_role("main")).to_contain_text("2 calls are shown as (erased)")
    expect(page.get_by_role("main")).not_to_contain_text("onerror")
    console.has_address(without=["onerror"])
    assert [] == badly_laid_out(console)
    look(console, "privacy-receipt")

    page.get_by_role("link", name="Who looked").click()
    expect(page.get_by_role("table", name="viewings")).to_contain_text(OFFICER)
    expect(page.get_by_role("table", name="viewings")).not_to_contain_text("onerror")
    console.settle()
    assert [] == badly_laid_out(console)
    look(console, "privacy-viewings")


def test_an_admin_gives_somebody_the_role_in_three_clicks(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """
    The search finds the page by a word, without a click. A filled field and a button create the role, and a second
    address becomes another member. Somebody who may not create roles sees neither the page nor the form.
    """
    console = open_console(house)
    page = console.page
    console.open("/")
    page.keyboard.press("/")
    page.keyboard.type("privacy requests")
    page.keyboard.press("Enter")
    page.get_by_label("Create the role and give it to").fill(OFFICER)
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text(f"{OFFICER} has the role")
    assert console.clicks() <= 3
    assert [] == console.audit()
    [role] = [each for each in console.ask("/roles?limit=100")["roles"] if not each["is_builtin"]]
    assert ([OFFICER], "full", ["answer_privacy_requests"]) == (
        role["members"], role["data_access"], role["permission_sets"],
    )  # fmt: skip
    page.get_by_label("Create the role and give it to").fill("second@example.com")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("main").get_by_role("status")).to_contain_text("second@example.com has the role")
    [role] = [each for each in console.ask("/roles?limit=100")["roles"] if not each["is_builtin"]]
    assert [OFFICER, "second@example.com"] == role["members"]
    assert [] == badly_laid_out(console)
    reader = open_console(house, role="viewer")
    reader.open("/privacy")
    expect(reader.page.get_by_role("main")).to_contain_text("an Admin has to create one")
    expect(reader.page.get_by_label("Create the role and give it to")).to_have_count(0)


def test_pairs_in_conflict_are_shown_and_linked(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    A list of pairs of names that may be one person shows the counts of both. Link and Split are one click and one
    confirmation.
    """
    key = house.key("sender", "--scope", "ai-telemetry-ingest:ingest-ai-telemetry")
    named: list[dict[str, Any]] = [
        {"user__id": PERSON, "user__email": f"{name}@example.com"} for name in ("ada", "eve")
    ]
    named.append({"user__id": PERSON})
    calls = [span(f"chatcmpl-{secrets.token_hex(12)}", **names) for names in named]
    assert 200 == post(house.url, request(calls), key).status
    house.wait_until_drained()
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/settings?tab=stated&state=conflict")
    row = page.get_by_role("table", name="pairs").get_by_role("row", name="Ada").first
    expect(row).to_contain_text("conflict")
    assert [1, 3] == [int(text) for text in row.locator("td.number").all_inner_texts()[:2]]
    assert [] == badly_laid_out(console)
    look(console, "stated-names")
    row.get_by_role("link").click()
    dialog.get_by_role("button", name="Link").click()
    dialog.get_by_role("button", name="Link").last.click()
    expect(dialog).to_have_count(0)
    console.open("/settings?tab=stated&state=linked")
    page.get_by_role("table", name="pairs").get_by_role("link").first.click()
    dialog.get_by_role("button", name="Split").click()
    dialog.get_by_role("button", name="Split").last.click()
    expect(dialog).to_have_count(0)
    assert {"person.split"} <= console.actions()
