"""
Plans of assistants: how people maintain seats, and a month of a made-up company compared with independent
arithmetic.

Paid, included and extra usage are three sums. No call is in two of them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.bills.plans.declared import PlanTable
from gateway.cli import main
from gateway.money.recommendations.adviser import RecommendationUpdater
from gateway.money.recommendations.gathering import Sources
from spool.engines import MEMORY, POSTGRES
from spool.identity import RecordIdentity
from spool.people import DROP
from spool.record import NS, Correction, Inference, Record
from spool.registry.operators import Actor
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.gateway.money.recommendations.examples import BOOK
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof
from tests.spool.contract.examples import add, call
from tests.spool.postgres_cluster import Schema

NOW = datetime(2026, 9, 3, 14, tzinfo=UTC)
ROOT = Actor("root@example.com", "local")
EVA = "eva@example.com"
SMALLEST = Fraction(1, 10**27)
USERS = ("ann", "Bob", "cid", "dan", "eve", None)
TEAMS = {"ann": "search", "Bob": "checkout", "cid": "search", "dan": "checkout"}

# A plan: its name, its view, the cost and included usage of a seat, and the people who have a seat.
CLAUDE: dict[str, Any] = {
    "name": "Claude", "view": "claude", "fee": "20", "included": "30", "overage_price": "1.1",
    "seats": [
        {"user": "ann", "since": "2026-01-01", "until": "2026-08-16", "team": "search"},
        {"user": "BOB", "since": "2026-08-16", "team": "checkout"},
        {"user": "cid", "since": "2026-07-10", "until": "2026-08-11", "team": "search"},
        {"user": "cid", "since": "2026-08-21", "team": "checkout"},
        {"user": "eve", "since": "2026-09-01"},
    ],
}  # fmt: skip
COPILOT: dict[str, Any] = {
    "name": "Copilot", "view": "copilot", "fee": "19", "included": "1900", "unit": "credits", "credit_value": "0.01",
    "is_pooled": True, "overage_price": "0.02",
    "seats": [
        {"user": "ann", "since": "2026-08-01", "team": "search"},
        {"user": "dan", "since": "2026-08-10", "team": "checkout"},
    ],
}  # fmt: skip
SECOND: dict[str, Any] = {
    "name": "Second", "view": "claude", "fee": "7", "included": "3", "unit": "calls", "overage_price": "0.25",
    "seats": [{"user": "ann", "since": "2026-08-05", "until": "2026-08-25"}],
}  # fmt: skip
PLANS = (CLAUDE, COPILOT, SECOND)
SOURCES = {"claude": "claude_code", "copilot": "copilot_cli"}


on_every_engine = pytest.mark.parametrize("server", [MEMORY, as_proof(POSTGRES)], indirect=True)
on_one_engine = pytest.mark.parametrize("server", [MEMORY, as_proof(POSTGRES)], indirect=True)


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    engine, stored = getattr(request, "param", MEMORY), None
    if engine == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        stored = schema.settings(tmp_path)
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored) as server:
        for name, source in SOURCES.items():
            filter = {"source": [source]}
            await made(server, "/views", name=name, filter=filter, principal_dimension="user")
        yield server


async def made(server: OperatorServer, path: str, **body: Any) -> Any:
    answer = await server.ask("POST", path, body)
    assert 201 == answer.status, answer.payload
    [one] = answer.payload.values()
    return one


async def keep_plans(server: OperatorServer) -> None:
    """Create all plans in order. If two plans cover a call, the first one does."""
    for plan in PLANS:
        await made(server, "/plans", **plan)
        server.clock.move(1)


async def costs_of(server: OperatorServer, month: str = "2026-08") -> Any:
    answer = await server.ask("GET", f"/plan-costs?month={month}")
    assert 200 == answer.status, answer.payload
    return answer.payload


def a_call(number: int, at: str, user: str | None, source: str = "claude_code", **fields: Any) -> Any:
    """Return a call whose estimate is 1 by default."""
    when = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
    priced = {"estimated_cost": "1", "cost_source": "estimated", "request_model": "ours", "provider": "us"}
    team = TEAMS.get(user or "")
    return call(number, at=when, user=user, source=source, team=team, **(priced | fields))


# -- the company ---------------------------------------------------------------------------------------------


def august(chance: random.Random) -> list[tuple[Inference, RecordIdentity]]:
    """
    Return calls of all people in three sources: estimated, reported, failed, answered by a cache, and
    without a price.
    """
    calls = []
    for number in range(400):
        at = f"2026-08-{chance.randint(1, 31):02}T{chance.choice((0, 9, 23)):02}:30"
        amounts = [f"{chance.randint(0, 3)}.{chance.randint(1, 10**18):018}" for _ in range(2)]
        kinds = ("estimated", "estimated", "reported", "only reported", "none", "error", "cached")
        kind = chance.choice(kinds)
        fields: dict[str, Any] = {"estimated_cost": amounts[0]}
        if kind == "reported":
            fields |= {"cost": amounts[1], "cost_source": "reported"}
        elif kind == "only reported":
            fields = {
                "estimated_cost": None,
                "cost": amounts[1],
                "cost_source": "reported",
                "request_model": "own",
            }
        elif kind == "none":
            fields = {"estimated_cost": None, "cost_source": "none", "request_model": "unknown"}
        elif kind in ("error", "cached"):
            fields["status"] = kind
        source = chance.choice(("claude_code", "copilot_cli", "otel"))
        calls.append(a_call(number, at, chance.choice(USERS), source, **fields))
    return calls


@dataclass
class OwnSeat:
    """A seat in the test's own arithmetic."""

    plan: dict[str, Any]
    seat: dict[str, str]
    fee: Fraction
    value: Fraction = Fraction(0)
    beyond: Fraction = Fraction(0)
    overage: Fraction = Fraction(0)
    beyond_value: Fraction = Fraction(0)
    calls: int = 0

    @property
    def used(self) -> Fraction:
        by_unit = {"usd": self.value, "calls": Fraction(self.calls), "credits": self.value * 100}
        return by_unit[self.plan.get("unit", "usd")]

    @property
    def included_value(self) -> Fraction:
        return self.value - self.beyond_value


