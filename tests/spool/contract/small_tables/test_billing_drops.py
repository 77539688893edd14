"""Accepted billing drops: the rows of a month equal a recount of every operation."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from spool.billing import (
    BILLING_DROPS,
    HOUR_S,
    OPERATIONS,
    OVERHEAD,
    REPLACE_DROP,
    REPLACE_HOURLY,
    SUM,
    MonthSize,
    rows_of_month_json,
)
from spool.identity import RecordIdentity
from spool.listing import ListQuery, SortField
from spool.log.values import Submission
from spool.record import BILLING_DATA, HourlyBillingFile
from spool.storage import Storage
from tests.exporters.spools import record_id
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG

MONTH = "2026-11"
Row = dict[str, str]


def row(hour: int, cost: str = "1", day: int = 1) -> Row:
    return {"time/usage_start": f"2026-11-{day:02}T{hour:02}:20:00Z", "cost/cost": cost}


def drop(
    n: int, operation: str | None, rows: Sequence[Row], month: str = MONTH, connection: str = "c"
) -> HourlyBillingFile:
    return HourlyBillingFile(
        id=record_id(n),
        connection_id=connection,
        month=month,
        operation=operation,
        rows=len(rows),
        body=orjson.dumps({"month": month, "operation": operation, "data": rows}),
    )


async def take(storage: Storage, *drops: HourlyBillingFile) -> None:
    identities = [RecordIdentity(each.id) for each in drops]
    await storage.log.append_submission(
        Submission(topic=BILLING_DATA, received=len(drops), records=list(drops), identities=identities)
    )


async def read(storage: Storage, month: str = MONTH, connection: str = "c") -> list[Row]:
    found: list[Row] = orjson.loads(
        b"".join(
            rows_of_month_json(await storage.small.open_table(BILLING_DROPS).month_hours(connection, month))
        )
    )
    return found


async def listed(storage: Storage, connection: str = "c") -> list[tuple[str, int]]:
    query = ListQuery(sort=SortField("number"), order="asc", identity="number", limit=1000)
    page = await storage.small.open_table(BILLING_DROPS).page(connection, query)
    return [(each.operation, each.rows) for each in page.rows]


async def test_each_operation_does_what_it_says(storage: Storage) -> None:
    """
    SUM adds rows. REPLACE_HOURLY replaces only the hours in the drop. REPLACE_DROP replaces the whole month.
    """
    await take(storage, drop(1, SUM, [row(1, "1"), row(2, "2")]))
    await take(storage, drop(2, SUM, [row(1, "3")]))
    assert [row(1, "1"), row(1, "3"), row(2, "2")] == await read(storage)
    await take(storage, drop(3, REPLACE_HOURLY, [row(1, "4"), row(3, "5")]))
    assert [row(1, "4"), row(2, "2"), row(3, "5")] == await read(storage)
    assert [(SUM, 2), (REPLACE_HOURLY, 2)] == await listed(storage)  # all rows of the second drop are deleted
    await take(storage, drop(4, None, [row(9, "6")]))
    assert [row(9, "6")] == await read(storage)
    assert [(REPLACE_DROP, 1)] == await listed(storage)


async def test_a_drop_changes_its_month_and_connection_alone(storage: Storage) -> None:
    """Two drops in one commit apply in order. A repeat under the same id changes nothing."""
    december = {"time/usage_start": "2026-12-01T00:00:00Z", "cost/cost": "7"}
    await take(storage, drop(1, SUM, [row(1)]), drop(2, SUM, [december], month="2026-12"))
    await take(storage, drop(3, REPLACE_DROP, [row(2)], connection="other"))
    await take(storage, drop(1, SUM, [row(1)]))
    assert [row(1)] == await read(storage)
    assert await read(storage, "2026-12") == [december]
    assert [row(2)] == await read(storage, connection="other")
    assert await read(storage, "2026-10") == []


async def test_a_month_is_what_a_recount_finds(storage: Storage) -> None:
    """
    A month of drops is what a recount finds: a month of many drops of every operation equals a list of all rows
    that the test changes itself.
    """
    chance = random.Random(20261121)
    recount: list[Row] = []
    for n in range(300 if IS_LONG else 60):
        operation = chance.choices(OPERATIONS, weights=(1, 30, 30))[0]
        hours = chance.sample(range(24), chance.randint(1, 5))
        rows = [row(hour, f"{n}.{k}", day=chance.randint(1, 30)) for hour in hours for k in range(2)]
        await take(storage, drop(n, operation, rows))
        if operation == REPLACE_DROP:
            recount = []
        elif operation == REPLACE_HOURLY:
            gone = {each["time/usage_start"][:13] for each in rows}
            recount = [each for each in recount if each["time/usage_start"][:13] not in gone]
        recount += rows
    recount.sort(key=lambda each: each["time/usage_start"][:13])
    found = await read(storage)
    assert recount == found
    size = await storage.small.open_table(BILLING_DROPS).month_size("c", MONTH)
    assert len(found) == size.rows
    assert (
        sum(len(orjson.dumps(each)) for each in found)
        <= size.bytes
        <= sum(len(orjson.dumps(e)) + 1 for e in found)
    )


async def test_sizes_of_drops_are_those_of_current_rows(storage: Storage) -> None:
    """
    Sizes of billing drops are those of the current rows by month, without the hours that a drop would replace, and
    for all months on disk.
    """
    rows = [row(1), row(1), row(2)]
    await take(storage, drop(1, SUM, rows))
    start = 1_793_491_200 + HOUR_S  # 2026-11-01T01:00:00Z
    each = len(orjson.dumps(row(1)))
    packed = [zlib.compress(b",".join(map(orjson.dumps, part)), 1) for part in (rows[:2], rows[2:])]
    held = [sum(map(len, packed)) + 2 * each + 1, len(packed[1]) + each]
    assert MonthSize(rows=3, bytes=3 * each + 1, held=held[0]) == await storage.small.open_table(
        BILLING_DROPS
    ).month_size("c", MONTH)
    assert MonthSize(rows=1, bytes=each, held=held[1]) == await storage.small.open_table(
        BILLING_DROPS
    ).month_size("c", MONTH, [start])
    assert MonthSize() == await storage.small.open_table(BILLING_DROPS).month_size("c", "2026-10")
    assert (
        sum(map(len, packed)) + 2 * OVERHEAD == await storage.small.open_table(BILLING_DROPS).stored_bytes()
    )


async def test_what_is_known_of_connections(storage: Storage, clock: MovedClock) -> None:
    """For each connection, the storage knows when the last drop arrived and whether a drop exists."""
    await take(storage, drop(1, SUM, [row(1)]))
    clock.move(60)
    await take(storage, drop(2, SUM, [row(1)]), drop(3, SUM, [row(1)], connection="other"))
    assert (
        dict.fromkeys(("c", "other"), clock.now())
        == await storage.small.open_table(BILLING_DROPS).last_billing_drop_at_by_connection()
    )
    assert await storage.small.open_table(BILLING_DROPS).has_billing_drop("c", MONTH, record_id(2).hex())
    assert not await storage.small.open_table(BILLING_DROPS).has_billing_drop(
        "other", MONTH, record_id(2).hex()
    )


async def test_months_and_connections_go(storage: Storage) -> None:
    """Months before a date, or everything of a connection, can be deleted without touching other rows."""
    december: list[Row] = [{"time/usage_start": "2026-12-01T00:00:00Z", "cost/cost": "7"}]
    await take(storage, drop(1, SUM, [row(1)]), drop(2, SUM, december, "2026-12"))
    await take(storage, drop(3, SUM, [row(1)], connection="other"))
    assert 2 == await storage.small.open_table(BILLING_DROPS).delete_old_months("2026-12")
    assert await read(storage) == []
    assert await read(storage, "2026-12") == december
    assert await read(storage, connection="other") == []
    assert {"c"} == set(await storage.small.open_table(BILLING_DROPS).last_billing_drop_at_by_connection())
    await storage.small.open_table(BILLING_DROPS).delete_connection("c")
    drops = storage.small.open_table(BILLING_DROPS)
    assert await listed(storage) == []
    assert await drops.last_billing_drop_at_by_connection() == {}
    assert await drops.stored_bytes() == 0


@pytest.mark.one_engine
@pytest.mark.parametrize("body", [b"{}", b'{"data": [{}]}', b'{"data": [{"time/usage_start": "soon"}]}'])
async def test_a_drop_that_cannot_be_read_is_in_the_log_alone(storage: Storage, body: bytes) -> None:
    """A stored drop that today's rules cannot read is delivered, but no month shows it."""
    await take(
        storage, HourlyBillingFile(id=record_id(1), connection_id="c", month=MONTH, operation=SUM, body=body)
    )
    assert await read(storage) == []
    assert len(await storage.log.read(BILLING_DATA, 1, 1)) == 1


