"""
A month of a made-up company with three currencies, five providers, seats and corrections. The expected sums
are computed only with decimals: before its rates are frozen, afterwards, and with late reports.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from exporters.service.cbf import FINE
from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.gathering import StatementSources
from gateway.configuration.sections import CurrencyRate, CurrencySettings
from gateway.intake.prices import PriceBook
from gateway.service.assembly.storage import ledger_rates
from spool.engines import MEMORY, POSTGRES
from spool.identity import RecordIdentity
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S
from spool.record import AI_TELEMETRY, Correction, Inference
from tests.exporters import sinks
from tests.integration.operations.money.costs.test_report import report
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import add, assert_books_balance, call
from tests.spool.postgres_cluster import Schema

FIRST = datetime(2026, 10, 1, tzinfo=UTC)
BEGIN, DAYS = int(FIRST.timestamp()), 31
PROVIDERS = ("openai", "anthropic", "mistral_ai", "aws.bedrock", "gcp.vertex_ai")
CURRENCIES = ("USD", "EUR", "JPY")
OCTOBER = (("from", "2026-10-01"), ("to", "2026-10-31"), ("per", "daily"), ("by", "provider"))
SEATS = (
    ("2026-10-01", "741", "USD", "39 seats"),
    ("2026-10-17", "18.3870967741935483871", "USD", "2 seats more"),
    ("2026-10-01", "57", "EUR", "3 seats"),
)
COLUMNS = (
    "BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,ChargePeriodEnd,ProviderName,ServiceCategory,ChargeCategory,"
    "BilledCost,BillingCurrency,ChargeDescription"
)

USERS = ("ann", "Bob", "cid", "dan", "eve")
PLAN: dict[str, Any] = {
    "name": "Claude", "fee": "25.5", "included": "70000", "overage_price": "0.35", "currency": "EUR",
    "seats": [
        {"user": "ann", "since": "2026-01-01"},
        {"user": "bob", "since": "2026-10-09", "until": "2026-10-25"},
        {"user": "eve", "since": "2026-10-17"},
        {"user": "idle", "since": "2026-09-30"},
    ],
}  # fmt: skip
UNIT, RATE = 10**27, 10**12

Quoted = Mapping[tuple[int, str], Decimal]  # exchange rates by day and currency
Costs = dict[tuple[str, int], Decimal]  # sums of costs by provider and day, without zeros


def quotations(euro: str) -> dict[tuple[int, str], Decimal]:
    """
    Return dollar rates on working days. The yen drifts down, and the euro drifts up from the given value.
    """
    found = {}
    for day in range(-4, DAYS):
        if (FIRST + timedelta(days=day)).weekday() < 5:
            found[day, "EUR"] = Decimal(euro) + Decimal(day).scaleb(-4)
            found[day, "JPY"] = Decimal("0.0066") - Decimal(day).scaleb(-6)
    return found


def written(quoted: Quoted) -> str:
    rows = [
        f"{(FIRST + timedelta(days=day)).date()},{currency},{usd}" for (day, currency), usd in quoted.items()
    ]
    return "\n".join(["date,currency,usd", *rows, ""])


def in_dollars(currency: str, day: int, quoted: Quoted) -> Decimal:
    """Return dollars per unit of a currency. Weekends use Friday's rate."""
    if currency == "USD":
        return Decimal(1)
    return next(quoted[last, currency] for last in range(day, day - 8, -1) if (last, currency) in quoted)


class Told(NamedTuple):
    """A call with the amount that is currently valid for it."""

    provider: str
    day: int
    currency: str
    amount: Decimal

    def report(self, number: int, *, has_cost: bool = True) -> tuple[Inference, RecordIdentity]:
        """Return the report of the call, with its amount or without a cost."""
        at = BEGIN + self.day * DAY_S + number * 200
        money = f"{self.amount:f}"
        cost: dict[str, Any] = (
            {"cost": money} if self.currency == "USD" else {"charges": {self.currency: money}}
        )
        more = cost | {"cost_source": "reported"} if has_cost else {}
        return call(number, at=at, provider=self.provider, user=USERS[number % 5], **more)


