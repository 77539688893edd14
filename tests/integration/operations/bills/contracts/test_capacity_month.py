"""
A month with paid capacity, end to end: the stored contract, the price of each call, the costs of teams, and the bill.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.bills.contracts.declared import price_terms
from gateway.configuration.sections import CurrencyRate, CurrencySettings
from gateway.intake.prices import PriceBook
from gateway.service.assembly.storage import ledger_rates
from spool import identity
from spool.engines import MEMORY, POSTGRES
from spool.ledger.days.usage import UsageSum
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.record import Inference
from spool.registry.operators import Actor
from spool.statements import Statement, StatementRow
from tests.gateway.bills.reconciliation.faults import replaced
from tests.gateway.bills.reconciliation.simulator import AZURE, DAYS, Call, book, month, record, statements
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import as_proof
from tests.spool.contract.examples import add
from tests.spool.postgres_cluster import Schema

MARCH, NOW = "2026-03", datetime(2026, 4, 2, 12, tzinfo=UTC)
ALL_DAYS = range(DAYS[0], DAYS[0] + 31 * 86_400, 86_400)  # the last day of the month has no call
COVERED = "gpt-4o-2024-11-20"
CALLS = [
    call
    for call in month(a_day=4, providers=(AZURE,))
    # on two days, no call is covered by the capacity
    if call.model != COVERED or call.day not in (DAYS[3], DAYS[17])
]
HOURLY = 24 * 2 * Decimal("1.25")  # cost of the capacity in dollars a day
CONTRACT: dict[str, Any] = {
    "name": "Azure PTU", "provider": AZURE, "since": "2026-03-01",
    "terms": [
        {"kind": "capacity", "models": [COVERED], "unit": "ptu", "number": "2", "price": "1.25", "per": "hour"}
    ],
}  # fmt: skip
TEAMS = {"key_web": "web", "key_app": "app", "key_jobs": None}


@pytest_asyncio.fixture(params=[MEMORY, as_proof(POSTGRES)])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    stored = None
    if request.param == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        stored = schema.settings(tmp_path)

    servers: list[OperatorServer] = []

    def prices() -> PriceBook:
        return PriceBook(book().card, (), price_terms(servers[0].registry))

    clock = MovedClock(NOW.timestamp())
    engine = request.param
    async with operator_server(tmp_path, engine=engine, clock=clock, stored=stored, prices=prices) as opened:
        servers.append(opened)
        yield opened


async def made(server: OperatorServer, **contract: Any) -> None:
    answer = await server.ask("POST", "/contracts", {**CONTRACT, **contract})
    assert 201 == answer.status, answer.payload


async def send_calls(server: OperatorServer, calls: Sequence[Call] = CALLS) -> list[Inference]:
    """Price the month's calls as the intake does, and store them."""
    prices = PriceBook(book().card, (), price_terms(server.registry))
    records = [record(call) for call in calls]
    for each in records:
        each.team = TEAMS[str(each.api_key)]
        prices.price_record(each)
    known = [identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)]
    await add(server.services.spool.log, *zip(records, known, strict=True))
    return records


def bill(daily: Decimal, *, has_tokens: bool) -> list[StatementRow]:
    """Return a bill with a line of capacity a day, and without money of the covered tokens."""
    rows = statements(CALLS)
    name = COVERED.replace("2024-11-20", "1120")
    like = next(row for row in rows if row.unit == "usd" and row.model == name)
    kept = [row for row in rows if row.model != name or (has_tokens and row.unit != "usd")]
    lines = (
        replaced(like, kind="throughput", model=name, amount=daily, start=day, end=day + 86_400, tier=None,
                 region=None, batch=None, context=None)
        for day in ALL_DAYS
    )  # fmt: skip
    return [*kept, *lines]


async def put(server: OperatorServer, rows: Sequence[StatementRow]) -> None:
    for source in sorted({row.source for row in rows}):
        statement = Statement(
            source=source, account="", start=DAYS[0], end=DAYS[-1] + 2 * 86_400,
            rows=tuple(row for row in rows if row.source == source),
            read_at=NOW.timestamp(), settled_until=NOW.timestamp(), name=f"{source}.json",
        )  # fmt: skip
        await server.registry.statements.import_statement(
            statement, actor=Actor("ada@example.com", "command")
        )


async def reconciled(server: OperatorServer) -> Any:
    answer = await server.ask("GET", f"/reconciliation?month={MARCH}&provider={AZURE}")
    assert 200 == answer.status, answer.payload
    [found] = answer.payload["providers"]
    return found


