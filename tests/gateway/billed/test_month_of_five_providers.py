"""
A month of five providers, with discounts, credits, taxes and fees that cover usage: every dimension in every cost
type closes to the invoice, and each key pays what it used at the billed rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import msgspec
import pytest

from gateway.billed.biller import Biller
from gateway.reconciliation.gathering import CalendarMonth, StatementSources
from spool.ledger import money
from spool.ledger.days.usage import UsageSum
from spool.ledger.ledger import Ledger
from spool.ledger.queries import BILLED_TYPES, CostQuery
from spool.memory.ledger import MemoryLedger
from spool.record import Inference
from spool.statements.values import StatementInfo, StatementRow
from tests.gateway.reconciliation.simulator import (
    ALL_PROVIDERS,
    BEDROCK,
    DAY_S,
    DAYS,
    Call,
    book,
    month,
    record,
    statements,
)
from tests.spool.ledger_log import FakeClock, FakeLog

TEAMS = {"key_web": "web", "key_app": "app", "key_jobs": "jobs"}
LAYERS = (("discount", "-0.09", 3), ("credit", "-0.05", 9), ("tax", "0.19", 29), ("web_search", "0.01", 12))


class Told:
    """The statements of the month."""

    def __init__(self, rows: Sequence[StatementRow]) -> None:
        self._rows = rows

    async def rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        return [row for row in self._rows if row.provider == provider and start < row.end and row.start < end]

    async def statements(self) -> Sequence[StatementInfo]:
        span: dict[str, Any] = {
            "start": DAYS[0],
            "end": DAYS[-1] + DAY_S,
            "settled": True,
            "imported_at": 1.0,
        }
        told = sorted({(row.source, row.provider) for row in self._rows})
        return [
            StatementInfo(source=source, provider=name, account="", rows=1, **span) for source, name in told
        ]


def reported(call: Call) -> Inference:
    """A call with a team, a user and a tag of its own."""
    plain = record(call)
    tags = {**plain.tags, "service": call.key[-3:]}
    return msgspec.structs.replace(plain, team=TEAMS[call.key], user=f"{call.time % 40}", tags=tags)


def invoiced(rows: Sequence[StatementRow], provider: str) -> Decimal:
    return sum((row.amount for row in rows if row.unit == "usd" and row.provider == provider), Decimal(0))


def with_layers(rows: list[StatementRow]) -> list[StatementRow]:
    """Each provider's bill with a discount, a credit, searches, and a tax on its last day."""
    found = [*rows]
    for provider in ALL_PROVIDERS:
        usage = invoiced(rows, provider)
        like = next(row for row in rows if row.unit == "usd" and row.provider == provider)
        for kind, share, day in LAYERS:
            amount = (usage * Decimal(share)).quantize(Decimal("0.01"))
            place = {
                "start": DAYS[day],
                "end": DAYS[day] + DAY_S,
                "kind": kind,
                "amount": amount,
                "model": None,
            }
            found.append(msgspec.structs.replace(like, **place, tier=None, region=None, batch=None))
        found += with_fee(like, (usage / 100).quantize(Decimal("0.01")))
    return found


def with_fee(like: StatementRow, a_day: Decimal) -> list[StatementRow]:
    """A fee on the first day, of which each day has its part: three quarters cover usage, one nobody used."""

    def line(unit: str, kind: str, amount: Decimal, day: int, model: str | None = None) -> StatementRow:
        place = {
            "unit": unit,
            "kind": kind,
            "amount": amount,
            "start": day,
            "end": day + DAY_S,
            "model": model,
        }
        return msgspec.structs.replace(like, **place, tier=None, region=None, batch=None)

    fee = a_day * len(DAYS)
    found = [line("usd", "throughput", fee, DAYS[0]), line("accrued_usd", "throughput", -fee, DAYS[0])]
    for day in DAYS:
        covered = a_day * Decimal("0.75")
        found.append(line("accrued_usd", "cost", covered, day, like.model))
        found.append(line("accrued_usd", "unused", a_day - covered, day))
    return found


