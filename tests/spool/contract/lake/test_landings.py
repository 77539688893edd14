"""Deliveries in a data lake: their manifests, and the editions in file names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import Delivery, LakeDelivery, RouteSpec, Settlement
from spool.engines import open_storage
from spool.errors import NotAllowed
from spool.record import AI_TELEMETRY
from spool.storage import Storage, StorageOptions
from tests.spool.contract.examples import add, call

ROUTE = "lake/ai-telemetry"


@pytest.fixture
async def closed_storage(options: StorageOptions) -> AsyncIterator[Storage]:
    """A storage in which records close at once."""
    settings = replace(options.settings, hold=0)
    storage = await open_storage(replace(options, settings=settings), engine=options.storage.engine)
    yield storage
    await storage.close()


async def one_due(storage: Storage) -> Delivery:
    await storage.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
    await add(storage.log, call(1), call(2), call(3))
    return await next_due(storage)


async def next_due(storage: Storage) -> Delivery:
    delivery = await storage.deliveries.take_due_delivery(ROUTE, now=0.0, max_records=2)
    assert delivery is not None
    return delivery


def landing(delivery: Delivery, body: bytes = b"{}") -> LakeDelivery:
    return LakeDelivery(route=ROUTE, first=delivery.first, last=delivery.last, edition="3f9c1a2b", body=body)


async def test_manifest_is_found_only_after_its_delivery_is_settled(closed_storage: Storage) -> None:
    """A manifest is found by route and number only after its delivery is settled."""
    storage = closed_storage
    delivery = await one_due(storage)
    landings = storage.small.open_table(LANDINGS)
    assert [] == await landings.lake_deliveries_after(ROUTE, after_number=0, max_deliveries=10)
    await storage.deliveries.store_settlement(
        delivery, Settlement(delivered=2, landing=landing(delivery, b"one"))
    )
    assert [landing(delivery, b"one")] == await landings.lake_deliveries_after(
        ROUTE, after_number=0, max_deliveries=10
    )
    assert landing(delivery, b"one") == await landings.lake_delivery_before(ROUTE, delivery.last + 1)
    assert await landings.lake_delivery_before(ROUTE, delivery.first) is None
    assert [(ROUTE, 1)] == await landings.landed_counts_by_route()


async def test_whoever_lost_a_delivery_keeps_no_manifest(closed_storage: Storage) -> None:
    """A process that lost the delivery to another one cannot store its manifest."""
    storage = closed_storage
    delivery = await one_due(storage)
    await storage.deliveries.schedule_retry(delivery, reason="away", not_before=0.0)
    again = await next_due(storage)
    assert delivery.first == again.first
    assert delivery.last == again.last
    await storage.deliveries.store_settlement(delivery, Settlement(delivered=2, landing=landing(delivery)))
    assert 1 == storage.deliveries.fenced
    assert [] == await storage.small.open_table(LANDINGS).lake_deliveries_after(
        ROUTE, after_number=0, max_deliveries=10
    )


async def test_all_routes_have_the_edition_of_the_log(closed_storage: Storage) -> None:
    """The edition is eight hex digits. It is equal for all record numbers and all routes."""
    landings = closed_storage.small.open_table(LANDINGS)
    (edition,) = await landings.find_or_begin_log_editions(ROUTE, 1)
    assert 8 == len(bytes.fromhex(edition)) * 2
    assert [edition] == await landings.find_or_begin_log_editions(ROUTE, 10**9)
    assert [edition] == await landings.find_or_begin_log_editions("other/ai-telemetry", 5)


async def test_a_copy_begins_another_edition(closed_storage: Storage, options: StorageOptions) -> None:
    """
    A restored copy begins another edition: numbers without a delivery get a new edition, and existing deliveries
    keep theirs.
    """
    if options.storage.engine == "memory":
        pytest.skip("nothing is restored into memory")
    storage = closed_storage
    delivery = await one_due(storage)
    landings = storage.small.open_table(LANDINGS)
    (before,) = await landings.find_or_begin_log_editions(ROUTE, delivery.first)
    after = await landings.begin_log_edition()
    assert [before] == await landings.find_or_begin_log_editions(ROUTE, delivery.first)
    assert [after, before] == await landings.find_or_begin_log_editions(ROUTE, delivery.last + 1)
    assert [after] == await landings.find_or_begin_log_editions("other/ai-telemetry", 1)
    # This edition begins after the restore of a backup that is older than all deliveries.
    again = await landings.begin_log_edition()
    assert [again, before, after] == await landings.find_or_begin_log_editions(ROUTE, delivery.last + 1)
    assert [before, after] == await landings.find_or_begin_log_editions(ROUTE, delivery.first)


async def test_a_lake_gets_nothing_again(closed_storage: Storage) -> None:
    storage = closed_storage
    delivery = await one_due(storage)
    await storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, delivery.first)
    with pytest.raises(NotAllowed, match="lake"):
        await storage.deliveries.replay_records(ROUTE, since=0.0, until=10.0**10, dry_run=False)


async def test_a_dropped_route_forgets_its_manifests(closed_storage: Storage) -> None:
    """A dropped route leaves no manifests, so another route may use its name."""
    storage = closed_storage
    delivery = await one_due(storage)
    await storage.deliveries.store_settlement(delivery, Settlement(delivered=2, landing=landing(delivery)))
    await storage.deliveries.set_routes([])
    await storage.deliveries.delete_route_and_count_discarded(ROUTE)
    assert [] == await storage.small.open_table(LANDINGS).landed_counts_by_route()
