"""Views and budgets that filter by repository, pull request and ticket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.money.insights.gathering import SpendReader
from gateway.operations.money.work_links.declared import links_and_units_that_saved_views_filter_by
from spool.engines import POSTGRES, SQLITE
from spool.ledger.work import WorkLimits, unit_number_from_name_or_digest
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.bills.plans.test_plans import CLAUDE
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
ROOT = Actor("root@example.com", "local")
EVA = "eva@example.com"
SHOP, DOCS, PULL = "acme/shop", "acme/docs", "acme/shop#42"
# Each row has days before now, session, team, repository, pull request and cost.
SPENT = (
    (0, "first", "search", SHOP, PULL, "1"),
    (1, "second", "ads", SHOP, None, "2"),
    (1, "third", "search", DOCS, None, "4"),
    (40, "fourth", "search", SHOP, None, "8"),
    (2, "fifth", "search", None, None, "16"),
)
SHOP_FILTER = {"filter": {"repository": [SHOP]}, "principal_dimension": "team"}


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    engine = getattr(request, "param", SQLITE)
    stored = request.getfixturevalue("new_schema")().settings(tmp_path) if engine == POSTGRES else None
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored) as server:
        calls = [
            call(
                number,
                at=NOW.timestamp() - 3600 - days * 86400,
                session=session,
                team=team,
                tags={
                    name: value
                    for name, value in (("repository", repository), ("pull_request", pull))
                    if value
                },
                cost=cost,
                cost_source="reported",
            )
            for number, (days, session, team, repository, pull, cost) in enumerate(SPENT)
        ]
        await add(server.services.spool.log, *calls)
        yield server


async def made(server: OperatorServer, path: str, **fields: Any) -> Any:
    answer = await server.ask("POST", path, fields)
    assert 201 == answer.status, answer.payload
    return next(value for value in answer.payload.values() if isinstance(value, dict))


async def refused(server: OperatorServer, path: str, **fields: Any) -> tuple[int, str]:
    answer = await server.ask("POST", path, fields)
    return answer.status, answer.payload["error"]["message"]


async def budget_of(server: OperatorServer, view: Any, **fields: Any) -> Any:
    body = {"name": f"of {view['name']}", "view": {"id": view["id"]}, "default_amount": "2", **fields}
    return await made(server, "/budgets", **body)


async def spent(server: OperatorServer, budget: Any, *expand: str) -> Any:
    more = "".join(f"&expand={each}" for each in expand)
    answer = await server.ask("GET", f"/budgets/{budget['id']}?expand=current{more}")
    assert 200 == answer.status, answer.payload
    return answer.payload["budget"]


async def use_links(server: OperatorServer) -> None:
    """Do what a gateway does after each change of the registry."""
    await server.storage.ledger.apply_links(links_and_units_that_saved_views_filter_by(server.registry))


@pytest.mark.parametrize("server", [SQLITE, as_proof(POSTGRES)], indirect=True)
async def test_a_budget_counts_the_calls_of_a_repository(server: OperatorServer) -> None:
    """
    A budget over a repository or a pull request has all its calls, by owner, with alerts, history and forecast. Linked
    calls count as long as they are linked.
    """
    shop = await made(server, "/views", name="shop", **SHOP_FILTER)
    budget = await budget_of(
        server, shop, per="team", alerts={"50": "Y", "100": "Y"}, forecast_alerts={"100": "Y"}
    )
    shown = await spent(server, budget, "history", "burnup", "forecast")
    assert "3" == shown["current"]["actual"]
    owners = (await server.ask("GET", f"/budgets/{budget['id']}/owners")).payload["owners"]
    assert {"search": "1", "ads": "2"} == {row["owner"]: row["actual"] for row in owners}
    alerts = (await server.ask("GET", f"/budgets/{budget['id']}/alerts")).payload["alerts"]
    assert {("ads", 100), ("ads", 50), ("search", 50)} <= {(row["owner"], row["percent"]) for row in alerts}
    quarterly = await budget_of(server, shop, name="quarter", granularity="quarterly")
    assert "11" == (await spent(server, quarterly, "history"))["current"]["actual"]
    pull = await made(
        server, "/views", name="pull", filter={"pull_request": [PULL]}, principal_dimension="team"
    )
    of_pull = await budget_of(server, pull)
    assert "1" == (await spent(server, of_pull))["current"]["actual"]
    link = await made(server, "/work/links", session="third", pull_request=PULL)
    assert "5" == (await spent(server, of_pull))["current"]["actual"]
    assert 200 == (await server.ask("DELETE", f"/work/links/{link['id']}")).status
    assert "1" == (await spent(server, of_pull))["current"]["actual"]
    without = await made(
        server, "/views", name="rest", filter={"!repository": [SHOP]}, principal_dimension="team"
    )
    assert "20" == (await spent(server, await budget_of(server, without)))["current"]["actual"]
    none = await made(
        server, "/views", name="none", filter={"pull_request": [None]}, principal_dimension="team"
    )
    assert "22" == (await spent(server, await budget_of(server, none)))["current"]["actual"]
    report = await server.ask("GET", "/report?view=shop&by=team&range=last_90d")
    assert {"search": "9", "ads": "2"} == {row["team"]: row["cost"] for row in report.payload["rows"]}
    calls = await server.ask("GET", "/records?view=shop")
    assert 3 == calls.payload["pagination"]["total_count"]
    for path in ("/overview?view=shop", "/forecast?view=shop", "/marks?view=shop", "/comparison?view=shop"):
        assert 200 == (await server.ask("GET", path)).status, path


async def test_views_name_no_other_units(server: OperatorServer) -> None:
    """Views name repositories, pull requests and tickets in filters. Everything else is refused with its reason."""
    for field in ({"filter": {"session": ["first"]}}, {"filter": {"!run": ["a"]}}):
        status, message = await refused(server, "/views", name="no", principal_dimension="team", **field)
        assert 422 == status
        assert "its number of ids is unlimited" in message
    for more in (
        {"group_by": ["repository"]},
        {"principal_dimension": "ticket"},
        {"filter": {"branch": ["main"]}},
    ):
        status, message = await refused(
            server, "/views", **{"name": "no", "filter": {}, "principal_dimension": "team", **more}
        )
        assert 422 == status, message
        assert "Only its filter" in message
    view = await made(server, "/views", name="shop", **SHOP_FILTER)
    for cost_type in ("billed_cost", "paid_cost"):
        status, message = await refused(
            server, "/views", **{**SHOP_FILTER, "name": "no", "cost_type": cost_type}
        )
        assert (422, True) == (status, "use another cost_type" in message)
    of_view = {"name": "no", "view": {"id": view["id"]}, "default_amount": "2"}
    for rule, words in (
        ({"granularity": "yearly"}, "tag:repository"),
        ({"measure": "web_searches"}, "use cost, calls or tokens"),
        ({"cost_type": "billed_cost"}, "use real_cost"),
        ({"cost_type": "paid_cost"}, "use real_cost"),
    ):
        status, message = await refused(server, "/budgets", **of_view, **rule)
        assert (422, True) == (status, words in message), message
    status, message = await refused(server, "/budgets", **of_view, per="repository")
    assert 400 == status
    for path, words in (
        ("/report?view=shop&by=team&cost_type=billed_cost", "use a counted cost_type"),
        ("/report?view=shop&by=team&range=this_year", "at most 92 days"),
        ("/report?view=shop&by=team,session", "by team"),
        ("/what-if?view=shop&model=gpt-4o", "GET /report"),
        ("/forecast?view=shop&per=yearly", "per=quarterly"),
    ):
        answer = await server.ask("GET", path)
        if path.endswith("session"):
            assert 200 == answer.status
            continue
        assert (422, True) == (answer.status, words in answer.payload["error"]["message"]), path
    status, message = await refused(server, "/plans", **{**CLAUDE, "view": "shop"})
    assert (409, "view: a plan cannot use this view, because it filters by repository") == (status, message)
    calls = await made(server, "/views", name="calls", filter={}, principal_dimension="team")
    await made(server, "/plans", **{**CLAUDE, "view": "calls"})
    changed = await server.ask("PATCH", f"/views/{calls['id']}", {"filter": {"repository": [SHOP]}})
    assert 409 == changed.status
    assert "a plan uses this view" in changed.payload["error"]["message"]
    yearly = await made(server, "/views", name="all", filter={}, principal_dimension="team")
    budget = await budget_of(server, yearly, granularity="yearly")
    changed = await server.ask("PATCH", f"/views/{yearly['id']}", {"filter": {"repository": [SHOP]}})
    assert 200 == changed.status, changed.payload
    assert "at most a quarter" in (await spent(server, budget))["problem"]


@pytest.mark.parametrize("server", [SQLITE, POSTGRES], indirect=True)
async def test_a_budget_is_never_too_small(server: OperatorServer) -> None:
    """
    A repository that a view names stays listed although many others are dearer. If one is no longer listed, its budget
    has a problem instead of a sum without these calls.
    """
    ledger = server.storage.ledger
    view = await made(server, "/views", name="shop", **SHOP_FILTER)
    await use_links(server)
    old = [
        call(number, at=NOW.timestamp() - 1800, tags={"repository": f"r{number}"}, cost="19", cost_source="reported")
        for number in range(100, 130)
    ]  # fmt: skip
    await add(server.services.spool.log, *old)
    ledger._work = WorkLimits(ids_per_month=4)
    await ledger.catch_up(server.services.spool.log)
    await ledger.sum_up_and_delete_hours()
    numbers = {name: unit_number_from_name_or_digest("repository", name) for name in (SHOP, DOCS)}
    assert await ledger.is_unit_merged_into_other("repository", numbers[DOCS])
    status = (await server.ask("GET", "/work/status")).payload["status"]
    counts = {row["unit"]: (row["listed"], row["unlisted"]) for row in status["units"]}
    assert 32 == sum(counts["repository"])
    assert counts["repository"][0] <= 4
    assert (4, 0) == counts["session"]
    assert (100_000, 0, 10_000) == (status["ids_per_month"], status["links"], status["max_links"])
    assert not await ledger.is_unit_merged_into_other("repository", numbers[SHOP])
    budget = await budget_of(server, view)
    assert Decimal(3) == Decimal((await spent(server, budget))["current"]["actual"])
    docs = await made(
        server, "/views", name="docs", filter={"repository": [DOCS]}, principal_dimension="team"
    )
    budget = await budget_of(server, docs)
    shown = await spent(server, budget)
    assert shown["current"] is None
    assert f"the repository {DOCS} is no longer listed" in shown["problem"]
    spend = SpendReader(ledger, NOW.timestamp())
    for stored, days in ((view, 1), (docs, 0)):
        of_view = server.registry.views.find(stored["id"])
        assert of_view is not None
        found = await spend.view_spend(of_view, NOW.timestamp() - 36 * 3600)
        assert days <= len(found.days) <= days * 2
    answer = await server.ask("GET", "/report?by=team&where=repository!=acme/docs")
    assert 400 == answer.status
    assert "no longer listed" in answer.payload["error"]["message"]
    assert 200 == (await server.ask("PATCH", f"/views/{view['id']}", {"filter": {}})).status
    await use_links(server)
    ledger._work, ledger._unchecked_work = WorkLimits(ids_per_month=2), 1000
    await ledger.sum_up_and_delete_hours()
    assert await ledger.is_unit_merged_into_other("repository", numbers[SHOP])


async def test_a_limited_person_sees_budgets_within_the_slice(server: OperatorServer) -> None:
    """
    A person who sees only team search gets the budget of its calls in a repository, and no budget of all its calls. A
    query of an unlisted repository looks to them as one of a repository that never existed.
    """
    own = await made(
        server,
        "/views",
        name="own",
        filter={"repository": [SHOP], "team": ["search"]},
        principal_dimension="team",
    )
    every = await made(server, "/views", name="every", **SHOP_FILTER)
    for view in (own, every):
        await budget_of(server, view)
    draft = NewRole(
        name="search only",
        data_access=LIMITED,
        filters=(RoleFilter(dimension="team", values=("search",)),),
        members=(EVA,),
        permission_sets=("view_costs",),
    )
    await server.registry.roles.create(draft, known_dimensions=("team",), limits=RoleLimits(), actor=ROOT)
    headers = await signed_in(server, "none", EVA)
    budgets = (await server.over_http("GET", "/budgets?expand=current", headers=headers)).payload["budgets"]
    assert [("of own", "1")] == [(row["name"], row["current"]["actual"]) for row in budgets]
    number = unit_number_from_name_or_digest("repository", DOCS)
    await server.storage.ledger._change_rows(lambda rows: rows.merge_units_into_other("repository", [number]))
    for name in (DOCS, "acme/nothing"):
        answer = await server.over_http("GET", f"/report?by=team&where=repository={name}", headers=headers)
        assert (200, []) == (answer.status, answer.payload["rows"])
