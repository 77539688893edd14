"""Totals of unit-cost streams are limited, and a key gets at most half of what other keys leave free."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from spool.clock import SystemClock
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import NS, UNIT_COST, UnitCostOperation
from spool.settings import MIB, SpoolSettings
from spool.sql.streams import SqlStreamRows
from spool.sqlite.database import SqliteConnection
from spool.sqlite.migrations import read_script
from spool.sqlite.spool import open_spool
from spool.streams import (
    StreamSize,
    apply_operations,
    can_create_streams,
    has_room_for_bytes,
    plan_freed_bytes,
)
from tests.exporters.spools import record_id


def test_a_key_has_room_up_to_what_it_leaves_free() -> None:
    """
    One key may use half of the space, and two keys a third each. So there is always space for one more key.
    """
    one = [StreamSize("a", "first", 499)]
    assert has_room_for_bytes(one, "first", 1000) is True
    assert has_room_for_bytes([StreamSize("a", "first", 500)], "first", 1000) is False
    two = [StreamSize("a", "first", 400), StreamSize("b", "second", 300)]
    assert (False, False, True) == tuple(
        has_room_for_bytes(two, key, 1000) for key in ("first", "second", "third")
    )


def test_a_key_may_create_as_many_streams_as_it_leaves() -> None:
    """The limit counts streams of every key, and one key cannot use all of it."""
    own = [StreamSize(f"s{n}", "first", 0) for n in range(5)]
    assert can_create_streams(own, "first", 1, 10) is False
    assert can_create_streams(own[1:], "first", 1, 10) is True
    assert can_create_streams(own, "second", 5, 10) is True
    assert can_create_streams(own, "second", 6, 10) is False


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=12), st.integers(100, 3000))
def test_after_freeing_every_key_has_room(held: list[tuple[str, int]], max_bytes: int) -> None:
    """After freeing, every key has space, and no stream has to free more than it holds."""
    sizes = [StreamSize(f"s{n}", key, size) for n, (key, size) in enumerate(held)]
    for _ in range(100):
        wanted = plan_freed_bytes(sizes, max_bytes)
        if not wanted:
            break
        assert all(0 <= wanted.get(size.name, 0) <= size.bytes for size in sizes)
        sizes = [StreamSize(one.name, one.created_by, one.bytes - wanted.get(one.name, 0)) for one in sizes]
    assert {} == plan_freed_bytes(sizes, max_bytes)
    assert all(has_room_for_bytes(sizes, key, max_bytes) for key in "abc")


def operations(part: int) -> Submission:
    records = [
        UnitCostOperation(
            id=record_id(part * 10_000 + n), stream="calls", stream_type="allocation", operation="sum", value="1.25",
            start_time=(1_790_000_000 + n * 3600) * NS, granularity="HOURLY", element_name=f"élément {part}",
            dimensions={"Region": ["eu"], "Team": ["search"]},
        )
        for n in range(3000)
    ]  # fmt: skip
    identities = [RecordIdentity(one.id) for one in records]
    return Submission(topic=UNIT_COST, received=3000, records=records, identities=identities)


async def test_totals_are_no_part_of_max_bytes(tmp_path: Path) -> None:
    """Totals do not count towards the log's `max_bytes`. Their stated size is close to their size on disk."""
    spool = await open_spool(
        tmp_path, settings=SpoolSettings(hold=0, max_bytes=16 * MIB), clock=SystemClock()
    )
    for part in range(4):
        await spool.log.append_submission(operations(part))
    (size,) = await spool.streams.stream_sizes()
    stats = await spool.log.stats()
    await spool.close()
    connection = sqlite3.connect(tmp_path / "spool.sqlite", isolation_level=None)
    connection.execute("DELETE FROM stream_totals")
    connection.execute("VACUUM")
    (pages,), (page,) = (
        connection.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size")
    )
    connection.close()
    assert 0.7 < size.bytes / (stats.bytes + size.bytes - pages * page) < 1.3


def test_totals_of_a_commit_are_read_at_once() -> None:
    """Many operations of a stream need one statement, and totals in memory need none."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(read_script("streams.sql"))
    asked: list[str] = []
    connection.set_trace_callback(lambda text: asked.append(text) if "FROM stream_totals" in text else None)
    rows = SqlStreamRows(SqliteConnection(connection))
    for _ in range(2):
        told = [one for one in operations(0).records if isinstance(one, UnitCostOperation)]
        apply_operations(rows, told, now=1.0, began_at=0.0)
    rows.flush()
    assert [(1, 3000)] == [(len(asked), *connection.execute("SELECT count(*) FROM stream_totals").fetchone())]