def parts_by_hand(calls: Sequence[Call]) -> dict[tuple[str, str | None], Decimal]:
    """
    Divide each day's cost of the capacity by the list value of its covered calls, as the expected result. No
    rounding here is large enough to matter.
    """
    parts: dict[tuple[str, str | None], Decimal] = defaultdict(Decimal)
    for day in ALL_DAYS:
        values: dict[str | None, Decimal] = defaultdict(Decimal)
        for call in calls:
            if call.day == day and call.model == COVERED:
                values[TEAMS[call.key]] += call.cost()
        for team, value in values.items():
            parts["commitment", team] += HOURLY * value / sum(values.values())
        if not values:
            parts["unused", None] += HOURLY
    return parts


async def test_calls_cost_nothing_and_teams_share_the_capacity(server: OperatorServer) -> None:
    """
    Calls that the capacity covers cost 0 and name the contract. The parts of teams add up to the capacity's cost
    exactly.
    """
    await made(server)
    records = await send_calls(server)
    for call, each in zip(CALLS, records, strict=True):
        is_covered = call.model == COVERED
        assert is_covered == (each.estimated_cost == "0")
        assert is_covered == str(each.price_book).endswith("+contract:Azure PTU")
    answer = await server.ask("GET", f"/contract-costs?month={MARCH}")
    assert 200 == answer.status, answer.payload
    payload, hand = answer.payload, parts_by_hand(CALLS)
    assert str(HOURLY * 31) == f"{Decimal(payload['total']['cost']):.2f}"
    assert Decimal(payload["total"]["cost"]) == sum(Decimal(row["cost"]) for row in payload["rows"])
    assert hand.keys() == {(row["charge"], row["team"]) for row in payload["rows"]}
    for row in payload["rows"]:
        assert abs(Decimal(row["cost"]) - hand[row["charge"], row["team"]]) < Decimal("1e-20")
    [term] = payload["capacity"]
    covered = [call for call in CALLS if call.model == COVERED]
    value = sum(call.cost() for call in covered)
    assert (value, len(covered), 0) == (Decimal(term["list_value"]), term["calls"], term["unpriced_calls"])
    assert f"{value / (HOURLY * 31) * 100:.2f}" == term["utilisation"]
    assert 31 * 24 - len({call.time // 3600 for call in covered}) == term["idle_hours"]
    assert hand["unused", None] == Decimal(term["unused"]) == Decimal(payload["total"]["unused"])


@pytest.mark.parametrize("has_tokens", [True, as_proof(False)])
@pytest.mark.parametrize("daily", [HOURLY, HOURLY + 3])
async def test_the_bill_names_the_contract(server: OperatorServer, daily: Decimal, has_tokens: bool) -> None:
    """
    The lines of capacity on the bill are explained by the contract to the last digit. If the contract states
    another amount, both amounts are named.
    """
    await made(server)
    await send_calls(server)
    await put(server, bill(daily, has_tokens=has_tokens))
    found = await reconciled(server)
    causes = {cause["cause"]: cause for cause in found["causes"]}
    assert {"commitment"} == causes.keys() - {"rounding"}, found["causes"]
    assert [] == found["hints"]
    claim = causes["commitment"]
    assert daily * 31 == Decimal(claim["amount"])
    assert "the contract Azure PTU states" in claim["evidence"]
    assert all(f"${amount * 31:,.2f}" in claim["evidence"] for amount in (HOURLY, daily))
    assert (daily != HOURLY) == ("but the contract" in claim["evidence"])
    assert 0 == Decimal(found["total"]["unexplained"])


async def test_a_final_bill_replaces_the_computed_costs(server: OperatorServer) -> None:
    """
    A final bill replaces the computed costs: its lines of capacity and credits count once, and teams keep their
    shares. Paid costs stay as computed.
    """
    credit = {"kind": "credit", "amount": "10", "per": "month"}
    await made(server, terms=[*CONTRACT["terms"], credit])
    await send_calls(server)
    path, paid_path = (
        f"/contract-costs?month={MARCH}",
        f"/report?from={MARCH}-01&to={MARCH}-31&cost_type=paid_cost",
    )
    before = (await server.ask("GET", path)).payload["rows"]
    paid = (await server.ask("GET", paid_path)).payload["total"]["cost"]
    lines = bill(HOURLY + 3, has_tokens=False)
    like = next(row for row in lines if row.kind == "throughput")
    await put(server, [*lines, replaced(like, kind="credit", amount=Decimal(-7))])
    answer = (await server.ask("GET", path)).payload
    assert {"statement"} == {row["source"] for row in answer["rows"]}
    assert {"contract"} == {row["source"] for row in before}
    of_capacity = [row for row in answer["rows"] if row["charge"] != "credit"]
    assert (HOURLY + 3) * 31 == sum(Decimal(row["cost"]) for row in of_capacity)
    assert (HOURLY + 3) * 31 - 7 == Decimal(answer["total"]["cost"])
    computed = {(row["charge"], row["team"]): Decimal(row["cost"]) for row in before}
    share = (HOURLY + 3) / HOURLY
    assert all(
        abs(Decimal(row["cost"]) - computed[row["charge"], row["team"]] * share) < Decimal("1e-20")
        for row in of_capacity
    )
    assert paid == (await server.ask("GET", paid_path)).payload["total"]["cost"]


async def test_a_priority_fee_counts_once(server: OperatorServer) -> None:
    """Teams share the fee by the list value of their calls of the tier. The bill's line then replaces the fee."""
    term = {"kind": "priority", "tier": "priority", "amount": "62", "per": "month"}
    await made(server, terms=[term])
    calls = [replace(call, tier="priority", batch=False) if call.model == COVERED else call for call in CALLS]
    records = await send_calls(server, calls)
    assert {"0"} == {each.estimated_cost for each in records if each.response_model == COVERED}
    path = f"/contract-costs?month={MARCH}"
    before = (await server.ask("GET", path)).payload
    unused = 2 * (31 - len({call.day for call in calls if call.model == COVERED}))
    assert ("62", str(unused), {"contract"}) == (
        before["total"]["cost"],
        before["total"]["unused"],
        {row["source"] for row in before["rows"]},
    )
    rows = [row for row in statements(calls) if row.tier != "priority" or row.unit != "usd"]
    like = next(row for row in rows if row.unit == "usd")
    fee = replaced(
        like, kind="priority_processing_fee", model=None, amount=Decimal(70), tier=None, batch=None
    )
    await put(server, [*rows, fee])
    after = (await server.ask("GET", path)).payload
    assert ("70", {"statement"}) == (after["total"]["cost"], {row["source"] for row in after["rows"]})
    assert sum(Decimal(row["cost"]) for row in after["rows"]) == 70
    found = await reconciled(server)
    [claim] = [cause for cause in found["causes"] if cause["cause"] != "rounding"]
    assert ("commitment", Decimal(70), "0") == (
        claim["cause"],
        Decimal(claim["amount"]),
        found["total"]["unexplained"],
    )
    assert "but the contract Azure PTU states $62.00" in claim["evidence"]


async def test_two_contracts_do_not_cover_the_same_calls(server: OperatorServer) -> None:
    """A term of another contract is refused until the first contract ends."""
    await made(server)
    other = {**CONTRACT, "name": "Later", "since": "2026-05-01"}
    refused = await server.ask("POST", "/contracts", other)
    assert (409, True) == (refused.status, "has a capacity of the same calls" in str(refused.payload))
    assert 200 == (await server.ask("PATCH", "/contracts/Azure%20PTU", {"until": "2026-05-01"})).status
    assert 201 == (await server.ask("POST", "/contracts", other)).status


async def test_a_month_is_read_by_two_queries(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One query has the uses of all days, and one has their hours. No day or hour is read by itself."""
    await made(server)
    await send_calls(server)
    queries: list[str] = []
    costs = Ledger.costs

    async def counted(ledger: Ledger, query: CostQuery) -> Sequence[CostRow]:
        queries.append(query.granularity)
        return await costs(ledger, query)

    async def refused(ledger: Ledger, day: int) -> Sequence[UsageSum]:
        raise AssertionError(day)

    monkeypatch.setattr(Ledger, "costs", counted)
    monkeypatch.setattr(Ledger, "usage_of_day", refused)
    assert 200 == (await server.ask("GET", f"/contract-costs?month={MARCH}")).status
    assert ["daily", "hourly"] == queries


RATE = Decimal("1.5")  # exchange rate in dollars per euro


@pytest.mark.proof
async def test_a_contract_and_its_bill_in_another_currency(server: OperatorServer) -> None:
    """
    If a contract and its bill are in another currency, both are converted at the rate of the day, so the lines of
    the bill equal those that the contract states.
    """
    rate = CurrencyRate(currency="EUR", usd=RATE)
    server.services.money.ledger.rates = ledger_rates(CurrencySettings(rate=(rate,)))
    await made(server, currency="EUR")
    await send_calls(server)
    in_euros = [
        replaced(row, unit="eur", currency="EUR", amount=(row.amount / RATE).quantize(Decimal("1e-9")))
        if row.unit == "usd"
        else row
        for row in bill(HOURLY * RATE, has_tokens=True)
    ]
    await put(server, in_euros)
    found = await reconciled(server)
    [claim] = [cause for cause in found["causes"] if cause["cause"] != "rounding"]
    assert ("commitment", HOURLY * RATE * 31) == (claim["cause"], Decimal(claim["amount"]))
    assert "as the contract Azure PTU states" in claim["evidence"]
    assert [] == found["hints"] and abs(Decimal(found["total"]["unexplained"])) < Decimal("1e-6")
    for currency, cost in (("EUR", HOURLY * 31), ("USD", HOURLY * RATE * 31)):
        answer = await server.ask("GET", f"/contract-costs?month={MARCH}&currency={currency}")
        total = answer.payload["total"]
        assert (cost, {}) == (Decimal(total["cost"]), total["unconverted"])


async def test_calls_from_before_the_contract_was_stored_are_recalculated(server: OperatorServer) -> None:
    """
    Calls from before the contract was stored cost nothing after a recalculation. The cost of the contract, and its
    parts by team, stay as they were.
    """
    await send_calls(server)
    await made(server)

    async def costs() -> tuple[Decimal, Any]:
        report = await server.ask("GET", "/report?from=2026-03-01&to=2026-03-31&show=cost")
        month = await server.ask("GET", f"/contract-costs?month={MARCH}")
        return sum((Decimal(row["cost"]) for row in report.payload["rows"]), Decimal(0)), month.payload

    before, of_month = await costs()
    assert sum(call.cost() for call in CALLS) == before
    answer = await server.ask("POST", "/ledger/reprice", {"since": "2026-03-01"})
    assert 200 == answer.status, answer.payload
    after, again = await costs()
    assert sum(call.cost() for call in CALLS if call.model != COVERED) == after
    assert of_month == again
    hand = parts_by_hand(CALLS)
    assert all(
        abs(Decimal(row["cost"]) - hand[row["charge"], row["team"]]) < Decimal("1e-20")
        for row in again["rows"]
    )


async def test_the_bill_names_credits_fees_and_minimums_of_contracts(server: OperatorServer) -> None:
    """
    Each line of the bill for a credit, fee or minimum is a cause with its own amount and that of the contract,
    which may be in another currency. An amount of the contract that the bill does not have is a cause as well.
    """
    rate = CurrencyRate(currency="EUR", usd=RATE)
    server.services.money.ledger.rates = ledger_rates(CurrencySettings(rate=(rate,)))
    terms = [
        {"kind": "credit", "amount": "2", "per": "month"},
        {"kind": "fee", "amount": "31", "per": "month"},
        {"kind": "minimum", "amount": "1000", "per": "month"},
    ]
    await made(server, currency="EUR", terms=terms)
    await send_calls(server)
    lines = bill(Decimal(0), has_tokens=True)
    like = next(row for row in lines if row.kind == "throughput")
    await put(server, [*statements(CALLS), replaced(like, kind="credit", amount=Decimal(-7))])
    found = await reconciled(server)
    evidence = {cause["cause"]: (cause["evidence"], Decimal(cause["amount"])) for cause in found["causes"]}
    assert [] == found["hints"]
    assert (
        "the bill has -$7.00 of credits on 1 day, but the contract Azure PTU states -$3.00 for the calls that were "
        "counted",
        Decimal(-7),
    ) == evidence["credit"]
    assert (
        "the bill has no fees, but the contract Azure PTU states $46.50 for the calls that were counted",
        Decimal(0),
    ) == evidence["fee"]
    assert evidence["commitment"][0].startswith(
        "the bill has no minimum, but the contract Azure PTU states $"
    )
    await server.ask("PATCH", "/contracts/Azure%20PTU", {"terms": [{**terms[1], "amount": "62"}]})
    [again] = [cause for cause in (await reconciled(server))["causes"] if cause["cause"] == "fee"]
    assert "states $93.00 for" in again["evidence"]


async def test_amounts_that_a_final_bill_replaces_need_no_exchange_rate(server: OperatorServer) -> None:
    """
    Amounts without an exchange rate are in no sum before the bill. After a final bill has replaced them, its lines
    are in the sums, and nothing is left out.
    """
    await made(server, currency="EUR")
    await send_calls(server)
    path = f"/contract-costs?month={MARCH}"
    before = (await server.ask("GET", path)).payload
    assert ("0", []) == (before["total"]["cost"], before["rows"])
    assert HOURLY * 31 == Decimal(before["total"]["unconverted"]["EUR"])
    await put(server, bill(HOURLY + 3, has_tokens=True))
    total = (await server.ask("GET", path)).payload["total"]
    assert (Decimal((HOURLY + 3) * 31), {}) == (Decimal(total["cost"]), total["unconverted"])
