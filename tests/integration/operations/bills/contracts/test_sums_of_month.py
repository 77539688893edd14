"""The amounts of contracts that depend on sums of calls, end to end on each engine: costs by team, and nothing else."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from fractions import Fraction
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
import pytest_asyncio

from spool.engines import MEMORY, POSTGRES, SQLITE
from spool.registry.operators import Actor
from spool.registry.roles import RoleFilter
from tests.integration.operations.bills.plans.test_paid_costs import limited, made_budget
from tests.integration.operations.bills.plans.test_plans import CLAUDE, a_call, made
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof, some
from tests.spool.contract.examples import add

NOW = datetime(2026, 9, 3, 14, tzinfo=UTC)
AUGUST = "from=2026-08-01&to=2026-08-31"
on_every_engine = pytest.mark.parametrize("server", [SQLITE, as_proof(POSTGRES)], indirect=True)
on_one_engine = pytest.mark.parametrize("server", [SQLITE, as_proof(POSTGRES)], indirect=True)
TERMS: list[dict[str, Any]] = [
    {"kind": "allowance", "tokens": "900", "per": "day"},
    {"kind": "fee", "amount": "62", "per": "month", "percent": "10"},
    {"kind": "minimum", "amount": "900", "per": "month"},
    {"kind": "credit", "amount": "300", "per": "month"},
]
CONTRACT: dict[str, Any] = {"name": "Us", "provider": "us", "since": "2026-08-01", "terms": TERMS}


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    engine = getattr(request, "param", MEMORY)
    stored = request.getfixturevalue("new_schema")().settings(tmp_path) if engine == POSTGRES else None
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored) as server:
        yield server


def august(random: Random) -> list[Any]:
    """Return calls with costs of whole dollars, of four teams and two providers."""
    calls = []
    for number in range(120):
        at = f"2026-08-{random.randint(1, 28):02}T{random.choice((0, 9, 23)):02}:30"
        fields: dict[str, Any] = {
            "estimated_cost": str(random.randint(1, 9)),
            "input_tokens": random.randint(1, 400),
            "output_tokens": random.randint(0, 400),
            "provider": random.choice(("us", "us", "them")),
            "status": random.choice(("ok", "ok", "ok", "cached")),
        }
        calls.append(a_call(number, at, random.choice(("ann", "Bob", "cid", "dan", "eve", None)), **fields))
    return calls


def by_hand(calls: list[Any]) -> dict[tuple[str, str | None], Fraction]:
    """Compute the amounts of TERMS by charge and team, in fractions."""
    costs: dict[int, dict[str | None, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    tokens: dict[int, int] = defaultdict(int)
    for record, _ in calls:
        if record.provider == "us" and record.status != "cached":
            day = datetime.fromtimestamp(record.start_time / 10**9, UTC).day
            costs[day][record.team] += Fraction(record.estimated_cost)
            tokens[day] += record.input_tokens + record.output_tokens
    parts: dict[tuple[str, str | None], Fraction] = defaultdict(Fraction)

    def divide(charge: str, amount: Fraction, weights: dict[str | None, Fraction]) -> None:
        whole = sum(weights.values())
        for team, weight in weights.items() if whole else [(None, Fraction(1))]:
            parts[charge, team] += amount * weight / (whole or 1)

    lines, credit = Fraction(0), Fraction(300)
    owed: dict[int, Fraction] = {}
    for day in range(1, 32):
        cost = sum(costs[day].values(), Fraction(0))
        free = cost * min(900, tokens[day]) / tokens[day] if tokens[day] else Fraction(0)
        fee = 2 + (cost - free) / 10
        lines += cost - free
        owed[day] = cost - free + fee
        divide("allowance", -free, costs[day])
        divide("fee", fee, costs[day])
    teams: dict[str | None, Fraction] = defaultdict(Fraction)
    for of_day in costs.values():
        for team, cost in of_day.items():
            teams[team] += cost
    lacking = max(Fraction(0), 900 - lines)
    divide("minimum", lacking, teams)
    owed[31] += lacking
    for day, amount in owed.items():
        divide("credit", -min(credit, amount), costs[day])
        credit -= min(credit, amount)
    return {place: part for place, part in parts.items() if part}


@on_every_engine
async def test_amounts_of_teams_equal_arithmetic_by_hand(server: OperatorServer) -> None:
    """
    The amounts of teams equal those that were calculated by hand, and add up to the total exactly. Calls of other
    providers and of gateway caches do not matter.
    """
    calls = august(Random(3))
    await add(server.services.spool.log, *calls)
    await made(server, "/contracts", **CONTRACT)
    answer = await server.ask("GET", "/contract-costs?month=2026-08")
    assert 200 == answer.status, answer.payload
    rows = {(row["charge"], row["team"]): Fraction(row["cost"]) for row in answer.payload["rows"]}
    hand = by_hand(calls)
    assert {"allowance", "fee", "minimum", "credit"} == {charge for charge, _ in hand}
    assert hand.keys() == rows.keys()
    assert all(abs(rows[place] - part) < Fraction(1, 10**20) for place, part in hand.items())
    assert Fraction(answer.payload["total"]["cost"]) == sum(rows.values())
    earlier = (await server.ask("GET", "/contract-costs?month=2026-07")).payload
    assert ("0", []) == (earlier["total"]["cost"], earlier["rows"])


@on_one_engine
async def test_counted_costs_are_the_same_with_a_contract(server: OperatorServer) -> None:
    """Terms about sums change no call, no report of counted or billed costs, and no budget of all costs."""
    await add(server.services.spool.log, *august(Random(4)))
    await made(server, "/views", name="all", filter={}, principal_dimension="model")
    view = next(each for each in server.registry.views.all() if each.name == "all")
    body = {"name": "B", "view": {"id": view.id}, "default_amount": "100", "per": "team"}
    answer = await server.ask("POST", "/budgets", body)
    budget = answer.payload["budget"]["id"]

    async def answers() -> list[bytes]:
        await server.ask("POST", "/budgets/evaluate", {})
        found = [
            await server.ask("GET", f"/report?{AUGUST}&by=team&by=provider&per=hourly&cost_type={money}")
            for money in ("real_cost", "metered_cost", "billed_cost")
        ]
        shown = await server.ask("GET", f"/budgets/{budget}?expand=current")
        found_budget = shown.payload["budget"]["current"]
        shown_costs = [{name: each.payload[name] for name in ("rows", "total")} for each in found]
        return [*map(orjson.dumps, shown_costs), orjson.dumps(found_budget["actual"])]

    before = await answers()
    await made(server, "/contracts", **CONTRACT)
    assert before == await answers()


@on_one_engine
async def test_paid_costs_are_metered_costs_with_the_amounts_of_contracts(server: OperatorServer) -> None:
    """
    Paid costs are the counted costs and the amounts of contracts. They add up to the last digit, by team, contract
    and charge, in every zone and length of period, next to the fees of a plan.
    """
    await add(server.services.spool.log, *august(Random(6)))
    await made(
        server, "/views", name="claude", filter={"source": ["claude_code"]}, principal_dimension="user"
    )
    await made(server, "/plans", **CLAUDE)
    prepaid = {"kind": "capacity", "unit": "ptu", "number": "1", "price": "0.7", "per": "month"}
    euros = {"name": "Them", "provider": "them", "since": "2026-08-30", "currency": "EUR", "terms": [prepaid]}
    for contract in (CONTRACT, euros):
        await made(server, "/contracts", **contract)
    server.services.money.ledger.rates = lambda own, other, day: 1_100_000_000_000
    of_contracts = (await server.ask("GET", "/contract-costs?month=2026-08")).payload
    assert {"allowance", "fee", "minimum", "credit"} < {row["charge"] for row in of_contracts["rows"]}
    metered = (await server.ask("GET", f"/report?{AUGUST}&cost_type=metered_cost")).payload["total"]["cost"]
    seats = (await server.ask("GET", "/plan-costs?month=2026-08")).payload["total"]
    whole = Fraction(metered) + sum(Fraction(seats[name]) for name in ("fees", "overage"))
    whole += Fraction(of_contracts["total"]["cost"])
    assert (whole, of_contracts["total"]["cost"]) == (Fraction(seats["paid"]), seats["contracts"])
    hand: dict[tuple[str, str, str | None], Fraction] = defaultdict(Fraction)
    for row in of_contracts["rows"]:
        hand[row["contract"], row["charge"], row["team"]] += Fraction(row["cost"])
    zones, lengths = ("UTC", "Asia/Tokyo", "America/New_York"), ("total", "daily", "weekly", "monthly")
    for zone, per in some([*product(zones, lengths)], every=5):
        path = f"/report?{AUGUST}&cost_type=paid_cost&by=plan&by=charge&by=team&per={per}&tz={zone}"
        payload = (await server.ask("GET", path)).payload
        found: dict[tuple[str, str, str | None], Fraction] = defaultdict(Fraction)
        for row in payload["rows"]:
            if row["plan"] in ("Us", "Them"):
                found[row["plan"], row["charge"], row["team"]] += Fraction(row["cost"])
        assert hand == found, (zone, per)
        if zone == "UTC":
            assert whole == Fraction(payload["total"]["cost"])
    us = (await server.ask("GET", f"/report?{AUGUST}&cost_type=paid_cost&where=plan=Us&by=provider")).payload
    assert ["us"] == [row["provider"] for row in us["rows"]]
    overview = (await server.ask("GET", "/overview")).payload["overview"]["paid"]
    september = Fraction((await server.ask("GET", "/contract-costs?month=2026-09")).payload["total"]["cost"])
    assert september == Fraction(overview["contracts"]) > 0
    total = (await server.ask("GET", "/plan-costs?month=2026-09")).payload["total"]
    names = {
        "cost": "paid",
        "seat_fee": "fees",
        "overage": "overage",
        "metered": "metered",
        "contracts": "contracts",
    }
    assert {name: Fraction(overview[name]) for name in names} == {
        name: Fraction(total[of_plans]) for name, of_plans in names.items()
    }


async def test_a_limited_person_sees_the_part_of_the_own_team(server: OperatorServer) -> None:
    await add(server.services.spool.log, *august(Random(8)))
    fee = {**CONTRACT, "terms": [{"kind": "fee", "percent": "10"}]}
    await made(server, "/contracts", **fee)
    rows = (await server.ask("GET", "/contract-costs?month=2026-08")).payload["rows"]
    parts = {row["team"]: Fraction(row["cost"]) for row in rows}
    eva = await limited(server, RoleFilter(dimension="team", values=("checkout",)))
    path = f"/report?{AUGUST}&cost_type=paid_cost&where=charge=fee&by=team"
    seen = (await server.over_http("GET", path, headers=eva)).payload["rows"]
    assert [("checkout", parts["checkout"])] == [(row["team"], Fraction(row["cost"])) for row in seen]


async def test_calls_of_a_plan_are_in_no_amount_of_a_contract(server: OperatorServer) -> None:
    """The seat pays for the call, so a percentage and a minimum count only the other call."""
    await made(
        server, "/views", name="claude", filter={"source": ["claude_code"]}, principal_dimension="user"
    )
    await made(server, "/plans", **CLAUDE)
    calls = [
        a_call(n, "2026-08-05T09:00", user, estimated_cost="100") for n, user in ((1, "ann"), (2, "dan"))
    ]
    await add(server.services.spool.log, *calls)
    terms = [{"kind": "fee", "percent": "10"}, {"kind": "minimum", "amount": "150", "per": "month"}]
    await made(server, "/contracts", **{**CONTRACT, "terms": terms})
    rows = (await server.ask("GET", "/contract-costs?month=2026-08")).payload["rows"]
    assert [("fee", "checkout", "10"), ("minimum", "checkout", "50")] == [
        (row["charge"], row["team"], row["cost"]) for row in rows
    ]


async def focus_rows(server: OperatorServer, query: str = "") -> list[dict[str, str]]:
    answer = await server.ask("GET", f"/focus?from=2026-08-01&to=2026-08-31{query}")
    assert 200 == answer.status, answer.payload
    return list(csv.DictReader(io.StringIO(answer.payload)))


@on_one_engine
async def test_focus_files_add_up_to_the_paid_costs(server: OperatorServer) -> None:
    """
    In FOCUS files, billed costs and effective costs both add up to the paid costs, next to the seats of a plan.
    Capacity is a purchase, and its parts are not billed again. Amounts of a closed month name its only invoice.
    """
    await add(server.services.spool.log, *august(Random(6)))
    await made(
        server, "/views", name="claude", filter={"source": ["claude_code"]}, principal_dimension="user"
    )
    await made(server, "/plans", **CLAUDE)
    without = await focus_rows(server)
    prepaid = {"kind": "capacity", "unit": "ptu", "number": "1", "price": "0.7", "per": "month"}
    them = {"name": "Them", "provider": "them", "since": "2026-08-30", "terms": [prepaid]}
    for contract in (CONTRACT, them):
        await made(server, "/contracts", **contract)
    assert without == await focus_rows(server)
    paid = (await server.ask("GET", f"/report?{AUGUST}&cost_type=paid_cost&by=charge")).payload
    invoice, ada = (
        {"provider": "us", "month": "2026-08", "number": "A-1"},
        Actor("ada@example.com", "command"),
    )
    await server.registry.billed_invoices.add("1", invoice, actor=ada, action="add")
    await server.registry.closed_months.add("us:2026-08", invoice, actor=ada, action="close")
    rows = await focus_rows(server, "&plans=true")
    for column in ("BilledCost", "EffectiveCost"):
        assert Fraction(paid["total"]["cost"]) == sum(Fraction(row[column]) for row in rows), column
    own = [row for row in rows if row["SkuId"].startswith("contract/")]
    of_charge = {row["charge"]: Fraction(row["cost"]) for row in paid["rows"]}
    billed: dict[str, Fraction] = defaultdict(Fraction)
    for row in own:
        billed[row["ChargeCategory"]] += Fraction(row["BilledCost"])
    assert {
        "Credit": of_charge["credit"] + of_charge["allowance"],
        "Adjustment": of_charge["minimum"],
        "Purchase": sum(Fraction(row["BilledCost"]) for row in own if row["ChargeCategory"] == "Purchase"),
        "Usage": 0,
    } == billed
    [capacity] = [row for row in own if row["ChargeDescription"] == "Capacity of Them"]
    assert ("0", "Purchase", "") == tuple(
        capacity[name] for name in ("EffectiveCost", "ChargeCategory", "SubAccountId")
    )
    parts = [row for row in own if row["SkuId"] == "contract/Them" and row["ChargeCategory"] == "Usage"]
    assert Fraction(capacity["BilledCost"]) == sum(Fraction(row["EffectiveCost"]) for row in parts)
    assert {("2026-08-01T00:00:00Z", "2026-09-01T00:00:00Z")} == {
        (row["ChargePeriodStart"], row["ChargePeriodEnd"]) for row in own
    }
    assert {("contract/Us", "A-1"), ("contract/Them", "")} == {
        (row["SkuId"], row["InvoiceId"]) for row in own
    }


@on_one_engine
async def test_a_budget_of_paid_costs_counts_the_amounts_of_contracts(server: OperatorServer) -> None:
    """
    A budget of paid costs counts the amounts of contracts: its actual amount is the paid cost of the month, which
    is calls, capacity and fees, less credits. Budgets of other costs count none of these amounts.
    """
    await add(
        server.services.spool.log, a_call(1, "2026-09-02T09:30", "ann", estimated_cost="20", provider="us")
    )
    await made(server, "/views", name="all", filter={}, principal_dimension="model")
    view = next(each for each in server.registry.views.all() if each.name == "all")
    prepaid = {
        "kind": "capacity",
        "models": ["other"],
        "unit": "ptu",
        "number": "1",
        "price": "300",
        "per": "month",
    }
    terms = [prepaid, {"kind": "fee", "percent": "10"}, {"kind": "credit", "amount": "3", "per": "month"}]
    await made(server, "/contracts", **{**CONTRACT, "terms": terms})
    actual = {}
    for cost_type in ("paid_cost", "real_cost"):
        body = {"name": cost_type, "view": {"id": view.id}, "default_amount": "100", "cost_type": cost_type}
        budget = await made_budget(server, **body)
        shown = await server.ask("GET", f"/budgets/{budget}?expand=current")
        actual[cost_type] = Fraction(shown.payload["budget"]["current"]["actual"])
    # three days of capacity, and a tenth of them and of the call
    assert {"paid_cost": 20 + 30 + 5 - 3, "real_cost": 20} == actual
