"""A report replaces only what it has: days of other zones, hours of another bill and late rows take nothing away."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from gateway.bills.statements.importing import ReportFile, read_reports
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.sqlite.in_memory import new_in_memory_registry
from spool.statements import day_of_row, day_text
from tests.moved_clock import MovedClock

ADA = Actor("ada@example.com", "local")
READ_AT = datetime.fromisoformat("2026-11-30T00:00:00Z").timestamp()


@pytest.fixture
async def registry() -> Registry:
    return await Registry.open(new_in_memory_registry(), secret=b"s" * 32, clock=MovedClock(READ_AT))


async def imported(registry: Registry, name: str, content: str, **options: Any) -> None:
    file = ReportFile(name=name, content=content.encode(), read_at=READ_AT)
    [report] = read_reports([file], source=None, account=None, max_unpacked_bytes=10_000)
    assert report.statement is not None and not report.damaged, report.named
    await registry.statements.import_statement(report.statement, actor=ADA, **options)


async def billed_by_day(registry: Registry) -> dict[str, Decimal]:
    sums = Counter[str]()
    for row in await registry.statements.statement_rows(provider=None, start=0, end=2**33):
        if row.unit == "usd":
            sums[day_text(day_of_row(row))] += row.amount  # type: ignore[assignment]
    return dict(sums)  # type: ignore[arg-type]


async def used_by_month(registry: Registry) -> dict[str, Decimal]:
    months: dict[str, Decimal] = {}
    for day, amount in (await billed_by_day(registry)).items():
        months[day[:7]] = months.get(day[:7], Decimal(0)) + amount
    return months


async def billed_by_month(registry: Registry) -> dict[str, Decimal]:
    """Return the sums of the bills: each row in the month in which its bill has it."""
    months = Counter[str]()
    for billed in await registry.statements.billed_rows(provider=None, start=0, end=2**33):
        if billed.row.unit == "usd":
            months[day_text(billed.billed_days[0])[:7]] += billed.row.amount  # type: ignore[assignment]
    return dict(months)  # type: ignore[arg-type]


def openai_costs(zone: str, first: str, days: int, amount: float = 2.5) -> str:
    start = datetime.fromisoformat(first).replace(tzinfo=ZoneInfo(zone))
    buckets = [
        {
            "object": "bucket",
            "start_time": int((start + timedelta(days=day)).timestamp()),
            "end_time": int((start + timedelta(days=day + 1)).timestamp()),
            "results": [
                {
                    "object": "organization.costs.result",
                    "amount": {"value": amount, "currency": "usd"},
                    "line_item": "gpt-4o, input",
                    "project_id": "proj",
                }
            ],
        }
        for day in range(days)
    ]
    return json.dumps({"object": "page", "data": buckets, "has_more": False, "next_page": None})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "Pacific/Honolulu", "Pacific/Auckland"])
async def test_days_of_another_zone_remove_no_day(zone: str, registry: Registry) -> None:
    """September in UTC, then October in the days of another zone, with the day on which its clock changes."""
    await imported(registry, "september.json", openai_costs("UTC", "2026-09-01", 30))
    before = await billed_by_day(registry)
    await imported(registry, "october.json", openai_costs(zone, "2026-10-01", 31))
    after = await billed_by_day(registry)
    assert before == {day: amount for day, amount in after.items() if day < "2026-10"}
    assert [f"2026-10-{day:02}" for day in range(1, 32)] == [day for day in after if day >= "2026-10"]
    assert {Decimal("2.5")} == set(after.values())


AZURE = (
    "BillingPeriodStartDate,BillingPeriodEndDate,Date,MeterName,MeterCategory,Quantity,UnitOfMeasure,"
    "CostInBillingCurrency,BillingCurrency,ChargeType,ResourceId"
)


def azure_costs(month: str, *rows: str) -> str:
    first, last = {"08": ("08/01/2026", "08/31/2026"), "09": ("09/01/2026", "09/30/2026")}[month]
    return "\n".join([AZURE, *(f"{first},{last},{row}" for row in rows)])


def azure_use(day: str, cost: str, charge: str = "Usage") -> str:
    return f"{day},gpt 4o Inp glbl Tokens,Azure OpenAI,100000,1K,{cost},USD,{charge},/r/openai"


AUGUST = azure_costs("08", azure_use("08/05/2026", "100"), azure_use("08/20/2026", "29.62"))
SEPTEMBER = azure_costs("09", azure_use("09/02/2026", "13.69"), azure_use("08/05/2026", "-1.50", "Refund"))


@pytest.mark.parametrize("order", [(AUGUST, SEPTEMBER), (SEPTEMBER, AUGUST), (AUGUST, SEPTEMBER, AUGUST)])
async def test_a_refund_on_the_next_bill_takes_no_month_away(
    order: tuple[str, ...], registry: Registry
) -> None:
    """
    Both orders are equal, and so is an import of the first bill again. By bill, each sum is its invoice. By use, the
    refund is in the month of the refunded calls.
    """
    for number, content in enumerate(order):
        await imported(registry, f"{number}.csv", content)
    assert {"2026-08": Decimal("128.12"), "2026-09": Decimal("13.69")} == await used_by_month(registry)
    assert {"2026-08": Decimal("129.62"), "2026-09": Decimal("12.19")} == await billed_by_month(registry)


async def test_two_bills_in_one_file_are_the_two_bills(registry: Registry) -> None:
    await imported(registry, "both.csv", AUGUST + "\n" + SEPTEMBER.partition("\n")[2])
    together = await billed_by_day(registry)
    await imported(registry, "august.csv", AUGUST)
    assert together == await billed_by_day(registry)
    assert {"2026-08": Decimal("129.62"), "2026-09": Decimal("12.19")} == await billed_by_month(registry)


def google_hours(month: str, first: datetime, hours: int) -> str:
    rows = [
        {
            "billing_account_id": "acct",
            "invoice": {"month": month},
            "service": {"id": "C7E2-9256-1C43", "description": "Vertex AI"},
            "sku": {"description": "Gemini 2.5 Flash Text Input - Predictions"},
            "usage_start_time": (first + timedelta(hours=hour)).isoformat(),
            "usage_end_time": (first + timedelta(hours=hour + 1)).isoformat(),
            "project": {"id": "proj"},
            "location": {"region": "us-east1"},
            "cost": 1,
            "currency": "USD",
            "usage": {"amount": 1000, "unit": "count"},
            "credits": [],
            "cost_type": "regular",
        }
        for hour in range(hours)
    ]
    return "\n".join(map(json.dumps, rows)) + "\n"


async def test_bills_in_pacific_months_share_a_day(registry: Registry) -> None:
    """The day in UTC on which one bill ends and the next begins has the hours of both, in either order."""
    pacific = ZoneInfo("America/Los_Angeles")
    september = datetime(2026, 9, 1, tzinfo=pacific).astimezone(ZoneInfo("UTC"))
    of_august = google_hours("202608", september - timedelta(hours=31), 31)
    of_september = google_hours("202609", september, 41)
    for content in (of_august, of_september, of_august):
        await imported(registry, "export.json", content)
    assert {
        "2026-08-31": Decimal(24),
        "2026-09-01": Decimal(24),
        "2026-09-02": Decimal(24),
    } == await billed_by_day(registry)


async def test_a_wrong_period_costs_only_its_row(registry: Registry) -> None:
    for period in ("09/30/2026,09/01/2026", "01/01/2020,12/31/2026", "x,09/30/2026"):
        content = "\n".join([AZURE, f"{period},{azure_use('09/02/2026', '5')}", *SEPTEMBER.splitlines()[1:]])
        file = ReportFile(name="export.csv", content=content.encode(), read_at=READ_AT)
        [report] = read_reports([file], source=None, account=None, max_unpacked_bytes=10_000)
        assert (report.damaged, len(report.named)) == (1, 1)
        assert report.statement is not None and len(report.statement.rows) == 3


@pytest.mark.parametrize("clock_change", ["2026-03-29", "2026-10-25"])
async def test_hours_of_another_zone_replace_only_whole_days(clock_change: str, registry: Registry) -> None:
    """
    The hours of a local day of 23 or 25 hours begin within a UTC day. This day keeps its rows, and a day of which all
    hours are there is replaced.
    """

    def hours(start: datetime, end: datetime, amount: int) -> str:
        starts = range(int(start.timestamp()), int(end.timestamp()), 3600)
        buckets = [
            {
                "object": "bucket",
                "start_time": start,
                "end_time": start + 3600,
                "results": [
                    {
                        "object": "organization.costs.result",
                        "amount": {"value": amount, "currency": "usd"},
                        "line_item": "gpt-4o, input",
                        "project_id": "proj",
                    }
                ],
            }
            for start in starts
        ]
        return json.dumps({"object": "page", "data": buckets, "has_more": False, "next_page": None})

    midnight = datetime.fromisoformat(f"{clock_change}T00:00:00+00:00")
    before, changed, after = (f"{midnight + timedelta(days=days):%Y-%m-%d}" for days in (-1, 0, 1))
    await imported(registry, "utc.json", hours(midnight - timedelta(days=1), midnight + timedelta(days=2), 1))
    local = datetime.fromisoformat(clock_change).replace(tzinfo=ZoneInfo("Europe/Berlin"))
    following = local + timedelta(days=2)  # two local days, the first of which has 23 or 25 hours
    await imported(registry, "local.json", hours(local, following, 2))
    assert {before: 24, changed: 48, after: 24} == await billed_by_day(registry)
    [_, second] = await registry.statements.imports()
    assert [0, 24 * 2, 0] == [day.counted for day in second.days]
    assert [True, False, True] == [day.overlap > 0 for day in second.days]
