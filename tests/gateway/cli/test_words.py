"""The words of the command line are those of the console and of the glossary."""

from __future__ import annotations

import json
import re

import click
import pytest

from gateway.cli import main
from gateway.cli.output import HEADS, readable_value, show_fields, show_table
from tests.acceptance.conftest import ROOT
from tests.gateway.cli.test_command_list import walked

WORDS_OF_THE_CONSOLE = ROOT / "gateway/console/static/lib/words.mjs"
COMMANDS = dict(walked(main))
# words that a newcomer does not know; the glossary has the words to use
UNKNOWN_WORDS = re.compile(
    r"\bthe upstream\b|dead letter|unconfirmed|may or may not|\bhorizon\b|\bamendment|\bshadow\b|publish job"
    r"|\bspellings?\b|\bOrganizer\b|\bsenders?\b(?!,)|included_value",
    re.IGNORECASE,
)


def test_states_are_named_as_in_the_console() -> None:
    [states] = re.findall(r"STATE_NAMES = (\{.*?\});", WORDS_OF_THE_CONSOLE.read_text(), re.DOTALL)
    names = json.loads(re.sub(r"(\w+):", r'"\1":', states))
    assert len(names) > 5
    assert {state: readable_value("state", state) for state in names} == names


def test_tables_have_these_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that a person chose, such as "dead", is printed unchanged."""
    show_table([{"name": "dead", "state": "parked", "beyond": 3}], ("name", "state", "beyond"))
    show_fields({"state": "losing", "api_key": "k"})
    assert capsys.readouterr().out.split("\n") == [
        "NAME  STATE   EXTRA USAGE",
        "dead  paused            3",
        "FIELD              VALUE",
        "state              loses calls",
        "gateway's own key  k",
        "",
    ]


def test_titles_are_in_the_glossary() -> None:
    """Each name that has another title is an interface name of the glossary."""
    glossary = (ROOT / "docs/glossary.md").read_text()
    known = ("sender", "api_key", "model_family", "beyond", "real_cost", "metered_cost", "covered_cost")
    assert HEADS.keys() >= set(known)
    assert not [name for name in known if f"`{name}`" not in glossary]
    assert set(HEADS.values()).isdisjoint(HEADS)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_no_markdown(path: str) -> None:
    """Fields of resources have links for the reference page, and a terminal shows only their words."""
    command = COMMANDS[path]
    context = click.Context(command, terminal_width=10_000, max_content_width=10_000)
    assert [] == re.findall(r"\S*\]\(.*|\*\*.*|^#.*", command.get_help(context), re.MULTILINE)


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_no_unknown_word(path: str) -> None:
    """Names of commands, options, values and settings are not counted as words of the command line."""
    command = COMMANDS[path]
    texts = [command.help, *(option.help for option in command.params if isinstance(option, click.Option))]
    for text in filter(None, texts):
        assert not UNKNOWN_WORDS.search(re.sub(r"`[^`]*`|\[[^\]]*\]\S*|--\S+", "", text)), text
