"""Forms that a quick person opens before the page has loaded their choices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole, SignedIn
from tests.browser.console import Console, filled
from tests.rounds import part

# The values of a form as it would be saved, without boxes that are not checked.
VALUES = "form => [...new FormData(form)].map(([name, value]) => [name, String(value)])"
OPTIONS = "form => [...form.querySelectorAll('option')].map((each) => each.value)"
# For each page, the name of the button and the path of the choices.
FORMS = {
    "/annotations": ("Annotate a day", "/views"),
    "/budgets": ("Create a budget", "/views"),
    "/keys": ("Create a key", "/keys"),
    "/plans": ("Create a plan", "/views"),
    "/reports": ("Schedule a report", "/channel-names"),
    "/roles": ("Create a role", "/permission-sets"),
    "/views": ("Create a view", "/report"),
}


@contextmanager
def late(console: Console, path: str) -> Iterator[None]:
    """Hold back the answers of the operator API at a path until the end of the block."""
    held = re.compile(f"/console/api{path}([?]|$)")
    console.page.route(held, lambda _: None)
    with console.page.expect_request(held):
        yield
    console.page.wait_for_timeout(300)  # milliseconds in which a form would open too early
    console.page.unroute_all()  # let all requests that wait continue


@pytest.fixture(scope="module")
def viewed(tmp_path_factory: pytest.TempPathFactory, signed_in: SignedIn) -> Iterator[Tollhouse]:
    """A running Tollhouse with a month of traffic and a view. Tests must not change it."""
    tollhouse = filled(tmp_path_factory.mktemp("viewed"), "--days", "40", "--records", "1500")
    tollhouse.start()
    tollhouse.json("views", "create", "--name", "All", "--principal", "team")
    signed_in[tollhouse] = {}
    yield tollhouse
    tollhouse.stop()


@pytest.mark.parametrize("page", part(list(FORMS), every=6))
def test_a_form_has_its_choices_from_the_start(
    page: str, viewed: Tollhouse, open_console: OpenConsole
) -> None:
    """A form that is opened early shows and saves the same values as one that is opened later."""
    button, path = FORMS[page]
    console = open_console(viewed)
    form = console.page.get_by_role("dialog").locator("form")
    create = console.page.get_by_role("main").get_by_role("button", name=button)
    with late(console, path):
        console.page.goto(f"{console.url}/console/#{page}")
        create.click()

    def shown() -> Any:
        expect(form).to_be_visible()
        return form.evaluate(VALUES), form.evaluate(OPTIONS)

    early = shown()
    console.page.keyboard.press("Escape")
    expect(form).to_have_count(0)
    create.click()
    assert early == shown()


def test_an_early_edit_changes_only_its_field(busy: Tollhouse, open_console: OpenConsole) -> None:
    """
    In the form of a budget, view, dimension and channels stay chosen, although their choices arrive after the
    click.
    """
    busy.run("views", "create", "--name", "Everything", "--principal", "team")
    words = ("--name", "Teams", "--view", "Everything", "--amount", "10", "--per", "team")
    busy.run("budgets", "create", *words)
    console = open_console(busy)
    page, dialog = console.page, console.page.get_by_role("dialog")
    [before] = console.ask("/budgets")["budgets"]
    with late(console, "/views"):
        page.goto(f"{console.url}/console/#/budgets?open={before['id']}")
        dialog.get_by_role("button", name="Edit").click()
    dialog.get_by_label("Limit").fill("20")
    dialog.get_by_role("button", name="Edit").click()
    expect(dialog.get_by_label("Limit")).to_have_count(0)
    [after] = console.ask("/budgets")["budgets"]
    assert "20" == after["default_amount"]
    assert (before["view"], before["per"]) == (after["view"], after["per"])
