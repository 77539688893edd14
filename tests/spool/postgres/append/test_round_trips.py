"""Round trips of an append. While one of them holds the head of the log, all gateways wait."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from spool.identity import RecordIdentity
from spool.log.partial_reports import NOTHING, ExpectedVersion, PartialReport
from spool.log.values import Submission
from spool.postgres.storage import PostgresSpool
from spool.record import AI_TELEMETRY, NS, UNIT_COST, UnitCostOperation
from spool.registry.key_expectations import valid_key_expectation
from spool.registry.streams import stream_expectation
from spool.settings import SpoolSettings
from spool.streams import SUM, TelemetryStream
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import open_node
from tests.spool.contract.examples import NOON, Observed, add, call, point
from tests.spool.postgres.append.round_trips import round_trips
from tests.spool.postgres_cluster import Schema


@pytest.fixture
async def nodes(fresh_schema: Schema) -> AsyncIterator[tuple[PostgresSpool, PostgresSpool]]:
    """Two gateways that commit only what a test sends."""
    clock = MovedClock(NOON)
    async with AsyncExitStack() as stack:
        opened: list[PostgresSpool] = []
        for _ in range(2):
            node = await open_node(stack, fresh_schema, SpoolSettings(hold=10), clock, Observed())
            stack.push_async_callback(node.close)
            node.log._follower._task.cancel()
            await add(node.log, call(1 + len(opened)))  # this first commit opens the connection
            opened.append(node)
        yield opened[0], opened[1]


async def test_append_needs_two_round_trips(
    nodes: tuple[PostgresSpool, PostgresSpool], tmp_path: Path
) -> None:
    """
    An append takes two round trips, with or without earlier commits of others, and for any further change in it.
    """
    one, other = nodes
    append = one.database.append
    with round_trips(append, tmp_path) as alone:
        await add(one.log, call(10), call(11), points=[point(5, at=NOON + 1)])
    assert 2 == alone.count
    await add(other.log, call(20))
    with round_trips(append, tmp_path) as behind:
        await add(one.log, call(12), heard=[b"r" * 16], keep=[PartialReport(b"half", 1.0, b"part")], pending=1,
                  expects=[ExpectedVersion(b"half", NOTHING)])  # fmt: skip
    assert 2 == behind.count
    operation = UnitCostOperation(
        id=b"u" * 16, stream="calls", stream_type="allocation", operation=SUM, value="1", start_time=NOON * NS
    )
    stream = TelemetryStream(name="calls", type="allocation", granularity=None, keys=None, created_at=0.0)
    with round_trips(append, tmp_path) as counted:
        await one.log.append_submission(
            Submission(topic=UNIT_COST, received=1, records=[operation], identities=[RecordIdentity(operation.id)],
                       expects=[stream_expectation(stream)])
        )  # fmt: skip
    assert 2 == counted.count
    with round_trips(append, tmp_path) as refused, pytest.raises(Exception, match="key of this submission"):
        await add(one.log, call(13), expects=[valid_key_expectation(b"d" * 32)])
    assert 2 == refused.count


async def test_append_with_repeated_calls_needs_one_more_round_trip(
    nodes: tuple[PostgresSpool, PostgresSpool], tmp_path: Path
) -> None:
    """
    An append with repeated calls takes one more round trip. The number of commits that contain the calls, the
    gateway that made these commits, and later additions do not matter.
    """
    one, other = nodes
    for number in range(10, 16):
        await add(one.log, call(number))
        await add(other.log, call(number + 10), call(number, team="search"))
    with round_trips(one.database.append, tmp_path) as again:
        told = [call(number, user="ada") for number in (*range(10, 16), *range(20, 26), 30)]
        receipt = await add(one.log, *told)
    assert 3 == again.count
    view = await one.log.describe_receipt(receipt.id)
    assert view["new"] == 1
    assert view["duplicates"] == 12
    expected = [call(1), call(2)]
    for number in range(10, 16):
        expected += [call(number, team="search", user="ada"), call(number + 10, user="ada")]
    expected.append(call(30, user="ada"))
    found = [entry.records for entry in await one.log.read(AI_TELEMETRY, 1, 99, includes_open_records=True)]
    assert [record for record, _ in expected] == [record for records in found for record in records]