def has(seat: dict[str, str], day: date) -> bool:
    return date.fromisoformat(seat["since"]) <= day < date.fromisoformat(seat.get("until", "9999-12-31"))


def worked_out(records: list[Inference]) -> tuple[list[OwnSeat], Fraction]:
    """Compute the seats of August in fractions; return them and the cost that no plan covers."""
    days = [date(2026, 8, day) for day in range(1, 32)]
    seats = [
        OwnSeat(plan, seat, Fraction(plan["fee"]) * sum(has(seat, day) for day in days) / 31)
        for plan in PLANS for seat in plan["seats"] if any(has(seat, day) for day in days)
    ]  # fmt: skip
    metered = Fraction(0)
    for record in records:
        if record.status == "cached":
            continue
        day = datetime.fromtimestamp((record.start_time or 0) / NS, UTC).date()
        own = [
            each for each in seats
            if SOURCES[each.plan["view"]] == record.source and has(each.seat, day)
            and each.seat["user"].lower() == (record.user or "").lower()
        ]  # fmt: skip
        if not own:
            metered += Fraction(record.cost or record.estimated_cost or "0")
            continue
        own[0].value += Fraction(record.estimated_cost or record.cost or "0")
        own[0].calls += record.status == "ok"
    for plan in PLANS:
        mine = [each for each in seats if each.plan is plan]
        people = {each.seat["user"].lower() for each in mine}
        for shared in [people] if plan.get("is_pooled") else [{each} for each in people]:
            together = [each for each in mine if each.seat["user"].lower() in shared]
            use_up(together, Fraction(plan["included"]) * len(shared))
    return seats, metered