@pytest.mark.one_engine
async def test_rows_are_shown_as_they_came(storage: Storage) -> None:
    """Spaces and the order of columns in rows are preserved."""
    raw = b'{ "cost/cost" : "1.10",  "time/usage_start":"2026-11-01T10:00:00+02:00"}'
    record: dict[str, Any] = {
        "id": record_id(1),
        "connection_id": "c",
        "month": MONTH,
        "operation": SUM,
        "rows": 1,
    }
    await take(storage, HourlyBillingFile(**record, body=b'{"data": [' + raw + b" ]}"))
    (hour,) = await storage.small.open_table(BILLING_DROPS).month_hours("c", MONTH)
    assert hour.json_rows == raw
    assert hour.hour == 1_793_491_200 + 8 * HOUR_S


async def test_months_that_have_rows_are_known_by_their_connection(storage: Storage) -> None:
    """Each month with rows has the time of its last drop. A connection without rows has no months."""
    billing_drops = storage.small.open_table(BILLING_DROPS)
    rows = [{"time/usage_start": "2026-09-05T10:00:00Z", "cost/cost": "1"}]
    later = [{"time/usage_start": "2026-10-05T10:00:00Z", "cost/cost": "1"}]
    await take(storage, drop(1, SUM, rows, month="2026-09"), drop(2, SUM, later, month="2026-10"))
    await take(storage, drop(3, SUM, rows, month="2026-09", connection="other"))
    newest = await billing_drops.last_billing_drop_at_by_connection()
    assert {"2026-09": newest["c"], "2026-10": newest["c"]} == await billing_drops.last_drop_at_by_month("c")
    assert {} == await billing_drops.last_drop_at_by_month("nobody")
