"""`tollhouse recommendations` on few calls, and on a month with two planted savings."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.intake.prices import PriceBook
from spool.clock import SystemClock
from spool.settings import SpoolSettings
from spool.sqlite.ledger import open_ledger
from spool.sqlite.spool import open_spool
from tests.acceptance.conftest import Tollhouse
from tests.spool.contract.examples import add, call

DAY_S = 86_400
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


def test_a_saving_of_few_calls(tmp_path: Path) -> None:
    """A saving is found, listed, shown, decided and found again by commands on a directory that no server uses."""
    directory = tmp_path / "store"
    asyncio.run(_fill_with_priority_calls(directory))
    terminal = Terminal(directory)
    assert "1 found: $" in terminal.run("recommendations", "preview", "--type", "priority_tier").output
    assert [] == terminal.listed()
    assert 1 == terminal.json("check")["look"]["new"]
    [found] = terminal.listed("--type", "priority_tier")
    assert 0 < Decimal(found["monthly_savings"])
    assert [] == terminal.listed("--team", "nobody")
    told = terminal.run("recommendations", "show", found["id"]).output
    for words in (found["title"], "What was seen: ", "What to do: ", "Calculated as: $", "Assumed: "):
        assert words in told
    terminal.run("recommendations", "edit", found["id"], "--status", "on_hold", "--assignee", "ada")
    terminal.run("recommendations", "comments", "create", found["id"], "asked the team")
    assert "asked the team" in terminal.run("recommendations", "show", found["id"]).output
    assert "1 found again" in terminal.run("recommendations", "check").output
    [again] = terminal.listed("--status", "on_hold", "--assignee", "ada")
    assert found["id"] == again["id"]
    changed = terminal.json("types", "edit", "priority_tier", "--disable")["recommendation_type"]
    assert changed["enabled"] is False
    assert [found["id"]] == [each["id"] for each in terminal.listed("--open", "false")]


async def _fill_with_priority_calls(directory: Path) -> None:
    """Store and count calls of four days in the tier with the highest price."""
    directory.mkdir()
    spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=SystemClock())
    made = [
        call(
            number, at=time.time() - 3600 - DAY_S * number, team="search", provider="openai",
            request_model="gpt-4.1", input_tokens=1_000_000, output_tokens=100_000,
            tags={"service_tier": "priority"},
        )
        for number in range(1, 5)
    ]  # fmt: skip
    prices = PriceBook.load()
    for record, _ in made:
        prices.price_record(record)
    await add(spool.log, *made)
    ledger = await open_ledger(directory, clock=SystemClock())
    await ledger.catch_up(spool.log)
    await ledger.close()
    await spool.close()


@pytest.mark.proof
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


@pytest.mark.proof
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


@pytest.mark.proof
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
