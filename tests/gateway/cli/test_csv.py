"""Every list of the command line is printed as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.operator.client import OperatorClient
from tests.gateway.cli.test_command_list import walked

LAST_PAGE = {"cursor": {"has_next": False, "next_cursor": None}, "item_count": 1, "total_count": 1}
FORMULAS = ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\uff1d1+1", " =1+1")
ROW = {
    "id": 7,
    "name": FORMULAS[0],
    "cost": "-0.10",
    "is_open": True,
    "ended": None,
    "labels": {"team": "a,b"},
    "users": ['Ann "A"', "bob"],
    "text": "two\nlines\x1b[31m",
    "config": {},
    "role": "admin",
}


class Listing(OperatorClient):
    """A server that answers every request with a list of one row, under whatever name the command looks for."""

    def request(self, method: str, path: str, *, body: object = None, query: Any = ()) -> dict[str, Any]:
        return Roots(pagination=LAST_PAGE)


class Roots(dict[str, Any]):
    def __missing__(self, name: str) -> list[dict[str, Any]]:
        return [dict(ROW)]


def options(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


# `report` makes its CSV in the server
LISTS = {
    path: command for path, command in walked(main) if "--cursor" in options(command) and path != "report"
}


def run(path: str, *words: str) -> Result:
    command = LISTS[path]
    needed = [
        parameter.type.choices[0] if isinstance(parameter.type, click.Choice) else "1"
        for parameter in command.params
        if isinstance(parameter, click.Argument) and parameter.required
    ]
    return CliRunner().invoke(main, [*path.split(), *needed, *words])


def test_every_list_with_json_has_csv() -> None:
    """
    A command has --csv if it pages, or if its help begins with "List". No other command has --csv without --json.
    """
    for path, command in walked(main):
        has = options(command)
        is_list = "--cursor" in has or (command.help or "").startswith("List ")
        if "--json" in has and is_list:
            assert "--csv" in has, path
        assert "--csv" not in has or "--json" in has, path
    assert len(LISTS) > 40


@pytest.mark.parametrize("path", LISTS)
def test_a_list_is_csv(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The CSV header has the names of the fields, and the row has every field. Nested values and booleans are JSON, an
    unknown value is an empty cell, and no cell is a formula or moves a cursor.
    """
    monkeypatch.setattr("gateway.cli.operator.client.OperatorClient", Listing)
    result = run(path, "--csv", "--data", str(tmp_path))
    assert result.exit_code == 0, result.output
    [header, cells] = csv.reader(io.StringIO(result.stdout, newline=""))
    found = dict(zip(header, cells, strict=True))
    assert set(header) == set(ROW)
    assert found["name"] == "'=1+1"
    assert found["cost"] == "-0.10"
    assert (found["id"], found["is_open"], found["ended"]) == ("7", "true", "")
    assert json.loads(found["labels"]) == {"team": "a,b"}
    assert json.loads(found["users"]) == ['Ann "A"', "bob"]
    assert found["text"] == "two lines [31m"


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_is_a_formula(formula: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.operator.client.OperatorClient", Listing)
    monkeypatch.setitem(ROW, "name", formula)
    [_, cells] = csv.reader(
        io.StringIO(run("keys list", "--csv", "--data", str(tmp_path)).stdout, newline="")
    )
    assert f"'{formula}" in cells


def test_a_list_without_rows_has_a_header(tmp_path: Path) -> None:
    """A list command reads its rows from a new data directory, without a server."""
    result = CliRunner().invoke(main, ["budgets", "list", "--csv", "--data", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("id,name,granularity,")
    assert result.stdout.count("\n") == 1
