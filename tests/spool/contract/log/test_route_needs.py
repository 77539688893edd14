"""Routes prevent the deletion of entries that they need, except optional routes, which skip them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from spool.deliveries.rules import NOBODY_NEEDS
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.postgres.deliveries.deliveries import PostgresDeliveries
from spool.postgres.deliveries.delivery_rows import PostgresRoutes
from spool.record import AI_TELEMETRY, USAGE_EVENTS
from spool.sqlite.deliveries.deliveries import SqliteDeliveries
from spool.sqlite.deliveries.delivery_rows import (
    lowest_number_needed_by_routes,
    skip_records_on_optional_routes,
)
from tests.exporters.spools import Spooled, calls

REQUIRED = RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)
OPTIONAL = RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY, required=False)


@dataclass
class Needs:
    """The queries that the log makes to the deliveries, with the deliveries of one engine."""

    spooled: Spooled
    lowest_needed: Callable[[str], Awaitable[int | None]]
    skip_below: Callable[[str, int], Awaitable[int]]


@pytest.fixture
async def needs(spooled: Spooled) -> Needs:
    await spooled.add(calls(1, 20))
    deliveries = spooled.deliveries
    if isinstance(deliveries, SqliteDeliveries):
        database = deliveries._database

        async def needed(topic: str) -> int | None:
            return await database.transaction(
                lambda connection: lowest_number_needed_by_routes(connection, topic)
            )

        async def skip(topic: str, number: int) -> int:
            return await database.transaction(
                lambda connection: skip_records_on_optional_routes(connection, topic, number)
            )

    else:
        assert isinstance(deliveries, PostgresDeliveries)
        shared, routes = deliveries._database, PostgresRoutes(deliveries._database)

        async def needed(topic: str) -> int | None:
            return await shared.transaction(
                lambda connection: routes.lowest_number_needed_by_routes(connection, topic)
            )

        async def skip(topic: str, number: int) -> int:
            skipped = await shared.transaction(
                lambda connection: routes.skip_records_on_optional_routes(connection, {topic: number})
            )
            return skipped[topic]

    return Needs(spooled, needed, skip)


async def taken(needs: Needs, spec: RouteSpec, max_records: int) -> Delivery:
    delivery = await needs.spooled.deliveries.take_due_delivery(spec.name, now=0, max_records=max_records)
    assert delivery is not None
    return delivery


async def test_a_topic_without_a_route_is_distinguished(needs: Needs) -> None:
    """
    If a topic has no route, the result is None. If all routes of a topic may skip entries, the topic needs none.
    """
    assert None is await needs.lowest_needed(AI_TELEMETRY)
    await needs.spooled.deliveries.set_routes([OPTIONAL])
    assert [NOBODY_NEEDS, None] == [
        await needs.lowest_needed(AI_TELEMETRY),
        await needs.lowest_needed(USAGE_EVENTS),
    ]


@pytest.mark.one_engine
async def test_the_lowest_open_number_of_a_required_route_is_needed(needs: Needs) -> None:
    """Open deliveries count and settled ones do not. An orphaned route still needs its queue."""
    await needs.spooled.deliveries.set_routes([REQUIRED, OPTIONAL])
    assert 1 == await needs.lowest_needed(AI_TELEMETRY)
    first, second = await taken(needs, REQUIRED, 5), await taken(needs, REQUIRED, 5)
    await needs.spooled.deliveries.store_settlement(first, Settlement(delivered=5))
    assert 6 == await needs.lowest_needed(AI_TELEMETRY)
    await needs.spooled.deliveries.store_settlement(second, Settlement(delivered=5))
    await needs.spooled.deliveries.set_routes([])
    assert 11 == await needs.lowest_needed(AI_TELEMETRY)


async def test_a_dead_letter_needs_no_entry(needs: Needs) -> None:
    """A dead letter stores its record itself, also for a retry."""
    await needs.spooled.deliveries.set_routes([REQUIRED])
    await needs.spooled.deliveries.set_aside(await taken(needs, REQUIRED, 1), error="400", status="400")
    (letter,) = await needs.spooled.deliveries.dead_letters()
    assert 1 == await needs.spooled.deliveries.retry_dead_letters([letter.id])
    assert 2 == await needs.lowest_needed(AI_TELEMETRY)


async def test_only_optional_routes_skip(needs: Needs) -> None:
    """
    Numbers that an optional route loses count as skipped, within deliveries and beyond. A required
    route keeps all.
    """
    await needs.spooled.deliveries.set_routes([REQUIRED, OPTIONAL])
    settled, waiting, straddling = [await taken(needs, OPTIONAL, 5) for _ in range(3)]
    await needs.spooled.deliveries.store_settlement(settled, Settlement(delivered=5))
    for delivery in (waiting, straddling):
        await needs.spooled.deliveries.schedule_retry(delivery, reason="503", not_before=0)
    assert 8 == await needs.skip_below(AI_TELEMETRY, 14)
    assert {"delivered": 5, "skipped": 8, "queued": 7} == await needs.spooled.terms(OPTIONAL.name)
    assert {"queued": 20} == await needs.spooled.terms(REQUIRED.name)
    rest = await taken(needs, OPTIONAL, 5)
    assert rest.first == 14
    assert rest.last == 15
    assert rest.idempotency_key != straddling.idempotency_key


async def test_what_was_skipped_in_mid_air_is_counted_once(needs: Needs) -> None:
    """The answer to a delivery that was skipped while in flight changes nothing."""
    await needs.spooled.deliveries.set_routes([OPTIONAL])
    delivery = await taken(needs, OPTIONAL, 10)
    assert 20 == await needs.skip_below(AI_TELEMETRY, 21)
    await needs.spooled.deliveries.store_settlement(delivery, Settlement(delivered=10))
    assert {"skipped": 20} == await needs.spooled.terms(OPTIONAL.name)
