"""
Unit-cost operations sent upstream: the service never sums twice, and another Tollhouse gets everything once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from exporters.destinations.catalogue import build_routes
from exporters.destinations.upstream import UpstreamContext
from exporters.forwarder import RouteForwarder
from exporters.pace import Backoff
from exporters.service.billing_drops import ConnectionLocks
from exporters.settings import EventStream, UpstreamKey, UpstreamSettings
from spool.clock import SystemClock
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import NS, HourlyBillingFile, Record, UnitCostOperation, UsageEvent
from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool, open_spool
from tests.exporters.spools import record_id
from tests.exporters.upstream import FakeUpstream, Received, Reply
from tests.waiting import until

SECRET = "upstream-secret-1"
SCOPES = (
    "unit-cost_v1:manage_telemetry_records",
    "unit-cost_v1:delete_telemetry_stream",
    "events_v1:create_event",
    "connections:create_billing_external_billing_drop",
)
NOW = 1_790_000_000
ROUTE = "upstream/unit-cost"


def operation(n: int, **changes: Any) -> UnitCostOperation:
    said: dict[str, Any] = {
        "stream": "calls",
        "stream_type": "allocation",
        "operation": "sum",
        "start_time": 4_000_000_000 * NS,
        "granularity": "HOURLY",
        "element_name": "acme",
        "value": "1",
        **changes,
    }
    return UnitCostOperation(id=record_id(n), **said)


@dataclass
class UnitCostSite:
    spool: SqliteSpool
    upstream: FakeUpstream
    settings: UpstreamSettings

    async def add(self, *records: Record) -> None:
        await self.spool.log.append_submission(
            Submission(
                topic=records[0].topic,
                received=len(records),
                records=records,
                identities=[RecordIdentity(record.id) for record in records],
            )
        )

    @asynccontextmanager
    async def forwarding(
        self, *, single_writer: frozenset[str] = frozenset(), **changes: Any
    ) -> AsyncIterator[RouteForwarder]:
        spool, clock = self.spool, SystemClock()
        context = UpstreamContext(
            log=spool.log,
            streams=spool.streams,
            learn=spool.book.learn_streams,
            locks=ConnectionLocks(),
            id_upstream=lambda drop: drop.upstream_id or drop.connection_id,
            single_writer=single_writer,
        )
        configs = build_routes(replace(self.settings, **changes), [], clock=clock, context=context)
        quick = [replace(config, backoff=Backoff(first_s=0.01, most_s=0.05)) for config in configs]
        routes = RouteForwarder(spool.deliveries, spool.log, clock, quick)
        await routes.start()
        try:
            yield routes
        finally:
            await routes.stop()

    async def terms(self, route: str = ROUTE) -> dict[str, int]:
        books = await self.spool.log.books()
        assert [] == list(books.imbalances)
        return {term: n for term, n in books.routes[route].items() if n}

    async def until(self, expected: dict[str, int], route: str = ROUTE) -> None:
        async def reached() -> bool:
            return await self.terms(route) == expected

        await until(reached, f"{route} with {expected}")


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[UnitCostSite]:
    secret = tmp_path / "upstream.key"
    secret.write_text(SECRET)
    spool = await open_spool(tmp_path / "data", settings=SpoolSettings(hold=0), clock=SystemClock())
    async with FakeUpstream() as upstream:
        settings = UpstreamSettings(
            base_url=upstream.url,
            timeout=30,
            keys=(UpstreamKey(name="topics", secret_file=secret, scopes=SCOPES),),
        )
        yield UnitCostSite(spool, upstream, settings)
    await spool.close()


def sent(request: Received) -> tuple[str, list[Any]]:
    """Return the last part of the address, and the values with their elements."""
    records = orjson.loads(request.body)["records"]
    return request.path.rpartition("/")[2], [
        (each.get("element_name"), each.get("value")) for each in records
    ]


async def test_operations_leave_in_order_and_by_shape(site: UnitCostSite) -> None:
    """Records with the same stream, keys and granularity share a request. The order of operations is kept."""
    await site.add(operation(1), operation(2, element_name="b"))
    await site.add(operation(3, operation="replace", value="9"), operation(4, operation="delete", value=None))
    await site.add(operation(5, dimensions={"Region": ["eu"]}, stream="other", value="0.5"))
    async with site.forwarding():
        await site.until({"delivered": 5})
    assert [
        ("sum", [("acme", 1), ("b", 1)]),
        ("replace", [("acme", 9)]),
        ("delete", [("acme", None)]),
        ("sum", [("acme", 0.5)]),
    ] == [sent(request) for request in site.upstream.requests]
    assert "/unit-cost/v1/telemetry/allocation/other/sum" == site.upstream.requests[-1].path


@pytest.mark.parametrize("reply", [Reply(drop=True), Reply(502), Reply(500)])
async def test_a_sum_without_a_clear_answer_is_never_sent_twice(site: UnitCostSite, reply: Reply) -> None:
    """
    A sum without a clear answer is never sent twice, because the upstream may have accepted it. It is listed with
    its exact record, and later operations continue.
    """
    site.upstream.answers.append(reply)
    await site.add(operation(1, value="12.5"))
    async with site.forwarding():
        await site.until({"unknown": 1})
        await site.add(operation(2))
        await site.until({"unknown": 1, "delivered": 1})
    async with site.forwarding():  # start again; a restart must not change the counts
        await site.until({"unknown": 1, "delivered": 1})
    assert 2 == len(site.upstream.requests)
    (unknown,) = await site.spool.deliveries.deliveries_with_unknown_outcome()
    assert unknown.route == ROUTE
    assert unknown.first == 1
    assert unknown.last == 1


async def test_sum_without_an_answer_is_never_sent_twice(site: UnitCostSite) -> None:
    """If the upstream never answers a sum, `upstream.timeout` ends the wait, and the sum is not sent again."""
    site.upstream.answers.append(Reply(delay_s=60))
    await site.add(operation(1))
    async with site.forwarding(timeout=1.0):  # a request must arrive within one second
        await site.until({"unknown": 1})
    await site.add(operation(2))
    async with site.forwarding():
        await site.until({"unknown": 1, "delivered": 1})
    assert 2 == len(site.upstream.requests)


async def test_an_operator_settles_what_is_unknown(site: UnitCostSite) -> None:
    """
    An operator settles a sum whose outcome is unknown: `sent` counts it as delivered without a request, and
    `unsent` sends it once more.
    """
    site.upstream.answers.extend([Reply(drop=True), Reply(drop=True)])
    await site.add(operation(1, stream="a"), operation(2, stream="b"))
    async with site.forwarding() as routes:
        await site.until({"unknown": 2})
        first, second = await site.spool.deliveries.deliveries_with_unknown_outcome()
        await site.spool.deliveries.settle_unknown(first.id, sent=True)
        await site.until({"unknown": 1, "delivered": 1})
        assert 2 == len(site.upstream.requests)
        await site.spool.deliveries.settle_unknown(second.id, sent=False)
        routes.retry_now()
        await site.until({"delivered": 2})
    assert ["a", "b", "b"] == [request.path.split("/")[5] for request in site.upstream.requests]


async def test_a_sum_cut_off_by_a_stop_is_unknown_after_it(site: UnitCostSite) -> None:
    """If a stop of the server interrupts the sending of a sum, the outcome of this sum is unknown afterwards."""
    site.upstream.answers.append(Reply(delay_s=60))
    await site.add(operation(1))
    async with site.forwarding():
        await site.upstream.until(lambda: len(site.upstream.requests) == 1)
    async with site.forwarding():
        await site.until({"unknown": 1})
    assert 1 == len(site.upstream.requests)


@pytest.mark.parametrize("status", [503, 429])
async def test_a_sum_that_was_turned_away_is_sent_again(site: UnitCostSite, status: int) -> None:
    """A 429 and a 503 say that nothing was done, so the sum is sent again."""
    site.upstream.answers.append(Reply(status))
    await site.add(operation(1))
    async with site.forwarding():
        await site.until({"delivered": 1})
    assert 2 == len(site.upstream.requests)


async def test_totals_of_a_single_writer_may_be_repeated(site: UnitCostSite) -> None:
    """
    If one writer owns the stream, its sums are sent as `replace` with their total. So a repeat after no
    answer is safe.
    """
    site.upstream.answers.append(Reply(drop=True))
    for n in range(1, 6):
        await site.add(operation(n, value=str(n)), operation(n + 100, element_name="b", value="0.1"))
    async with site.forwarding(single_writer=frozenset({"calls"})):
        await site.until({"delivered": 10})
    assert ("replace", [("acme", 15), ("b", 0.5)]) == sent(site.upstream.requests[-1])
    assert {"replace"} == {sent(request)[0] for request in site.upstream.requests}


async def test_a_record_with_a_history_elsewhere_is_not_replaced(site: UnitCostSite) -> None:
    """
    A period from before this data directory may be partly upstream already, so its sums are sent as sums.
    """
    await site.add(operation(1, start_time=NOW * NS, value="3"))
    async with site.forwarding(single_writer=frozenset({"calls"})):
        await site.until({"delivered": 1})
    assert [("sum", [("acme", 3)])] == [sent(request) for request in site.upstream.requests]


async def test_a_refused_record_is_found_and_set_aside(site: UnitCostSite) -> None:
    """
    If the upstream rejects a request of several operations with 400, the bad record is found and set aside, and the
    others arrive once.
    """

    def judge(request: Received) -> Reply | None:
        return Reply(400, b'{"message": "no"}') if b"poison" in request.body else None

    site.upstream.judge = judge
    await site.add(*(operation(n, element_name="poison" if n == 3 else f"e{n}") for n in range(8)))
    async with site.forwarding():
        await site.until({"delivered": 7, "dead": 1})
    taken = [element for request in site.upstream.accepted for element, _ in sent(request)[1]]
    assert sorted(f"e{n}" for n in range(8) if n != 3) == sorted(taken)


async def test_another_tollhouse_gets_ids_and_repeats(site: UnitCostSite) -> None:
    """
    Operations that are sent to another Tollhouse keep their ids, so a request without an answer can be repeated.
    """
    site.upstream.answers.append(Reply(drop=True))
    await site.add(operation(1), operation(2))
    async with site.forwarding(kind="tollhouse"):
        await site.until({"delivered": 2})
    first, second = (
        [each["tollhouse_id"] for each in orjson.loads(r.body)["records"]] for r in site.upstream.requests
    )
    assert [record_id(1).hex(), record_id(2).hex()] == first == second


# -- usage events --------------------------------------------------------------------------------------------


def event(n: int, **changes: Any) -> UsageEvent:
    return UsageEvent(
        id=record_id(n),
        **{"source": "/app", "event_id": str(n), "event_type": "api.call", "subject": "acme", "start_time": NOW * NS,
           **changes},
    )  # fmt: skip


async def test_events_travel_as_events_between_tollhouses(site: UnitCostSite) -> None:
    """Events are sent as a batch of CloudEvents with their own source and id."""
    await site.add(event(1, data={"tokens": 5}, tags={"region": "eu"}), event(2))
    async with site.forwarding(paths={"usage-events": "/v1/events"}):
        await site.until({"delivered": 2}, "upstream/usage-events")
    (request,) = site.upstream.requests
    first, second = orjson.loads(request.body)
    assert request.path == "/v1/events"
    assert request.headers["content-type"] == "application/cloudevents-batch+json"
    assert ("/app", "1", "api.call", {"tokens": 5}, "eu") == tuple(
        first[name] for name in ("source", "id", "type", "data", "region")
    )
    assert record_id(2).hex() == second["tollhouseid"]


async def test_mapped_events_become_sums_of_a_stream(site: UnitCostSite) -> None:
    """
    Events of a mapped type are summed into its stream and sent as unit cost. Others are unmapped and stay.
    """
    mapping = {"api.call": EventStream(stream="calls", granularity="HOURLY", value="data.count")}
    await site.add(
        event(1, data={"count": 2}), event(2, data={"count": 3}), event(3, event_type="else"), event(4)
    )
    await site.add(event(5, shadow=True))
    async with site.forwarding(events=mapping):
        await site.until({"delivered": 2, "unmapped": 2, "shadow": 1}, "upstream/usage-events")
        await site.until({"delivered": 2})
    (total,) = await site.spool.streams.stream_totals("calls")
    assert total.value == "5"
    assert total.element_name == "acme"
    assert [("sum", [("acme", 2), ("acme", 3)])] == [sent(request) for request in site.upstream.requests]


# -- billing drops -------------------------------------------------------------------------------------------


async def test_drops_leave_whole_and_in_order(site: UnitCostSite) -> None:
    """Each drop is one request with its original bytes. A drop that has to wait is not overtaken."""
    site.upstream.answers.extend([Reply(503), Reply(503)])
    bodies = [b'{"n":%d}' % n for n in range(4)]
    for n, body in enumerate(bodies):
        await site.add(HourlyBillingFile(id=record_id(n), connection_id="c-1", body=body))
    async with site.forwarding():
        await site.until({"delivered": 4}, "upstream/billing-data")
    assert bodies == [request.body for request in site.upstream.accepted]
    assert {"/v2/connections/billing/external/c-1/billing_drops"} == {
        one.path for one in site.upstream.requests
    }
