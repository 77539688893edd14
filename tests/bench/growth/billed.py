"""
`python -m tests.bench.growth.billed` divides the bills of a month over many calls, and measures processor
time and memory of a separate process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import click

from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.gathering import StatementSources
from spool import money
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S
from spool.sqlite.ledger import open_ledger
from spool.statements import BilledRow, StatementInfo, StatementRow, to_billed_row
from tests.bench.growth.engines import Engine
from tests.bench.growth.year import CALL, Fleet, fill
from tests.bench.server.meters import peak_mib
from tests.bench.server.table import machine
from tests.gateway.bills.reconciliation.simulator import book
from tests.spool.ledger_log import FakeClock, FakeLog

MONTH = CalendarMonth.of("2026-03")
END = MONTH.days[-1] + DAY_S
# the prices have so many digits that bills cannot be divided without a remainder
RATES = {"input": Decimal("0.00000123457"), "output": Decimal("0.0000049383")}
LAYERS = (("discount", "-0.09", 3), ("credit", "-0.05", 9), ("tax", "0.19", 29))
ROUNDS = 5
GROUPS = ((), ("team",), ("user",), ("model", "team"), ("api_key", "charge"), ("basis",))
COUNTED_GROUPS = ((), ("team",), ("user",), ("model", "team"))
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class Divided:
    """
    Cost of dividing the month. `off` lists groupings with a sum that differs from the invoice. `ratio`
    compares the total time of queries of billed money with the same queries of counted money; `worst` is the
    largest ratio of one query.
    """

    days: int
    sums: int
    cpu_s: float
    peak_mib: float
    ratio: float
    worst: float
    off: Sequence[str]


class Bills:
    """
    Bills of all providers of a fleet: tokens and money per day and model, and discounts and fees on top.
    """

    def __init__(self, fleet: Fleet, calls: int) -> None:
        self._rows: dict[str, list[StatementRow]] = {}
        _, tokens_in, tokens_out = CALL
        for day, found in zip(MONTH.days, fleet.days(calls, len(MONTH.days)), strict=True):
            by_model: Counter[tuple[str, str]] = Counter()
            for (user, number), count in found.items():
                named = fleet.dimensions(user, number)
                by_model[named.model or "", named.provider or ""] += count
            for (model, provider), count in sorted(by_model.items()):
                for kind, tokens in (("input", count * tokens_in), ("output", count * tokens_out)):
                    self._add(provider, day, "tokens", kind, Decimal(tokens), model)
                    self._add(provider, day, "usd", kind, tokens * RATES[kind], model)
        for provider, rows in self._rows.items():
            usage = sum((row.amount for row in rows if row.unit == "usd"), Decimal(0))
            for kind, share, place in LAYERS:
                self._add(
                    provider,
                    MONTH.days[place],
                    "usd",
                    kind,
                    (usage * Decimal(share)).quantize(Decimal("0.01")),
                )

    @property
    def invoice(self) -> int:
        paid = (row.amount for rows in self._rows.values() for row in rows if row.unit == "usd")
        return sum(money.text_to_units(f"{amount:f}") for amount in paid)

    async def billed_rows(self, *, provider: str, start: int, end: int) -> Sequence[BilledRow]:
        rows = [row for row in self._rows[provider] if start < row.end and row.start < end]
        return [to_billed_row(row, row.start) for row in rows]

    async def statements(self) -> Sequence[StatementInfo]:
        span: dict[str, Any] = {"start": MONTH.start, "end": MONTH.end, "settled": True, "imported_at": 1.0}
        span |= {"used_from": MONTH.start, "used_until": MONTH.end}
        return [
            StatementInfo(source="bill", provider=name, account="", rows=1, **span)
            for name in sorted(self._rows)
        ]

    def _add(
        self, provider: str, day: int, unit: str, kind: str, amount: Decimal, model: str | None = None
    ) -> None:
        row = StatementRow(
            source="bill", provider=provider, account=None, key=None, model=model, start=day, end=day + DAY_S,
            unit=unit, kind=kind, amount=amount, currency=None, tier=None, region=None, batch=None, settled=True,
        )  # fmt: skip
        self._rows.setdefault(provider, []).append(row)


def filled(data: Path, fleet: Fleet, calls: int) -> int:
    """Write the totals of the month's calls; return the number of totals."""

    async def write() -> int:
        async with Engine().ledger(data) as ledger:
            days = len(MONTH.days)
            return await fill(ledger, fleet, calls=calls, days=days, end=END, keeps_hours=False)

    return asyncio.run(write())


