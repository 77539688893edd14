"""`tollhouse recommendations` on a month with two planted savings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from tests.acceptance.conftest import Tollhouse

PLANTED = ("priority-tier", "nightly-job")


class Terminal:
    """Runs commands on one data directory."""

    def __init__(self, directory: Path) -> None:
        self._data = ("--data", str(directory))

    def run(self, *words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, [*words, *self._data])
        assert code == result.exit_code, result.output
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.run("recommendations", *words, "--json", code=code).stdout)

    def listed(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("list", *words)["recommendations"]
        return found


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """
    Start a server with the month, because without one each command takes a second to open a storage of 34,000 calls.
    """
    place = tmp_path_factory.mktemp("month")
    directory = place / "data"
    size = ("--days", "9", "--records", "34000")
    done = CliRunner().invoke(main, ["demo", "--data", str(directory), *size, "--plant", ",".join(PLANTED)])
    assert 0 == done.exit_code, done.output
    assert "2 recommendations" in done.output
    house = Tollhouse(place, 'data_dir = "data"\n[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\n')
    house.start()
    yield Terminal(directory)
    house.stop()


def test_what_was_found(terminal: Terminal) -> None:
    """
    The largest come first, and can be filtered by type and team. `show` prints the formula and its assumptions.
    """
    found = terminal.listed()
    assert {"priority_tier", "batch"} == {each["type"] for each in found}
    amounts = [Decimal(each["monthly_savings"]) for each in found]
    assert amounts == sorted(amounts, reverse=True)
    assert ["priority_tier"] == [each["type"] for each in terminal.listed("--type", "priority_tier")]
    assert [] == terminal.listed("--team", "nobody")
    told = terminal.run("recommendations", "show", found[0]["id"]).output
    for words in (found[0]["title"], "What was seen: ", "What to do: ", "Calculated as: $", "Assumed: "):
        assert words in told
    assert "no recommendation has this id" in terminal.run("recommendations", "show", "none", code=2).output
    assert '"team"' in json.dumps(terminal.json("dimensions"))


def test_what_people_decide(terminal: Terminal) -> None:
    """Several recommendations are decided at once, with comments. A later run keeps the decisions."""
    ids = [each["id"] for each in terminal.listed()]
    assert (
        "on_hold"
        in terminal.run("recommendations", "edit", *ids, "--status", "on_hold", "--assignee", "ada").output
    )
    assert (
        "no recommendation"
        in terminal.run("recommendations", "edit", "none", "--status", "new", code=1).output
    )
    terminal.run("recommendations", "edit", ids[0], code=2)
    terminal.run("recommendations", "comments", "create", ids[0], "asked the team")
    terminal.run("recommendations", "comments", "edit", ids[0], "1", "asked them twice")
    assert "asked them twice" in terminal.run("recommendations", "comments", "list", ids[0]).output
    assert "asked them twice" in terminal.run("recommendations", "show", ids[0]).output
    assert "2 found again" in terminal.run("recommendations", "check").output
    assert set(ids) == {each["id"] for each in terminal.listed("--status", "on_hold", "--assignee", "ada")}
    terminal.run("recommendations", "comments", "delete", ids[0], "1")
    assert [] == terminal.json("comments", "list", ids[0])["comments"]


def test_types_and_checks(terminal: Terminal) -> None:
    """A check stores nothing. Disabling a type closes its recommendations and stops its search."""
    checked = terminal.json("preview")["check"]
    assert checked["count"] == 2
    assert {each["type"] for each in checked["types"]} == {"priority_tier", "batch"}
    assert Decimal(checked["monthly_savings"]) < Decimal(checked["spent"])
    assert "1 found: $" in terminal.run("recommendations", "preview", "--type", "batch").output
    assert 0 == terminal.json("preview", "--filter", "!team=operations")["check"]["count"]
    terminal.run("recommendations", "preview", "--filter", "team", code=2)
    assert "no such type" in terminal.run("recommendations", "preview", "--type", "magic", code=2).output
    assert "batch" in terminal.run("recommendations", "types", "list").output
    changed = terminal.json("types", "edit", "batch", "--disable", "--least-savings", "0.50")[
        "recommendation_type"
    ]
    assert changed["enabled"] is False
    assert changed["thresholds"]["least_savings"] == "0.50"
    assert ["batch"] == [each["type"] for each in terminal.listed("--open", "false")]
    assert 1 == terminal.json("preview")["check"]["count"]
    assert terminal.json("types", "show", "batch") == {"recommendation_type": changed}
    assert "nothing to change" in terminal.run("recommendations", "types", "edit", "batch", code=2).output
    assert "yes" in terminal.run("recommendations", "types", "edit", "batch", "--enable").output
    assert {"new": 0, "again": 2, "reopened": 0, "gone": 0, "left_out": 0, "failed": []} == terminal.json(
        "check"
    )["look"]
    assert [] == terminal.listed("--open", "false")
