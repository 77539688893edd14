"""
Files of a provider in the days and hours of several time zones, around a change of clocks, against a count by hand:
whole and partial reports, added parts, twins and undo, with and without consent to lose figures.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import pytest

from gateway.bills.statements.importing import ReportFile, read_reports
from spool.errors import WouldRemove
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_registry
from spool.statements import Statement
from tests.gateway.bills.statements.test_coverage import ADA, READ_AT, billed_by_day
from tests.moved_clock import MovedClock
from tests.rounds import examples, part
from tests.spool.contract.registry.test_statement_imports import answers

pytestmark = pytest.mark.rule
ZONES = ("UTC", "Europe/Berlin", "America/Los_Angeles", "Australia/Sydney", "Pacific/Auckland")
# a day of 25 hours in Berlin and one in Los Angeles, and of 23 hours in Sydney, Auckland and Berlin
CLOCK_CHANGES = ("2026-10-25", "2026-11-01", "2026-10-04", "2026-09-27", "2026-03-29")
HOUR = timedelta(hours=1)


class NotedRow(NamedTuple):
    """An amount as a person would note it: the date that the report states, and the time of use."""

    day: date
    start: datetime
    end: datetime
    amount: Decimal
    is_whole: bool


@dataclass
class NotedImport:
    id: str
    order: tuple[int, int]
    complete_days: frozenset[date]  # dates of which the report has every hour
    rows: Sequence[NotedRow]
    is_added: bool
    undone: bool = False

    @property
    def whole_days(self) -> frozenset[date]:
        """Return the dates of which older rows are replaced. A part that is added replaces none."""
        return frozenset() if self.is_added else self.complete_days


@dataclass
class Hand:
    given: list[NotedImport] = field(default_factory=list)

    def sums(self) -> dict[str, Decimal]:
        """Add up what counts. Rows are replaced by a report of their whole day; hours are not counted twice."""
        counting: list[NotedRow] = []
        for each in sorted(self.given, key=lambda each: each.order):
            if each.undone:
                continue
            counting = [row for row in counting if row.day not in each.whole_days]
            counting += [
                row for row in each.rows if row.is_whole or each.is_added or not _is_known(row, counting)
            ]
        sums = Counter[str]()
        for row in counting:
            sums[row.day.isoformat()] += row.amount  # type: ignore[assignment]
        return {day: Decimal(amount) for day, amount in sums.items()}

    def final_days(self) -> set[str]:
        """Return the days that are final: by the newest report of the whole day, or else by the newest one."""
        live = sorted((each for each in self.given if not each.undone), key=lambda each: each.order)
        final: dict[date, bool] = {}
        counting: list[NotedRow] = []
        for each in live:
            counting = [row for row in counting if row.day not in each.whole_days]
            kept = [row for row in each.rows if row.is_whole or each.is_added or not _is_known(row, counting)]
            counting += kept
            replaced = {day for other in live for day in other.whole_days}
            final |= {row.day: row.day in each.complete_days for row in kept if row.day not in replaced}
            final |= dict.fromkeys(each.whole_days, True)
        return {day.isoformat() for day, is_final in final.items() if is_final}


def _is_known(row: NotedRow, counting: Sequence[NotedRow]) -> bool:
    return any(
        row.day == other.day and (other.is_whole or (row.start < other.end and other.start < row.end))
        for other in counting
    )


def random_report(chance: random.Random, change: date) -> tuple[str, str, list[NotedRow], set[date]]:
    """Return a file, its content, its rows as noted by hand, and the days of which it has every hour."""
    zone = ZoneInfo(chance.choice(ZONES))
    first = change + timedelta(days=chance.randint(-3, 2))
    last = first + timedelta(days=chance.randint(0, 3))
    if chance.random() < 0.4:
        return _hours(chance, zone, first, last)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    noted, buckets = [], []
    for day in days:
        start, end = (
            datetime(each.year, each.month, each.day, tzinfo=zone) for each in (day, day + timedelta(days=1))
        )
        amounts = [chance.randint(1, 40)] * chance.choice((0, 1, 1, 2))  # none, one, or two equal lines
        buckets.append((start.astimezone(UTC), end.astimezone(UTC), amounts))
        noted += [NotedRow(day, start, end, Decimal(amount), True) for amount in amounts]
    if all(amounts for _, _, amounts in buckets) and chance.random() < 0.5:
        return "costs.csv", _table(buckets), noted, {*days}
    # a page has one result for each group, so equal lines of a bucket have different keys
    return "costs.json", _page(buckets), noted, {*days}


def _hours(
    chance: random.Random, zone: ZoneInfo, first: date, last: date
) -> tuple[str, str, list[NotedRow], set[date]]:
    """Return a page of hours from the midnight of one day of a zone, perhaps to the middle of another one."""
    start = datetime(first.year, first.month, first.day, tzinfo=zone).astimezone(UTC)
    end = datetime(last.year, last.month, last.day, tzinfo=zone).astimezone(UTC)
    end += HOUR * chance.randint(1, 25)
    hours = [start + HOUR * number for number in range(int((end - start) / HOUR))]
    in_day = Counter(hour.date() for hour in hours)
    whole = {day for day, number in in_day.items() if number == 24}
    noted, buckets = [], []
    for hour in hours:
        amount = chance.randint(1, 9)
        buckets.append((hour, hour + HOUR, [amount]))
        noted.append(NotedRow(hour.date(), hour, hour + HOUR, Decimal(amount), hour.date() in whole))
    return "hours.json", _page(buckets), noted, whole


def _table(buckets: Sequence[tuple[datetime, datetime, Sequence[int]]]) -> str:
    rows = [
        f'{int(start.timestamp())},{int(end.timestamp())},{amount},usd,"gpt-4o, input",proj'
        for start, end, amounts in buckets
        for amount in amounts
    ]
    header = "start_time,end_time,amount_value,amount_currency,line_item,project_id"
    return "\n".join([header, *rows]) + "\n"


def _page(buckets: Sequence[tuple[datetime, datetime, Sequence[int]]]) -> str:
    return json.dumps(
        {
            "object": "page",
            "data": [
                {
                    "object": "bucket",
                    "start_time": int(start.timestamp()),
                    "end_time": int(end.timestamp()),
                    "results": [
                        {
                            "object": "organization.costs.result",
                            "amount": {"value": amount, "currency": "usd"},
                            "line_item": "gpt-4o, input",
                            "project_id": "proj",
                            "api_key_id": f"key_{number}",
                        }
                        for number, amount in enumerate(amounts)
                    ],
                }
                for start, end, amounts in buckets
            ],
            "has_more": False,
            "next_page": None,
        }
    )


@pytest.mark.parametrize("seed", part(range(examples(200)), every=3))
async def test_files_of_all_zones_count_as_by_hand(seed: int) -> None:
    """
    Each row counts once. Without consent, nothing is stored if a final day would fall below half, and only then.
    Undo of the newest import restores every answer to the byte.
    """
    chance, hand, number = random.Random(seed), Hand(), 0
    change = date.fromisoformat(chance.choice(CLOCK_CHANGES))
    registry = await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=MovedClock(READ_AT))
    for step in range(14):
        live = [each for each in hand.given if not each.undone]
        before = await answers(registry)
        if live and chance.random() < 0.2:
            undone = chance.choice(live)
            await registry.statements.undo(undone.id, actor=ADA)
            undone.undone = True
            assert hand.sums() == await billed_by_day(registry)
            continue
        name, content, noted, whole = random_report(chance, change)
        infos = {info.id: info for info in await registry.statements.imports()}
        bases = [each for each in live if not each.is_added and infos[each.id].state in ("counts", "in_part")]
        base = chance.choice(bases) if bases and chance.random() < 0.25 else None
        statement = read_statement(name, content, READ_AT + step)
        options: dict[str, Any] = {"actor": ADA, "add_to": base.id if base else ""}
        new = NotedImport(
            id=f"imp_{number + 1}",
            order=(base.order[0], number + 1) if base else (number + 1, number + 1),
            complete_days=frozenset(whole),
            rows=[row if not base else row._replace(is_whole=False) for row in noted],
            is_added=base is not None,
        )
        had, final = hand.sums(), hand.final_days()
        has = Hand([*hand.given, new]).sums()
        lost = {day for day in final if 2 * has.get(day, Decimal(0)) < had.get(day, Decimal(0))}
        if lost:
            with pytest.raises(WouldRemove, match=min(lost)):
                await registry.statements.import_statement(statement, **options)
            assert before == await answers(registry)
        outcome = await registry.statements.import_statement(statement, **options, replace=bool(lost))
        if not outcome.id:
            assert before == await answers(registry)
            continue
        hand.given.append(new)
        number += 1
        assert new.id == outcome.id
        assert has == await billed_by_day(registry)
        if chance.random() < 0.3:
            await registry.statements.undo(new.id, actor=ADA)
            new.undone = True
            assert before == await answers(registry)


def read_statement(name: str, content: str, read_at: float) -> Statement:
    file = ReportFile(name=name, content=content.encode(), read_at=read_at)
    [report] = read_reports([file], source="openai_costs", account="", max_unpacked_bytes=100_000)
    assert report.statement is not None and not report.damaged, report.named
    return report.statement
