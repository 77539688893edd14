"""
Answers about many groups: the largest groups are listed, and one row has the rest. A query that sums too much
is refused with a smaller alternative.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import pytest_asyncio

from gateway.configuration.sections import AllocationSettings
from gateway.configuration.server import AnswerSettings
from gateway.core.paths import OPERATOR_API
from spool.ledger.sums import HOUR_S, OTHER
from tests.answers.many_sums import fill
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
FIRST = datetime(2026, 9, 20, tzinfo=UTC)
USERS, HOURS = 60, 40
SETTINGS = AnswerSettings(max_rows=100, max_summed_rows=1500)
HOURLY = {"by": "user", "per": "hourly", "from": FIRST.isoformat()}
TEN_HOURS = {**HOURLY, "to": (FIRST + timedelta(hours=10)).isoformat()}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, clock=clock, answers=lambda: SETTINGS) as server:
        await fill(
            server.services.money.ledger, combinations=USERS, hours=HOURS, begin=int(FIRST.timestamp())
        )
        dear = call(1, at=NOW.timestamp(), user="dear", cost="900", cost_source="reported")
        await add(server.services.spool.log, dear)
        yield server


async def ask(server: OperatorServer, path: str, **query: str) -> dict[str, Any]:
    answer = await server.ask("GET", f"{path}?{urlencode(query)}")
    assert 200 == answer.status, answer.payload
    found: dict[str, Any] = answer.payload
    return found


def spent(rows: list[dict[str, Any]]) -> Decimal:
    return sum((Decimal(row["cost"]) for row in rows), Decimal(0))


async def test_a_report_of_too_many_rows_has_the_largest_groups(server: OperatorServer) -> None:
    """
    If a report would have too many rows, each period has its largest groups and one row for the rest. Sums stay
    exact, and the answer states that it is truncated.
    """
    payload = await ask(server, "/report", **TEN_HOURS)
    assert payload["report"]["truncated"] is True
    assert payload["report"]["row_count"] == USERS * 10
    assert SETTINGS.max_rows >= len(payload["rows"]) > SETTINGS.max_rows - 10
    assert [OTHER] == sorted(
        {row["user"] for row in payload["rows"]} - {f"user-{each:05}" for each in range(USERS)}
    )
    assert spent([payload["total"]]) == spent(payload["rows"]) == USERS * 10
    beside = await ask(server, "/report", by="user", range="this_month", compare="previous")
    assert beside["report"]["truncated"] is False
    assert len(beside["rows"]) == USERS + 1


async def test_csv_has_every_row_and_is_streamed_in_chunks(server: OperatorServer) -> None:
    """The CSV is streamed in chunks, so the whole text is never in memory."""
    url = f"http://tollhouse{OPERATOR_API}/report"
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(server.socket))) as session,
        session.get(url, params={**TEN_HOURS, "format": "csv"}, headers={"X-Tollhouse-As": ADA}) as response,
    ):
        text = await response.text()
        assert response.status == 200
        assert response.headers.get("Transfer-Encoding") == "chunked"
        assert response.headers.get("Content-Length") is None
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == USERS * 10
    assert Decimal(USERS * 10) == spent(rows)


async def test_top_is_worked_out_without_a_row_for_every_group(server: OperatorServer) -> None:
    """
    `top` limits the groups, so a query that would have too many rows succeeds. Each period has one row
    for the rest.
    """
    payload = await ask(server, "/report", **{**HOURLY, "top": "1", "compare": "previous"})
    assert {"dear", OTHER} == {row["user"] for row in payload["rows"]}
    assert len({row["period"] for row in payload["rows"]}) == 39
    assert Decimal(39 * USERS + 900) == spent(payload["rows"])
    assert spent([payload["total"]]) == spent(payload["rows"])


TOO_MUCH: Sequence[dict[str, str]] = [{}, {"format": "csv"}, {"by": "user,team", "compare": "previous"}]


@pytest.mark.proves("answers without a limit")
async def test_a_question_that_adds_up_to_too_much_is_refused(server: OperatorServer) -> None:
    """
    A query that sums too many rows is refused while it is summed. The error names what to query instead.
    """
    for query in TOO_MUCH:
        answer = await server.ask("GET", f"/report?{urlencode({**HOURLY, **query})}")
        status, type, message = answer.error
        assert status == 422, query
        assert type == "asked_too_much", query
        assert "more than 1500 rows (answers.max_summed_rows). Choose a shorter time" in message, query


async def test_a_diff_lists_the_largest_elements(server: OperatorServer) -> None:
    """
    In each dimension, the listed elements and one for the rest add up to the total. The answer states the
    number of elements.
    """
    dimensions = "".join(
        f"\n  D{each}: {{Rules: [{{Type: GroupBy, Sources: [user, team], Format: '{{0}} {{1}}'}}]}}"
        for each in range(4)
    )
    body = {"definition": f"Dimensions:{dimensions}"}
    answer = await server.ask("POST", "/allocation/diff", body)
    assert answer.status == 200
    assert answer.payload["diff"]["truncated"] is True
    for dimension in answer.payload["dimensions"]:
        elements = dimension["elements"]
        assert len(elements) == 25
        assert dimension["element_count"] == USERS + 1
        assert elements[-1]["element"] == OTHER
        assert spent([answer.payload["total"]]) == spent([each["after"] for each in elements])


async def test_a_diff_of_too_many_elements_is_refused_before_it_is_worked_out(server: OperatorServer) -> None:
    """The number of elements, combinations times dimensions, is known before anything is summed."""
    many = range(-(-10 * SETTINGS.max_summed_rows // USERS))
    rules = "Rules: [{Type: GroupBy, Source: user}]"
    server.services.money.allocation = lambda: AllocationSettings(
        max_dimensions=10_000, max_definition_bytes=10**6
    )
    definition = "Dimensions:" + "".join(f"\n  D{each}: {{{rules}}}" for each in many)
    answer = await server.ask("POST", "/allocation/diff", {"definition": definition})
    assert (422, "asked_too_much") == answer.error[:2]
    assert "fewer dimensions" in answer.error[2]


PERIODS: Sequence[str] = ["daily", "weekly", "monthly", "quarterly", "yearly"]


@pytest.mark.proves("a period that the query cuts")
async def test_a_cut_period_is_the_same_period(server: OperatorServer) -> None:
    """
    A period that the range cuts keeps its usual start, so two answers can be joined. The answer lists it as cut.
    """
    for granularity in PERIODS:
        half = {"by": "team", "per": granularity, "from": (FIRST + timedelta(hours=5)).isoformat()}
        part, whole = (
            await ask(server, "/report", **half),
            await ask(server, "/report", **{**half, "from": "2026-01-01"}),
        )
        first = part["rows"][0]["period"]
        assert first in {row["period"] for row in whole["rows"]}, granularity
        assert first == part["report"]["cut_periods"][0], granularity
        assert spent(part["rows"]) == spent(whole["rows"]) - 5 * USERS, granularity
        hours = FIRST.timestamp() + 5 * HOUR_S
        assert hours > datetime.fromisoformat(first).timestamp(), granularity


LISTS: Sequence[tuple[str, dict[str, str]]] = [
    ("/report", TEN_HOURS),
    ("/report", {"by": "user,team", "range": "this_month"}),
    ("/comparison", {"by": "user", "top": "20"}),
]


async def test_rows_come_in_the_envelope_of_every_list(server: OperatorServer) -> None:
    """
    Without a limit, all rows of a report are on one page. Pages have every row once, and each page has the overall
    totals.
    """
    for path, query in LISTS:
        whole = await ask(server, path, **query)
        assert {"rows", "pagination", "filtering", "sorting", "total"} <= whole.keys(), (path, query)
        count = len(whole["rows"])
        pages = {"page_count": 1, "item_count": count, "total_count": count}
        assert pages == {name: whole["pagination"][name] for name in pages}, (path, query)
        rows, cursor = [], None
        while True:
            page = await ask(server, path, **query, **({"cursor": cursor} if cursor else {"limit": "7"}))
            rows += page["rows"]
            assert page["pagination"]["total_count"] == count
            assert whole["total"] == page["total"]
            if (cursor := page["pagination"]["cursor"]["next_cursor"]) is None:
                break
            last = cursor
        assert whole["rows"] == rows, (path, query)
        other = await server.ask("GET", f"{path}?{urlencode({**query, 'where': 'team=x', 'cursor': last})}")
        assert (400, "invalid_cursor") == other.error[:2], (path, query)


async def test_report_lists_its_filters(server: OperatorServer) -> None:
    """A report lists its filters as lists do. CSV has all rows, so it accepts no limit."""
    told = await ask(server, "/report", where="user!=dear", by="user", range="this_month")
    assert {"user!": ["dear"]} == told["filtering"]["current"]
    assert "user" in {each["field"] for each in told["filtering"]["available"]}
    assert 400 == (await server.ask("GET", "/report?format=csv&limit=5")).status
    for name in ("user", "user!", "owner", "tag:user_email"):
        if name.removesuffix("!") in {each["field"] for each in told["filtering"]["available"]}:
            where = f"{name}=Ada@Example.com"
            told = await ask(server, "/report", where=where, by="user", range="this_month")
            assert {name: ["Ada@Example.com"]} == told["filtering"]["current"], "an answer shows no hash"