def use_up(together: list[OwnSeat], included: Fraction) -> None:
    """Compute the expected extra usage of each seat from what each seat used in the month."""
    used = sum((each.used for each in together), Fraction(0))
    beyond = max(Fraction(0), used - included)
    for each in together if beyond else ():
        each.beyond = beyond * each.used / used
        each.overage = each.beyond * Fraction(each.plan["overage_price"])
        each.beyond_value = each.value * beyond / used


def is_near(expected: Fraction, actual: str, parts: int = 1) -> bool:
    """
    Return whether a sum of `parts` amounts, each cut at the last stored digit, equals the expected amount.
    """
    return abs(expected - Fraction(actual)) <= parts * SMALLEST


async def check_company(server: OperatorServer, records: list[Inference]) -> Any:
    seats, metered = worked_out(records)
    found = await costs_of(server)
    assert len(seats) == len(found["rows"])
    for own, row in zip(seats, found["rows"], strict=True):
        assert own.plan["name"] == row["plan"]
        assert own.seat["user"] == row["user"]
        for name in ("fee", "overage", "included_value", "used", "beyond"):
            shown = row["fees" if name == "fee" else name]
            assert is_near(getattr(own, name), shown, parts=31), (row, name, float(getattr(own, name)))
    total = found["total"]
    assert metered == Fraction(total["metered"])
    fees, overage, included = (
        sum((getattr(own, name) for own in seats), Fraction(0))
        for name in ("fee", "overage", "included_value")
    )
    assert is_near(fees, total["fees"], 200) and is_near(overage, total["overage"], 200)
    assert is_near(included, total["included_value"], 200)
    paid = [Fraction(total[name]) for name in ("fees", "overage", "metered")]
    assert sum(paid) == Fraction(total["paid"])  # the paid sum does not contain included usage
    for name in ("paid", "fees", "overage", "included_value", "beyond"):
        by_plan = sum(Fraction(plan[name]) for plan in found["plans"])
        assert by_plan == sum(Fraction(row.get(name, "0")) for row in found["rows"])
    return found


@on_every_engine
async def test_company_month_equals_an_independent_calculation(server: OperatorServer) -> None:
    """
    A month of a company equals an independent calculation. Seats begin, end and return within the month. There are
    a credit pool, dollars, two plans of one person, and calls before a seat, without a user and from a cache. Then
    a late correction changes a covered call.
    """
    await keep_plans(server)
    calls = august(random.Random(36))
    await add(server.services.spool.log, *calls)
    records = [record for record, _ in calls]
    before = await check_company(server, records)
    assert all(Fraction(before["total"][name]) for name in ("fees", "overage", "metered", "included_value"))
    ann = [row for row in before["rows"] if row["user"] == "ann"]
    assert [["Copilot", "Second"], ["Claude", "Second"], ["Claude", "Copilot"]] == [
        row["also_in"] for row in ann
    ]
    [report] = (await server.ask("GET", "/report?from=2026-08-01&to=2026-08-31")).payload["rows"]
    assert Fraction(report["cost"]) > Fraction(
        before["total"]["metered"]
    )  # usage in credits or calls is not included in the paid sum

    [covered] = [
        place for place, record in enumerate(records)
        if record.user == "ann" and record.source == "claude_code" and record.cost_source == "estimated"
        and record.status == "ok" and (record.start_time or 0) < datetime(2026, 8, 16, tzinfo=UTC).timestamp() * NS
    ][:1]  # fmt: skip
    corrected = msgspec.structs.replace(records[covered], estimated_cost="9.25")
    late: Record = Correction(
        id=b"c" * 16, source="kong", corrects=corrected.id, reason="late_usage", known_at=int(NOW.timestamp()) * NS,
        start_time=corrected.start_time or 0, before=records[covered], after=corrected,
    )  # fmt: skip
    await add(server.services.spool.log, (late, RecordIdentity(late.id)))
    records[covered] = corrected
    after = await check_company(server, records)
    changed = [row for row, old in zip(after["rows"], before["rows"], strict=True) if row != old]
    assert [("Claude", "ann")] == [(row["plan"], row["user"]) for row in changed]
    assert before["total"]["metered"] == after["total"]["metered"]
    assert before["total"]["fees"] == after["total"]["fees"]


