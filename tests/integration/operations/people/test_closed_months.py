"""Answers about past months have an ETag: 304 while they are unchanged, and a new tag after every change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import ClientSession, DummyCookieJar

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.core.paths import OPERATOR_API
from gateway.intake.prices import PriceBook
from spool.engines import MEMORY, POSTGRES
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof
from tests.spool.contract.examples import add, call
from tests.spool.postgres_cluster import Schema

NOW = datetime(2026, 9, 21, 14, tzinfo=UTC)
AUGUST = "from=2026-08-01&to=2026-08-31"
REPORT, MARKS = f"/report?{AUGUST}&by=team", f"/marks?{AUGUST}"
WHY, BILL = f"/comparison?{AUGUST}&by=team&against=previous", "/reconciliation?month=2026-08"
EVA = "eva@example.com"
PAGE = Path(__file__).parents[3] / "statements/openai_costs/page.json"
OWN = "Dimensions: {Part: {Rules: [{Type: GroupBy, Source: %s}]}}"


def at(day: str) -> float:
    return datetime.fromisoformat(f"{day}T09:00+00:00").timestamp()


def book(price: str) -> PriceBook:
    return PriceBook.load(
        PriceSettings(override=(PriceOverride(model="ours", input=Decimal(price), output=Decimal("10")),))
    )


on_every_engine = pytest.mark.parametrize("server", [MEMORY, as_proof(POSTGRES)], indirect=True)


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    """Start a server with a call of each of two teams in August, and one call in September."""
    engine, stored = getattr(request, "param", MEMORY), None
    if engine == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        stored = schema.settings(tmp_path)
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored) as server:
        server.services.money.prices = lambda: book("3")
        days = (("2026-08-05", "search"), ("2026-08-06", "checkout"), ("2026-09-05", "search"))
        made = [
            call(number, at=at(day), team=team, request_model="ours", provider="us")
            for number, (day, team) in enumerate(days)
        ]
        for record, _ in made:
            book("3").price_record(record)
        await add(server.services.spool.log, *made)
        yield server


@dataclass(frozen=True)
class Found:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def asked(server: OperatorServer, path: str, headers: Mapping[str, str], tag: str = "") -> Found:
    known = {"If-None-Match": f'"other", W/{tag}'} if tag else {}
    async with (
        ClientSession(cookie_jar=DummyCookieJar()) as session,
        session.get(f"{server.url}{OPERATOR_API}{path}", headers={**headers, **known}) as answer,
    ):
        return Found(answer.status, answer.headers, await answer.read())


async def tag_of(server: OperatorServer, path: str, headers: Mapping[str, str]) -> str:
    """Return the ETag of an answer, after checking that it gives 304."""
    answer = await asked(server, path, headers)
    assert answer.status == 200, answer.body
    assert answer.headers["Cache-Control"] == "private, no-cache", answer.body
    assert answer.headers["Vary"] == "Cookie", answer.body
    tag = answer.headers["ETag"]
    again = await asked(server, path, headers, tag)
    assert again.status == 304
    assert again.body == b""
    assert again.headers["ETag"] == tag
    return tag


async def late_report(server: OperatorServer) -> None:
    told = call(0, at=at("2026-08-05"), team="search", request_model="ours", provider="us",
                cost="7.5", cost_source="reported")  # fmt: skip
    await add(server.services.spool.log, told)


async def late_call(server: OperatorServer) -> None:
    await add(server.services.spool.log, call(9, at=at("2026-08-31"), team="search"))


async def call_before(server: OperatorServer) -> None:
    """Add a call in the previous period, because a comparison depends on it."""
    await add(
        server.services.spool.log,
        call(10, at=at("2026-07-20"), team="search", cost="1", cost_source="reported"),
    )


async def annotation(server: OperatorServer) -> None:
    made = await server.ask("POST", "/annotations", {"day": "2026-08-07", "text": "Contract begins"})
    assert 201 == made.status, made.payload


async def bill(server: OperatorServer) -> None:
    made = await server.ask("POST", "/statements", {"files": [str(PAGE)]})
    assert 200 == made.status, made.payload


async def prices(server: OperatorServer) -> None:
    server.services.money.prices = lambda: book("4")
    done = await server.ask("POST", "/ledger/reprice", {"since": "2026-08-01"})
    assert 200 == done.status, done.payload


async def dimension(server: OperatorServer) -> None:
    """Publish another definition under the same name."""
    made = await server.ask("POST", "/allocation/publish", {"definition": OWN % "model", "base": 1})
    assert 201 == made.status, made.payload


CAUSES: Mapping[Callable[[OperatorServer], Awaitable[None]], Sequence[str]] = {
    late_report: (REPORT, WHY),
    late_call: (REPORT, WHY),
    call_before: (WHY,),
    annotation: (MARKS,),
    bill: (BILL,),
    prices: (REPORT, WHY),
    dimension: (f"/report?{AUGUST}&by=User:Defined:Part",),
}


@on_every_engine
async def test_what_changes_a_closed_month_changes_its_tag(server: OperatorServer) -> None:
    """
    A late report or call, a bill, an annotation, prices and a dimension each change the answer and its tag.
    """
    made = await server.ask("POST", "/allocation/publish", {"definition": OWN % "team", "base": 0})
    assert 201 == made.status, made.payload
    person = await signed_in(server)
    for change, paths in CAUSES.items():
        before = [await tag_of(server, path, person) for path in paths]
        await change(server)
        for path, tag in zip(paths, before, strict=True):
            answer = await asked(server, path, person, tag)
            assert 200 == answer.status, (path, change.__name__)
            assert tag != answer.headers["ETag"]
            assert answer.body == (await asked(server, path, person)).body


async def test_a_changed_role_changes_the_tag(server: OperatorServer) -> None:
    """
    If a person's role changes, the tag (ETag) of an answer changes, even if the new role shows the same calls.
    People with different roles never share a tag.
    """

    def role(*teams: str, sets: tuple[str, ...] = ("view_costs",)) -> dict[str, object]:
        filters = [{"dimension": "team", "values": teams, "mode": "is"}]
        return {"data_access": "limited", "filters": filters, "permission_sets": sets}

    eva, whole = await signed_in(server, "none", EVA), await signed_in(server)
    made = await server.ask("POST", "/roles", {"name": "Part", "members": [EVA], **role("search")})
    assert 201 == made.status, made.payload
    address = f"/roles/{made.payload['role']['id']}"
    tags = [await tag_of(server, REPORT, eva)]
    for changed in (
        role("search", "checkout"),
        role("search", "checkout", sets=("view_costs", "view_operation")),
    ):
        done = await server.ask("PATCH", address, changed)
        assert 200 == done.status, done.payload
        tags.append(await tag_of(server, REPORT, eva))
    everybody = await tag_of(server, REPORT, whole)
    assert 4 == len({*tags, everybody})
    for headers, foreign in ((eva, everybody), (whole, tags[-1])):
        assert 200 == (await asked(server, REPORT, headers, foreign)).status
    assert 200 == (await server.ask("PATCH", address, {"members": []})).status
    assert 403 == (await asked(server, REPORT, eva, tags[-1])).status


async def test_session_is_checked_before_the_tag(server: OperatorServer) -> None:
    """The session is checked before the tag, and a sign-out clears the browser's cache."""
    person = await signed_in(server)
    tag = await tag_of(server, REPORT, person)
    left = await server.over_http("DELETE", "/session", headers=person)
    assert left.status == 200
    assert left.headers["Clear-Site-Data"] == '"cache"'
    assert 401 == (await asked(server, REPORT, person, tag)).status


NOT_OVER: Sequence[str] = [
    "/report?range=this_month",
    "/report?from=2026-08-02&to=2026-08-31",
    "/report?from=2026-08-01&to=2026-08-30",
    f"/report?{AUGUST}&format=csv",
    "/reconciliation?month=2026-09",
    "/people",
]


async def test_unfinished_months_csv_and_names_are_never_cached(server: OperatorServer) -> None:
    """Current months, parts of months, CSV and people's names are never cached."""
    person = await signed_in(server)
    for path in NOT_OVER:
        answer = await asked(server, path, person)
        assert answer.status == 200, path
        assert answer.headers["Cache-Control"] == "no-store", path
        assert answer.headers.get("ETag") is None, path
