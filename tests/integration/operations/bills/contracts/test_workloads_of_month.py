"""
A month of a workload on own hardware, end to end on each engine: container costs, reported calls, and the tokens that
the model server counted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from sys import getsizeof
from typing import Any

import pytest
import pytest_asyncio

from gateway.bills.billed.connection_rows import ConnectionRowRules, build_day_sums
from gateway.bills.billed.containers import KUBERNETES, price_cluster_day, price_unbilled_usage
from gateway.bills.billed.row_book import PRICED
from gateway.bills.contracts.workloads import ModelTokens
from gateway.clusters.usage.usage import DayUsage, WorkloadOnNode
from gateway.configuration.sections import Config, ContractSettings
from gateway.devices.states import device_revoker
from gateway.operations.records.served_hours import SUM_BYTES
from spool.container_files.values import ClusterIdentity
from spool.engines import MEMORY, POSTGRES, SQLITE
from spool.erasing import erase_from_storage
from spool.erasure import new_erasure
from spool.ledger.billed import CONNECTION, BilledDay
from spool.people import People
from spool.registry.operators import Actor
from spool.settings import ContainerPrice
from spool.statements import DAY_S, parse_day
from tests.integration.operations.bills.plans.test_plans import a_call, made
from tests.integration.operations.records.test_served import counter
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof
from tests.spool.contract.examples import add

NOW = datetime(2026, 9, 3, 14, tzinfo=UTC)
FIRST = parse_day("2026-08-01")
CORE_HOUR = 3_600_000_000
COST = Fraction(48)  # dollars of the workload on each of two days
CLUSTER = ClusterIdentity("a-1", "eu-west-1", "gpu")
TERM = {"kind": "capacity", "cluster": "gpu", "namespace": "ml", "workload": "qwen", "models": ["qwen*"]}
CONTRACT: dict[str, Any] = {"name": "GPU", "provider": "vllm", "since": "2026-08-01", "terms": [TERM]}
AUGUST = "/contract-costs?month=2026-08"
on_every_engine = pytest.mark.parametrize("server", [SQLITE, as_proof(POSTGRES)], indirect=True)


@pytest_asyncio.fixture
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    engine = getattr(request, "param", MEMORY)
    async with opened(tmp_path, request, engine) as server:
        yield server


@asynccontextmanager
async def opened(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str, **limits: int
) -> AsyncIterator[OperatorServer]:
    stored = request.getfixturevalue("new_schema")().settings(tmp_path) if engine == POSTGRES else None
    clock = MovedClock(NOW.timestamp())
    most = Config(contracts=ContractSettings(**limits)).limit_value
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored, most=most) as server:
        yield server


async def put_usage(server: OperatorServer) -> None:
    """Store container costs of two days: $48 of the workload, $24 of another workload, and idle nodes."""
    used = {
        WorkloadOnNode("n-1", "ml", workload, {}).key: [hours * CORE_HOUR, 0, 0]
        for workload, hours in (("qwen", 48), ("web", 24))
    }
    usage = DayUsage(used=used, had={"n-1": [100 * CORE_HOUR, 0, 0]}, nodes={"n-1": "n-1"})
    found = price_cluster_day(CLUSTER, usage, [ContainerPrice(cluster="gpu", cpu_hour=Decimal(1))])
    assert found is not None
    rules = ConnectionRowRules(
        connection=PRICED, provider=KUBERNETES, owner_tags={}, tags=(), people=People.for_installation(b"p")
    )
    key = f"{KUBERNETES}{CONNECTION}{PRICED}:2026-08"
    for day in (FIRST, FIRST + DAY_S):
        billed = BilledDay(
            day=day,
            provider=key,
            state="closed",
            mark=str(day),
            source="container_metrics",
            read_at=0.0,
            made_at=0.0,
        )
        sums = build_day_sums(price_unbilled_usage([found], (), rules))
        await server.services.money.ledger.store_billed_days([(billed, sums)])


def reported(number: int, hour: int, user: str | None, count: int) -> Any:
    fields = {"provider": "vllm", "request_model": "qwen3-32b", "estimated_cost": "0"}
    return a_call(number, f"2026-08-01T{hour:02}:30", user, input_tokens=0, output_tokens=count, **fields)


def parts_of(payload: Any) -> dict[tuple[str, str | None], Fraction]:
    return {(row["charge"], row["team"]): Fraction(row["cost"]) for row in payload["rows"]}


CALLS = [reported(1, 3, "ann", 300), reported(2, 3, "Bob", 100), reported(3, 7, None, 200)]
SERVED = [
    counter(90, "output", 900, at=FIRST + 3 * 3600, model="Qwen3-32B"),
    counter(91, "output", 300, at=FIRST + 9 * 3600, model="Qwen3-32B"),
    counter(92, "output", 77, at=FIRST + 9 * 3600, model="llama"),
]


@on_every_engine
async def test_teams_unused_hours_and_unreported_tokens_add_up(server: OperatorServer) -> None:
    """
    The costs of teams, unused hours and unreported tokens add up to the cost of the hardware. In the example, three
    hours have tokens, so 21 are unused. Of 1200 served tokens, 600 were reported.
    """
    await put_usage(server)
    await add(server.services.spool.log, *CALLS, *SERVED)
    await made(server, "/contracts", **CONTRACT)
    payload = (await server.ask("GET", AUGUST)).payload
    used = COST * 3 / 24
    assert {
        ("commitment", "search"): used * 300 / 1200,
        ("commitment", "checkout"): used * 100 / 1200,
        ("commitment", None): used * 200 / 1200,
        ("unreported", None): used * 600 / 1200,
        ("unused", None): COST * 21 / 24 + COST,
    } == parts_of(payload)
    assert {"containers"} == {row["source"] for row in payload["rows"]}
    [row] = payload["capacity"]
    assert (2 * COST, used / 2, COST * 45 / 24) == tuple(
        Fraction(row[name]) for name in ("cost", "unreported", "unused")
    )
    assert Fraction(payload["total"]["cost"]) == 2 * COST == sum(parts_of(payload).values())
    assert (3, 45) == (row["calls"], row["idle_hours"])
    workload = row["workload"]
    assert ("ok", "servers", None, ["1", "0.1", "4"]) == tuple(
        workload[name] for name in ("state", "tokens", "weights_model", "weights")
    )
    assert {"2026-08-01": used * 10**6 / (4 * 1200)} == {
        day: Fraction(price) for day, price in workload["prices"].items()
    }


@on_every_engine
async def test_an_erased_person_keeps_the_share_of_own_hardware(server: OperatorServer) -> None:
    """
    An erased person keeps the share of the costs of own hardware: all amounts stay, also after a recalculation.
    Before the erasure, the contract and its calls have the person's name.
    """
    await put_usage(server)
    await add(server.services.spool.log, *CALLS, *SERVED)
    await made(server, "/contracts", **{**CONTRACT, "name": "Cards of ann"})

    async def amounts() -> Any:
        contract = (await server.ask("GET", AUGUST)).payload
        path = "/report?from=2026-08-01&to=2026-08-31&by=charge,team&cost_type=paid_cost"
        report = (await server.ask("GET", path)).payload
        return parts_of(contract), contract["total"], contract["capacity"][0]["workload"], report["rows"]

    before = await amounts()
    assert ("commitment", "search") in before[0]
    erasure = new_erasure([server.registry.people.erasure_digest("ann")], server.clock.now(), texts=True)
    erased = await erase_from_storage(
        server.storage, erasure, revoke_device=device_revoker(""), actor=Actor("root", "local")
    )
    assert 1 == erased.records.records
    assert before == await amounts()
    assert 200 == (await server.ask("POST", "/ledger/reprice", {"since": "2026-08-01"})).status
    assert before == await amounts()
    assert "Cards of (erased)" in str((await server.ask("GET", "/contracts")).payload)


@pytest.mark.parametrize(("most", "tokens"), [(10, "calls"), (1, "unknown")])
async def test_without_counters_reported_calls_are_the_tokens(
    tmp_path: Path, request: pytest.FixtureRequest, most: int, tokens: str
) -> None:
    """So it is while the records are not read to the end. The next query continues."""
    async with opened(tmp_path, request, MEMORY, max_served_records=most) as server:
        await put_usage(server)
        await add(server.services.spool.log, *CALLS)
        await made(server, "/contracts", **CONTRACT)
        payload = (await server.ask("GET", AUGUST)).payload
        [row] = payload["capacity"]
        assert (tokens, "0") == (row["workload"]["tokens"], row["unreported"])
        assert COST / 12 * 300 / 600 == parts_of(payload)["commitment", "search"]
        assert 2 * COST == sum(parts_of(payload).values())
        for _ in range(3):
            payload = (await server.ask("GET", AUGUST)).payload
        assert "calls" == payload["capacity"][0]["workload"]["tokens"]


async def test_counters_beyond_the_memory_are_not_counted_in_part(
    tmp_path: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the stored counters exceed their memory, the newest hours stay. A month of which an hour was dropped uses
    only reported calls, and says so.
    """
    september = counter(93, "output", 50, at=FIRST + 31 * DAY_S, model="Qwen3-32B")
    three_sums = 3 * (SUM_BYTES + 2 * getsizeof("Qwen3-32B"))
    async with opened(tmp_path, request, MEMORY, max_served_bytes=three_sums) as server:
        await put_usage(server)
        await add(server.services.spool.log, *CALLS, *SERVED, september)
        await made(server, "/contracts", **CONTRACT)
        payload = (await server.ask("GET", AUGUST)).payload
        [row] = payload["capacity"]
        assert ("too_many", "0") == (row["workload"]["tokens"], row["unreported"])
        assert 2 * COST == sum(parts_of(payload).values())
        assert f"contracts.max_served_bytes = {three_sums} is reached" in caplog.text
        served = server.services.money.served_hours
        assert served is not None
        [newest] = (await served.tokens_in_span(FIRST + 31 * DAY_S, FIRST + 32 * DAY_S)).tokens
        assert ModelTokens(output=50) == newest.tokens


