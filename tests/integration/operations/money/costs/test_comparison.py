"""The parts of a cost change, over the operator API and as a command."""

from __future__ import annotations

import asyncio
import csv
import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.intake.prices import PriceBook
from spool.money import text_to_units
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

PARTS = (
    "more_calls", "larger_calls", "other_kinds", "large_inputs", "other_tiers", "other_regions", "reported_costs",
    "prices", "reported_rates", "unit_cost", "new", "gone",
)  # fmt: skip
NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
# Each row has day, model, tokens and cost. Before: gpt 100 tokens for 1, o3 100 for 10. Now: gpt 150 for 1.5,
# o3 150 for 30.
SPENT = (
    ("2026-08-03", "gpt", 100, "1"),
    ("2026-08-04", "o3", 100, "10"),
    ("2026-08-05", "left", 5, "0.000000000000000000000000001"),
    ("2026-08-29", "gpt", 1000, "50"),
    ("2026-09-02", "gpt", 150, "1.5"),
    ("2026-09-03", "o3", 150, "30"),
    ("2026-09-03", "came", 7, "4"),
)


def calls(spent: tuple[tuple[str, str, int, str], ...]) -> list[Any]:
    return [
        call(
            number, at=datetime.fromisoformat(f"{day}T12:00+00:00").timestamp(), request_model=model, cost=cost,
            cost_source="reported", input_tokens=tokens, output_tokens=0,
        )
        for number, (day, model, tokens, cost) in enumerate(spent)
    ]  # fmt: skip


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, clock=clock) as server:
        await add(server.services.spool.log, counted_from("2019-12-31"), *calls(SPENT))
        yield server


async def compared(server: OperatorServer, **query: str) -> Any:
    answer = await server.ask("GET", f"/comparison?{urlencode(query)}")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def test_a_change_is_split_by_model(server: OperatorServer) -> None:
    """
    By default this month so far is compared with the same part of last month. The largest change comes first.
    """
    payload = await compared(server, by="model")
    found = {row["model"]: {name: row[name] for name in PARTS if row[name] != "0"} for row in payload["rows"]}
    assert {
        "o3": {"larger_calls": "5", "reported_rates": "15"},
        "came": {"new": "4"},
        "gpt": {"larger_calls": "0.5"},
        "left": {"gone": "-0.000000000000000000000000001"},
    } == found
    assert ["o3", "came", "gpt", "left"] == [row["model"] for row in payload["rows"]]
    total = payload["total"]
    assert total["cost"] == "35.5"
    assert total["against"]["cost"] == "11.000000000000000000000000001"
    assert "24.499999999999999999999999999" == total["change"]
    assert total["tokens"] == 307
    assert total["calls"] == 3
    assert total["against"]["tokens"] == 205
    assert total["against"]["calls"] == 3
    times = payload["comparison"]["compared"]
    against = {
        "from": "2026-08-01T00:00:00+00:00",
        "to": "2026-08-21T14:00:00+00:00",
        "text": "1 to 21 Aug 14:00",
    }
    assert against == times["before"]
    assert "1 to 21 Sep 14:00" == times["now"]["text"]
    assert ("0", None, "hour") == (times["since_cut"], times["rest"], times["grain"])


async def test_rows_add_up_to_the_total(server: OperatorServer) -> None:
    """If only the largest changes are requested, one row has the rest."""
    payload = await compared(server, by="model", top="1")
    assert ["o3", "(other)"] == [row["model"] for row in payload["rows"]]
    for name in ("cost", "change", *PARTS):
        assert text_to_units(payload["total"][name]) == sum(
            text_to_units(row[name]) for row in payload["rows"]
        ), name
    for row in (*payload["rows"], payload["total"]):
        change = text_to_units(row["cost"]) - text_to_units(row["against"]["cost"])
        assert change == text_to_units(row["change"]) == sum(text_to_units(row[name]) for name in PARTS)


