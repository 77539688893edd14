"""
Costs over 120 days, where old hours have become days: each answer is exact or a refusal that names the border.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest

from spool.clock import SystemClock
from spool.identity import RecordIdentity
from spool.record import NS, Inference
from spool.settings import SpoolSettings
from spool.sqlite.ledger import open_ledger
from spool.sqlite.spool import open_spool
from tests.integration.conftest import Serve
from tests.integration.operations.money.costs.test_published_costs import READ, run
from tests.integration.payloads import json_span, json_traces
from tests.rounds import some
from tests.spool.contract.examples import add, call

HOUR_S, DAY_S = 3600, 86_400
ZONES = some(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"], every=3)
PRICE = Decimal("0.0006")  # each sent call has this cost
REFUSED = re.compile(
    r"(before (\S+), costs are stored per whole day in UTC only. Choose a start of (\S+) or later, or periods "
    r"that begin and end at midnight UTC|costs are stored per whole hour in UTC. Choose periods that begin and "
    r"end on the hour, in a time zone with a whole-hour offset from UTC). Your period splits a stored sum at (\S+)"
)


def starts() -> list[int]:
    """
    Return call times over the last 120 days, six and a half hours apart. So every hour and half hour of the
    day occurs soon.
    """
    now = int(time.time())
    return list(range(now - 120 * DAY_S, now - 2 * HOUR_S, 13 * HOUR_S // 2))


def border() -> int:
    return (int(time.time()) // DAY_S - 62) * DAY_S


def midnight(days_ago: int, zone: ZoneInfo) -> datetime:
    today = datetime.now(UTC).astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=days_ago)


async def test_costs_in_four_zones(serve: Serve) -> None:
    """
    For ranges that begin at midnight in any of four zones, `GET /v2/billing/costs` returns the exact sum, or 400
    with the border before which hours are no longer stored.
    """
    serving = await serve()
    sent = starts()
    spans = [
        json_span("gpt-4o", startTimeUnixNano=str(at * NS), endTimeUnixNano=str((at + 1) * NS)) for at in sent
    ]
    assert 200 == (await serving.send("/v1/traces", json_traces(*spans))).status
    ledger = serving.app.services.storage.ledger
    await ledger.catch_up(serving.app.services.storage.log)
    await ledger.sum_up_and_delete_hours()
    key = await serving.make_key("reader", scopes=READ)
    outcomes: dict[tuple[str, int], set[str]] = {}
    for zone in map(ZoneInfo, ZONES):
        for days in (118, 60):
            since = midnight(days, zone)
            for granularity in ("hourly", "daily", "monthly"):
                query = {"start_date": since.isoformat(), "granularity": granularity}
                answer = await serving.send(
                    f"/v2/billing/costs?{urlencode(query)}", b"", None, method="GET", key=key
                )
                payload = json.loads(answer.body)
                found = outcomes.setdefault((zone.key, days), set())
                if answer.status == 400:
                    refused = REFUSED.fullmatch(payload["error"]["message"])
                    assert refused and "invalid_parameter" == payload["error"]["type"]
                    found.add("days" if refused[2] else "hours")
                    continue
                expected: dict[datetime, Decimal] = {}
                for at in sent:
                    if at >= since.timestamp():
                        begin = _begin(at, granularity)
                        expected[begin] = expected.get(begin, Decimal(0)) + PRICE
                assert expected == {
                    datetime.fromisoformat(row["usage_date"]): Decimal(row["cost"])
                    for row in payload["costs"]
                }
                found.add("exact")
    _check(outcomes)


def _begin(at: int, granularity: str) -> datetime:
    """Return the start of the period in UTC, the only zone that the address knows."""
    hour = datetime.fromtimestamp(at // HOUR_S * HOUR_S, UTC)
    if granularity == "hourly":
        return hour
    return hour.replace(hour=0) if granularity == "daily" else hour.replace(hour=0, day=1)


def _check(outcomes: dict[tuple[str, int], set[str]]) -> None:
    """
    Check that zones with whole-hour offsets are exact where hours are kept. Whether another zone's midnight
    divides a call's hour is chance.
    """
    assert {"exact", "days"} == outcomes["UTC", 118]
    for zone in ZONES[:-1]:
        assert {"exact"} == outcomes[zone, 60]
        assert "days" in outcomes[zone, 118]
    assert outcomes["Asia/Kolkata", 60] <= {"exact", "hours"}
    assert "days" in outcomes["Asia/Kolkata", 118]


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[tuple[Path, list[int]]]:
    """Create a data directory with 120 counted days. The first 58 days are only daily totals."""
    sent = starts()
    records = [_spend(number, at) for number, at in enumerate(sent)]

    async def fill() -> None:
        spool = await open_spool(tmp_path / "store", settings=SpoolSettings(hold=0), clock=SystemClock())
        ledger = await open_ledger(tmp_path / "store", clock=SystemClock())
        await add(spool.log, *records)
        await ledger.catch_up(spool.log)
        await ledger.sum_up_and_delete_hours()
        await ledger.close()
        await spool.close()

    asyncio.run(fill())
    yield tmp_path / "store", sent


def _spend(number: int, at: int) -> tuple[Inference, RecordIdentity]:
    return call(
        number, at=at, provider="openai", request_model="gpt-4o", cost="0.0006", cost_source="reported"
    )


@pytest.mark.proof
def test_reports_in_four_zones(aged: tuple[Path, list[int]]) -> None:
    """`tollhouse report` has the exact days of its zone, or ends with exit code 2 and the border."""
    directory, sent = aged
    outcomes: dict[tuple[str, int], set[str]] = {}
    for zone in map(ZoneInfo, ZONES):
        for days in (118, 60):
            first = midnight(days, zone)
            for per in ("hourly", "daily", "monthly"):
                words = (
                    "report",
                    "--from",
                    first.date().isoformat(),
                    "--per",
                    per,
                    "--tz",
                    zone.key,
                    "--json",
                )
                text, code = _try(directory, *words)
                found = outcomes.setdefault((zone.key, days), set())
                if code:
                    refused = REFUSED.search(text)
                    assert code == 2, text
                    assert refused is not None, text
                    assert refused
                    found.add("days" if refused[2] else "hours")
                    continue
                expected: dict[str, int] = {}
                for at in sent:
                    if at >= first.timestamp():
                        period = _period(datetime.fromtimestamp(at, zone), per)
                        expected[period] = expected.get(period, 0) + 1
                rows = json.loads(text)["rows"]
                told = {_period(datetime.fromisoformat(row["period"]), per): row["calls"] for row in rows}
                assert expected == told
                assert {PRICE * calls for calls in told.values()} >= {Decimal(row["cost"]) for row in rows}
                found.add("exact")
    _check(outcomes)


def _try(directory: Path, *words: str) -> tuple[str, int]:
    try:
        return run(directory, *words), 0
    except AssertionError:
        return run(directory, *words, code=2), 2


def _period(there: datetime, per: str) -> str:
    return there.strftime({"hourly": "%Y-%m-%d %H %z", "daily": "%Y-%m-%d", "monthly": "%Y-%m"}[per])


def test_commands_that_need_hours(aged: tuple[Path, list[int]]) -> None:
    """Billing drops need hours. They are refused for days without hours and made for later days."""
    directory, sent = aged
    told = datetime.fromtimestamp(border(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    words = f"before {told}, costs are stored per whole day in UTC only. Choose a start of {told} or later"
    day = datetime.fromtimestamp(border(), UTC).date()
    old, new = (day - timedelta(days=3)).isoformat(), day.isoformat()
    last = (day + timedelta(days=40)).isoformat()
    for command in (("billing", "preview"), ("billing", "push"), ("billing", "push", "--dry-run")):
        assert words in run(directory, *command, "--from", old, "--to", last, code=2)
    assert words in run(directory, "ledger", "reprice", "--from", f"{old}T12:00:00Z", code=2)
    calls = len([at for at in sent if border() <= at < border() + 41 * DAY_S])
    plan: dict[str, Any] = json.loads(
        run(directory, "billing", "preview", "--from", new, "--to", last, "--json")
    )
    assert PRICE * calls == Decimal(plan["billing"]["cost"])


@pytest.mark.proof
@pytest.mark.parametrize("more", [(), pytest.param(("--lines", "meters"), marks=pytest.mark.proof)])
def test_exported_days_without_hours(aged: tuple[Path, list[int]], more: tuple[str, ...]) -> None:
    """FOCUS rows are by day where hours are no longer stored, and by hour later. Their sums are those of the calls."""
    directory, sent = aged
    day = datetime.fromtimestamp(border(), UTC).date()
    span = ("--from", (day - timedelta(days=40)).isoformat(), "--to", (day + timedelta(days=40)).isoformat())
    rows = list(csv.DictReader(io.StringIO(run(directory, "export", "focus", *span, *more))))
    times = [at for at in sent if abs(at - border() - DAY_S // 2) < 40 * DAY_S + DAY_S // 2]
    assert PRICE * len(times) == _total(rows, "BilledCost")
    lengths = {DAY_S: 0, HOUR_S: 0}
    for row in rows:
        start, end = (
            datetime.fromisoformat(row[f"ChargePeriod{name}"]).timestamp() for name in ("Start", "End")
        )
        lengths[int(end - start)] += 1
        assert (start < border()) == (end - start == DAY_S)
        called = sum(start <= at < end for at in times)
        assert called * PRICE == sum(
            Decimal(each["BilledCost"])
            for each in rows
            if each["ChargePeriodStart"] == row["ChargePeriodStart"]
        )
    assert all(lengths.values())


def _total(rows: list[dict[str, str]], name: str) -> Decimal:
    return sum((Decimal(row[name]) for row in rows), Decimal(0))
