"""Limits of storage: which entries may be deleted, which must stay, and where the accounting counts them."""

from __future__ import annotations

import random

import pytest

from spool.deliveries.values import RouteSpec, Settlement
from spool.errors import NotThere, SpoolFull
from spool.identity import RecordIdentity
from spool.record import AI_TELEMETRY, Inference
from tests.moved_clock import MovedClock
from tests.rounds import part, reduced
from tests.spool.contract.conftest import EVERY_ENGINE, Opener, Spool
from tests.spool.contract.examples import (
    NOON,
    add,
    assert_books_balance,
    call,
    entries,
    everything,
    topic_terms,
)

SIZE, CALLS = reduced(2 << 20, by=2), reduced(900, by=2)  # more calls than fit, each of about four kilobytes


def wide(number: int) -> tuple[Inference, RecordIdentity]:
    """Return a call of about four kilobytes that do not compress."""
    noise = random.Random(number)
    return call(number, tags={f"t{place}": noise.randbytes(120).hex() for place in range(32)})


async def deliver(spool: Spool, route: str, clock: MovedClock, records: int = 10_000) -> int:
    """Settle everything that is due on a route and return the number of records."""
    delivered = 0
    while (
        delivery := await spool.deliveries.take_due_delivery(route, now=clock.now(), max_records=records)
    ) is not None:
        await spool.deliveries.store_settlement(delivery, Settlement(delivered=delivery.count))
        delivered += delivery.count
    return delivered


async def fill(spool: Spool, begin: int = 0) -> int:
    """Append until the spool is full and return the number of the first refused call."""
    for number in range(begin, begin + 3000, 10):
        try:
            await add(spool.log, *map(wide, range(number, number + 10)))
        except SpoolFull as full:
            assert full.retry_after_s >= 1
            return number
    raise AssertionError("the spool never was full")


async def test_without_a_route_entries_live_for_retention(open_spool: Opener, clock: MovedClock) -> None:
    """
    After `retention`, entries without a route are deleted and count as expired. The accounting carries
    their commits forward.
    """
    spool = await open_spool(retention=100, late_window=0)
    await add(spool.log, call(1), call(2), ignored={"not_ai": 1})
    clock.move(60)
    await add(spool.log, call(3))
    assert 0 == await spool.log.run_retention()
    clock.move(60)

    assert 1 == await spool.log.run_retention()

    assert 1 == (await spool.log.stats()).entries
    assert [call(3)[0]] == await everything(spool.log)
    assert [3] == [entry.first for entry in await entries(spool.log)]
    terms = await topic_terms(spool.log)
    assert terms["accepted"] == 3
    assert terms["kept"] == 1
    assert terms["expired"] == 2
    await assert_books_balance(spool.log)


async def test_a_clock_that_was_ahead_keeps_no_commit_for_ever(open_spool: Opener, clock: MovedClock) -> None:
    """A commit dated ten years ahead does not block the deletion of later commits."""
    spool = await open_spool(retention=100, late_window=0)
    clock.move(10 * 365 * 86_400)
    await add(spool.log, call(1))
    clock.move(-10 * 365 * 86_400)
    receipt = await add(spool.log, call(2))
    clock.move(120)
    await add(spool.log, call(3))

    await spool.log.run_retention()

    with pytest.raises(NotThere):
        await spool.log.describe_receipt(receipt.id)
    await assert_books_balance(spool.log)


async def test_what_a_required_route_needs_is_never_deleted(open_spool: Opener, clock: MovedClock) -> None:
    """
    Undelivered entries are stored at any age. Delivered entries are deleted after retention and count as retired.
    """
    spool = await open_spool(retention=100, late_window=0)
    await spool.deliveries.set_routes([RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)])
    await add(spool.log, call(1))
    clock.move(1000)
    assert 0 == await spool.log.run_retention()

    assert 1 == await deliver(spool, "upstream/ai-telemetry", clock)
    await add(spool.log, call(2))
    assert 1 == await spool.log.run_retention()

    assert [call(2)[0]] == await everything(spool.log)
    assert 1 == (await topic_terms(spool.log))["retired"]
    await assert_books_balance(spool.log)


