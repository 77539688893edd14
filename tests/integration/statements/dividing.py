"""
A program that divides bills over calls and kills itself: `python -m tests.integration.statements.dividing
DATA STAGE [PLACE]`.

PLACE is the number of the SQL statement that changes billed costs. The process dies before it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.billed.closing import Invoice, MonthFigures, closed_month_id, figures_document
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.gathering import StatementSources
from spool import money
from spool.ledger.billed import BilledDay, BilledSum
from spool.ledger.ledger import Ledger
from spool.record import NS
from spool.sqlite.database import SqliteConnection
from spool.sqlite.ledger import open_ledger
from spool.statements import BilledRow, StatementInfo, StatementRow, to_billed_row
from tests.gateway.bills.reconciliation.simulator import DAY_S, DAYS, book
from tests.spool.ledger_log import FakeClock, FakeLog, call

MONTH = CalendarMonth.of("2026-03")
SELLERS = {"openai": "gpt-4o-2024-08-06", "anthropic": "claude-haiku-4-5-20251001"}
CLOSED = "closed.json"
# The stages run in this order. Each stage changes bills, calls or decisions.
STAGES = ("first", "newer", "closed", "restated", "reopened")
Kept = dict[tuple[int, str], tuple[BilledDay, Sequence[BilledSum]]]


class Rows:
    """
    The bills of a stage: tokens, costs, a discount on each day and a tax. Later stages raise the cost
    of some days.
    """

    def __init__(self, stage: str) -> None:
        at = STAGES.index(stage)
        dearer = {1: Decimal("0.7"), 3: Decimal("0.3")}
        self._factors = {day: 1 + more for day, more in dearer.items() if at >= day}
        self._read_at = float(at)
        self._rows = [row for provider in SELLERS for row in self._of(provider)]

    async def billed_rows(self, *, provider: str, start: int, end: int) -> Sequence[BilledRow]:
        return [to_billed_row(row, row.start) for row in self._rows if row.provider == provider]

    async def statements(self) -> Sequence[StatementInfo]:
        span: dict[str, Any] = {
            "start": DAYS[0],
            "end": DAYS[4],
            "settled": True,
            "imported_at": self._read_at,
            "used_from": DAYS[0],
            "used_until": DAYS[4],
        }
        return [StatementInfo(source="bill", provider=each, account="", rows=1, **span) for each in SELLERS]

    def _of(self, provider: str) -> list[StatementRow]:
        found = []
        for day in range(4):
            paid = Decimal("1.37") * self._factors.get(day, 1)
            found.append(_row(provider, day, "tokens", "input", Decimal(100)))
            found.append(_row(provider, day, "usd", "input", paid))
            found.append(_row(provider, day, "usd", "discount", -paid / 10, model=None))
        return [*found, _row(provider, 3, "usd", "tax", Decimal("0.97"), model=None)]


def _row(provider: str, day: int, unit: str, kind: str, amount: Decimal, **more: Any) -> StatementRow:
    told: dict[str, Any] = {"model": SELLERS[provider], **more}
    return StatementRow(
        source="bill", provider=provider, account=None, key=None, start=DAYS[day], end=DAYS[day] + DAY_S, unit=unit,
        kind=kind, amount=amount, currency=None, tier=None, region=None, batch=None, settled=True, **told,
    )  # fmt: skip


def log_of(stage: str) -> FakeLog:
    """Return the calls of the first days. Later stages add calls that arrive after the month was closed."""
    log = FakeLog()
    teams = [("search", 60)] + [("ads", 20)] * (stage in ("restated", "reopened"))
    for team, tokens in teams:
        at = [(provider, DAYS[day] + 3600) for provider in SELLERS for day in range(3)]
        log.add(
            [
                call(
                    provider=provider, team=team, request_model=SELLERS[provider], input_tokens=tokens,
                    output_tokens=0, start_time=second * NS,
                )
                for provider, second in at
            ],
            at=DAYS[4],
        )  # fmt: skip
    return log


async def divide(data: Path, stage: str) -> Kept:
    """Bring the month to a stage; return the stored days."""
    at = STAGES.index(stage)
    clock, prices, file = FakeClock(MONTH.end + (2 + at) * DAY_S), book(), data / CLOSED
    closed: dict[str, Mapping[str, Any]] = json.loads(file.read_text()) if file.exists() else {}
    ledger = await open_ledger(data, clock=clock)
    sources = StatementSources(
        ledger=ledger, log=log_of(stage), prices=lambda: prices, statements=Rows(stage),  # type: ignore[arg-type]
        closed_months=lambda: closed,
    )  # fmt: skip
    biller = BilledCostCalculator(sources, clock)

    async def keep(found: MonthFigures) -> None:
        closed[closed_month_id("openai", MONTH.name)] = figures_document(found)
        file.write_text(json.dumps(closed))

    async def forget() -> None:
        closed.clear()
        file.write_text("{}")

    if stage == "closed" and not closed:
        invoice = Invoice(
            provider="openai", month=MONTH.name, number="1", total=money.text_to_units("6.31"), lines=9
        )
        await biller.close_month(MONTH, "openai", [invoice], keep)
    if stage == "reopened" and closed:
        await biller.reopen_month(MONTH, forget)
    await biller.recalculate_month(MONTH)
    found = await _kept(ledger)
    await ledger.close()
    return found


async def kept_in(data: Path) -> Kept:
    """Return the stored days of the month."""
    ledger = await open_ledger(data, clock=FakeClock(MONTH.end))
    found = await _kept(ledger)
    await ledger.close()
    return found


async def _kept(ledger: Ledger) -> Kept:
    """Return the billed sums of each day, without its revision and time."""
    found: Kept = {}
    for day in await ledger.billed_days(0, 2**40):
        sums = await ledger.billed_sums(day.day, day.provider)
        found[day.day, day.provider] = (replace(day, revision=1, made_at=0.0), sums)
    return found


class Killing:
    """
    Counts the statements that change billed costs, and kills the process before statement number `place`.
    """

    def __init__(self, place: int) -> None:
        self._left = place

    def before(self, statement: str) -> None:
        if "billed" not in statement or statement.startswith("SELECT"):
            return
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def patch(self) -> None:
        for name in ("run", "run_each"):
            plain = getattr(SqliteConnection, name)

            def run(
                self: SqliteConnection, statement: str, *rows: Any, _run: Any = plain, **values: Any
            ) -> Any:
                _killing.before(statement)
                return _run(self, statement, *rows, **values)

            setattr(SqliteConnection, name, run)


if __name__ == "__main__":
    data, stage, place = sys.argv[1:]
    _killing = Killing(int(place))
    _killing.patch()
    asyncio.run(divide(Path(data), stage))
