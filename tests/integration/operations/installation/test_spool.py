"""The operator API with records, rejected records and insights in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.identity import RecordIdentity
from spool.log.values import LogAccounting, LogEntry, Submission
from spool.record import AI_TELEMETRY, USAGE_EVENTS, UsageEvent, utc_iso
from tests.integration.operations.server import ADA, OperatorServer, operator_server
from tests.spool.contract.examples import add, call, submission

ROUTE = "archive/ai-telemetry"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    woken: list[str] = []

    async def wake(route: str) -> None:
        woken.append(route)

    async with operator_server(tmp_path, wake=wake) as server:
        server.woken = woken
        await server.services.spool.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
        yield server


async def due(server: OperatorServer) -> Delivery:
    delivery = await server.services.spool.deliveries.take_due_delivery(
        ROUTE, now=server.clock.now(), max_records=1
    )
    assert delivery is not None
    return delivery


async def bury(server: OperatorServer, count: int) -> None:
    """Add records that the upstream has rejected for good."""
    await add(server.services.spool.log, *[call(number) for number in range(count)])
    for _ in range(count):
        await server.services.spool.deliveries.set_aside(
            await due(server), error="no such model", status="400"
        )


async def test_status_shows_topics_routes_and_space(server: OperatorServer) -> None:
    """The status has topics, routes with state and reason, space, duplicate_window_s and native."""
    await add(server.services.spool.log, call(1), call(2))
    await server.services.spool.deliveries.set_route_state(ROUTE, "parked", "403: the key lacks the scope")
    status = (await server.ask("GET", "/status")).payload
    assert {"topics", "routes", "space", "duplicate_window_s", "native", "nodes", "lakes"} == set(status)
    words = {"on": False, "version": None, "words": "off: no server runs"}
    assert words == status["native"]
    assert [] == status["nodes"]  # the list is empty, because only one gateway uses the storage
    [topic] = status["topics"]
    assert topic["topic"] == AI_TELEMETRY
    assert topic["received"] == 2
    assert topic["accepted"] == 2
    # This field exists even without duplicates, so that scripts can rely on it.
    assert topic["duplicates"] == 0
    assert topic["pending"] == 0
    [route] = status["routes"]
    assert {
        "route",
        "state",
        "reason",
        "since",
        "progress",
        "queued",
        "oldest_age_s",
        "unknown",
        "ambiguous",
        "refused_24h",
        "refusal",
        "trouble",
    } == set(route)
    assert utc_iso(server.clock.now()) == route["since"]
    assert route["route"] == ROUTE
    assert route["state"] == "parked"
    assert route["reason"] == "403: the key lacks the scope"
    assert route["queued"] == 2


async def test_routes_are_a_list(server: OperatorServer) -> None:
    """The list of routes has the rows of the status in the usual envelope, and filters by state."""
    assert [ROUTE] == [row["route"] for row in (await server.ask("GET", "/routes")).payload["routes"]]
    assert [] == (await server.ask("GET", "/routes", state="parked")).payload["routes"]
    assert 400 == (await server.ask("GET", "/routes", state="asleep")).status


async def test_deliveries_are_a_list(server: OperatorServer) -> None:
    """
    The list of deliveries has open deliveries by route and state. Each route counts its unconfirmed deliveries.
    """
    await add(server.services.spool.log, call(1), call(2))
    await server.services.spool.deliveries.mark_outcome_unknown(await due(server), reason="no answer")
    later = server.clock.now() + 30
    await server.services.spool.deliveries.schedule_retry(await due(server), reason="503", not_before=later)
    unknown, waiting = (await server.ask("GET", "/deliveries")).payload["deliveries"]
    assert {"route": ROUTE, "first": 1, "last": 1, "state": "unknown", "attempts": 0, "not_before": None,
            "last_error": "no answer", "replay": False, "id": unknown["id"]} == unknown  # fmt: skip
    assert ("open", 1, "2026-09-21T14:13:50.000Z", "503") == tuple(
        waiting[name] for name in ("state", "attempts", "not_before", "last_error")
    )
    assert [waiting] == (await server.ask("GET", "/deliveries", state="open", route=ROUTE)).payload[
        "deliveries"
    ]
    assert [] == (await server.ask("GET", "/deliveries", route="other/ai-telemetry")).payload["deliveries"]
    assert 400 == (await server.ask("GET", "/deliveries", state="lost")).status
    assert 1 == (await server.ask("GET", "/status")).payload["routes"][0]["unknown"]


async def test_a_configured_route_is_not_dropped(server: OperatorServer) -> None:
    """
    Only a route without a configured destination is dropped. Its queue is counted as discarded, and the
    change is audited.
    """
    await add(server.services.spool.log, call(1), call(2))
    assert (409, "not_allowed") == (await server.ask("DELETE", f"/routes/{ROUTE}")).error[:2]
    await server.services.spool.deliveries.set_routes([])
    assert {"route": ROUTE, "discarded": 2} == (await server.ask("DELETE", f"/routes/{ROUTE}")).payload
    assert 404 == (await server.ask("DELETE", f"/routes/{ROUTE}")).status
    actions = [row["action"] for row in (await server.ask("GET", "/audit", target=ROUTE)).payload["audit"]]
    assert ["route.drop", "route.drop.failed", "route.drop"] == actions


async def test_a_route_tries_now(server: OperatorServer) -> None:
    """
    When an operator lets a route try now, only that route tries, and the audit names the actor. A route
    without a destination cannot try.
    """
    await server.services.spool.deliveries.set_route_state(ROUTE, "parked", "401: unknown key")
    answer = (await server.ask("POST", f"/routes/{ROUTE}/try", {})).payload
    assert {"route": ROUTE, "next": 1} == answer
    assert [ROUTE] == server.woken
    assert 404 == (await server.ask("POST", "/routes/nowhere/ai-telemetry/try", {})).status
    await server.services.spool.deliveries.set_routes([])
    assert (409, "not_allowed") == (await server.ask("POST", f"/routes/{ROUTE}/try", {})).error[:2]
    [row] = (await server.ask("GET", "/audit", target=ROUTE)).payload["audit"]
    assert row["action"] == "route.try"
    assert row["after"] == {"state": "parked"}
    assert [ROUTE] == server.woken


async def test_dead_letters_are_listed_with_the_upstreams_words(server: OperatorServer) -> None:
    """
    A rejected record in the list has id, route, number, record_id, error, status and at. The error
    quotes the upstream.
    """
    await bury(server, 1)
    [row] = (await server.ask("GET", "/dead")).payload["dead"]
    assert {"id", "route", "number", "record_id", "error", "status", "at"} == set(row)
    record, known_as = call(0)
    assert row["route"] == ROUTE
    assert row["number"] == 1
    assert known_as.id.hex() == row["record_id"]
    assert row["error"] == "no such model"
    assert row["status"] == "400"
    assert row["at"] == "2026-09-21T14:13:20.000Z"
    shown = (await server.ask("GET", f"/dead/{row['id']}")).payload["dead"]
    assert record.input_tokens == shown["record"]["input_tokens"]


async def test_dead_letters_are_retried_by_id(server: OperatorServer) -> None:
    """Rejected records that are retried by id leave the list, and their route wakes up."""
    await bury(server, 3)
    ids = [row["id"] for row in (await server.ask("GET", "/dead")).payload["dead"]]
    assert {"retried": 2} == (await server.ask("POST", "/dead/retry", {"ids": ids[:2]})).payload
    assert ids[2:] == [row["id"] for row in (await server.ask("GET", "/dead")).payload["dead"]]
    assert [ROUTE] == server.woken
    assert 1 == (await due(server)).count


async def test_dead_letters_are_discarded_by_route(server: OperatorServer) -> None:
    """All rejected records of a route can be discarded together. They are counted as discarded."""
    await bury(server, 3)
    assert {"discarded": 0} == (
        await server.ask("POST", "/dead/discard", {"route": "other/ai-telemetry"})
    ).payload
    assert {"discarded": 3} == (await server.ask("POST", "/dead/discard", {"route": ROUTE})).payload
    assert 3 == (await server.ask("GET", "/books")).payload["routes"][ROUTE]["discarded"]


UNNAMED: Sequence[object] = [{}, {"ids": [1], "all": True}, {"route": ROUTE, "all": True}]


async def test_dead_letters_are_named_in_one_way(server: OperatorServer) -> None:
    """
    Rejected records are chosen by ids, by route, or all. Combinations are refused, so that nothing is
    discarded by mistake.
    """
    for body in UNNAMED:
        assert (400, "invalid") == (await server.ask("POST", "/dead/discard", body)).error[:2], body


async def test_an_unknown_dead_letter_changes_nothing(server: OperatorServer) -> None:
    """If one of the given ids of rejected records is unknown, no record is changed."""
    await bury(server, 1)
    [row] = (await server.ask("GET", "/dead")).payload["dead"]
    assert 404 == (await server.ask("POST", "/dead/discard", {"ids": [row["id"], 999]})).status
    assert 1 == (await server.ask("GET", "/dead")).payload["pagination"]["total_count"]


async def test_replay_counts_first_and_then_sends(server: OperatorServer) -> None:
    """
    A dry run of a replay counts the records and changes nothing. A real run creates new deliveries and is audited.
    """
    await add(server.services.spool.log, call(1), call(2))
    for _ in range(2):
        await server.services.spool.deliveries.store_settlement(await due(server), Settlement(delivered=1))
    body = {"route": ROUTE, "since": "2026-09-21T14:00:00Z", "until": "2026-09-21T15:00:00+00:00"}
    dry = (await server.ask("POST", "/replay", {**body, "dry_run": True})).payload["replay"]
    assert dry["records"] == 2
    assert dry["dry_run"] is True
    assert (
        await server.services.spool.deliveries.take_due_delivery(
            ROUTE, now=server.clock.now(), max_records=10
        )
        is None
    )
    assert 2 == (await server.ask("POST", "/replay", body)).payload["replay"]["records"]
    assert (await due(server)).replay
    [row] = (await server.ask("GET", "/audit", action="route.replay")).payload["audit"]
    assert row["target"] == ROUTE
    assert row["after"]["since"] == "2026-09-21T14:00:00.000Z"


NO_RANGES: Sequence[tuple[str, str | None]] = [
    ("yesterday", None),
    ("2026-09-21T14:00:00", None),
    ("2026-09-21T14:00:00Z", "2026-09-21T13:00:00Z"),
    ("0001-01-01T00:00:00+14:00", None),
    ("2026-09-21T14:00:00Z", "9999-12-31T23:59:59-14:00"),
]


async def test_replay_needs_a_time_range(server: OperatorServer) -> None:
    """The time range of a replay needs RFC 3339 times with a zone and valid dates, and `since` before `until`."""
    for since, until in NO_RANGES:
        assert (
            400
            == (await server.ask("POST", "/replay", {"route": ROUTE, "since": since, "until": until})).status
        ), (since, until)


async def test_receipt_shows_the_operator_how_many_records_were_new(server: OperatorServer) -> None:
    """With the number of a receipt, the operator sees how many of its records were new. Senders do not see this."""
    receipt = await add(server.services.spool.log, call(1), call(2))
    again = await add(server.services.spool.log, call(2), call(3))
    first = (await server.ask("GET", f"/receipts/{receipt.id}")).payload["receipt"]
    second = (await server.ask("GET", f"/receipts/{again.id}")).payload["receipt"]
    assert first["new"] == 2
    assert first["duplicates"] == 0
    assert second["new"] == 1
    assert second["duplicates"] == 1
    assert "2026-09-21T14:13:20.000Z" == first["at"]
    assert 404 == (await server.ask("GET", "/receipts/forged")).status


async def test_unrecognised_shapes_are_listed(server: OperatorServer) -> None:
    """Entries of unrecognized data have the names, a count and the last time, newest first."""
    shape = ("gen_ai.strange", "llm.odd")
    await server.services.spool.log.append_submission(
        submission([], ignored={"unrecognised": 1}, unrecognised=[shape])
    )
    [row] = (await server.ask("GET", "/ignored")).payload["ignored"]
    assert list(shape) == row["names"]
    assert row["count"] == 1
    assert row["last_seen"] == "2026-09-21T14:13:20.000Z"
    assert 1 == (await server.ask("GET", "/ignored", name="llm.odd")).payload["pagination"]["total_count"]


async def test_a_record_is_shown_with_its_corrections(server: OperatorServer) -> None:
    """
    Corrections are listed oldest first, with the total cost of the call. A correction can also be shown by
    its own id.
    """
    log = server.services.spool.log
    await add(log, call(1, estimated_cost="0.2", cost_source="estimated", output_tokens=None))
    await add(log, call(1))
    await add(log, call(1, cost="0.25", cost_source="reported"))
    shown = (await server.ask("GET", f"/records/{call(1)[1].id.hex()}")).payload
    assert shown["record"]["estimated_cost"] == "0.2"
    assert shown["record"]["output_tokens"] is None
    assert shown["corrected_cost"] == "0.25"
    assert [("0", 10), ("0.05", 0)] == [(one["cost"], one["output_tokens"]) for one in shown["corrections"]]
    newest = (await server.ask("GET", f"/records/{shown['corrections'][-1]['id']}")).payload
    assert newest["record"]["kind"] == "correction"
    assert newest["price_lines"] == []


async def test_second_record_of_a_call_names_the_counted_one(server: OperatorServer) -> None:
    """A record of the same call as an earlier one costs nothing any more, and the reasons name the other record."""
    log, names = server.services.spool.log, (b"one name........", b"another name....")
    priced: dict[str, Any] = {"cost": "0.25", "cost_source": "reported"}
    reports = [call(1, **priced), call(2, **priced), call(3)]
    for (record, known_as), also in zip(reports, (names[:1], names[1:], names), strict=True):
        await add(log, (record, known_as._replace(also=also)))
    first, gone = (reports[place][0].id.hex() for place in (0, 1))
    shown = (await server.ask("GET", f"/records/{gone}")).payload
    assert [("same_call", first, "-0.25", -100)] == [
        (one["reason"], one["counted_by"], one["cost"], one["input_tokens"]) for one in shown["corrections"]
    ]
    assert shown["corrected_cost"] == "0"
    assert first in shown["why"]["corrections"]
    newest = (await server.ask("GET", f"/records/{shown['corrections'][0]['id']}")).payload
    assert first in newest["why"]["reason"]
    assert "corrections" not in (await server.ask("GET", f"/records/{first}")).payload


async def test_a_record_on_file_is_explained(server: OperatorServer) -> None:
    """
    The explanation of a record says what is stored, why, where it waits and what is not stored. It covers
    only this record. An unknown id is an error.
    """
    record, known_as = call(2, cost="0.25", cost_source="reported", estimated_cost="9", price_book="old")
    await add(server.services.spool.log, call(1), (record, known_as))
    await server.services.spool.deliveries.set_aside(await due(server), error="no", status="400")
    await server.services.spool.deliveries.mark_outcome_unknown(await due(server), reason="no answer")
    shown = (await server.ask("GET", f"/records/{known_as.id.hex().upper()}")).payload
    assert shown["topic"] == AI_TELEMETRY
    assert shown["number"] == 2
    assert shown["record"]["cost"] == "0.25"
    assert shown["dead"] == []
    assert [("unknown", "no answer")] == [(each["state"], each["last_error"]) for each in shown["deliveries"]]
    assert shown["why"]["cost"] == f"reported by {record.source}"
    assert shown["why"]["cost_source"] == "the reported cost counts"
    assert shown["why"]["estimated_cost"].startswith(
        "calculated from its tokens with the price list old; today's price list gives"
    )
    assert shown["not_stored"]
    assert "recognized by an id that is not stored, or that another Tollhouse assigned" == shown["why"]["id"]
    assert [] == shown["price_lines"]
    first = (await server.ask("GET", f"/records/{call(1)[1].id.hex()}")).payload
    assert [each["route"] for each in first["dead"]] == [ROUTE]
    assert first["deliveries"] == []
    on_route = [{"route": ROUTE, "state": "dead", "last_error": "no"}]
    assert first["routes"] == on_route
    assert shown["routes"][0]["state"] == "unknown"
    assert (404, "not_found") == (await server.ask("GET", f"/records/{'0' * 32}")).error[:2]
    assert (400, "invalid") == (await server.ask("GET", "/records/none")).error[:2]


@pytest.mark.proof
async def test_a_record_on_file_is_found_without_reading_the_log(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The duplicate window knows the record's number or its approximate time. An id outside the window is
    searched in one day.
    """
    log = server.services.spool.log
    for hour in range(40):
        await add(log, *[call(hour * 1000 + number, at=server.clock.now()) for number in range(1000)])
        server.clock.move(3600)
    read: list[int] = []
    whole = log.read

    async def counted(topic: str, first: int, last: int, **options: Any) -> Sequence[LogEntry]:
        read.append(max(0, last - first + 1))
        return await whole(topic, first, last, **options)

    monkeypatch.setattr(log, "read", counted)
    for number, most in ((39_500, 1), (20_000, 1), (3_500, 20_000), (10, 20_000)):
        read.clear()
        shown = (await server.ask("GET", f"/records/{call(number)[1].id.hex()}")).payload
        assert number + 1 == shown["number"]
        assert sum(read) <= most, number
    read.clear()
    refused = await server.ask("GET", f"/records/{'0' * 32}")
    assert 404 == refused.status and sum(read) <= 26_000
    assert "since 2026-09-22T06:13:20.000Z" in refused.error[2]
    read.clear()
    assert 404 == (await server.ask("GET", f"/records/{'0' * 32}", since="2026-09-01")).status
    assert sum(read) >= 40_000