@pytest.mark.one_engine
async def test_retention_never_outruns_a_further_reader(open_spool: Opener, clock: MovedClock) -> None:
    """A reader that needs a number keeps it and all higher numbers, whatever their age."""
    spool = await open_spool(retention=100, late_window=0)
    for number in range(3):
        await add(spool.log, call(number))
    needed = {AI_TELEMETRY: 2}
    spool.log.readers.append(needed.get)
    clock.move(1000)

    assert 1 == await spool.log.run_retention()
    assert [2, 3] == [entry.first for entry in await entries(spool.log)]
    needed[AI_TELEMETRY] = 4
    assert 2 == await spool.log.run_retention()


async def test_full_spool_refuses_records_until_deliveries_free_space(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    A full spool keeps undelivered records and refuses new ones with a retry time. Deliveries free space
    before the retention ends.
    """
    spool = await open_spool(max_bytes=SIZE)
    await spool.deliveries.set_routes([RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)])
    refused = await fill(spool)
    assert not (await spool.log.stats()).writable
    assert refused == len(await everything(spool.log))

    assert refused == await deliver(spool, "upstream/ai-telemetry", clock)
    clock.move(2)

    await add(spool.log, call(refused))
    assert (await spool.log.stats()).writable
    terms = await topic_terms(spool.log)
    assert terms["accepted"] == refused + 1
    assert terms.get("expired", 0) == 0
    await assert_books_balance(spool.log)


@pytest.mark.parametrize("open_spool", part(EVERY_ENGINE, every=3), indirect=True)
async def test_an_optional_route_gives_up_its_oldest(open_spool: Opener, clock: MovedClock) -> None:
    """A route with `required = false` never fills the spool. Its oldest records are skipped and counted."""
    spool = await open_spool(max_bytes=SIZE)
    await spool.deliveries.set_routes(
        [RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY, required=False)]
    )

    for number in range(0, CALLS, 10):
        await add(spool.log, *map(wide, range(number, number + 10)))
        clock.move(1)

    terms = (await spool.log.books()).routes["archive/ai-telemetry"]
    assert terms["skipped"] > 0
    assert CALLS == terms["skipped"] + terms["queued"]
    await assert_books_balance(spool.log)


async def test_without_a_route_the_oldest_make_room(open_spool: Opener, clock: MovedClock) -> None:
    """Entries that no route needs are deleted before new ones are refused, and count as expired."""
    spool = await open_spool(max_bytes=SIZE)
    for number in range(0, CALLS, 10):
        await add(spool.log, *map(wide, range(number, number + 10)))
        clock.move(1)
    terms = await topic_terms(spool.log)
    assert CALLS == terms["kept"] + terms["expired"]
    assert terms["expired"] > 0
    await assert_books_balance(spool.log)


async def test_known_ids_outlive_their_entries(open_spool: Opener, clock: MovedClock) -> None:
    """
    Retention deletes records but not their known ids, so a repeat within the window is still a duplicate.
    """
    spool = await open_spool(retention=100, late_window=0)
    await add(spool.log, call(1))
    clock.move(1000)
    assert 1 == await spool.log.run_retention()

    receipt = await add(spool.log, call(1))

    assert receipt.records == 1
    assert (await topic_terms(spool.log))["accepted"] == 1


@pytest.mark.one_engine
async def test_records_without_an_identity_go_too(open_spool: Opener, clock: MovedClock) -> None:
    """Records without identity are deleted after the same time as others, although none of their ids is known."""
    spool = await open_spool(retention=100, late_window=0)
    record, _ = call(1)
    for _ in range(3):
        await add(spool.log, (record, RecordIdentity(record.id, certain=False)))
    clock.move(1000)
    assert 3 == await spool.log.run_retention()
    assert 0 == (await topic_terms(spool.log))["kept"]


async def test_ids_that_came_again_beyond_a_lookup_are_counted(open_spool: Opener, clock: MovedClock) -> None:
    """
    If a gateway's cache repeats an old response id with a new start, the report is a new record and is counted.
    """
    spool = await open_spool(duplicate_ids=8)
    await add(spool.log, call(1), call(2))
    clock.move(5 * 3600)
    for number in range(3, 7):
        await add(spool.log, call(number, at=NOON + 5 * 3600))
    await add(spool.log, call(1, at=NOON + 5 * 3600))
    assert 7 == (await topic_terms(spool.log))["accepted"]
    clock.move(2 * 86_400)
    await add(spool.log, call(100, at=NOON + 53 * 3600))
    await spool.log.run_retention()
    assert 1 == await spool.log.count_repeated_ids()