async def test_days_of_a_running_month(server: OperatorServer) -> None:
    """Fees count the days until today. Included usage is that of the whole month."""
    await made(server, "/plans", **CLAUDE | {"fee": "30"})
    await add(server.services.spool.log, a_call(1, "2026-09-02T09:00", "Bob", estimated_cost="31"))
    rows = {row["user"]: row for row in (await costs_of(server, "2026-09"))["rows"]}
    assert {"BOB": ("3", "1.1", "30"), "cid": ("3", "0", "0"), "eve": ("3", "0", "0")} == {
        user: (row["fees"], row["overage"], row["included_value"]) for user, row in rows.items()
    }
    assert [] == (await costs_of(server, "2025-12"))["rows"]


async def test_idle_seats_of_a_month_that_is_over(server: OperatorServer) -> None:
    """
    A seat without a call for a whole cycle is listed with its fee. A seat for a part of the month is not, nor
    is one in a pool with extra usage, because others used its share.
    """
    since = {"since": "2026-07-01"}
    small = [{"user": user, **since} for user in ("ann", "eve", "idle")]
    seats = [*small, {"user": "late", "since": "2026-08-02"}]
    await made(server, "/plans", name="Small", view="claude", fee="20", included="10", seats=seats)
    server.clock.move(1)
    both = [{"user": user, **since} for user in ("cid", "eve")]
    await made(server, "/plans", name="Large", view="claude", fee="100", seats=both)
    pool = {"view": "copilot", "fee": "19", "included": "20", "is_pooled": True}
    pooled = [{"user": user, **since} for user in ("dan", "idle")]
    await made(server, "/plans", name="Pool", seats=pooled, **pool)
    calls = [a_call(n, "2026-08-20T09:00", user) for n, user in enumerate(("ann", "cid", "eve"))]
    of_dan = a_call(9, "2026-08-20T09:00", "dan", "copilot_cli", estimated_cost="40")
    await add(server.services.spool.log, *calls, of_dan)
    idle = (await costs_of(server))["idle_seats"]
    assert [("Large", "eve", "100"), ("Small", "idle", "20"), ("Pool", "idle", "19")] == [
        (row["plan"], row["user"], row["fee"]) for row in idle
    ]
    assert idle[0]["first_day"] == "2026-08-01"
    assert idle[0]["last_day"] == "2026-08-31"
    await add(server.services.spool.log, a_call(10, "2026-08-21T09:00", "dan", "copilot_cli"))
    assert ["Large", "Small"] == [row["plan"] for row in (await costs_of(server))["idle_seats"]]
    # no seat counts as idle, because the month has not ended
    assert [] == (await costs_of(server, "2026-09"))["idle_seats"]
    sources = Sources(
        ledger=server.services.money.ledger,
        log=server.services.spool.log,
        prices=lambda: BOOK,
        registry=server.registry,
    )
    adviser = RecommendationUpdater(sources, server.registry.recommendations, server.clock)
    assert 2 == (await adviser.find_and_store_savings()).merged.new
    listed = (await server.ask("GET", "/recommendations")).payload["recommendations"]
    assert [
        ("1 seat of Large without use", "100", "seat fee of eve: $100"),
        ("1 seat of Small without use", "20", "seat fee of idle: $20"),
    ] == [(each["title"], each["monthly_savings"], each["formula"]) for each in listed]
    await add(server.services.spool.log, a_call(100, "2026-09-03T09:00", "idle"))
    # the recommendation is deleted, because the idle person works again
    assert 1 == (await adviser.find_and_store_savings()).merged.gone


