"""
Paid costs in reports, budgets and on the overview: calls that no plan covers, and the fees and overage of seats.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio

from gateway.configuration.server import AnswerSettings
from spool.engines import MEMORY, POSTGRES, SQLITE
from spool.money import UNIT
from spool.registry.roles import EXCEPT, LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.bills.plans.test_plans import (
    CLAUDE,
    EVA,
    NOW,
    ROOT,
    SOURCES,
    a_call,
    august,
    costs_of,
    keep_plans,
    made,
)
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof, examples, part, some
from tests.spool.contract.examples import add

AUGUST = "from=2026-08-01&to=2026-08-31"
ZONES = ("UTC", "Asia/Tokyo", "America/New_York", "America/Santiago")
on_every_engine = pytest.mark.parametrize("server", [SQLITE, as_proof(POSTGRES)], indirect=True)


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    engine = getattr(request, "param", MEMORY)
    stored = request.getfixturevalue("new_schema")().settings(tmp_path) if engine == POSTGRES else None
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored) as server:
        for name, source in SOURCES.items():
            filter = {"source": [source]}
            await made(server, "/views", name=name, filter=filter, principal_dimension="user")
        yield server


async def paid(server: OperatorServer, more: str = "", span: str = AUGUST, **headers: Any) -> Any:
    path = f"/report?{span}&cost_type=paid_cost&{more}"
    answer = await (server.over_http("GET", path, **headers) if headers else server.ask("GET", path))
    assert 200 == answer.status, answer.payload
    rows = answer.payload["rows"]
    assert sum(Fraction(row["cost"]) for row in rows) == Fraction(answer.payload["total"]["cost"])
    return answer.payload


def by_name(payload: Any, name: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = defaultdict(Fraction)
    for row in payload["rows"]:
        found[row[name]] += Fraction(row["cost"])
    return {value: amount for value, amount in found.items() if amount}


def added(rows: Sequence[Any], name: str, *fields: str) -> dict[str, Fraction]:
    found: dict[str, Fraction] = defaultdict(Fraction)
    for row in rows:
        found[row[name]] += sum(Fraction(row[field]) for field in fields)
    return {value: amount for value, amount in found.items() if amount}


@pytest.mark.proof
@on_every_engine
async def test_every_grouping_and_granularity_adds_up_to_what_plans_cost(server: OperatorServer) -> None:
    """Paid costs equal the paid sum of plans to the last digit, in whatever rows they are shown."""
    await keep_plans(server)
    await add(server.services.spool.log, *august(random.Random(11)))
    plans = await costs_of(server)
    total = {name: Fraction(plans["total"][name]) for name in ("paid", "fees", "overage", "metered")}
    assert all(total.values())
    charges = by_name(await paid(server, "by=charge"), "charge")
    assert charges == {"usage": total["metered"], "seat_fee": total["fees"], "overage": total["overage"]}
    by_plan = by_name(await paid(server, "by=plan"), "plan")
    assert by_plan.pop(None) == total["metered"]  # type: ignore[call-overload]
    assert by_plan == added(plans["plans"], "name", "fees", "overage")
    of_seats = "charge=seat_fee&where=charge=overage"
    by_team = by_name(await paid(server, f"by=team&where={of_seats}"), "team")
    assert by_team == added(plans["rows"], "team", "fees", "overage")
    by_user = by_name(await paid(server, f"by=user&where={of_seats}"), "user")
    rows = [{**row, "user": {"BOB": "Bob"}.get(row["user"], row["user"])} for row in plans["rows"]]
    # the user is named in the way in which the calls write it
    assert by_user == added(rows, "user", "fees", "overage")

    names = ("team", "user", "model_family", "source", "charge", "plan", "provider")
    lengths = ("total", "hourly", "daily", "weekly", "monthly", "yearly")
    everything = [*product(lengths, names[:5], names[4:], ("", "&top=2"))]
    for per, first, second, tops in random.Random(36).sample(everything, examples(20)):
        found = await paid(server, f"per={per}&by={first}&by={second}{tops}")
        assert Fraction(found["total"]["cost"]) == total["paid"], (per, first, second, tops)


async def test_days_of_a_cycle_are_the_fee_to_the_last_digit(server: OperatorServer) -> None:
    """
    The days of a cycle add up to the fee with all its digits, on every cycle day, in every zone and length of
    period.
    """
    chance = random.Random(5)
    fees: dict[str, Fraction] = {}
    for number, day in enumerate((1, 15, 29, 31)):
        fee = f"{chance.randint(1, 200)}.{chance.randint(1, 10**27 - 1):027}"
        seats = [{"user": f"user-{number}", "since": "2025-01-01"}]
        await made(server, "/plans", name=f"Plan {day}", view="claude", fee=fee, cycle_day=day, seats=seats)
        fees[f"Plan {day}"] = Fraction(fee)
    for zone, per in some([*product(ZONES, ("daily", "weekly", "total"))], every=5):
        more = f"by=plan&per={per}&tz={zone}"
        assert (
            by_name(await paid(server, more, "from=2026-02-01&to=2026-02-28"), "plan")["Plan 1"]
            == (fees["Plan 1"])
        )
        for plan, span in (
            ("Plan 15", "from=2026-02-15&to=2026-03-14"),
            ("Plan 29", "from=2026-02-28&to=2026-03-28"),
            ("Plan 31", "from=2026-02-28&to=2026-03-30"),
        ):
            assert by_name(await paid(server, more, span), "plan")[plan] == fees[plan], (zone, per)
        year = by_name(await paid(server, more, "from=2025-01-01&to=2025-12-31"), "plan")
        assert year["Plan 1"] == 12 * fees["Plan 1"]
    days = (await paid(server, "per=daily&where=plan=Plan+1", "from=2026-02-01&to=2026-02-28"))["rows"]
    assert 28 == len(days)
    even = fees["Plan 1"] / 28
    assert all(abs(Fraction(row["cost"]) - even) <= Fraction(1, UNIT) for row in days)


async def test_a_fee_begins_with_its_day_and_ends_with_its_seat(server: OperatorServer) -> None:
    seats = [
        {"user": "ann", "since": "2026-08-30", "until": "2026-09-01"},
        {"user": "cid", "since": "2026-09-02"},
    ]
    await made(server, "/plans", name="Claude", view="claude", fee="310", seats=seats)
    rows = (await paid(server, "per=daily&by=user", "from=2026-08-01&to=2026-09-30"))["rows"]
    assert [
        ("2026-08-30", "ann", "10"),
        ("2026-08-31", "ann", "10"),
        ("2026-09-02", "cid", "10.333333333333333333333333333"),
        ("2026-09-03", "cid", "10.333333333333333333333333334"),
    ] == [(row["period"][:10], row["user"], row["cost"]) for row in rows]
    hours = (await paid(server, "per=hourly", "from=2026-08-30&to=2026-08-31"))["rows"]
    assert ["2026-08-30T00", "2026-08-31T00"] == [row["period"][:13] for row in hours]
    assert (
        "0" == (await paid(server, span="from=2026-08-30T01:00:00Z&to=2026-08-30T23:00:00Z"))["total"]["cost"]
    )


async def test_without_a_plan_nothing_changes(server: OperatorServer) -> None:
    """Without a plan, paid costs are all costs, and no response contains a word about fees."""
    await add(server.services.spool.log, *august(random.Random(2)))
    paths = ("/report?{}&by=team&per=daily", "/report?{}&cost_type=metered_cost", "/overview")

    async def answers() -> list[bytes]:
        found = [await server.ask("GET", path.format(AUGUST)) for path in paths]
        return [orjson.dumps(each.payload) for each in found]

    before = await answers()
    assert not any(b"seat_fee" in each or b"paid" in each for each in before)
    counted = (await server.ask("GET", f"/report?{AUGUST}&by=team")).payload["rows"]
    assert counted == (await paid(server, "by=team"))["rows"]
    plan = await made(server, "/plans", **CLAUDE)
    assert before != await answers()
    assert 200 == (await server.ask("DELETE", f"/plans/{plan['id']}")).status
    assert before == await answers()


async def test_filters_and_views_choose_fees_by_what_the_plan_states(server: OperatorServer) -> None:
    """
    A fee has the user and team of its seat, the provider that bills the plan, and the only source of its view.
    """
    await keep_plans(server)
    github = {"name": "Both", "view": "claude", "fee": "31", "billed_by": "github"}
    await made(server, "/plans", **github, seats=[{"user": "zoe", "since": "2026-08-01"}])
    plans = added((await costs_of(server))["plans"], "name", "fees", "overage")
    del plans["Copilot"]
    for more in ("view=claude", "where=source=claude_code"):
        assert plans == by_name(await paid(server, f"{more}&by=plan"), "plan")
    assert {"Both": 31} == by_name(await paid(server, "where=provider=github&by=plan"), "plan")
    assert {"search"} == set(by_name(await paid(server, "where=team=search&by=team"), "team"))
    assert {} == by_name(await paid(server, "where=model=gpt-4o&by=plan"), "plan")
    refused = await server.ask("GET", f"/report?{AUGUST}&by=plan")
    assert 400 == refused.status  # only paid costs have plans


async def limited(server: OperatorServer, *filters: RoleFilter, cost_types: Sequence[str] = ()) -> Any:
    draft = NewRole(
        name="Part",
        data_access=LIMITED if filters else "full",
        filters=filters,
        members=(EVA,),
        permission_sets=("view_costs",),
        cost_types=tuple(cost_types),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    return await signed_in(server, "none", EVA)


async def test_a_limited_person_sees_only_fees_of_the_own_slice(server: OperatorServer) -> None:
    await keep_plans(server)
    await add(server.services.spool.log, *august(random.Random(7)))
    eva = await limited(server, RoleFilter(dimension="team", values=("checkout",)))
    own = [row for row in (await costs_of(server))["rows"] if row["team"] == "checkout"]
    seen = await paid(server, "by=user&where=charge=seat_fee&where=charge=overage", headers=eva)
    names = [{**row, "user": {"BOB": "Bob"}.get(row["user"], row["user"])} for row in own]
    assert by_name(seen, "user") == added(names, "user", "fees", "overage")
    mine = (await server.over_http("GET", "/plan-costs?month=2026-08", headers=eva)).payload["total"]
    assert mine["paid"] == (await paid(server, headers=eva))["total"]["cost"]
    overview = (await server.over_http("GET", "/overview", headers=eva)).payload["overview"]
    whole = (await server.ask("GET", "/overview")).payload["overview"]
    assert Fraction(overview["paid"]["seat_fee"]) < Fraction(whole["paid"]["seat_fee"])


@pytest.mark.parametrize(
    ("condition", "plans"),
    part(
        [
            (RoleFilter(dimension="model", values=("gpt-4o",)), set()),
            (RoleFilter(dimension="source", values=("claude_code",)), {"Claude", "Second"}),
            (RoleFilter(dimension="source", values=("claude_code",), mode=EXCEPT), {"Copilot"}),
            (RoleFilter(dimension="user", values=("dan",)), {"Copilot"}),
        ],
        every=2,
    ),
)
async def test_roles_hide_fees_of_calls_that_they_hide(
    server: OperatorServer, condition: RoleFilter, plans: set[str]
) -> None:
    """
    A role that hides calls also hides their fees: it shows the same seats in reports and in the costs of plans.
    """
    await keep_plans(server)
    eva = await limited(server, condition)
    seen = (await server.over_http("GET", "/plan-costs?month=2026-08", headers=eva)).payload
    assert plans == {row["plan"] for row in seen["rows"]}
    assert plans == set(by_name(await paid(server, "by=plan", headers=eva), "plan"))


async def test_roles_without_all_costs_see_no_paid_costs(server: OperatorServer) -> None:
    await keep_plans(server)
    eva = await limited(server, cost_types=["reported_cost"])
    answer = await server.over_http("GET", f"/report?{AUGUST}&cost_type=paid_cost", headers=eva)
    assert 403 == answer.status


async def test_fees_in_another_currency(server: OperatorServer) -> None:
    """Each day of a fee has the rate of the day. A day without a rate is in no sum, but is listed."""
    seats = [{"user": "ann", "since": "2026-08-01", "until": "2026-08-03"}]
    await made(server, "/plans", name="Euro", view="claude", fee="31", currency="EUR", seats=seats)
    second = int(datetime(2026, 8, 2, tzinfo=UTC).timestamp())
    server.services.money.ledger.rates = lambda own, other, day: 1_100_000_000_000 if day == second else None
    found = await paid(server, "by=team&per=daily")
    assert [("0", {"EUR": "1"}), ("1.1", {})] == [
        (row["cost"], row.get("unconverted", {})) for row in found["rows"]
    ]
    assert {"EUR": "2"} == found["report"]["charges"] and {"EUR": "1"} == found["report"]["unconverted"]
    in_euros = await paid(server, "currency=EUR")
    assert "2" == in_euros["total"]["cost"] and {} == in_euros["report"]["unconverted"]
    assert (await costs_of(server))["total"]["paid"] == found["total"]["cost"]


async def test_a_budget_includes_fees_if_it_counts_paid_costs(server: OperatorServer) -> None:
    """A budget of all costs, which is the default, contains no fee."""
    seats = [{"user": "ann", "since": "2026-09-01", "team": "search"}]
    plan = {
        "name": "Claude",
        "view": "claude",
        "fee": "30",
        "included": "5",
        "overage_price": "2",
        "seats": seats,
    }
    await made(server, "/plans", **plan)
    calls = [
        a_call(n, f"2026-09-0{n}T09:00", user, estimated_cost="4") for n, user in ((1, "ann"), (2, "ann"))
    ]
    await add(server.services.spool.log, *calls, a_call(9, "2026-09-02T09:00", "dan", estimated_cost="1"))
    view = next(each for each in server.registry.views.all() if each.name == "claude")
    body = {"view": {"id": view.id}, "default_amount": "100", "per": "team"}
    actual = {}
    for cost_type in (None, "paid_cost"):
        money = {"cost_type": cost_type} if cost_type else {}
        budget = await made_budget(server, name=str(cost_type), **body, **money)
        shown = await server.ask("GET", f"/budgets/{budget}?expand=current&expand=history")
        actual[cost_type] = shown.payload["budget"]["current"]["actual"]
    # 3 days of the fee, 3 dollars of extra usage at 2 each, and the call of a person without a seat
    assert {None: "9", "paid_cost": "10"} == actual


async def made_budget(server: OperatorServer, **body: Any) -> str:
    answer = await server.ask("POST", "/budgets", body)
    assert 201 == answer.status, answer.payload
    await server.ask("POST", "/budgets/evaluate", {})
    id: str = answer.payload["budget"]["id"]
    return id


async def test_a_query_with_too_many_fees_is_refused(tmp_path: Path) -> None:
    """Rows of fees count against the limit of rows. With longer periods, the same seats fit."""
    limits = AnswerSettings(max_rows=100, max_summed_rows=1000)
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, clock=clock, answers=lambda: limits) as server:
        await made(server, "/views", name="all", filter={}, principal_dimension="user")
        seats = [{"user": f"user-{number}", "since": "2026-01-01"} for number in range(40)]
        await made(server, "/plans", name="Claude", view="all", fee="30", seats=seats)
        refused = await server.ask("GET", f"/report?{AUGUST}&cost_type=paid_cost&per=daily&by=user")
        assert 422 == refused.status and "more than 1000 rows" in str(refused.payload)
        assert "1200" == (await paid(server, "per=monthly&by=user"))["total"]["cost"]


@pytest.mark.parametrize(
    "more",
    part(
        [
            "unit=user&show=cost,units,cost_per_unit&by=team",
            "show=saved_by_caching&by=plan",
            "lines=meters&per=hourly&by=user&by=model",
            "show=cost,latency_p95_ms&by=charge&top=1&top_by=calls",
            "compare=previous&by=plan&per=daily",
            "by=charge&colours=names&top=5&per=monthly",
            "where=charge!=usage&where=plan!=Claude&by=user",
            "where=charge=nothing",
            "currency=EUR&by=charge",
            "by=provider_family&by=model_family&per=weekly&tz=Asia/Kolkata",
            "limit=1&by=charge",
            "by=session&by=charge",
            "where=repository=ours&per=daily",
        ],
        every=2,
    ),
)
async def test_fees_fit_into_every_kind_of_report(server: OperatorServer, more: str) -> None:
    """Paid costs accept what counted costs accept, and fees have no calls, tokens or price lines."""
    await keep_plans(server)
    calls = august(random.Random(13))
    await add(server.services.spool.log, *calls)
    found = await server.ask("GET", f"/report?{AUGUST}&cost_type=paid_cost&{more}")
    assert 200 == found.status, found.payload
    if "lines=meters" in more:
        fees = [row for row in found.payload["rows"] if row["model"] is None and not row["calls"]]
        assert fees and all(row["price_lines"] is None and Fraction(row["cost"]) for row in fees)