async def test_a_cost_counts_in_one_place(server: OperatorServer) -> None:
    """
    The cost of own hardware counts in one place: a contract only divides container costs. It adds nothing to
    billed, counted or paid costs, and no record changes. The other terms of the contract do not depend on the
    workload.
    """
    await put_usage(server)
    await add(server.services.spool.log, *CALLS, *SERVED)
    fee = {"kind": "fee", "amount": "31", "per": "month", "percent": "10"}
    await made(server, "/contracts", **{**CONTRACT, "terms": [fee]})
    types = ("real_cost", "metered_cost", "paid_cost", "billed_cost", "discounted_amortized_cost")

    async def reports() -> list[Any]:
        path = "/report?from=2026-08-01&to=2026-08-31&by=team&cost_type="
        found = [(await server.ask("GET", path + cost_type)).payload for cost_type in types]
        return [(each["rows"], each["total"]) for each in found]

    before, fees = await reports(), parts_of((await server.ask("GET", AUGUST)).payload)
    assert {"fee"} == {charge for charge, _ in fees}
    answer = await server.ask("PATCH", "/contracts/GPU", {"terms": [fee, TERM]})
    assert 200 == answer.status, answer.payload
    assert before == await reports()
    payload = (await server.ask("GET", AUGUST)).payload
    after = parts_of(payload)
    assert fees == {place: part for place, part in after.items() if place[0] == "fee"}
    assert 31 + 2 * COST == Fraction(payload["total"]["cost"]) == sum(after.values())