class Company:
    """The expected state: the valid amount of each call, by number."""

    def __init__(self, calls: int) -> None:
        chance = random.Random(36)

        def made() -> Told:
            amount = Decimal(chance.randrange(1, 10**9)).scaleb(-chance.choice((2, 9, 15)))
            return Told(chance.choice(PROVIDERS), chance.randrange(DAYS), chance.choice(CURRENCIES), amount)

        self.calls = {number: made() for number in range(calls)}

    def settled(self, number: int, amount: str) -> tuple[Inference, RecordIdentity]:
        """Return the final report of a call's seller, in dollars. 0 means that the call is not billed."""
        self.calls[number] = self.calls[number]._replace(currency="USD", amount=Decimal(amount))
        record, known_as = self.calls[number].report(number)
        return record, known_as._replace(is_final=True)

    def costs(self, quoted: Quoted, currency: str = "USD") -> Costs:
        """Return the expected sums in a currency. Rates have 12 decimals. Each sum is rounded once, to 27 decimals."""
        sums: Costs = defaultdict(Decimal)
        with localcontext(Context(prec=100, rounding=ROUND_HALF_EVEN)):
            for told in self.calls.values():
                rate = in_dollars(told.currency, told.day, quoted) / in_dollars(currency, told.day, quoted)
                sums[told.provider, told.day] += told.amount * rate.quantize(Decimal("1e-12"))
            return {place: total.quantize(Decimal("1e-27")) for place, total in sums.items() if total}


class Seats(NamedTuple):
    """
    The plan's sums in a currency, in units of 1e-27. Calls of Anthropic are covered. All others are pay-as-you-go.
    """

    fees: int
    overage: int
    metered: int
    included: int


