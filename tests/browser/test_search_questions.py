"""The search answers questions in the words of people who do not know the titles of pages."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.console import Console
from tests.rounds import part

QUESTIONS = (
    ("failed key", "Costs", "by=sender"),
    ("connect claude code", "Connect", "/connect"),
    ("who changed", "Settings", "tab=audit"),
)


@pytest.mark.parametrize("text, heading, address", part(QUESTIONS, every=3))
def test_a_question_leads_to_its_answer(console: Console, text: str, heading: str, address: str) -> None:
    """A few words of a question are enough for the search, in any order, and take no click."""
    console.open("/")
    page = console.page
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(text)
    expect(page.get_by_role("dialog").locator("li", has_text="question").first).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)
    assert address in page.url
    assert 0 == console.clicks()