def owed(rows: Sequence[StatementRow], calls: Sequence[Call]) -> dict[str, Fraction]:
    """What each key of Bedrock used, at the rate of each billed cell: by fractions alone."""
    cells: dict[Any, dict[str, Decimal]] = defaultdict(dict)
    for row in rows:
        if row.provider == BEDROCK:
            cells[row.start, row.model, row.tier, row.kind][row.unit] = row.amount
    found: dict[str, Fraction] = defaultdict(Fraction)
    for call in calls:
        if call.provider == BEDROCK:
            for kind, tokens in call.tokens.items():
                cell = cells[call.day, call.model, "batch" if call.batch else "standard", kind]
                if tokens:
                    found[call.key] += Fraction(cell["usd"]) * tokens / Fraction(cell["tokens"])
    return found


@pytest.mark.asyncio
async def test_every_dimension_in_every_cost_type_closes_to_the_invoice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    Each pair of them, too. To the last digit; nothing is of nobody where all calls are counted, and rests of rounding
    are below 10^-20.
    """
    calls, prices = month(a_day=6, providers=ALL_PROVIDERS), book()
    bare = statements(calls)
    rows = with_layers(bare)
    records = [reported(call) for call in calls]
    for each in records:
        prices.price(each)
    log, clock = FakeLog(), FakeClock(DAYS[-1] + 3 * DAY_S)
    log.add(records, at=clock.at)
    ledger = await Ledger(MemoryLedger(), clock=clock).load()
    sources = StatementSources(
        ledger=ledger,
        log=log,  # type: ignore[arg-type]
        prices=lambda: prices,
        statements=Told(rows),  # type: ignore[arg-type]
    )
    days_read: list[int] = []
    of_day = ledger.whole_sums_of_day

    async def noted(day: int) -> Sequence[UsageSum]:
        days_read.append(day)
        return await of_day(day)

    monkeypatch.setattr(ledger, "whole_sums_of_day", noted)
    biller = Biller(sources, clock)
    assert len(DAYS) * len(ALL_PROVIDERS) == await biller.make(CalendarMonth.of("2026-03"))
    assert [*DAYS, *DAYS] == days_read  # for the taxes of the month, and for its days: not for each provider
    assert 0 == await biller.make(CalendarMonth.of("2026-03"))
    since, until = (datetime.fromtimestamp(at, UTC) for at in (DAYS[0], DAYS[-1] + DAY_S))
    whole = CostQuery(since=since, until=until, granularity="total")

    async def paid(arranged: int, *by: str, **filters: Any) -> dict[tuple[str | None, ...], int]:
        query = replace(whole, arranged=arranged, group_by=by, **filters)
        return {row.group: money.units(row.cost) for row in await ledger.costs(query)}

    bills = {name: money.units(f"{invoiced(rows, name):f}") for name in ALL_PROVIDERS}
    for arranged in BILLED_TYPES.values():
        for pair in combinations_with_replacement((*ledger.dimensions(), "charge", "basis"), 2):
            sums: dict[str | None, int] = defaultdict(int)
            by = tuple(dict.fromkeys(("provider", *pair)))
            for (provider, *_), amount in (await paid(arranged, *by)).items():
                sums[provider] += amount
            assert bills == dict(sums), pair
    by_key = await paid(1, "api_key", include={"charge": ("usage",), "provider": (BEDROCK,)})
    expected = owed(bare, calls)
    for key in TEAMS:
        assert abs(by_key[key,] - expected[key] * money.UNIT) < 10**7
    nobody = await paid(1, "provider", include={"basis": ("unallocated",), "charge": ("usage",)})
    assert {} == nobody
    rests = await paid(1, "provider", include={"charge": ("rounding",)})
    assert all(abs(rest) < 10**7 for rest in rests.values())
