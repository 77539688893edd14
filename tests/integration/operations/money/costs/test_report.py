"""
Cost reports over the operator API: with the previous period, with only the largest groups, with chosen
measures, and as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio

from gateway.core.paths import OPERATOR_API
from gateway.operations.money.costs.report import csv_rows
from spool.printable import csv_lines
from tests.csv_reading import HOSTILE, assert_harmless
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)  # this day is a Monday


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, clock=clock) as server:
        yield server


async def spend(server: OperatorServer, *spent: tuple[str, str | None, str]) -> None:
    """Add calls on a day (and hour), for a model, at a cost."""
    calls = []
    for number, (day, model, cost) in enumerate(spent):
        at = datetime.fromisoformat(f"{day}T12:00" if len(day) == 10 else day).replace(tzinfo=UTC).timestamp()
        calls.append(call(number, at=at, request_model=model, cost=cost, cost_source="reported"))
    await add(server.services.spool.log, counted_from("2026-01-31"), *calls)


async def raw(
    server: OperatorServer, *query: tuple[str, str], status: int = 200
) -> tuple[Mapping[str, str], str]:
    """Return the headers and the text of a report."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(server.socket))) as session,
        session.get(
            f"http://tollhouse{OPERATOR_API}/report", params=list(query), headers={"X-Tollhouse-As": ADA}
        ) as response,
    ):
        text = await response.text()
        assert status == response.status, text
        return response.headers, text


async def report(server: OperatorServer, *query: tuple[str, str], status: int = 200) -> dict[str, Any]:
    payload: dict[str, Any] = orjson.loads((await raw(server, *query, status=status))[1])
    return payload


TIMES_BEFORE: Sequence[tuple[str, str, str, tuple[str, str]]] = [
    ("2026-09-01", "2026-09-21T15:00", "UTC", ("2026-08-01T00:00:00+00:00", "2026-08-21T14:00:00+00:00")),
    ("2026-09-01", "2026-09-30", "UTC", ("2026-08-01T00:00:00+00:00", "2026-08-21T14:00:00+00:00")),
    ("2026-03-01", "2026-03-30", "UTC", ("2026-02-01T00:00:00+00:00", "2026-03-01T00:00:00+00:00")),
    ("2026-08-01", "2026-08-31", "UTC", ("2026-07-01T00:00:00+00:00", "2026-08-01T00:00:00+00:00")),
    ("2026-09-21", "2026-09-21T15:00", "UTC", ("2026-09-20T00:00:00+00:00", "2026-09-20T14:00:00+00:00")),
    ("2026-09-14", "2026-09-20", "UTC", ("2026-09-07T00:00:00+00:00", "2026-09-14T00:00:00+00:00")),
    (
        "2026-09-20T10:00",
        "2026-09-20T16:00",
        "UTC",
        ("2026-09-20T04:00:00+00:00", "2026-09-20T10:00:00+00:00"),
    ),
    ("2026-03-29", "2026-03-29", "Europe/Berlin", ("2026-03-28T00:00:00+01:00", "2026-03-29T00:00:00+01:00")),
]


async def test_the_time_before(server: OperatorServer) -> None:
    """
    The default time to compare with is the same part of the month before, or the same hours of the days before, or
    else the time directly before.
    """
    await spend(server)
    for since, until, tz, expected in TIMES_BEFORE:
        payload = await report(server, ("from", since), ("to", until), ("tz", tz), ("compare", "previous"))
        before = payload["report"]["compared"]["before"]
        assert expected == (before["from"], before["to"]), (since, until, tz)


async def test_rows_include_figures_of_the_previous_period(server: OperatorServer) -> None:
    """
    Groups that exist only in the previous period have a row. A report without `compare` has no previous figures.
    """
    await spend(
        server, ("2026-08-03", "gone", "8"), ("2026-08-04", "gpt", "1"), ("2026-08-29", "gpt", "50"),
        ("2026-09-03", "gpt", "2"), ("2026-09-04", "new", "4"),
    )  # fmt: skip
    asked = (("from", "2026-09-01"), ("by", "model"), ("show", "cost,calls"))
    payload = await report(server, *asked, ("compare", "previous"))
    assert [
        ("gone", "0", {"cost": "8", "calls": 1}),
        ("gpt", "2", {"cost": "1", "calls": 1}),
        ("new", "4", {"cost": "0", "calls": 0}),
    ] == [(row["model"], row["cost"], row["previous"]) for row in payload["rows"]]
    assert {"cost": "6", "calls": 2, "previous": {"cost": "9", "calls": 2}} == payload["total"]
    plain = await report(server, *asked)
    assert [row["model"] for row in plain["rows"]] == ["gpt", "new"]
    assert plain["total"] == {"cost": "6", "calls": 2}
    assert plain["report"]["compared"] is None