async def test_any_time_may_be_the_other_one(server: OperatorServer) -> None:
    """Costs can be compared with a named range or a range of days. The filter applies to both periods."""
    year = await compared(server, by="model", against="this_year", where="model!=left")
    assert "96.5" == year["total"]["against"]["cost"]
    assert {None} == {row[name] for row in year["rows"] for name in ("against", "change", *PARTS)}
    day = {"from": "2026-09-02", "to": "2026-09-02"}
    month = await compared(server, by="model", against="2026-08-29..2026-08-29", where="model=gpt", **day)
    assert month["total"]["cost"] == "1.5"
    assert month["total"]["against"]["cost"] == "50"
    assert month["total"]["change"] == "-48.5"
    one = await compared(server, against="last_month", **{"from": "2026-09-03", "to": "2026-09-03"})
    total = one["total"]
    assert ("34", "61.000000000000000000000000001") == (total["cost"], total["against"]["cost"])
    assert total["change"] is None
    assert (
        "3 Sep against 1 to 31 Aug, 1 day against 31: $34.00 a day against $1.97 a day."
        == (one["comparison"]["sentence"])
    )


async def test_a_rise_of_larger_calls_is_said_as_that(server: OperatorServer) -> None:
    """
    A team reads twelve times as much as a week before, at equal prices, and writes more. No part of the
    change is attributed to prices, and the sentence states the earlier cost. Another team does not change.
    """
    log, book = server.services.spool.log, PriceBook.load()
    for number, (day, team, given, made) in enumerate(
        (("2026-09-08", "ml", 1000, 100), ("2026-09-15", "ml", 12_000, 1200), ("2026-09-15", "ml", 12_000, 1300),
         ("2026-09-08", "ml", 1000, 100), ("2026-09-08", "ads", 500, 50), ("2026-09-15", "ads", 500, 50)), start=100
    ):  # fmt: skip
        at = datetime.fromisoformat(f"{day}T12:00+00:00").timestamp()
        made_call = call(number, at=at, provider="openai", request_model="gpt-4o", team=team, input_tokens=given,
                         output_tokens=made)  # fmt: skip
        book.price_record(made_call[0])
        await add(log, made_call)
    tuesday = {"from": "2026-09-15", "to": "2026-09-15", "by": "team"}
    payload = await compared(server, **tuesday, against="same_weekdays")
    assert "2026-09-08T00:00:00+00:00" == payload["comparison"]["compared"]["before"]["from"]
    words = payload["comparison"]["sentence"].split(": ", 2)[2]
    assert words.startswith(
        "ml +$0.0780 (before: $0.0070), because its calls used many times as many tokens each"
    )
    assert words.endswith("before 1,100).")  # the sentence does not mention team ads
    [ml, ads] = payload["rows"]
    assert (
        abs(Decimal(ml["prices"]))
        < Decimal("1e-20")
        < Decimal(ml["other_kinds"])
        < Decimal(ml["larger_calls"])
    )
    assert ml["team"] == "ml"
    assert ads["team"] == "ads"
    assert ads["change"] == "0"
    before = await compared(server, **tuesday)
    assert "2026-09-14T00:00:00+00:00" == before["comparison"]["compared"]["before"]["from"]


async def test_times_without_a_call(server: OperatorServer) -> None:
    """Without calls there are no rows and no change."""
    payload = await compared(
        server,
        by="model",
        against="2020-01-01..2020-01-30",
        where="model=nobody",
        **{"from": "2026-09-01", "to": "2026-09-30"},
    )
    assert payload["rows"] == []
    assert payload["total"]["cost"] == "0"
    assert payload["total"]["change"] == "0"


WRONG_QUESTIONS: Sequence[tuple[dict[str, str], str]] = [
    ({"against": "ever"}, "against must be one of same_weekdays, previous, today"),
    ({"against": "soon..2026-09-01"}, "against must be a day"),
    ({"against": "2026-09-01.."}, "against must be a day"),
    ({"against": "2026-09-02..2026-09-01"}, "earlier than the end"),
    ({"top": "1001"}, "top must be a whole number from 1 to 1000"),
    ({"by": "colour"}, "Use one of: "),
    ({"where": "colour=red"}, "Use one of: "),
    ({"where": "team"}, "use NAME=VALUE or NAME!=VALUE"),
    ({"view": "nobody"}, "no view"),
    ({"per": "daily"}, "this address accepts only the parameters from, to"),
]


async def test_a_wrong_question_is_refused(server: OperatorServer) -> None:
    """A wrong query gets an error that lists the accepted values."""
    for query, words in WRONG_QUESTIONS:
        status, _, message = (await server.ask("GET", f"/comparison?{urlencode(query)}")).error
        assert status == 400, message
        assert words in message, message