async def test_a_seat_by_e_mail_covers_the_calls_of_its_person(server: OperatorServer) -> None:
    """
    A seat that is given by e-mail address covers the calls of this person, although the records carry only the hash
    of the address. The fee is the whole paid sum, and the seat is not idle.
    """
    seat = {"user": "Ann@example.com", "since": "2026-07-01"}
    await made(server, "/plans", name="Claude", view="claude", fee="25", seats=[seat])
    user = server.registry.people.text_for_record("ann@example.com")
    calls = [a_call(number, f"2026-08-0{number}T09:30", user, estimated_cost="1.05") for number in (1, 2, 3)]
    await add(server.services.spool.log, *calls)
    found = await costs_of(server)
    assert ("25", "0", "3.15") == tuple(
        found["total"][name] for name in ("paid", "metered", "included_value")
    )
    assert [] == found["idle_seats"]
    assert [("Ann@example.com", 3)] == [(row["user"], row["calls"]) for row in found["rows"]]
    twice = [seat, {"user": user, "since": "2026-08-01"}]
    answer = await server.ask("PATCH", "/plans/Claude", {"seats": twice})
    assert answer.status == 400
    assert "has two seats" in answer.error[2]


async def test_a_seat_whose_calls_are_not_known_is_not_idle(server: OperatorServer) -> None:
    """
    If addresses are dropped, no record shows who uses a seat that was given by address. Such a seat is not listed
    as idle.
    """
    seats = [{"user": name, "since": "2026-07-01"} for name in ("ann@example.com", "idle")]
    await made(server, "/plans", name="Claude", view="claude", fee="25", seats=seats)
    assert {"ann@example.com", "idle"} == {each["user"] for each in (await costs_of(server))["idle_seats"]}
    server.registry.people.policy = DROP
    assert ["idle"] == [each["user"] for each in (await costs_of(server))["idle_seats"]]


async def test_half_seats_are_one_fee(server: OperatorServer) -> None:
    """
    Half a month of a former and half a month of a new member add up to exactly one fee. The fee need not be
    divisible by days.
    """
    seats = [
        {"user": "ann", "since": "2026-08-01", "until": "2026-08-12"},
        {"user": "dan", "since": "2026-08-12"},
    ]
    await made(server, "/plans", name="Halves", view="claude", fee="19", seats=seats)
    found = await costs_of(server)
    assert all(len(row["fees"]) > 20 for row in found["rows"])
    assert ("19", "19", "0") == tuple(found["total"][name] for name in ("fees", "paid", "overage"))


async def test_a_plan_without_a_bound_has_nothing_beyond(server: OperatorServer) -> None:
    """
    A plan without a limit includes all usage of its seats, so nothing is extra. A call before the seat is
    pay-as-you-go, and so are all calls once the plan is deleted.
    """
    seats = [{"user": "ann", "since": "2026-08-10"}]
    plan = await made(server, "/plans", name="All", view="claude", overage_price="5", seats=seats)
    calls = [a_call(n, at, "ann") for n, at in enumerate(("2026-08-09T23:59", "2026-08-10T00:00"))]
    await add(server.services.spool.log, *calls)
    sums = ("paid", "metered", "overage", "included_value")
    total = (await costs_of(server))["total"]
    assert ("1", "1", "0", "1") == tuple(total[name] for name in sums)
    assert 200 == (await server.ask("DELETE", f"/plans/{plan['id']}")).status
    total = (await costs_of(server))["total"]
    assert ("2", "2", "0", "0") == tuple(total[name] for name in sums)


