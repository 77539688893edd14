"""Totals of unit-cost streams, in both logs: they move with the operations, in the order of the log."""

from __future__ import annotations

from typing import Any

import pytest

from spool.deliveries.values import RouteSpec
from spool.identity import Identity
from spool.log.values import Submission
from spool.record import NS, UNIT_COST, UnitCostOperation
from tests.exporters.spools import record_id
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
    identities = [Identity(one.id) for one in operations]
    await spool.log.append(
        Submission(topic=UNIT_COST, received=len(operations), records=operations, identities=identities)
    )


async def values(spool: Spool) -> dict[tuple[str | None, int], str]:
    totals = await spool.streams.totals("calls")
    return {(total.element_name, total.start_time // NS - NOON): total.value for total in totals}


@pytest.mark.asyncio
async def test_sums_add_exactly_and_repeats_do_not(open_spool: Opener) -> None:
    """Ten times a tenth is one; an operation under a known id changes nothing."""
    spool = await open_spool()
    for n in range(10):
        await add(spool, operation(n, value="0.1"))
    await add(spool, operation(3, value="0.1"))
    (value,) = (await values(spool)).values()
    assert "1.0" == value


@pytest.mark.asyncio
async def test_records_are_told_apart_by_all_but_their_value(open_spool: Opener) -> None:
    """Another hour, element or dimension is another record; the order of values in a filter means nothing."""
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
    assert ["1", "1", "2", "2"] == sorted(total.value for total in await spool.streams.totals("calls"))


@pytest.mark.asyncio
async def test_replace_delete_and_drop(open_spool: Opener) -> None:
    """Replace sets, delete takes every record of its period that has what it names, drop takes the stream."""
    spool = await open_spool()
    await add(spool, operation(1, value="5"), operation(2, "replace", "2"), operation(3, value="1"))
    assert ["3"] == list((await values(spool)).values())
    await add(spool, operation(4, element_name="other"), operation(5, "delete", None, dimensions={}))
    assert ["1"] == list((await values(spool)).values())
    await add(spool, operation(6, "drop", None))
    assert ([], []) == (list(await spool.streams.streams()), list(await spool.streams.totals("calls")))


@pytest.mark.asyncio
async def test_only_what_is_known_from_its_beginning_is_whole(open_spool: Opener) -> None:
    """A period that began before the directory did is not whole, until it is replaced."""
    spool = await open_spool()
    await add(spool, operation(1), operation(2, start_time=(NOON + 2 * HOUR) * NS))
    assert [False, True] == [total.whole for total in await spool.streams.totals("calls")]
    await add(spool, operation(3, "replace", "9"))
    assert [True, True] == [total.whole for total in await spool.streams.totals("calls")]


@pytest.mark.asyncio
async def test_a_stream_is_what_its_first_record_said(open_spool: Opener) -> None:
    """Type, granularity and the names of dimensions are kept."""
    spool = await open_spool()
    await add(spool, operation(1, "create", None, dimensions={}), operation(2))
    (stream,) = await spool.streams.streams()
    assert ("calls", "allocation", "HOURLY", ("Region",)) == (
        stream.name, stream.type, stream.granularity, stream.keys
    )  # fmt: skip


@pytest.mark.asyncio
async def test_totals_are_found_by_their_keys(open_spool: Opener) -> None:
    """Those that are there, and nothing for the others."""
    spool = await open_spool()
    await add(spool, operation(1), operation(2, element_name="other"))
    total, _ = await spool.streams.totals("calls")
    place = (total.stream, total.key)
    assert {place: total} == dict(await spool.streams.find([place, ("calls", "nothing"), ("nothing", total.key)]))