def of_seats(company: Company, quoted: Quoted, currency: str) -> Seats:
    """Return the expected sums in whole numbers. Each day of a fee, and the overage of a seat, is rounded once."""

    def rate(given: str, day: int) -> int:
        exact = in_dollars(given, day, quoted) / in_dollars(currency, day, quoted)
        return int(exact.quantize(Decimal("1e-12")) * RATE)

    def in_units(told: Told, asked: str) -> int:
        dollars = in_dollars(told.currency, told.day, quoted).quantize(Decimal("1e-12"))
        one = dollars if asked == "USD" else Decimal(rate(told.currency, told.day)) / RATE
        return int(told.amount * one * UNIT)

    fees = overages = included = 0
    covered: set[int] = set()
    with localcontext(Context(prec=100, rounding=ROUND_HALF_EVEN)):
        for seat in PLAN["seats"]:
            held = [day for day in range(DAYS) if has(seat, day)]
            fee = int(Decimal(PLAN["fee"]) * UNIT)
            parts = [fee * (day + 1) // DAYS - fee * day // DAYS for day in range(DAYS)]
            fees += sum(round(Fraction(parts[day] * rate("EUR", day), RATE)) for day in held)
            mine = {
                number
                for number, told in company.calls.items()
                if told.provider == "anthropic"
                and USERS[number % 5].lower() == seat["user"]
                and told.day in held
            }
            value = sum(in_units(company.calls[number], "USD") for number in mine)
            worth = sum(in_units(company.calls[number], currency) for number in mine)
            beyond = max(0, value - int(PLAN["included"]) * UNIT)
            priced = beyond * 35 // 100
            overages += round(Fraction(priced * rate("EUR", DAYS - 1), RATE))
            included += worth * (value - beyond) // value if value else 0
            covered |= mine
        others = [told for number, told in company.calls.items() if number not in covered]
        metered = sum(in_units(told, currency) for told in others)
    return Seats(fees, overages, metered, included)


def has(seat: Mapping[str, str], day: int) -> bool:
    at = f"2026-10-{day + 1:02}"
    return seat["since"] <= at < seat.get("until", "9999")


async def plan_costs(server: OperatorServer, currency: str) -> Seats:
    """Return the sums of the month, after checking that the paid sum is exactly that of its parts."""
    found = await asked(server, "GET", f"/plan-costs?month=2026-10&currency={currency}")
    total = found["total"]
    assert found["plan_costs"]["currency"] == currency
    assert total["unconverted"] == {}
    assert total["included_unconverted"] == {}
    names = ("fees", "overage", "metered", "included_value", "paid")
    with localcontext(Context(prec=100)):
        sums = [int(Decimal(total[name]) * UNIT) for name in names]
    assert sum(sums[:3]) == sums[4]
    return Seats(*sums[:4])


async def keep_plan(server: OperatorServer) -> None:
    filter = {"provider": ["anthropic"]}
    view = {"name": "claude", "filter": filter, "principal_dimension": "user"}
    await asked(server, "POST", "/views", view, status=201)
    await asked(server, "POST", "/plans", PLAN | {"view": "claude"}, status=201)


async def check_plans(server: OperatorServer, company: Company, quoted: Quoted) -> None:
    for currency in CURRENCIES:
        assert of_seats(company, quoted, currency) == await plan_costs(server, currency)


@pytest_asyncio.fixture(params=part([MEMORY, POSTGRES], every=2))
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    stored = None
    if request.param == POSTGRES:
        schema: Schema = request.getfixturevalue("new_schema")()
        stored = schema.settings(tmp_path)
    clock = MovedClock(BEGIN + DAYS * DAY_S - 100)
    async with operator_server(tmp_path, engine=request.param, clock=clock, stored=stored) as server:
        yield server


async def costs(server: OperatorServer, currency: str = "USD") -> Costs:
    found = await report(server, *OCTOBER, ("currency", currency))
    assert {} == found["report"]["unconverted"]
    days = ((row, date.fromisoformat(row["period"][:10]).day - 1) for row in found["rows"])
    return {(row["provider"], day): Decimal(row["cost"]) for row, day in days if row["cost"] != "0"}


async def billed(server: OperatorServer) -> tuple[dict[tuple[str, str, str], Decimal], dict[str, int]]:
    """
    Return the billed sums by provider, charge and day, and the number of bill lines in each other currency.
    """
    found = await report(server, *OCTOBER, ("by", "charge"), ("cost_type", "billed_cost"))
    rows = {
        (row["provider"], row["charge"], row["period"][:10]): Decimal(row["cost"]) for row in found["rows"]
    }
    return rows, found["billed"]["foreign"]


def assert_are_seats(rows: Mapping[tuple[str, str, str], Decimal], quoted: Quoted) -> None:
    """Check that billed fees are spread over their days. Fees in euros use the rate of their first day."""
    whole, more = (Fraction(amount) for _, amount, currency, _ in SEATS if currency == "USD")
    assert {("github", "commitment", f"2026-10-{day:02}") for day in range(1, 32)} == set(rows)
    euros = Fraction(SEATS[2][1]) * Fraction(in_dollars("EUR", 0, quoted))
    assert whole + more + euros == sum(map(Fraction, rows.values()))
    for (_, _, day), fee in rows.items():
        due = (whole + euros) / DAYS + (more / 15 if day >= SEATS[1][0] else 0)
        assert abs(Fraction(fee) - due) <= Fraction(3, 10**27)


async def bill_seats(server: OperatorServer, file: Path) -> None:
    """Import the bill for an assistant's seats and divide it."""
    spans = [
        f"2026-10-01,2026-11-01,{since},2026-11-01,GitHub,AI and Machine Learning" for since, *_ in SEATS
    ]
    rows = [f"{span},Purchase,{','.join(money)}" for span, (_, *money) in zip(spans, SEATS, strict=True)]
    file.write_text("\n".join([COLUMNS, *rows, ""]))
    await asked(server, "POST", "/statements", {"files": [str(file)], "source": "focus"})
    assert await divide_again(server)


async def check_sinks(server: OperatorServer, company: Company, late: set[int]) -> None:
    """
    Check that every export adds up to the same amounts. In FOCUS, a change of an ended month is a Correction
    that is billed in the next month. `late` has the numbers of the calls that were reported late.
    """
    log = server.services.spool.log
    entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
    rows = await sinks.focus_rows(entries)
    expected = sinks.added((told.currency, told.amount) for told in company.calls.values())
    assert expected == sinks.of_focus(rows) == sinks.of_files(entries) == sinks.of_chain(entries)
    records = [record for entry in entries for record in entry.records]
    corrected = {record.corrects.hex() for record in records if isinstance(record, Correction)}
    assert corrected == {row["x_Corrects"] for row in rows} - {""}
    numbers = {company.calls[number].report(number)[0].id.hex() for number in late}
    ended = {row["x_Corrects"] for row in rows if row["ChargeClass"] == "Correction"}
    assert numbers == ended
    assert {("2026-11", "2026-10")} >= {
        (row["BillingPeriodStart"][:7], row["ChargePeriodStart"][:7]) for row in rows if row["ChargeClass"]
    }


async def drops(server: OperatorServer) -> dict[datetime, bytes]:
    until = FIRST + timedelta(days=DAYS)
    hourly = CostQuery(since=FIRST, until=until, granularity="hourly", group_by=FINE)
    await server.storage.ledger.catch_up(server.storage.log)
    return sinks.drops(await server.storage.ledger.costs(hourly))


async def divide_again(server: OperatorServer) -> int:
    storage = server.storage
    sources = StatementSources(
        ledger=storage.ledger, log=storage.log, prices=PriceBook.load, statements=server.registry.statements
    )
    return await BilledCostCalculator(sources, server.clock).recalculate_month(CalendarMonth.at(BEGIN))


def rate_by(server: OperatorServer, section: CurrencySettings) -> None:
    """Apply a configuration, as a start or a reload does."""
    server.services.money.currency = lambda: section
    server.services.money.ledger.rates = ledger_rates(section, server.services.money.registry)


async def asked(
    server: OperatorServer, method: str, path: str, body: object = None, *, status: int = 200
) -> Any:
    answer = await server.ask(method, path, body)
    assert status == answer.status, answer.payload
    return answer.payload


async def test_frozen_rates_keep_the_costs_of_few_calls(server: OperatorServer, tmp_path: Path) -> None:
    """After the rates of a month are frozen, other rates change no cost of it, until the rates are thawed."""
    company, file = Company(30), tmp_path / "rates.csv"
    await add(server.services.spool.log, *(told.report(n) for n, told in company.calls.items()))
    first, second = quotations("1.0831"), quotations("1.2")
    file.write_text(written(first))
    rate_by(server, CurrencySettings(rates_file=file))
    await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=400)
    server.clock.move(200)
    assert company.costs(first) == await costs(server)
    await asked(server, "POST", "/ledger/rates", {"month": "2026-10"})
    await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=409)
    file.write_text(written(second))
    rate_by(server, CurrencySettings(rates_file=file))
    for currency in CURRENCIES:
        assert company.costs(first, currency) == await costs(server, currency)
    await asked(server, "DELETE", "/ledger/rates/2026-10")
    assert company.costs(second) == await costs(server)
    await asked(server, "DELETE", "/ledger/rates/2026-10", status=404)