async def test_records_that_count_twice_are_in_the_answer(tmp_path: Path) -> None:
    """Records that count twice are listed by topic, with a sentence next to other imbalances."""
    async with operator_server(tmp_path) as server:
        log = server.services.spool.log
        await add(log, call(1), call(2))
        assert {} == (await server.ask("GET", "/verify")).payload["accepted_twice"]
        record, known_as = call(2)
        await add(log, (record, known_as._replace(certain=False)))
        answer = (await server.ask("GET", "/verify")).payload
        assert {"ai-telemetry": {"records": 1, "numbers": [3]}} == answer["accepted_twice"]
        [sentence] = answer["imbalances"]
        assert sentence.startswith("ai-telemetry: records that count twice")
        assert "known: 1 (numbers 3)" in sentence


async def test_types_of_usage_events_are_listed(tmp_path: Path) -> None:
    """
    The list of usage event types states for each type its count, its last time and how it is sent. Types that are
    not sent can be filtered.
    """
    mapped = {"api_call": "unit-cost stream calls"}

    def is_unmapped(type: str) -> bool:
        return type not in mapped

    async with operator_server(tmp_path, events_sent_as=mapped.get, is_unmapped=is_unmapped) as server:
        for number, type in enumerate(("api_call", "api_call", "login")):
            event = UsageEvent(id=number.to_bytes(16), source="app", event_type=type)
            kept = Submission(
                topic=USAGE_EVENTS,
                received=1,
                records=[event],
                identities=[RecordIdentity(event.id)],
                amount_of=lambda event: Decimal("0.10") if event.event_type in mapped else None,
            )
            await server.services.spool.log.append_submission(kept)
        api_call, login = (await server.ask("GET", "/event-types")).payload["event_types"]
        assert {
            "type": "api_call", "count": 2, "amount": "0.2", "last_seen": "2026-09-21T14:13:20.000Z",
            "sent_as": "unit-cost stream calls", "unmapped": False,
        } == api_call  # fmt: skip
        assert login["type"] == "login"
        assert login["count"] == 1
        assert login["sent_as"] is None
        assert login["unmapped"] is True
        assert None is login["amount"]
        await server.ask("POST", "/insights/run", {})
        [insight] = (await server.ask("GET", "/insights")).payload["insights"]
        assert "1 usage events of the type login have no stream" == insight["title"]
        assert [login] == (await server.ask("GET", "/event-types", sent="no")).payload["event_types"]


