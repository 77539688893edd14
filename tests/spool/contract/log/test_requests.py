"""Requests with an idempotency key: a key identifies one body for as long as known ids are stored."""

from __future__ import annotations

import asyncio

import pytest

from spool.errors import KeyReused, Stale
from spool.identity import (
    RecordIdentity,
    RequestDedupKeys,
    build_request_dedup_keys,
    dedup_key_of_request_item,
)
from spool.log.protocols import RecordLog
from spool.log.values import Receipt, Submission
from spool.record import NS, UNIT_COST, UnitCostOperation
from spool.streams import ALLOCATION, SUM
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, assert_books_balance, everything, topic_terms


def names(body: str, key: str = "k1") -> RequestDedupKeys:
    return build_request_dedup_keys("sender", "/sum", key, body.encode())


def operation(value: str, id: bytes, at: float = NOON) -> UnitCostOperation:
    return UnitCostOperation(
        id=id, stream="calls", stream_type=ALLOCATION, operation=SUM, start_time=int(at * NS), granularity="DAILY",
        element_name="x", value=value,
    )  # fmt: skip


async def send(
    record_log: RecordLog, *values: str, key: str = "k1", at: float = NOON, is_repeat: bool = False
) -> Receipt:
    """Send one request with a sum for each value."""
    request = names(" ".join(values), key)
    ids = [dedup_key_of_request_item(request, place) for place in range(len(values))]
    operations = [operation(value, id, at) for value, id in zip(values, ids, strict=True)]
    submission = Submission(
        topic=UNIT_COST, received=len(values), records=operations, identities=[RecordIdentity(id) for id in ids],
        request=request, is_repeat=is_repeat,
    )  # fmt: skip
    return await record_log.append_submission(submission)


async def kept(record_log: RecordLog) -> list[str | None]:
    return [
        one.value for one in await everything(record_log, UNIT_COST) if isinstance(one, UnitCostOperation)
    ]


@pytest.mark.one_engine
async def test_key_accepts_only_one_body(log: RecordLog) -> None:
    """
    Sending the same body again adds nothing. Another value, or more or fewer items, are refused and change nothing.
    """
    assert 2 == (await send(log, "1", "2")).records
    assert 2 == (await send(log, "1", "2")).records
    for other in (["9", "2"], ["1", "2", "3"], ["1"]):
        with pytest.raises(KeyReused):
            await send(log, *other)
    assert 1 == (await send(log, "9", key="k2")).records
    assert ["1", "2", "9"] == await kept(log)
    terms = await topic_terms(log, UNIT_COST)
    assert terms["received"] == 5
    assert terms["accepted"] == 3
    assert terms["duplicates"] == 2
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_only_one_of_two_simultaneous_bodies_is_stored(log: RecordLog) -> None:
    """
    Two bodies under one key in one commit: one is stored, the other refused. Other requests of the
    commit are stored.
    """
    sent = [send(log, "1"), send(log, "2"), send(log, "1"), send(log, "3", key="k2")]
    first, other, again, neighbour = await asyncio.gather(*sent, return_exceptions=True)
    assert isinstance(other, KeyReused)
    assert [Receipt] * 3 == [type(one) for one in (first, again, neighbour)]
    assert ["1", "3"] == await kept(log)


async def test_a_key_is_known_as_long_as_ids_are(open_spool: Opener, clock: MovedClock) -> None:
    """A key is known even when it is in a run. After the window the key is free again."""
    log = (await open_spool(duplicate_window=3 * 86_400)).log
    await send(log, "1")
    for day in range(3):
        assert log.knows_request(names("1"))
        assert not log.knows_request(names("2"))
        with pytest.raises(KeyReused):
            await send(log, "2")
        clock.move(90_000)
        # the request's record gets the time of the day's first request
        await send(log, f"{day + 10}", key=f"of day {day}")
    assert not log.knows_request(names("1"))
    await send(log, "2")
    assert ["1", "10", "11", "12", "2"] == await kept(log)


@pytest.mark.one_engine
async def test_repeat_under_a_forgotten_key_is_not_stored(log: RecordLog) -> None:
    """
    A request that is sent as a repeat is not checked like a first request. If its key is forgotten, nothing
    is stored, and the caller must check it and send it again.
    """
    with pytest.raises(Stale):
        await send(log, "1", is_repeat=True)
    await send(log, "1")
    assert 1 == (await send(log, "1", is_repeat=True)).records
    assert ["1"] == await kept(log)
