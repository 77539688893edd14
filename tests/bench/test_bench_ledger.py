"""Cost of the ledger compared with ingest, and duration of its queries on a million rows."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import process_time

import pytest

from spool.ledger.queries import CostQuery
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, NS, Inference, pack_records, unpack_records
from spool.sqlite.ledger import COLUMNS, open_ledger
from tests.bench.many_rows import add_rows
from tests.rounds import IS_LONG
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

RECORDS = 200_000 if IS_LONG else 16_384


def traffic(number: int) -> Inference:
    """Make mixed calls of 20 users, 5 models and 4 teams."""
    return call(
        id=number.to_bytes(16, "big"),
        request_id=f"chatcmpl-{number:032d}",
        request_model=f"model-{number % 5}",
        response_model=f"model-{number % 5}-2026-01-01",
        user=f"user-{number % 20}",
        team=f"team-{number % 4}",
        api_key="key",
        session=f"session-{number // 50}",
        tags={"service": "search", "environment": "production", "region": "eu"},
        cost="0.0063251" if number % 2 else None,
        cost_source="reported" if number % 2 else "estimated",
        estimated_cost="0.006325",
        input_tokens=1200 + number % 777,
        start_time=(BEGIN + number % 7200) * NS,
        end_time=(BEGIN + number % 7200) * NS + 900_000_000,
    )


@pytest.mark.bench
async def test_counting_costs_a_fraction_of_ingest(tmp_path: Path) -> None:
    """Counting a record takes about 3.5 times as long as unpacking it, which is a seventh of receiving it."""
    records = [traffic(number) for number in range(RECORDS)]
    packed = [pack_records(records[place : place + 1000]) for place in range(0, RECORDS, 1000)]
    log = FakeLog()
    for place in range(0, RECORDS, 1000):
        log.entries.append(
            LogEntry(
                topic=AI_TELEMETRY,
                first=place + 1,
                committed_at=BEGIN + 2 * HOUR,
                records=records[place : place + 1000],
            )
        )
    ledger = await open_ledger(tmp_path, clock=FakeClock())
    start = process_time()
    await ledger.catch_up(log)
    counting = (process_time() - start) / RECORDS
    await ledger.close()
    start = process_time()
    for part in packed:
        unpack_records(part)
    unpacking = (process_time() - start) / RECORDS
    print(
        f"\ncounting {counting * 1e6:.2f} µs, unpacking {unpacking * 1e6:.2f} µs, ratio "
        f"{counting / unpacking:.1f}"
    )
    assert counting <= 35 * unpacking  # a generous factor, because the machine may be busy


@pytest.mark.bench
async def test_questions_on_many_rows(tmp_path: Path) -> None:
    """
    A query of a month by day, by day and model, or by day and user takes at most about twice a plain sum over
    the month's hours. So do all queries of the console's first page together.
    """
    keys, hours = (1400, 720) if IS_LONG else (140, 72)
    ledger = await open_ledger(tmp_path, clock=FakeClock())
    await ledger.close()
    connection = sqlite3.connect(tmp_path / "ledger.sqlite")
    add_rows(connection, keys, hours, BEGIN)
    start = process_time()
    sums = ", ".join(f"SUM({name})" for name in COLUMNS)
    connection.execute(f"SELECT {sums} FROM hours").fetchall()
    plain = process_time() - start
    connection.close()
    since = datetime.fromtimestamp(BEGIN, UTC)
    ledger = await open_ledger(tmp_path, clock=FakeClock(BEGIN + (hours + 48) * HOUR))
    await ledger.sum_up_and_delete_hours()
    try:
        for dimensions in ((), ("model",), ("user",)):
            start = process_time()
            found = await ledger.costs(
                CostQuery(since=since, until=since + timedelta(hours=hours), group_by=dimensions)
            )
            took = process_time() - start
            print(
                f"\n{keys * hours} rows by day and {dimensions}: {took:.3f} s for {len(found)}, plain sum "
                f"{plain:.3f} s"
            )
            assert took <= 2 * plain + 0.5
        until = since + timedelta(hours=hours)
        whole = CostQuery(since=since, until=until, granularity="total", measures=("cost", "calls"))
        start = process_time()
        for first_page in (
            replace(whole, since=until - timedelta(days=1)),
            whole,
            replace(whole, granularity="daily", group_by=("model",)),
            *(replace(whole, group_by=(dimension,)) for dimension in ("model", "team", "user")),
        ):
            await ledger.costs(first_page)
        took = process_time() - start
        print(f"\nthe first page on {keys * hours} rows: {took:.3f} s")
        assert took <= 2 * plain + 0.5
    finally:
        await ledger.close()