async def test_who_sees_one_team_sees_its_seats_and_the_value_of_its_calls(server: OperatorServer) -> None:
    """
    A limited person sees no seat, plan or cost of other teams. Plans themselves are closed to limited people.
    """
    await keep_plans(server)
    calls = august(random.Random(7))
    await add(server.services.spool.log, *calls)
    whole = await costs_of(server)
    draft = NewRole(
        name="Part",
        data_access=LIMITED,
        filters=(RoleFilter(dimension="team", values=("checkout",)),),
        members=(EVA,),
        permission_sets=("view_costs",),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
    eva = await signed_in(server, "none", EVA)
    seen = (await server.over_http("GET", "/plan-costs?month=2026-08", headers=eva)).payload
    assert {"checkout"} == {row["team"] for row in seen["rows"]}
    assert ["BOB", "cid", "dan"] == [row["user"] for row in seen["rows"]]
    assert ["Claude", "Copilot"] == [plan["name"] for plan in seen["plans"]]
    own = [row for row in whole["rows"] if row["team"] == "checkout"]
    for name in ("fees", "overage"):
        assert sum(Fraction(row[name]) for row in own) == Fraction(seen["total"][name])
    checkout = [record for record, _ in calls if record.team == "checkout"]
    _, metered = worked_out(checkout)
    assert metered == Fraction(seen["total"]["metered"]) < Fraction(whole["total"]["metered"])
    bob = [next(row for row in rows if row["user"] == "BOB") for rows in (whole["rows"], seen["rows"])]
    assert {**bob[0], "also_in": []} == {**bob[1], "also_in": []}
    cid = next(row for row in seen["rows"] if row["user"] == "cid")
    # Cid's calls belong to another team.
    assert cid["calls"] == 0
    assert cid["included_value"] == "0"
    refused = await server.over_http("GET", "/plans", headers=eva)
    assert 403 == refused.status


# -- the plans themselves ------------------------------------------------------------------------------------


WRONG_PLANS: Sequence[tuple[Any, str]] = [
    ({"name": " "}, "name must have 1 to 100"),
    ({"view": "nowhere"}, "view: no view has"),
    ({"fee": "-1"}, "fee must not be negative"),
    ({"cycle_day": 0}, "cycle_day must be the day of the month"),
    ({"cycle_day": 32}, "cycle_day must be the day of the month"),
    ({"fee": "much"}, "fee must be a decimal number"),
    ({"unit": "credits"}, "credit_value is required"),
    (
        {"credit_value": "0.01"},
        "credit_value is required with the unit credits, and is not allowed with another unit",
    ),
    ({"unit": "credits", "credit_value": "0"}, "credit_value must be more than 0"),
    ({"seats": [{"user": "ann", "since": "yesterday"}]}, "seats.since must be a day"),
    (
        {"seats": [{"user": "ann", "since": "2026-08-02", "until": "2026-08-02"}]},
        "seats.until must be after since",
    ),
    ({"seats": [{"user": " ", "since": "2026-08-02"}]}, "seats.user must have 1 to"),
    (
        {"seats": [{"user": "ann", "since": "2026-08-02"}, {"user": "ANN", "since": "2026-08-09"}]},
        "two seats",
    ),
]


async def test_what_is_wrong_is_named(server: OperatorServer) -> None:
    """An invalid plan gets a 400 that names the field and its rule. Nothing is stored."""
    for body, words in WRONG_PLANS:
        answer = await server.ask("POST", "/plans", {"name": "Team", "view": "claude", **body})
        assert 400 == answer.status and words in answer.error[2], answer.payload
        assert [] == server.registry.declared_table(PlanTable).all(), (body, words)
        assert 400 == (await server.ask("GET", "/plan-costs?month=2026-8")).status, (body, words)


async def test_a_plan_is_found_by_its_name_and_keeps_its_view(server: OperatorServer) -> None:
    """
    A change survives a restart. A view can be deleted only when no plan uses it.
    """
    plan = await made(server, "/plans", **CLAUDE)
    assert 409 == (await server.ask("POST", "/plans", CLAUDE | {"name": "claude"})).status
    changed = await server.ask("PATCH", "/plans/claude", {"fee": "25", "version": plan["version"]})
    assert (200, "25", plan["seats"]) == (
        changed.status,
        *(changed.payload["plan"][name] for name in ("fee", "seats")),
    )
    await server.registry.declared_table(PlanTable).load()
    assert ["25"] == [each.fee for each in server.registry.declared_table(PlanTable).all()]
    kept = await server.ask("DELETE", f"/views/{plan['view']}")
    assert kept.status == 409
    assert kept.error[2] == "plans use this view: Claude. Delete them or move them to another view first"
    assert 200 == (await server.ask("DELETE", "/plans/Claude")).status
    assert 200 == (await server.ask("DELETE", f"/views/{plan['view']}")).status


async def test_by_command(tmp_path: Path) -> None:
    """Plans are created, listed, changed from a seat file, summed and deleted without a server."""

    async def run(*words: str, code: int = 0) -> str:
        result = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--data", str(tmp_path)])
        assert code == result.exit_code, result.output
        return result.output

    await run("views", "create", "--name", "claude", "--principal", "user", "--where", "source=claude_code")
    asked = ("plans", "create", "--name", "Team", "--view", "claude", "--fee", "31", "--included", "5")
    assert "ann since 2025-08-01" in await run(*asked, "--seat", "ann,2025-08-01,2025-08-11,search")
    assert "Team" in await run("plans", "list")
    shown = await run("plans", "costs", "--month", "2025-08")
    # $10.00 is the paid sum and also the fees. Both appear in the plan's row and in the total.
    assert [4, 1] == [shown.count("$10.00"), shown.count("Team")]
    seats = tmp_path / "seats.csv"
    seats.write_text("user,since,until,team\nann,2025-08-01\nbob,2025-08-30,2025-08-31,checkout\n\n")
    assert "bob since 2025-08-30" in await run("plans", "edit", "team", "--seats", str(seats))
    by_seat = await run("plans", "costs", "--month", "2025-08", "--by-seat")
    assert "$31.00" in by_seat and "$1.00" in by_seat and "$32.00" in by_seat
    idle = await run("plans", "costs", "--month", "2025-07", "--idle")
    assert "FEE" in idle and "ann" not in idle  # nobody had a seat in that month
    assert "ann" in await run("plans", "costs", "--month", "2025-08", "--idle")
    spend = tmp_path / "spend.json"
    spend.write_text('{"teamMemberSpend": [{"email": "ann"}], "subscriptionCycleStart": 1708992000000}')
    told = await run("plans", "seats", "team", str(spend), "--dry-run")
    assert (
        "billing cycle of the list began on 2024-02-27" in told
        and "--cycle-day 27" in told
        and "ended: bob" not in told
    )
    assert "write USER,SINCE" in await run("plans", "edit", "team", "--seat", "ann", code=2)
    assert "nothing to change" in await run("plans", "edit", "team", code=2)
    assert "deleted" in await run("plans", "delete", "team")
    assert "Team" not in await run("plans", "list")


# -- reports and budgets -------------------------------------------------------------------------------------


def metered_by(
    records: list[Inference], place: Callable[[Inference], tuple[str, ...]]
) -> dict[tuple[str, ...], Fraction]:
    """Return the cost that no plan covers, by the test's own arithmetic."""
    found: dict[tuple[str, ...], Fraction] = {}
    for record in records:
        _, metered = worked_out([record])
        found[place(record)] = found.get(place(record), Fraction(0)) + metered
    return {at: amount for at, amount in found.items() if amount}


def day_of(record: Inference) -> str:
    return f"{datetime.fromtimestamp((record.start_time or 0) / NS, UTC):%Y-%m-%d}"


@on_one_engine
async def test_a_report_leaves_out_what_plans_cover(server: OperatorServer) -> None:
    """
    Reports leave out covered calls by day and team, for the largest groups, in another time zone and in
    the previous month.
    """
    await keep_plans(server)
    calls = august(random.Random(3))
    await add(server.services.spool.log, *calls)
    records = [record for record, _ in calls]
    asked = "/report?from=2026-08-01&to=2026-08-31&cost_type=metered_cost"

    async def shown(more: str) -> dict[tuple[str, ...], Fraction]:
        answer = await server.ask("GET", f"{asked}&{more}")
        assert 200 == answer.status, answer.payload
        names = [name for name in ("period", "team", "user") if name in answer.payload["rows"][0]]
        rows = {
            tuple((row[name] or "")[:10] for name in names): Fraction(row["cost"])
            for row in answer.payload["rows"]
        }
        assert sum(rows.values()) == Fraction(answer.payload["total"]["cost"])
        return {place: amount for place, amount in rows.items() if amount}

    assert metered_by(records, lambda record: (record.team or "",)) == await shown("by=team")
    by_day = metered_by(records, lambda record: (day_of(record), record.team or ""))
    assert by_day == await shown("by=team&per=daily")
    by_user = metered_by(records, lambda record: (record.user or "",))
    most = {*sorted(by_user, key=lambda user: -by_user[user])[:2], ("",)}
    largest = await shown("by=user&top=2&per=monthly")
    assert all(largest["2026-08-01", *user] == by_user[user] for user in most)
    assert len(most) + 1 == len(largest)  # the largest groups, plus one group for the rest
    tokyo = await shown("by=team&per=daily&tz=Asia/Tokyo")
    assert tokyo.keys() != by_day.keys()
    plain = (await server.ask("GET", asked.replace("metered", "real"))).payload["total"]
    metered = (await server.ask("GET", asked)).payload["total"]
    covered = (await server.ask("GET", asked.replace("metered", "covered"))).payload["total"]
    assert plain["calls"] == metered["calls"] + covered["calls"]
    assert Fraction(plain["cost"]) == Fraction(metered["cost"]) + Fraction(covered["cost"])
    assert metered["calls"] < plain["calls"] and Fraction(metered["cost"]) < Fraction(plain["cost"])


async def test_a_budget_leaves_out_what_plans_cover(server: OperatorServer) -> None:
    """
    A budget of pay-as-you-go costs leaves out calls of a seat. It counts calls before the seat and of other people.
    """
    view = next(each for each in server.registry.views.all() if each.name == "claude")
    seats = [{"user": "ann", "since": "2026-09-02"}]
    days = ("2026-09-01T23:00", "2026-09-02T01:00", "2026-09-03T09:00")
    calls = [a_call(number, at, "ann", estimated_cost="10") for number, at in enumerate(days)]
    await add(server.services.spool.log, *calls, a_call(9, days[2], "dan", estimated_cost="5"))
    budgets = {}
    for cost_type in ("real_cost", "metered_cost", "covered_cost"):
        body = {"view": {"id": view.id}, "default_amount": "100", "cost_type": cost_type, "per": "user"}
        budgets[cost_type] = await server.ask("POST", "/budgets", {"name": cost_type, **body})
        assert budgets[cost_type].status == 201
        assert budgets[cost_type].payload["budget"]["cost_type"] == cost_type

    async def actual(cost_type: str) -> str:
        await server.ask("POST", "/budgets/evaluate", {})
        id = budgets[cost_type].payload["budget"]["id"]
        shown = await server.ask("GET", f"/budgets/{id}?expand=current")
        found: str = shown.payload["budget"]["current"]["actual"]
        return found

    assert ["35", "35", "0"] == [await actual(name) for name in budgets]
    await made(server, "/plans", name="Claude", view="claude", fee="20", seats=seats)
    assert ["35", "15", "20"] == [await actual(name) for name in budgets]
    id = budgets["metered_cost"].payload["budget"]["id"]
    changed = await server.ask("PATCH", f"/budgets/{id}", {"cost_type": "real_cost"})
    assert "real_cost" == changed.payload["budget"]["cost_type"]
    assert "35" == await actual("metered_cost")
    assert 400 == (await server.ask("PATCH", f"/budgets/{id}", {"cost_type": "guessed_cost"})).status
