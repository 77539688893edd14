"""Totals of unit-cost streams in both logs follow the operations in the order of the log."""

from __future__ import annotations

from typing import Any

from spool.deliveries.values import RouteSpec
from spool.identity import RecordIdentity
from spool.listing import ListQuery, SortField
from spool.log.values import Submission
from spool.record import NS, UNIT_COST, UnitCostOperation
from spool.streams import TotalsPart, estimated_bytes, period_start
from tests.exporters.spools import record_id
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener, Spool
from tests.spool.contract.examples import NOON

HOUR = 3600
ROUTE = RouteSpec(name="upstream/unit-cost", topic=UNIT_COST)


def operation(n: int, what: str = "sum", value: str | None = "1", **changes: Any) -> UnitCostOperation:
    said: dict[str, Any] = {
        "stream": "calls", "stream_type": "allocation", "start_time": NOON * NS, "granularity": "HOURLY",
        "element_name": "acme", "dimensions": {"Region": ["eu"]}, **changes,
    }  # fmt: skip
    return UnitCostOperation(id=record_id(n), operation=what, value=value, **said)


async def add(spool: Spool, *operations: UnitCostOperation) -> None:
    identities = [RecordIdentity(one.id) for one in operations]
    await spool.log.append_submission(
        Submission(topic=UNIT_COST, received=len(operations), records=operations, identities=identities)
    )