async def test_periods_are_compared_by_their_place(server: OperatorServer) -> None:
    """
    Periods are compared by their position: the first day with the first day. If the previous month has more
    days, the additional days count only in the total.
    """
    await spend(server, ("2026-05-31", "a", "7"), ("2026-05-02", "a", "3"), ("2026-06-02", "a", "1"))
    payload = await report(
        server,
        ("from", "2026-06-01"),
        ("to", "2026-06-30"),
        ("per", "daily"),
        ("compare", "previous"),
        ("show", "cost"),
    )
    assert [{"period": "2026-06-02T00:00:00+00:00", "cost": "1", "previous": {"cost": "3"}}] == payload[
        "rows"
    ]
    assert {"cost": "1", "previous": {"cost": "10"}} == payload["total"]


async def test_only_the_largest_groups_have_their_own_rows(server: OperatorServer) -> None:
    """
    The largest groups are chosen over the whole range. Calls without a value are always listed, and the total
    does not change.
    """
    await spend(
        server, ("2026-09-01", "a", "5"), ("2026-09-02", "a", "1"), ("2026-09-02", "b", "4"), ("2026-09-02", "c", "3"),
        ("2026-09-03", "d", "2"), ("2026-09-03", None, "0.5"),
    )  # fmt: skip
    payload = await report(server, ("by", "model"), ("per", "daily"), ("top", "2"), ("show", "cost"))
    assert [
        ("01", "a", "5"), ("02", "a", "1"), ("02", "b", "4"), ("02", "(other)", "3"), ("03", None, "0.5"),
        ("03", "(other)", "2"),
    ] == [(row["period"][8:10], row["model"], row["cost"]) for row in payload["rows"]]  # fmt: skip
    assert "15.5" == payload["total"]["cost"]
    counted = await report(server, ("by", "model"), ("top", "1"), ("top_by", "calls"), ("show", "calls"))
    assert [("a", 2), (None, 1), ("(other)", 3)] == [
        (row["model"], row["calls"])
        for row in sorted(counted["rows"], key=lambda row: ["a", None, "(other)"].index(row["model"]))
    ]


async def test_shares_of_cost(server: OperatorServer) -> None:
    """Cost per call and per million tokens are decimal text, or null without calls or tokens."""
    await spend(server, ("2026-09-01", "a", "1"), ("2026-09-02", "a", "1"), ("2026-09-02", "a", "0"))
    payload = await report(server, ("show", "cost_per_call"), ("show", "cost_per_million_tokens"))
    assert [{"cost_per_call": "0.666666666666", "cost_per_million_tokens": "6060.60606060606"}] == payload[
        "rows"
    ]
    nothing = await report(server, ("from", "2026-01-01"), ("to", "2026-01-01"))
    assert nothing["rows"] == []
    assert nothing["total"]["cost_per_call"] is None


async def test_a_group_can_be_left_out(server: OperatorServer) -> None:
    """The filter NAME!=VALUE excludes a value."""
    await spend(server, ("2026-09-01", "a", "1"), ("2026-09-02", "b", "2"))
    assert "2" == (await report(server, ("where", "model!=a"), ("show", "cost")))["total"]["cost"]


async def test_csv_is_for_spreadsheets(server: OperatorServer) -> None:
    """The CSV has the same rows, no cell is a formula, and the previous period has its own columns."""
    await spend(server, ("2026-08-01", "=cmd", "3"), ("2026-09-01", "=cmd", "1"))
    asked = (("by", "model"), ("show", "cost,calls"), ("compare", "previous"), ("format", "csv"))
    headers, text = await raw(server, *asked)
    assert headers["Content-Type"] == "text/csv; charset=utf-8"
    assert "attachment" in headers["Content-Disposition"]
    [row] = csv.DictReader(io.StringIO(text))
    spans = {name: row.pop(f"{name}") for name in ("now_from", "now_to", "before_from", "before_to")}
    assert ["2026-09-01T00", "2026-09-21T14", "2026-08-01T00", "2026-08-21T14"] == [
        moment[:13] for moment in spans.values()
    ]
    assert {"model": "'=cmd", "cost": "1", "calls": "1", "previous_cost": "3", "previous_calls": "1"} == row


