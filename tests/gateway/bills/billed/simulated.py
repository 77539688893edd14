"""
Simulated months of bills with planted causes: the ledger's result, and each owner's expected share
computed with fractions.

Calls, reports and planted causes come from the reconciliation simulator. Each call has one of twelve teams,
forty users and nine services.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import msgspec

from gateway.bills.billed.biller import BilledCostCalculator
from gateway.bills.billed.closing import Invoice, MonthFigures, closed_month_id, figures_document
from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.gathering import StatementSources
from spool import money
from spool.ledger.dimensions import BILLED_TYPES
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.record import NS, Inference
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.statements import BilledRow, StatementInfo, StatementRow, day_of_row, to_billed_row
from tests.gateway.bills.reconciliation.plants import Plant, both_sides
from tests.gateway.bills.reconciliation.simulator import (
    ANTHROPIC,
    AZURE,
    DAY_S,
    DAYS,
    GOOGLE,
    KEYS,
    MODELS,
    book,
    month,
)
from tests.spool.ledger_log import FakeClock, FakeLog

MARCH = CalendarMonth.of("2026-03")
TEAMS = tuple(f"team-{number:02}" for number in range(12))
NEAR = 10**7  # 10^7 ledger units are 10^-20 dollars
_BY_KEY = len(TEAMS) // len(KEYS)
_TELL_REGIONS = (ANTHROPIC, AZURE, GOOGLE)  # the bills of these providers state the region of tokens
OWNERS = ("team", "user", "tag:service")
# Kinds of tokens, by the names in the provider's meters.
_IN_WORDS = {f"{name[:-10]}{name[-5:-3]}{name[-2:]}": name for name in MODELS[AZURE]}
Owner = tuple[str, ...]  # values of the dimensions in OWNERS


def owned(report: Inference) -> Inference:
    """Return the call with a team, a user and a service."""
    second = (report.start_time or 0) // NS
    user = second % 40
    team = TEAMS[KEYS.index(report.api_key or "") * _BY_KEY + user % _BY_KEY]
    tags = {**report.tags, "service": f"service-{second % 9}"}
    return msgspec.structs.replace(report, team=team, user=f"user-{user:02}", tags=tags)


class Statements:
    """
    The bill rows, as the code that computes billed costs reads them. They cover the days of their calls and
    all of March.
    """

    def __init__(self, rows: Sequence[StatementRow]) -> None:
        self.kept = [*rows]
        self.read_at = 1.0

    async def billed_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[BilledRow]:
        return [
            billed_row
            for row in self.kept
            if (billed_row := to_billed_row(row, day_of_row(row))).row.provider == provider
            and billed_row.billed_days[0] < end
            and billed_row.billed_days[-1] >= start
        ]

    async def statements(self) -> Sequence[StatementInfo]:
        report_names = sorted({(row.source, row.provider) for row in self.kept})
        end = max([DAYS[-1] + DAY_S, *(row.end for row in self.kept)])
        span: dict[str, Any] = {"start": DAYS[0], "end": end, "settled": True, "imported_at": self.read_at}
        return [
            StatementInfo(
                source=source, provider=name, account="", rows=1, used_from=DAYS[0], used_until=end, **span
            )
            for source, name in report_names
        ]


@dataclass(kw_only=True)
class BilledMonth:
    """The bills of some providers for March, and the ledger with its billed costs."""

    rows: Statements
    reports: Sequence[Inference]
    ledger: Ledger
    biller: BilledCostCalculator
    clock: FakeClock
    log: FakeLog
    closed: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    async def paid(self, cost_type: str, *by: str, **filters: Any) -> dict[tuple[str | None, ...], int]:
        """Sum a cost type by dimensions, in units. Groups of 0 are left out."""
        rows = await self.ledger.costs(question(cost_type, *by, **filters))
        amounts = {row.group: money.text_to_units(row.cost) for row in rows}
        return {group: amount for group, amount in amounts.items() if amount}

    def of(self, provider: str) -> list[StatementRow]:
        return [row for row in self.rows.kept if row.provider == provider]

    async def reasons(self) -> Counter[str]:
        """Sum the amounts that no known call caused, by reason."""
        reasons_of_days: Counter[str] = Counter()
        for day in await self.ledger.billed_days(MARCH.start, MARCH.end):
            reasons_of_days.update(day.reasons)
        return reasons_of_days

    async def close(self, invoice: Invoice) -> MonthFigures:
        async def keep(found: MonthFigures) -> None:
            self.closed[closed_month_id(invoice.provider, invoice.month)] = figures_document(found)

        return await self.biller.close_month(MARCH, invoice.provider, [invoice], keep)


def question(cost_type: str, *by: str, **filters: Any) -> CostQuery:
    since, until = (datetime.fromtimestamp(at, UTC) for at in (MARCH.start, MARCH.end))
    cost_query = CostQuery(since=since, until=until, granularity="total", group_by=by)
    return replace(cost_query, arranged=BILLED_TYPES[cost_type], **filters)


async def billed_month(
    plants: Mapping[str, Sequence[Plant]], *, seed: int = 7, a_day: int = 4
) -> BilledMonth:
    """Create the March bills of the named providers, with the plants of each."""
    rows: list[StatementRow] = []
    reports: list[Inference] = []
    for provider, planted in plants.items():
        calls = month(seed=seed, a_day=a_day, providers=(provider,))
        billed, reported = both_sides(calls, planted)
        rows += billed
        reports += map(owned, reported)
    prices, log, clock = book(), FakeLog(), FakeClock(MARCH.end + 3 * DAY_S)
    for report in reports:
        prices.price_record(report)
    log.add(reports, at=clock.at)
    ledger = await Ledger(new_in_memory_ledger(), clock=clock).load()
    told_rows = Statements(rows)
    closed: dict[str, Mapping[str, Any]] = {}
    sources = StatementSources(
        ledger=ledger,
        log=log,  # type: ignore[arg-type]
        prices=lambda: prices,
        statements=told_rows,  # type: ignore[arg-type]
        closed_months=lambda: closed,
    )
    biller = BilledCostCalculator(sources, clock)
    await biller.recalculate_month(MARCH)
    return BilledMonth(
        rows=told_rows, reports=reports, ledger=ledger, biller=biller, clock=clock, log=log, closed=closed
    )


def units(rows: Iterable[StatementRow], unit: str = "usd") -> int:
    """Sum bill rows, in units of the ledger."""
    amount = sum((Fraction(row.amount) for row in rows if row.unit == unit), Fraction(0)) * money.UNIT
    assert amount.denominator == 1
    return int(amount)


# Expected shares of the owners, computed with fractions, independently of the product.


@dataclass(frozen=True)
class _Cell:
    """
    A group of calls that the bill does not distinguish further. A field is None if the bill does not state it.
    """

    day: int
    model: str
    kind: str
    key: str | None
    tier: str | None
    region: str | None

    @property
    def place(self) -> tuple[int, str, str]:
        return self.day, self.model, self.kind

    def has(self, other: _Cell) -> bool:
        """Return whether this cell includes the other."""
        pairs = ((self.key, other.key), (self.tier, other.tier), (self.region, other.region))
        return self.place == other.place and all(own_value in (None, theirs) for own_value, theirs in pairs)


def owed(rows: Iterable[StatementRow], reports: Iterable[Inference]) -> dict[Owner, Fraction]:
    """
    Return each owner's share of usage at the billed rates. Only groups whose calls were reported as billed
    count. Amounts beyond their calls belong to no owner.
    """
    amounts: dict[_Cell, Fraction] = defaultdict(Fraction)
    quantities: Counter[_Cell] = Counter()
    for row in rows:
        if row.unit == "tokens":
            quantities[_told(row)] += int(row.amount)
        elif row.unit == "usd" and row.kind in ("reasoning", *_KINDS):
            amounts[_told(row)] += Fraction(row.amount)
    used: dict[_Cell, Counter[Owner]] = defaultdict(Counter)
    for report in reports:
        for kind, tokens in _tokens(report).items():
            used[_of_report(report, kind)][_owner(report)] += tokens
    near, quantity_cells = _by_place(used), _by_place(quantities)
    owed_by_owner: dict[Owner, Fraction] = defaultdict(Fraction)
    for cell, amount in amounts.items():
        finer = [
            quantity_cell
            for quantity_cell in quantity_cells[cell.place]
            if quantities[quantity_cell] and cell.has(quantity_cell)
        ]
        whole = sum(quantities[quantity_cell] for quantity_cell in finer)
        for quantity_cell in finer:
            own: Counter[Owner] = Counter()
            for used_cell in near[quantity_cell.place]:
                if quantity_cell.has(used_cell):
                    own.update(used[used_cell])
            quantity = quantities[quantity_cell]
            share = amount * quantity / whole / max(quantity, own.total())
            for owner, tokens in own.items():
                owed_by_owner[owner] += share * tokens
    return owed_by_owner


_KINDS = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output")


def _by_place(cells: Iterable[_Cell]) -> dict[tuple[int, str, str], list[_Cell]]:
    cells_by_place: dict[tuple[int, str, str], list[_Cell]] = defaultdict(list)
    for cell in cells:
        cells_by_place[cell.place].append(cell)
    return cells_by_place


def _told(row: StatementRow) -> _Cell:
    tier = None if row.tier is None else "batch" if row.batch or row.tier == "batch" else ""
    is_global = row.region in (None, "global")
    tells = row.provider in _TELL_REGIONS and not (row.provider == ANTHROPIC and row.unit == "usd")
    return _Cell(
        day=row.start // DAY_S * DAY_S,
        model=_IN_WORDS.get(row.model or "", row.model or ""),
        kind="output" if row.kind == "reasoning" else row.kind,
        key=row.key,
        tier=tier,
        region=None if not tells else "" if is_global else row.region,
    )


def _of_report(report: Inference, kind: str) -> _Cell:
    return _Cell(
        day=(report.start_time or 0) // NS // DAY_S * DAY_S,
        model=report.response_model or "",
        kind=kind,
        key=report.api_key or "",
        tier="batch" if report.tags.get("processing") == "batch" else "",
        region=report.region or "",
    )


def _tokens(report: Inference) -> dict[str, int]:
    read, written = report.cache_read_tokens or 0, report.cache_write_tokens or 0
    for_an_hour = report.cache_write_1h_tokens or 0
    plain = (report.input_tokens or 0) - read - written
    counts = (plain, read, written - for_an_hour, for_an_hour, report.output_tokens or 0)
    return dict(zip(_KINDS, counts, strict=True))


def _owner(report: Inference) -> Owner:
    return report.team or "", report.user or "", report.tags["service"]