async def values(spool: Spool) -> dict[tuple[str | None, int], str]:
    totals = await spool.streams.stream_totals("calls")
    return {(total.element_name, total.start_time // NS - NOON): total.value for total in totals}


async def test_sums_add_exactly_and_repeats_do_not(open_spool: Opener) -> None:
    """Ten times a tenth is exactly one. An operation with a known id changes nothing."""
    spool = await open_spool()
    for n in range(10):
        await add(spool, operation(n, value="0.1"))
    await add(spool, operation(3, value="0.1"))
    (value,) = (await values(spool)).values()
    assert "1.0" == value


async def test_records_differ_by_everything_except_their_value(open_spool: Opener) -> None:
    """
    Another hour, element or dimension is another record. The order of values in a filter does not matter.
    """
    spool = await open_spool()
    await add(
        spool,
        operation(1),
        operation(2, start_time=(NOON + 59 * 60) * NS if NOON % HOUR == 0 else NOON * NS),
        operation(3, start_time=(NOON + 2 * HOUR) * NS),
        operation(4, element_name="other"),
        operation(5, dimensions={"Region": ["eu", "us"]}),
        operation(6, dimensions={"Region": ["us", "eu"]}),
    )
    assert ["1", "1", "2", "2"] == sorted(total.value for total in await spool.streams.stream_totals("calls"))


async def test_replace_delete_and_drop(open_spool: Opener) -> None:
    """Replace sets a record, delete removes matching records of a period, and drop removes the stream."""
    spool = await open_spool()
    await add(spool, operation(1, value="5"), operation(2, "replace", "2"), operation(3, value="1"))
    assert ["3"] == list((await values(spool)).values())
    await add(spool, operation(4, element_name="other"), operation(5, "delete", None, dimensions={}))
    assert ["1"] == list((await values(spool)).values())
    await add(spool, operation(6, "drop", None))
    assert list(await spool.streams.streams()) == []
    assert list(await spool.streams.stream_totals("calls")) == []


async def test_only_what_is_known_from_its_beginning_is_whole(open_spool: Opener) -> None:
    """
    A period is whole only if it is known from its beginning. If it started before the directory existed, it is
    incomplete until it is replaced.
    """
    spool = await open_spool()
    await add(spool, operation(1), operation(2, start_time=(NOON + 2 * HOUR) * NS))
    assert [False, True] == [total.whole for total in await spool.streams.stream_totals("calls")]
    await add(spool, operation(3, "replace", "9"))
    assert [True, True] == [total.whole for total in await spool.streams.stream_totals("calls")]


async def test_a_stream_is_what_its_first_record_said(open_spool: Opener) -> None:
    spool = await open_spool()
    await add(spool, operation(1, "create", None, dimensions={}), operation(2))
    (stream,) = await spool.streams.streams()
    assert stream.name == "calls"
    assert stream.type == "allocation"
    assert stream.granularity == "HOURLY"
    assert stream.keys == ("Region",)


async def test_totals_are_found_by_their_keys(open_spool: Opener) -> None:
    spool = await open_spool()
    await add(spool, operation(1), operation(2, element_name="other"))
    total, _ = await spool.streams.stream_totals("calls")
    place = (total.stream, total.key)
    assert {place: total} == dict(
        await spool.streams.find_totals([place, ("calls", "nothing"), ("nothing", total.key)])
    )


async def sizes(spool: Spool) -> dict[str, tuple[str, int]]:
    return {size.name: (size.created_by, size.bytes) for size in await spool.streams.stream_sizes()}


async def measured(spool: Spool) -> int:
    return sum(estimated_bytes(total) for total in await spool.streams.stream_totals("calls"))


async def test_sizes_follow_the_totals(open_spool: Opener) -> None:
    """After any operation a stream's size equals that of its totals. The creator is stored once."""
    spool = await open_spool()
    await add(spool, operation(1), operation(2, element_name="other"), operation(3, value="123456789.123"))
    await spool.streams.set_owner("calls", "first key")
    await spool.streams.set_owner("calls", "second key")
    assert {"calls": ("first key", await measured(spool))} == await sizes(spool)
    await add(spool, operation(4, "delete", None, element_name="other"), operation(5, "replace", "1"))
    assert {"calls": ("first key", await measured(spool))} == await sizes(spool)
    assert await measured(spool) > 0
    await add(spool, operation(6, "drop", None))
    assert {} == await sizes(spool)


async def test_oldest_totals_of_a_key_are_deleted_over_its_limit(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    Over its limit, a key's oldest totals are deleted, except totals with an operation that is still in the log.

    Later values of a deleted total are only a part of its history, so they are marked as not whole.
    """
    spool = await open_spool(max_stream_bytes=8000)
    hours = [operation(n, start_time=(NOON + n * HOUR) * NS) for n in range(1, 31)]
    await add(spool, *hours)
    await spool.log.run_retention()
    assert 30 == len(await spool.streams.stream_totals("calls"))
    clock.move(8 * 86_400)
    await add(spool, operation(31, element_name="new"))
    await spool.log.run_retention()
    left = await spool.streams.stream_totals("calls")
    gone = 31 - len(left)
    assert 10 < gone < 30
    assert [one.start_time // NS // HOUR for one in left if one.element_name == "acme"] == [
        hour.start_time // NS // HOUR for hour in hours[gone:] if hour.start_time
    ]
    assert {"calls": ("", await measured(spool))} == await sizes(spool)
    await add(spool, operation(40, start_time=hours[0].start_time))
    (again,) = [one for one in await spool.streams.stream_totals("calls") if one.start_time == period_start(
        hours[0].start_time or 0, "HOURLY")]  # fmt: skip
    assert again.value == "1"
    assert again.whole is False


async def test_totals_older_than_their_retention_go(open_spool: Opener, clock: MovedClock) -> None:
    spool = await open_spool(stream_retention=30 * 86_400)
    await add(spool, operation(1), operation(2, start_time=(NOON + 10 * 86_400) * NS))
    clock.move(29 * 86_400)
    await spool.log.run_retention()
    assert 2 == len(await spool.streams.stream_totals("calls"))
    clock.move(2 * 86_400)
    await spool.log.run_retention()
    assert 1 == len(await spool.streams.stream_totals("calls"))


async def test_a_page_of_a_part(open_spool: Opener) -> None:
    """
    A page covers a half-open time range with one of the values in each dimension. A record with several values
    matches each of them.
    """
    spool = await open_spool()
    first = period_start(NOON * NS, "HOURLY")
    hour = HOUR * NS
    eu = [operation(n, start_time=first + n * hour) for n in range(4)]
    us = operation(9, dimensions={"Region": ["us", "ca"]}, start_time=first + hour)
    await add(spool, *eu, us)
    query = ListQuery(sort=SortField("start_time"), order="asc", identity="key", limit=2)

    async def starts(**part: Any) -> tuple[list[int], int]:
        page = await spool.streams.totals_page("calls", query, TotalsPart(**part))
        return [(total.start_time - first) // hour for total in page.rows], page.total

    assert ([0, 1], 5) == await starts()
    assert ([1, 1], 3) == await starts(since=first + hour, until=first + 3 * hour)
    assert ([0, 1], 4) == await starts(dimensions={"Region": ["eu"]})
    assert ([1], 1) == await starts(dimensions={"Region": ["ca", "mx"]})
    assert ([0, 1], 5) == await starts(dimensions={"Region": ["ca", "eu"]})
    assert ([], 0) == await starts(dimensions={"Region": ["eu"], "Team": ["a"]})
