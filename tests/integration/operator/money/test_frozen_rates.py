"""
A month of a made-up company in three currencies and five providers, against decimals alone: before its rates are
frozen, afterwards, and with what becomes known late.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.assembly.storage import ledger_rates
from gateway.configuration.sections import CurrencyRate, CurrencySettings
from spool.engines import MEMORY, SQLITE
from spool.ledger.sums import DAY_S
from tests.integration.operator.money.test_report import report
from tests.integration.operator.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

pytestmark = pytest.mark.asyncio

FIRST = datetime(2026, 10, 1, tzinfo=UTC)
BEGIN, DAYS = int(FIRST.timestamp()), 31
PROVIDERS = ("openai", "anthropic", "mistral_ai", "aws.bedrock", "gcp.vertex_ai")
OCTOBER = (("from", "2026-10-01"), ("to", "2026-10-31"), ("by", "provider"))

Amounts = dict[tuple[str, int, str], list[Decimal]]  # provider, day, currency


def quotations(euro: str) -> dict[tuple[int, str], Decimal]:
    """Dollars for one of a currency on working days; the yen moves, the euro begins at an amount."""
    found = {}
    for day in range(-4, DAYS):
        if (FIRST + timedelta(days=day)).weekday() < 5:
            found[day, "EUR"] = Decimal(euro) + Decimal(day).scaleb(-4)
            found[day, "JPY"] = Decimal("0.0066") - Decimal(day).scaleb(-6)
    return found


def written(quoted: Mapping[tuple[int, str], Decimal]) -> str:
    rows = [
        f"{(FIRST + timedelta(days=day)).date()},{currency},{usd}" for (day, currency), usd in quoted.items()
    ]
    return "\n".join(["date,currency,usd", *rows, ""])


def in_dollars(amounts: Amounts, quoted: Mapping[tuple[int, str], Decimal]) -> dict[str, Decimal]:
    """The cost by provider; a weekend has the rates of its Friday."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    with localcontext(Context(prec=100)):
        for (provider, day, currency), each in amounts.items():
            last = next((d for d in range(day, day - 8, -1) if (d, currency) in quoted), None)
            rate = Decimal(1) if currency == "USD" else quoted[last, currency] if last is not None else 0
            sums[provider] += sum(each, Decimal(0)) * rate
        last_digit = Decimal(1).scaleb(-27)
        return {name: total.quantize(last_digit, ROUND_HALF_EVEN) for name, total in sums.items()}


@pytest_asyncio.fixture(params=[MEMORY, SQLITE])
async def server(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(BEGIN + DAYS * DAY_S - 100)
    async with operator_server(tmp_path, engine=request.param, clock=clock) as server:
        yield server


async def costs(server: OperatorServer) -> dict[str, Decimal]:
    found = await report(server, *OCTOBER)
    assert {} == found["report"]["unconverted"]
    return {row["provider"]: Decimal(row["cost"]) for row in found["rows"]}


def rate_by(server: OperatorServer, section: CurrencySettings) -> None:
    """Take a configuration, as a start or a reload does."""
    server.services.money.currency = lambda: section
    server.services.money.ledger.rates = ledger_rates(section, server.services.money.registry)


async def asked(
    server: OperatorServer, method: str, path: str, body: object = None, *, status: int = 200
) -> Any:
    answer = await server.ask(method, path, body)
    assert status == answer.status, answer.payload
    return answer.payload


async def test_a_month_of_a_company(server: OperatorServer, tmp_path: Path) -> None:
    """
    Sums are those of decimals to the last digit. A new file and a new rate change them while the month is open, and
    nothing once its rates are frozen, over another start, too; a late amount changes its own provider alone.
    """
    chance, calls = random.Random(36), []
    made: Amounts = defaultdict(list)
    for number in range(400):
        provider, day = chance.choice(PROVIDERS), chance.randrange(DAYS)
        currency = chance.choice(("USD", "EUR", "JPY"))
        amount = Decimal(chance.randrange(1, 10**9)).scaleb(-chance.choice((2, 9, 15)))
        made[provider, day, currency].append(amount)
        told: dict[str, Any] = (
            {"cost": f"{amount:f}"} if currency == "USD" else {"charges": {currency: f"{amount:f}"}}
        )
        at = BEGIN + day * DAY_S + chance.randrange(DAY_S - 200)
        calls.append(call(number, at=at, provider=provider, cost_source="reported", **told))
    late, at = call(1000, at=BEGIN + DAY_S, provider="openai"), BEGIN + DAY_S
    await add(server.services.spool.log, *calls, late)
    file = tmp_path / "rates.csv"
    first, second = quotations("1.0831"), quotations("1.2")
    section = CurrencySettings(rates_file=file)
    rate_by(server, section)
    for quoted in (second, first):
        file.write_text(written(quoted))
        rate_by(server, section)
        assert in_dollars(made, quoted) == await costs(server)

    refused = await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=400)
    assert "is not over" in refused["error"]["message"]
    server.clock.move(200)
    frozen = (await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}))["frozen_rates"]
    assert ["EUR", "JPY"] == frozen["currencies"]
    await asked(server, "POST", "/ledger/rates", {"month": "2026-10"}, status=409)
    listed = (await asked(server, "GET", "/ledger"))["frozen_rates"]
    assert {"2026-10": frozen["digest"]} == {month: each["digest"] for month, each in listed.items()}

    file.write_text(written(second))
    own = CurrencyRate(currency="EUR", usd=Decimal(9))
    rate_by(server, CurrencySettings(rates_file=file, rate=(own,)))
    before = await costs(server)
    assert in_dollars(made, first) == before
    await add(server.services.spool.log, call(1000, at=at, provider="openai", charges={"EUR": "0.1"}))
    made["openai", 1, "EUR"].append(Decimal("0.1"))
    after = await costs(server)
    assert in_dollars(made, first) == after
    assert {"openai"} == {name for name in after if after[name] != before[name]}

    await asked(server, "DELETE", "/ledger/rates/2026-10")
    assert before["openai"] != (await costs(server))["openai"]
    await asked(server, "DELETE", "/ledger/rates/2026-10", status=404)
    await asked(server, "POST", "/ledger/rates", {"month": "October"}, status=400)