def divided(data: Path, fleet: Fleet, calls: int, rounds: int) -> Divided:
    """Divide the month's bills in this process."""
    return asyncio.run(_divided(data, fleet, calls, rounds))


async def _divided(data: Path, fleet: Fleet, calls: int, rounds: int) -> Divided:
    clock, bills, prices = FakeClock(END + 3 * DAY_S), Bills(fleet, calls), book()
    ledger = await open_ledger(data, clock=clock)
    sources = StatementSources(ledger=ledger, log=FakeLog(), prices=lambda: prices, statements=bills)  # type: ignore[arg-type]
    begun = time.process_time()
    days = await BilledCostCalculator(sources, clock).recalculate_month(MONTH)
    took = time.process_time() - begun
    peak = peak_mib(os.getpid())
    off = [each async for each in _off(ledger, bills.invoice)]
    sums = len(await ledger.costs(_question(("team", "user", "model", "charge"), per="daily")))
    took_of = [await _asked(ledger, by, rounds) for by in COUNTED_GROUPS]
    ratio = sum(billed for _, billed in took_of) / sum(counted for counted, _ in took_of)
    worst = max(billed / counted for counted, billed in took_of)
    await ledger.close()
    return Divided(
        days=days,
        sums=sums,
        cpu_s=round(took, 2),
        peak_mib=round(peak),
        ratio=round(ratio, 2),
        worst=round(worst, 2),
        off=off,
    )


async def _asked(ledger: Ledger, dimensions: Sequence[str], rounds: int) -> tuple[float, float]:
    """
    Return the processor time of a query of counted money and of billed money, without cached results, in turns.
    """
    took: dict[int, list[float]] = {0: [], 1: []}
    for number in range(rounds):
        for arranged, times in took.items():
            query = replace(_question(dimensions), arranged=arranged)
            begun = time.process_time()
            # A query with a different end is a different query, so no cached result is used.
            await ledger.costs(replace(query, until=query.until + DAY_S * number * _SECOND))
            times.append(time.process_time() - begun)
    counted, billed = (median(times) for times in took.values())
    return counted, billed


async def _off(ledger: Ledger, invoice: int) -> Any:
    for name, arranged in BILLED_TYPES.items():
        for by in GROUPS:
            rows = await ledger.costs(replace(_question(by), arranged=arranged))
            if sum(money.text_to_units(row.cost) for row in rows) != invoice:
                yield f"{name} by {by}"


def _question(dimensions: Sequence[str], per: str = "total") -> CostQuery:
    since, until = (datetime.fromtimestamp(at, UTC) for at in (MONTH.start, MONTH.end))
    return CostQuery(since=since, until=until, granularity=per, group_by=dimensions, arranged=1)


def measured(
    fleet: Fleet, all_calls: Sequence[int], rounds: int = ROUNDS
) -> Iterator[tuple[int, int, Divided]]:
    """Yield for each number of calls the number of totals, and the cost of dividing in a new process."""
    for calls in all_calls:
        with tempfile.TemporaryDirectory() as place:
            data = Path(place, "data")
            data.mkdir(mode=0o700)
            sums = filled(data, fleet, calls)
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                yield calls, sums, process.submit(divided, data, fleet, calls, rounds).result()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--calls", multiple=True, type=int, default=(100_000, 1_000_000, 10_000_000), show_default=True)
@click.option("--users", default=600, show_default=True)
@click.option("--teams", default=50, show_default=True)
@click.option("--models", default=60, show_default=True)
def billed(calls: tuple[int, ...], users: int, teams: int, models: int) -> None:
    """Divide the bills of a month over growing numbers of calls."""
    click.echo(" ".join(f"{key} {value}," for key, value in machine().items()).rstrip(","))
    click.echo(
        "| calls | sums of days | days of bills | CPU s | peak MiB | billed / counted | at worst | not the invoice |\n"
        + "|---" * 8
        + "|"
    )
    for count, sums, found in measured(Fleet(users=users, teams=teams, models=models), calls):
        figures = (
            f"{count:,}",
            f"{sums:,}",
            found.days,
            found.cpu_s,
            found.peak_mib,
            found.ratio,
            found.worst,
            len(found.off),
        )
        click.echo(f"| {' | '.join(map(str, figures))} |")


if __name__ == "__main__":
    billed(prog_name="python -m tests.bench.growth.billed")
