"""Names that senders choose are shown as text on every page, even if they contain markup."""

from __future__ import annotations

import json
import secrets
from urllib.parse import quote

import pytest
from playwright.sync_api import Dialog, expect

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post, request, span
from tests.browser.conftest import OpenConsole
from tests.browser.console import followed

MARKS = ("<img src=x onerror=alert(1)>", '"><script>alert(2)</script>', "${alert(3)}{{alert(4)}}")
CODE = ("javascript:alert(1)", " JavaScript:alert(1)", "data:text/html,<script>alert(1)</script>")
WRITE = ("--scope", "insights:create_insight", "--scope", "ai-telemetry-ingest:ingest-ai-telemetry")


@pytest.mark.proof
def test_hostile_names_are_text(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    Markup in a model, team, user, session, key or insight is shown literally and creates no element.

    Links that run code are refused when an insight is created, so no page can show one.
    """
    keys = [house.key(f"key {mark}", *WRITE) for mark in MARKS]
    for key, mark in zip(keys, MARKS, strict=True):
        call = span(
            f"chatcmpl-{secrets.token_hex(12)}", gen_ai__request__model=mark, gen_ai__response__model=mark,
            gen_ai__provider__name=mark, user__id=mark, team__id=mark, session__id=mark, gen_ai__conversation__id=mark,
        )  # fmt: skip
        assert 200 == post(house.url, request([call]), key).status
        insight = {
            "title": mark,
            "description": mark,
            "category": mark,
            "link": "https://example.com/" + quote(mark),
        }
        assert post(house.url, json.dumps(insight).encode(), key, "/v2/insights").status in (200, 201)
    for link in CODE:
        refused = json.dumps({"title": "look", "link": link}).encode()
        assert 400 <= post(house.url, refused, keys[0], "/v2/insights").status < 500
    house.wait_until_drained()
    console = open_console(house)
    opened: list[str] = []

    def refuse(dialog: Dialog) -> None:
        opened.append(dialog.message)
        dialog.dismiss()

    console.page.on("dialog", refuse)
    seen = ""
    for _ in followed(console):
        seen += console.page.get_by_role("main").inner_text()
        rows = console.page.locator("main tbody th a[href*='open=']")
        for row in range(min(3, rows.count())):
            rows.nth(row).click()
            console.settle()
            seen += console.page.get_by_role("dialog").inner_text()
            console.page.keyboard.press("Escape")
            expect(console.page.get_by_role("dialog")).to_have_count(0)
        assert 0 == console.page.locator("main img, main script, dialog img, dialog script").count()
        assert 0 == console.page.locator("a[href^='javascript:' i], a[href^='data:' i]").count()
    assert [] == opened
    for mark in MARKS:
        assert mark in seen