def test_a_report_says_what_a_change_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Without `--against`, the same part of the month before is used. Options for sums by period are refused.
    """
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "store"

    async def fill() -> None:
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=MovedClock(NOW.timestamp()))
        await add(spool.log, counted_from("2026-07-31"), *calls(SPENT))
        await spool.close()

    asyncio.run(fill())

    def report(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, ["report", *words, "--data", str(directory)])
        assert code == result.exit_code, (result.output, result.exception)
        return result.output

    september = ("--from", "2026-09-01", "--to", "2026-09-21")
    lines = report(*september, "--against").splitlines()
    said = (
        "1 to 21 Sep against 1 to 21 Aug: "
        "$24.50 more: o3 +$20.00, because its source reports 100 % more for the same tokens of o3 "
        "($200,000.00 a million, before $100,000.00); the list price did not change; came +$4.00, which is new."
    )
    assert said == lines.pop(0)
    columns = "MODEL COST AGAINST CHANGE LARGER CALLS REPORTED RATES NEW GONE"
    assert columns.split() == lines[0].split()
    assert ["o3", "$30.00", "$10.00", "+$20.00", "+$5.00", "+$15.00", "$0.00", "$0.00"] == lines[1].split()
    assert ["total", "$35.50", "$11.00", "+$24.50"] == lines[-1].split()[:4]

    days = json.loads(report(*september, "--against", "2026-08-09..2026-08-29", "--by", "source", "--json"))
    assert [("otel", "-14.5")] == [(row["source"], row["change"]) for row in days["rows"]]
    [head, *rows] = csv.reader(report(*september, "--against", "--csv").splitlines())
    assert ["model_family", "cost", "against", "change"] == head[:4]
    assert {"now_from", "now_to", "before_from", "before_to"} <= {*head}
    assert ["o3", "30", "10", "20"] == rows[0][:4]
    for words in (("--per", "daily"), ("--compare",), ("--show", "calls"), ("--latency",)):
        assert "--against cannot be used with" in report("--against", *words, code=2)
    assert "against must be one of" in report("--against", "ever", code=2)


def test_a_table_of_changes_shows_no_amount_for_an_unknown_cost(tmp_path: Path) -> None:
    """A cost that is 0 only because its calls have no price is no amount, in each of the two times."""
    directory = tmp_path / "store"
    unpriced = [
        call(number, at=datetime(2026, month, 3, 12, tzinfo=UTC).timestamp(), request_model=model)
        for number, (model, month) in enumerate((("own", 8), ("own", 9), ("late", 9)), start=100)
    ]

    async def fill() -> None:
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=MovedClock(NOW.timestamp()))
        await add(spool.log, counted_from("2026-07-31"), *calls(SPENT), *unpriced)
        await spool.close()

    asyncio.run(fill())
    words = ["report", "--from", "2026-09-01", "--to", "2026-09-21", "--against", "--data", str(directory)]
    result = CliRunner().invoke(main, words)
    assert 0 == result.exit_code, (result.output, result.exception)
    shown = {line.split()[0]: " ".join(line.split()[1:]) for line in result.output.splitlines() if line}
    assert shown["own"].startswith("no price no price $0.00")
    assert shown["late"].startswith("no price $0.00")
    assert shown["came"].startswith("$4.00 $0.00")


def test_the_example_of_the_page(tmp_path: Path) -> None:
    """The command in the page prints the lines below it, if a team used 12 times as many tokens a week later."""
    page = (Path(__file__).parents[5] / "docs/money/compare-costs.md").read_text()
    [command, *expected] = page.split("$ tollhouse report --by team ", 1)[1].split("\n", 2)[:2]
    directory = tmp_path / "store"

    async def fill() -> None:
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=MovedClock(NOW.timestamp()))
        of_team = calls((("2026-09-08", "gpt", 1000, "1.182727"), ("2026-09-15", "gpt", 12_000, "14.192724")))
        for record, _ in of_team:
            record.team = "ml-platform"
        await add(spool.log, counted_from("2026-09-07"), *of_team)
        await spool.close()

    asyncio.run(fill())
    words = ["report", "--by", "team", *command.split(), "--data", str(directory)]
    result = CliRunner().invoke(main, words)
    assert expected == result.output.splitlines()[:1]
