"""One walk over all commands with `--json`: lists have the envelope, and times have one form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gateway.cli import main
from spool.registry.scopes import SEND_AI_TELEMETRY

ENVELOPE = {"pagination", "filtering", "sorting"}
# These commands print one object that contains rows, not a list.
DOCUMENTS = {
    "fleet causes",
    "fleet coverage",
    "spool status",
    "spool verify",
    "plans costs",
    "contracts costs",
}
# These commands change something, inspect the machine or a server, run until stopped, or show a single object
# that must exist first.
OTHERS = {
    "reload", "doctor", "agent status", "agent probe", "agent test", "spool accept-clock", "spool dead discard",
    "spool dead retry", "budgets create", "budgets evaluate", "ledger rebuild", "reconcile pull", "tail",
    "insights check", "recommendations check", "recommendations preview", "notifications discard",
    "notifications retry", "console link", "allocation versions show", "roles preview", "keys adopt", "lake verify",
    "prices undo", "work link", "enforcers read", "people viewings",
}  # fmt: skip
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
BORDER = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
BORDERS = {"from", "to", "period", "cut_periods", "usage_date"}


def commands(command: click.Command, *words: str) -> Iterator[str]:
    """Yield the commands that have `--json` and need only a data directory."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from commands(inner, *words, name)
    else:
        options = {option for each in command.params for option in each.opts}
        if {"--json", "--data"} <= options and not any(each.required for each in command.params):
            yield " ".join(words)


def odd_times(found: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """
    Yield times in a wrong form. Names in BORDERS need the form of a border, all others that of a timestamp.
    """
    if isinstance(found, dict):
        for key, value in found.items():
            yield from odd_times(value, key)
    elif isinstance(found, list):
        for value in found:
            yield from odd_times(value, name)
    elif isinstance(found, str) and re.match(r"\d{4}-\d\d-\d\dT", found):
        form = BORDER if name in BORDERS else MOMENT
        if form.fullmatch(found) is None:
            yield name, found


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "store").mkdir()
    words = [
        "keys",
        "create",
        "--name",
        "search team",
        "--use-case",
        SEND_AI_TELEMETRY,
        "--data",
        str(tmp_path / "store"),
    ]
    assert 0 == CliRunner().invoke(main, words).exit_code
    return tmp_path / "store"


@pytest.mark.proves("times, rejected lines, `--json`")
def test_every_json_is_as_lists_are(directory: Path) -> None:
    """
    Commands with `--json` print lists in the envelope, and times in one form. A new command
    is checked automatically.
    """
    wrong: list[str] = []
    bare = set()
    asked = [name for name in commands(main) if name not in OTHERS]
    for name in asked:
        result = CliRunner().invoke(main, [*name.split(), "--json", "--data", str(directory)])
        if result.exit_code:
            wrong.append(f"{name}: {result.output}")
            continue
        found = json.loads(result.stdout)
        wrong += [f"{name}: {each}" for each in odd_times(found)]
        roots = [root for root, value in found.items() if isinstance(value, list)]
        if roots and not ENVELOPE <= found.keys():
            bare.add(name)
    assert wrong == []
    assert bare == DOCUMENTS
    assert {"keys list", "report", "spool dead list"} <= set(asked)