async def test_a_workload_that_is_not_known_has_a_state(server: OperatorServer) -> None:
    """
    A workload that is not known, also one of another namespace or cluster, has a state that says so. Nothing fails,
    and nothing is added.
    """
    await put_usage(server)
    await add(server.services.spool.log, *CALLS)
    others = [{**TERM, name: "other", "models": [name]} for name in ("cluster", "namespace", "workload")]
    await made(server, "/contracts", **{**CONTRACT, "terms": others})
    answer = await server.ask("GET", AUGUST)
    assert 200 == answer.status, answer.payload
    rows = answer.payload["capacity"]
    assert [("0", "no_cost")] * 3 == [(row["cost"], row["workload"]["state"]) for row in rows]
    assert ("0", []) == (answer.payload["total"]["cost"], answer.payload["rows"])


async def test_amounts_are_shown_in_another_currency(server: OperatorServer) -> None:
    """Without an exchange rate, container costs are in no sum, and the answer states them."""
    await put_usage(server)
    await made(server, "/contracts", **CONTRACT)
    payload = (await server.ask("GET", AUGUST + "&currency=EUR")).payload
    assert ("0", []) == (payload["total"]["cost"], payload["rows"])
    assert 2 * COST == Fraction(payload["total"]["unconverted"]["USD"])