@pytest.mark.proves("formulas in CSV")
async def test_a_group_is_one_line_for_every_reader(server: OperatorServer) -> None:
    """Whatever names senders choose, each group is one row, and no cell starts like a formula."""
    named = ("request_model", "team", "user", "api_key", "device", "source")
    calls = [
        call(n, at=NOW.timestamp() - 86400, **dict.fromkeys(named, name)) for n, name in enumerate(HOSTILE)
    ]
    await add(server.services.spool.log, *calls)
    for dimension in ("model", "team", "user", "api_key", "device", "source"):
        asked = (("by", dimension), ("range", "this_month"))
        groups = len((await report(server, *asked))["rows"])
        assert groups > 10, dimension
        _, text = await raw(server, *asked, ("format", "csv"))
        assert_harmless(text, rows=groups)


async def test_titles_of_columns_are_cells() -> None:
    """
    A column title, such as the name of a published dimension, stays in one cell and does not start like a formula.
    """
    name = "User:Defined:=cmd\r=cmd"
    asked = {"show": ["cost"], "compared": None, "per": "total", "by": [name, "=cmd"]}
    rows = [{name: "a", "=cmd": None, "cost": "-1.5"}]
    text = csv_lines(csv_rows({"report": asked, "rows": rows}, has_previous=False))
    assert "User:Defined:=cmd =cmd,'=cmd,cost\na,,-1.5\n" == text


WRONG_WORDS: Sequence[tuple[str, str, str]] = [
    ("show", "price", "show must be one of cost"),
    ("top", "0", "top must be a whole number from 1 to 1000"),
    ("top", "1001", "top must be a whole number from 1 to 1000"),
    ("top_by", "latency_p50_ms", "top_by must be one of cost"),
    ("format", "xml", "format must be one of json, csv"),
    ("compare", "budget", "compare must be one of same_weekdays, previous"),
    ("lines", "all", "lines must be meters"),
    ("lines", "meters", "needs per=hourly"),
]


async def test_a_wrong_word_is_named(server: OperatorServer) -> None:
    """A wrong word gets an error that lists the accepted values."""
    for name, value, words in WRONG_WORDS:
        payload = await report(server, (name, value), status=400)
        assert words in payload["error"]["message"], (name, value, words)


async def test_a_chart_of_a_quarter_is_small(server: OperatorServer) -> None:
    """92 days with 60 models, seven of them listed, take far less than 200 KB."""
    await spend(server, *[(f"2026-{month:02}-{day:02}", f"model-{number:02}-of-a-provider", "0.012345")
                          for month in (6, 7, 8) for day in range(1, 29) for number in range(60)])  # fmt: skip
    payload = await report(
        server, ("from", "2026-06-01"), ("to", "2026-08-31"), ("by", "model"), ("per", "daily"), ("top", "6"),
        ("show", "cost,calls"), ("compare", "previous"),
    )  # fmt: skip
    assert 7 * 84 == len(payload["rows"])
    assert len(orjson.dumps(payload)) < 200_000


async def test_csv_names_cut_periods_in_a_header(server: OperatorServer) -> None:
    """CSV names cut periods in a header, so the columns stay the same. JSON names them next to the rows."""
    asked = [("from", "2026-09-10"), ("to", "2026-10-05"), ("per", "monthly"), ("by", "model")]
    told = await report(server, *asked)
    headers, text = await raw(server, *asked, ("format", "csv"))
    assert ", ".join(told["report"]["cut_periods"]) == headers["Tollhouse-Cut-Periods"]
    assert text.startswith("period,model,cost,")
    headers, _ = await raw(
        server, ("from", "2026-09-01"), ("to", "2026-09-30"), ("per", "monthly"), ("format", "csv")
    )
    assert "Tollhouse-Cut-Periods" not in headers
