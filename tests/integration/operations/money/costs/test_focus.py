"""FOCUS exports of the operator API: sent while they are made, and limited to what a person may see."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from gateway.core.paths import OPERATOR_API, WARNINGS
from gateway.http.answers import SLICE_BYTES
from gateway.money.focus.reports import FocusReports
from gateway.operations.money.costs.focus import _warnings_header
from spool.errors import AskedTooMuch, SpoolUnavailable
from spool.viewed_people import SEVERAL
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import Answer, OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
EVA = "eva@example.com"
TEAMS = ("search", "checkout")
DAYS = {"from": "2026-09-01", "to": "2026-09-30"}
PATH = "/focus?from=2026-09-01&to=2026-09-30"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    """Calls of two teams on three days."""
    calls = [
        call(number, at=(NOW - timedelta(days=number % 3, hours=number)).timestamp(), team=TEAMS[number % 2],
             user=f"{TEAMS[number % 2]}-{number}", cost=f"{number}.5", cost_source="reported")
        for number in range(8)
    ]  # fmt: skip
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await add(server.services.spool.log, counted_from("2026-08-20"), *calls)
        yield server


async def limited_to_search(server: OperatorServer, **more: Any) -> dict[str, str]:
    filters = [{"dimension": "team", "values": ["search"], "mode": "is"}]
    role = {"data_access": "limited", "filters": filters, "permission_sets": ["view_costs"], **more}
    made = await server.ask("POST", "/roles", {"name": "Part", "members": [EVA], **role})
    assert 201 == made.status, made.payload
    return await signed_in(server, "none", EVA)


def rows_of(answer: Answer) -> list[dict[str, str]]:
    assert 200 == answer.status, answer.payload
    return list(csv.DictReader(io.StringIO(answer.payload)))


async def test_a_person_with_restricted_access_gets_only_own_rows(server: OperatorServer) -> None:
    """
    A person with restricted access gets exactly those FOCUS rows of their team that somebody with full access gets.
    """
    all_rows = rows_of(await server.ask("GET", "/focus", **DAYS))
    assert set(TEAMS) == {row["SubAccountId"] for row in all_rows}
    eva = await limited_to_search(server)
    own = rows_of(await server.over_http("GET", PATH, headers=eva))
    assert [row for row in all_rows if row["SubAccountId"] == "search"] == own


async def test_a_kind_of_cost_that_a_role_hides_is_refused(server: OperatorServer) -> None:
    eva = await limited_to_search(server, cost_types=["discounted_cost"])
    answer = await server.over_http("GET", PATH, headers=eva)
    assert (403, "cost_type") == answer.error[:2]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"to": "2026-09-30"}, "from must be a day such as 2026-11-20"),
        ({"from": "2026-09-01T00:00:00Z", "to": "2026-09-30"}, "from must be a day"),
        ({"from": "2026-09-30", "to": "2026-09-01"}, "to must not be before from"),
        ({"from": "2000-01-01", "to": "2199-12-31"}, "periods"),
        ({"from": "2000-01-01", "to": "9999-12-31"}, "to must be between the years 2000 and 2200"),
        ({**DAYS, "version": "1.0"}, "version must be one of 1.2"),
        ({**DAYS, "tag": "session"}, "no units of work such as session"),
        ({**DAYS, "tag": "nothing"}, "unknown dimension 'nothing'"),
        ({**DAYS, "plans": "yes"}, "plans must be one of true, false"),
        ({**DAYS, "lines": "tokens"}, "lines must be meters"),
        ({**DAYS, "to": "2026-09-29", "plans": "true"}, "plans needs whole months"),
        ({**DAYS, "billed": "true", "lines": "meters"}, "cannot be used with billed"),
        ({**DAYS, "view": "search"}, "accepts only the parameters"),
    ],
)
async def test_a_wrong_request_is_refused(server: OperatorServer, query: dict[str, str], words: str) -> None:
    answer = await server.ask("GET", "/focus", **query)
    assert 400 == answer.status, answer.payload
    assert words in answer.payload["error"]["message"]


async def test_a_day_too_large_for_one_query_is_read_by_hour(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows_of(await server.ask("GET", "/focus", **DAYS))
    rows = FocusReports.read_report_rows

    async def limited(
        reports: FocusReports, since: datetime, until: datetime, *given: Any, **more: Any
    ) -> Any:
        if more.get("per") == "hourly" and until - since > timedelta(hours=1):
            raise AskedTooMuch("too many rows")
        return await rows(reports, since, until, *given, **more)

    monkeypatch.setattr(FocusReports, "read_report_rows", limited)
    assert whole == rows_of(await server.ask("GET", "/focus", **DAYS))


async def test_a_file_is_sent_while_it_is_made(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A FOCUS file is sent while it is made: the first day arrives before the second day is read. If a later day
    cannot be read, the connection breaks. The audit of who saw people's names of the first day is stored before it
    is sent.
    """
    rows, hourly = FocusReports.read_report_rows, list[datetime]()

    async def failing(reports: FocusReports, since: datetime, *given: Any, **more: Any) -> Any:
        if more.get("per") == "hourly":
            hourly.append(since)
            if len(hourly) == 2:
                raise SpoolUnavailable("the disk is full")
        return await rows(reports, since, *given, **more)

    monkeypatch.setattr(FocusReports, "read_report_rows", failing)
    connector = aiohttp.UnixConnector(str(server.socket))
    url = f"http://tollhouse{OPERATOR_API}{PATH}"
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(url, headers={"X-Tollhouse-As": "ada"}) as answer:
            assert 200 == answer.status
            assert (
                'filename="tollhouse-focus-2026-09-01-2026-09-30.csv"'
                in answer.headers["Content-Disposition"]
            )
            received = b""
            with pytest.raises(aiohttp.ClientPayloadError):
                while True:
                    received += await answer.content.readany()
        assert 1 < received.count(b"\n")
        [seen] = await server.registry.viewings.viewings_naming([SEVERAL])
        assert ("ada", "/focus", SEVERAL) == (seen.viewer, seen.page, seen.person)
        hourly[:] = [NOW]  # now the first day fails, before anything is sent
        async with session.get(url, headers={"X-Tollhouse-As": "ada"}) as answer:
            assert 503 == answer.status


async def test_other_queries_of_a_person_run_between_the_days(server: OperatorServer) -> None:
    """
    Two FOCUS exports of one person run one after the other, and both end. Other queries of the person run between
    the days.
    """
    async with server.services.installation.questions.open_export("person ada@example.com"):
        assert 200 == (await server.ask("GET", "/report?range=last_7d")).status
    assert rows_of(await server.ask("GET", "/focus", **DAYS))


def test_warnings_fit_into_a_header() -> None:
    """
    Warnings of an export fit into a header. Proxies reject long headers, so the number of further sentences is
    stated. All characters are printable ASCII.
    """
    assert {} == _warnings_header([])
    assert ["ö\n"] == json.loads(_warnings_header(["ö\n"])[WARNINGS])
    text = _warnings_header([f"day {number} is missing" for number in range(1000)])[WARNINGS]
    assert len(text) <= 2000 < SLICE_BYTES
    assert text.isascii() and text.isprintable()
    shown = json.loads(text)
    assert shown[-1] == f"{1001 - len(shown)} more sentences such as these are left out"
