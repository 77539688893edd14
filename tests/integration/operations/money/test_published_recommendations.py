"""Recommendations over HTTP: found in a month of calls, and decided by people."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from urllib.parse import urlencode

import pytest_asyncio

from gateway.intake.prices import PriceBook
from gateway.money.recommendations.list import TYPES
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, Inference
from spool.registry.scopes import GROUPS
from tests.integration.conftest import Serve, Serving

BOOK = PriceBook.load()
ALL = "/v2/optimize/recommendations"


class Desk:
    """A gateway with calls of two teams, and a key with every recommendation scope."""

    def __init__(self, serving: Serving, key: str) -> None:
        self.serving = serving
        self.key = key

    async def ask(self, method: str, path: str, body: object = None, *, status: int = 200) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = await self.serving.send(path, sent, method=method, key=self.key)
        assert status == answer.status, answer.body
        return json.loads(answer.body)

    async def page(self, **query: str) -> Any:
        return (await self.ask("GET", f"{ALL}?{urlencode(query)}"))["recommendations"]

    async def look(self) -> None:
        await self.serving.app.services.operators.money.require_adviser().find_and_store_savings()


@pytest_asyncio.fixture
async def desk(serve: Serve) -> AsyncIterator[Desk]:
    serving = await serve()
    now = int(serving.app.services.operators.installation.clock.now())
    calls = [
        Inference(
            id=f"{team:>14}{number:02}".encode(), source="litellm", provider="openai", request_model="gpt-4.1",
            team=team,
            start_time=(now - 3600 - 86400 * number) * NS, input_tokens=1_000_000, output_tokens=100_000,
            tags={"service_tier": "priority"},
        )
        for team, many in (("search", 3), ("docs", 4))
        for number in range(1, many + 1)
    ]  # fmt: skip
    for call in calls:
        BOOK.price_record(call)
    log = serving.app.services.storage.log
    identities = [RecordIdentity(call.id) for call in calls]
    await log.append_submission(
        Submission(topic=AI_TELEMETRY, received=7, records=calls, identities=identities)
    )
    yield Desk(serving, await serving.make_key("desk", scopes=GROUPS["Optimization & Savings"]))


async def test_from_calls_to_a_list(desk: Desk) -> None:
    """Two teams could save $2.10 per call each. A check returns this before anything is stored."""
    assert [] == await desk.page()
    checked = (await desk.ask("POST", "/v2/optimize/check", {}))["check"]
    types = [{"type": "priority_tier", "count": 2, "monthly_savings": "14.7"}]
    assert {"count": 2, "monthly_savings": "14.7", "spent": "34.3", "types": types, "failed": []} == checked
    assert [] == await desk.page()
    await desk.look()
    first, second = await desk.page()
    assert first["monthly_savings"] == "8.4"
    assert second["monthly_savings"] == "6.3"
    assert "$19.6 as priority - $11.2 as standard" == first["formula"]
    assert first["current"] == {"model": "gpt-4.1", "provider": "openai", "mode": "priority"}
    assert first["recommended"]["mode"] == ""
    assert first == (await desk.ask("GET", f"{ALL}/{first['id']}"))["recommendation"]
    assert [second] == await desk.page(team="search")
    assert [] == await desk.page(type="newer_model")
    assert [second, first] == await desk.page(sort_key="savings", sort_order="asc")
    dimensions = (await desk.ask("GET", "/v2/optimize/dimensions"))["dimensions"]
    assert {"id": "team", "values": ["docs", "search"]} in dimensions


PARTS: Sequence[tuple[dict[str, Any], int]] = [
    ({"filter": {"team": ["search"]}}, 1),
    ({"filter": {"!team": ["search"]}}, 1),
    ({"filter": {"user": [None]}}, 2),
    ({"filter": {"team": ["nobody"]}}, 0),
    ({"type": "newer_model"}, 0),
]


async def test_a_check_of_a_part(desk: Desk) -> None:
    """A check may be limited to one type or to the calls that match a filter."""
    for body, count in PARTS:
        assert count == (await desk.ask("POST", "/v2/optimize/check", body))["check"]["count"], (body, count)


LEAST: Sequence[tuple[dict[str, Any], int]] = [
    ({"least_savings": "6.3"}, 2),
    ({"least_savings": "6.4"}, 1),
    ({"least_share": 24}, 1),
    ({"least_share": 25}, 0),
]


async def test_saving_is_listed_if_it_reaches_both_minimums(desk: Desk) -> None:
    """
    A saving is listed if it reaches both minimums: dollars per month, and percent of spend ($34.30 here).
    """
    for least, count in LEAST:
        await desk.ask("PATCH", "/v2/optimize/recommendation_types/priority_tier", {"thresholds": least})
        assert count == (await desk.ask("POST", "/v2/optimize/check", {}))["check"]["count"], (least, count)


async def test_many_are_decided_at_once(desk: Desk) -> None:
    """
    When many recommendations are decided at once, each id has its own result. Ignored ones stay in the list
    under that status.
    """
    await desk.look()
    ids = [each["id"] for each in await desk.page()]
    changed = await desk.ask("PATCH", ALL, {"ids": [*ids, "gone"], "status": "ignored", "assignee": "ada"})
    assert [True, True, False] == ["error" not in each for each in changed["recommendations"]]
    assert set(ids) == {each["id"] for each in await desk.page(status="ignored", assignee="ada")}
    await desk.ask("PATCH", ALL, {"ids": []}, status=400)
    await desk.ask("PATCH", ALL, {"ids": ids, "status": "done"}, status=400)


async def test_comments(desk: Desk) -> None:
    """Comments are added, changed and deleted, one or several at once."""
    await desk.look()
    comments = f"{ALL}/{(await desk.page())[0]['id']}/comments"
    await desk.ask("POST", comments, {"message": "one"})
    added = await desk.ask("POST", comments, {"comments": [{"message": "two"}, {"message": "three"}]})
    assert ["2", "3"] == [each["id"] for each in added["comments"]]
    changed = await desk.ask("PATCH", f"{comments}/2", {"message": "second"})
    assert changed["comment"]["message"] == "second"
    assert changed["comment"]["author"] == "desk"
    assert {"comment": {"id": "1"}} == await desk.ask("DELETE", f"{comments}/1")
    listed = (await desk.ask("GET", f"{comments}?sort_key=created"))["comments"]
    assert ["second", "three"] == [each["message"] for each in listed]
    for body in ({}, {"message": "x", "comments": [{"message": "y"}]}):
        await desk.ask("POST", comments, body, status=400)
    await desk.ask("DELETE", f"{comments}/1", status=404)
    await desk.ask("PATCH", f"{comments}/one", {"message": "x"}, status=404)


async def test_types(desk: Desk) -> None:
    """
    Each recommendation type states its formula. Disabling a type stops its search and closes its recommendations.
    """
    await desk.look()
    types = (await desk.ask("GET", "/v2/optimize/recommendation_types"))["recommendation_types"]
    assert sorted(type.NAME for type in TYPES) == [each["type"] for each in types]
    one = "/v2/optimize/recommendation_types/priority_tier"
    assert {"recommendation_type": types[[each["type"] for each in types].index("priority_tier")]} == (
        await desk.ask("GET", one)
    )
    off = (await desk.ask("PATCH", one, {"enabled": False}))["recommendation_type"]
    assert off["enabled"] is False
    assert off["thresholds"] == {"least_savings": "5", "least_share": "1"}
    assert 2 == len(await desk.page(open="false"))
    assert 0 == (await desk.ask("POST", "/v2/optimize/check", {}))["check"]["count"]
    await desk.look()
    assert [] == await desk.page(open="true")
    for body in ({"thresholds": {"least_share": 101}}, {"thresholds": {"most": 1}}, {"enabled": "no"}):
        await desk.ask("PATCH", one, body, status=400)
    await desk.ask("GET", "/v2/optimize/recommendation_types/magic", status=404)


async def test_one_look_at_a_time(desk: Desk) -> None:
    """A check during another run is refused with a time to retry. Nothing is queued."""
    adviser = desk.serving.app.services.operators.money.require_adviser()
    async with adviser._turn:
        answer = await desk.serving.send("/v2/optimize/check", b"{}", key=desk.key)
        assert answer.status == 429
        assert answer.headers["Retry-After"] == "5"
    await desk.ask("POST", "/v2/optimize/check", {})


WRONG_FILTERS: Sequence[dict[str, list[str]]] = [{"floor": ["9"]}, {"team": []}]


async def test_a_wrong_filter_is_refused(desk: Desk) -> None:
    """A wrong filter gets an error that names the known dimensions."""
    for filters in WRONG_FILTERS:
        await desk.ask("POST", "/v2/optimize/check", {"filter": filters}, status=400)