@pytest.mark.proof
async def test_a_month_of_a_company(server: OperatorServer, tmp_path: Path) -> None:
    """
    Sums equal the decimal oracle to the last digit. While the month is open, a new file, a new rate and corrections
    change them. Seats of a plan in euros, their included usage and their extra usage are separate sums.

    Once the rates are frozen, no rate changes a sum, even after a restart. A late report then changes only
    its own provider and day, at the frozen rate. Billed seats are in no sum of calls.
    """
    log, company = server.services.spool.log, Company(400)
    made = dict(company.calls)
    silent = range(0, 400, 9)  # these calls timed out; their cost arrives late or never
    await add(log, *(told.report(number, has_cost=number not in silent) for number, told in made.items()))
    company.calls.update({number: made[number]._replace(amount=Decimal(0)) for number in silent})
    file = tmp_path / "rates.csv"
    first, second = quotations("1.0831"), quotations("1.2")
    section = CurrencySettings(rates_file=file)
    await keep_plan(server)
    for quoted in (second, first):
        file.write_text(written(quoted))
        rate_by(server, section)
        await check_plans(server, company, quoted)
        for currency in CURRENCIES:
            assert company.costs(quoted, currency) == await costs(server, currency)

    told_late = {number: made[number] for number in silent if number % 2}
    company.calls.update(told_late)
    await add(log, *(told.report(number) for number, told in told_late.items()))
    await add(log, *(company.settled(number, f"0.{number % 4}7") for number in range(1, 400, 19)))
    await add(log, *(company.settled(number, "0") for number in range(2, 400, 38)))
    for currency in CURRENCIES:
        assert company.costs(first, currency) == await costs(server, currency)

    await check_plans(server, company, first)
    await check_sinks(server, company, set())
    assert all(of_seats(company, first, "JPY"))
    refused = await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=400)
    assert "is not over" in refused["error"]["message"]
    server.clock.move(200)
    await bill_seats(server, tmp_path / "seats.csv")
    seats = await billed(server)
    assert_are_seats(seats[0], first)
    assert seats[1] == {}
    assert company.costs(first) == await costs(server)
    frozen = (await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}))["frozen_rates"]
    assert ["EUR", "JPY"] == frozen["currencies"]
    await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=409)
    listed = (await asked(server, "GET", "/ledger"))["frozen_rates"]
    assert {"2026-10": frozen["digest"]} == {month: each["digest"] for month, each in listed.items()}

    file.write_text(written(second))
    own = CurrencyRate(currency="EUR", usd=Decimal(9))
    rate_by(server, CurrencySettings(rates_file=file, rate=(own,)))
    for currency in CURRENCIES:
        assert company.costs(first, currency) == await costs(server, currency)
    await check_plans(server, company, first)
    for number, correct in (
        (18, None),
        (4, "12.5"),
        (5, "0"),
    ):  # the first call is reported late, the second has a final cost, the third is not billed at all
        before, dropped = await costs(server), await drops(server)
        if correct is None:
            company.calls[number] = made[number]
            await add(log, made[number].report(number))
        else:
            await add(log, company.settled(number, correct))
        after = await costs(server)
        assert company.costs(first) == after
        changed = {place for place in {*before, *after} if before.get(place) != after.get(place)}
        assert {(made[number].provider, made[number].day)} == changed
        hour = FIRST + timedelta(days=made[number].day, hours=number * 200 // 3600)
        assert {hour} == {start for start, _ in dropped.items() ^ (await drops(server)).items()}
    assert company.costs(first, "EUR") == await costs(server, "EUR")
    await check_plans(server, company, first)
    await check_sinks(server, company, {18, 4, 5})
    assert await divide_again(server) == 0
    assert await billed(server) == seats
    await assert_books_balance(log)

    frozen_costs = await costs(server)
    await asked(server, "DELETE", "/ledger/rates/2026-10")
    assert frozen_costs != await costs(server)
    assert DAYS == await divide_again(server)
    assert_are_seats((await billed(server))[0], {(day, "EUR"): Decimal(9) for day in range(DAYS)})
    await asked(server, "DELETE", "/ledger/rates/2026-10", status=404)
    await asked(server, "POST", "/ledger/rates", {"month": "October"}, status=400)