async def test_conflicts_are_listed_with_both_sums(server: OperatorServer) -> None:
    """Reports of one call that disagree are listed by pair of sources."""
    await add(server.services.spool.log, call(1, source="gateway"))
    await add(server.services.spool.log, call(1, source="sdk", input_tokens=999))
    [row] = (await server.ask("GET", "/conflicts")).payload["conflicts"]
    assert row["first_source"] == "gateway"
    assert row["second_source"] == "sdk"
    assert row["count"] == 1
    assert row["first"]["input_tokens"] == 100
    assert row["second"]["input_tokens"] == 999


async def test_partial_refusals_are_listed(server: OperatorServer) -> None:
    """
    The list of partial refusals has the record range and the message of each refusal in an accepting answer.
    """
    await add(server.services.spool.log, call(1))
    await server.services.spool.deliveries.store_settlement(
        await due(server), Settlement(delivered=0, refused=1, words="too old")
    )
    [row] = (await server.ask("GET", "/partial-refusals", route=ROUTE)).payload["partial_refusals"]
    assert row["route"] == ROUTE
    assert row["first"] == 1
    assert row["last"] == 1
    assert row["count"] == 1
    assert row["words"] == "too old"


async def test_accounting_balances(server: OperatorServer) -> None:
    """The running and the recounted accounting balance for each topic and route."""
    await bury(server, 2)
    for path in ("/books", "/verify"):
        books = (await server.ask("GET", path)).payload
        assert books["balanced"] is True
        assert books["imbalances"] == []
        assert books["routes"][ROUTE]["dead"] == 2


async def test_accounting_is_recounted_for_one_request_at_a_time(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The accounting is recounted for one request at a time. Meanwhile the same person's other requests are answered.
    """
    await bury(server, 1)
    log, verify = server.services.spool.log, server.services.spool.log.verify
    at_work, most = 0, 0
    begun, end = asyncio.Event(), asyncio.Event()

    async def slowly() -> LogAccounting:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        begun.set()
        await end.wait()
        at_work -= 1
        return await verify()

    monkeypatch.setattr(log, "verify", slowly)
    people = (ADA, ADA, "bob@example.com")
    asked = [asyncio.create_task(server.ask("GET", "/verify", by=person)) for person in people]
    await begun.wait()
    assert 200 == (await server.ask("GET", "/report")).status
    end.set()
    assert [True] * 3 == [answer.payload["balanced"] for answer in await asyncio.gather(*asked)]
    assert 1 == most
