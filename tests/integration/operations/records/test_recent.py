"""The newest records over the operator API: as a list, and live."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.operations.records import filters, listing, tail
from gateway.operations.records import published as records
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import BILLING_DATA, NS, USAGE_EVENTS, HourlyBillingFile, UsageEvent
from tests.integration.operations.server import OperatorServer, operator_server
from tests.integration.operations.streams import listening, signed_in
from tests.spool.contract.examples import add, call

DAY_S = 86400


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, hold=10) as server:
        yield server


async def numbers(server: OperatorServer, **query: str) -> list[int]:
    answer = await server.ask("GET", "/records", **query)
    assert 200 == answer.status, answer.payload
    return [row["number"] for row in answer.payload["records"]]


async def test_the_newest_come_first_and_open_ones_are_among_them(server: OperatorServer) -> None:
    """
    The newest records come first, including open ones. Each entry has its number, its state and every field
    of its record.
    """
    await add(server.services.spool.log, call(1, cost="0.25", cost_source="reported"))
    server.clock.move(11)
    await add(server.services.spool.log, call(2))
    newest, oldest = (await server.ask("GET", "/records")).payload["records"]
    assert newest["number"] == 2
    assert newest["state"] == "open"
    assert oldest["number"] == 1
    assert oldest["state"] == "closed"
    assert oldest["topic"] == "ai-telemetry"
    assert oldest["kind"] == "inference"
    assert oldest["cost"] == "0.25"
    assert [1, 2] == await numbers(server, sort_key="number", sort_order="asc")
    assert [1] == await numbers(server, state="closed")


async def test_records_are_filtered(server: OperatorServer) -> None:
    """Filters have the names of cost dimensions. An empty value means unknown."""
    await add(
        server.services.spool.log,
        call(1, request_model="gpt-5", response_model="gpt-5-2026", team="search", status="error"),
        call(2, request_model="gpt-5", team="ads", session="s-1"),
    )
    assert [1] == await numbers(server, model="gpt-5-2026")
    assert [2, 1] == await numbers(server, request_model="gpt-5")
    assert [1] == await numbers(server, team="search", status="error")
    assert [2] == await numbers(server, session="s-1")
    assert [] == await numbers(server, kind="usage_event")
    assert [2, 1] == await numbers(server, user="")
    assert 400 == (await server.ask("GET", "/records", prompt="x")).status


async def test_records_of_a_view(server: OperatorServer) -> None:
    """
    The view's filter applies to the list, its pages and the stream, including tags and unknown values. An
    unknown view is refused.
    """
    server.services.money.ledger.tags = ("service",)
    tests = call(2, team="search", tags={"service": "tests"})
    await add(server.services.spool.log, call(1, team="search"), tests, call(3, team="ads"), call(4))
    filter = {"team": ["search", None], "!tag:service": ["tests"]}
    made = await server.ask(
        "POST", "/views", {"name": "Ours", "filter": filter, "principal_dimension": "team"}
    )
    assert [4, 1] == await numbers(server, view="Ours")
    assert [1] == await numbers(server, view=made.payload["view"]["id"], team="search")
    first = (await server.ask("GET", "/records", view="Ours", limit="1")).payload
    assert first["pagination"]["total_count"] == 2
    assert [row["number"] for row in first["records"]] == [4]
    assert [1] == await numbers(server, cursor=first["pagination"]["cursor"]["next_cursor"])
    for path in ("/records", "/tail"):
        refused = await server.ask("GET", path, view="Theirs")
        assert refused.status == 400
        assert refused.payload["error"]["message"].startswith("view: ")
    async with listening(server.url, await signed_in(server), "/tail?view=Ours") as stream:
        await add(server.services.spool.log, call(5, team="ads"), call(6, team="search"))
        _, row = await stream.event()
        assert 6 == row["number"]


async def test_it_says_how_far_it_looked(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list searches the newest `LOOKED_THROUGH` records of all topics, and no more."""
    monkeypatch.setattr(records, "LOOKED_THROUGH", 2)
    await add(server.services.spool.log, call(1))
    server.clock.move(1)
    await add(server.services.spool.log, call(2), call(3))
    payload = (await server.ask("GET", "/records")).payload
    assert [3, 2] == [row["number"] for row in payload["records"]]
    since = payload["records"][0]["committed_at"]
    assert {"records": 2, "most": 2, "since": since, "until": None} == payload["looked_through"]


async def test_records_of_a_day_and_a_month(server: OperatorServer) -> None:
    """
    The call's start in UTC decides, not the time of the report. A record without a start belongs to the day
    on which it arrived.
    """
    log, clock = server.services.spool.log, server.clock
    clock.move(-clock.now() % DAY_S + 40 * DAY_S + 3600)  # set the clock to one hour after midnight
    today = clock.now() - 3600
    at = {
        name: int(today + hours * 3600) * NS for name, hours in (("late", -1), ("early", 0.5), ("ahead", 30))
    }
    await add(log, call(1, start_time=at["late"] - 40 * DAY_S * NS))
    await add(log, call(2, start_time=at["late"]), call(3, start_time=at["early"]), call(4, start_time=None))
    await add(log, call(5, start_time=at["ahead"]))  # a start time this far in the future is not believed
    clock.move(2 * DAY_S)
    await add(log, call(6, start_time=at["early"], region="eu"), call(7, start_time=int(clock.now()) * NS))
    day, before = filters.day_and_month(None, today)[0], filters.day_and_month(None, today - DAY_S)
    assert [6, 5, 4, 3] == await numbers(server, date=day)
    assert [2] == await numbers(server, date=before[0])
    assert [6] == await numbers(server, date=day, region="eu")
    assert [] == await numbers(server, date=day, topic=USAGE_EVENTS)
    both = await server.ask("GET", f"/records?date={day}&date={before[0]}")
    assert [6, 5, 4, 3, 2] == [row["number"] for row in both.payload["records"]]
    of_month = await numbers(server, date=day[:7])
    assert {3, 4, 5, 6} <= set(of_month)
    assert 1 not in of_month
    first = (await server.ask("GET", "/records", date=day, limit="2")).payload
    assert first["pagination"]["total_count"] == 4
    assert first["filtering"]["current"]["date"] == [day]
    assert [4, 3] == await numbers(server, cursor=first["pagination"]["cursor"]["next_cursor"])


NO_DATES: Sequence[str] = [
    "2026",
    "2026-13",
    "2026-02-30",
    "2026-1-1",
    "yesterday",
    "",
    "2026-11-20T00:00:00Z",
]


async def test_what_is_no_date_is_refused(server: OperatorServer) -> None:
    """A date in a wrong form gets an error that shows the right form."""
    for wrong in NO_DATES:
        for path in ("/records", "/tail"):
            refused = await server.ask("GET", path, date=wrong)
            assert refused.status == 400
            assert "2026-11" in refused.payload["error"]["message"]


async def test_records_of_a_day_are_found_despite_newer_ones(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Newer records do not hide a day. If more arrived than a list searches, the answer states until when it searched.
    """
    monkeypatch.setattr(records, "LOOKED_THROUGH", 4)
    monkeypatch.setattr(listing, "STEP", 2)
    log, clock = server.services.spool.log, server.clock
    start = int(clock.now())
    await add(log, *(call(n, start_time=start * NS) for n in range(1, 4)))
    clock.move(3 * DAY_S)
    for n in range(4, 10):
        await add(log, call(n, start_time=int(clock.now()) * NS))
        clock.move(60)
    day = filters.day_and_month(None, start)[0]
    assert [9, 8, 7, 6] == await numbers(server)
    answer = (await server.ask("GET", "/records", date=day)).payload
    assert [3, 2, 1] == [row["number"] for row in answer["records"]]
    assert answer["looked_through"]["records"] == 9
    assert answer["looked_through"]["until"] is None
    server.services.spool.max_listed_records = lambda: 5
    answer = (await server.ask("GET", "/records", date=day)).payload
    until = (await server.ask("GET", "/records", date=filters.day_and_month(None, clock.now())[0])).payload[
        "records"
    ]
    assert [3, 2, 1] == [row["number"] for row in answer["records"]]
    looked = answer["looked_through"]
    assert looked["records"] == 5
    assert looked["most"] == 5
    assert until[-2]["committed_at"] == looked["until"]


async def test_a_billing_drop_is_shown_without_its_body(server: OperatorServer) -> None:
    """The list leaves out the body of a billing file, which may be as large as a request."""
    drop = HourlyBillingFile(id=b"d" * 16, connection_id="c-1", body=b'{"rows": []}')
    await server.services.spool.log.append_submission(
        Submission(topic=BILLING_DATA, received=1, records=[drop], identities=[RecordIdentity(drop.id)])
    )
    [row] = (await server.ask("GET", "/records")).payload["records"]
    assert row["kind"] == "billing_drop"
    assert row["connection_id"] == "c-1"
    assert "body" not in row


async def test_the_newest_usage_events(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Each event is listed with its amount, newest first. Records of other topics do not use up the search limit.
    """
    monkeypatch.setattr(records, "LOOKED_THROUGH", 3)
    server.services.spool.event_amount = lambda event: (
        Decimal(event.data["gb"]) if "gb" in event.data else None
    )
    events = [
        UsageEvent(id=n.to_bytes(16), source="app", event_type=type, subject=f"u{n}")
        for n, type in enumerate(("old", "login", "store", "login"))
    ]
    events[2].data = {"gb": "0.50"}
    identities = [RecordIdentity(event.id) for event in events]
    kept = Submission(topic=USAGE_EVENTS, received=4, records=events, identities=identities)
    await server.services.spool.log.append_submission(kept)
    await add(server.services.spool.log, *(call(n) for n in range(1, 6)))
    answer = (await server.ask("GET", "/events")).payload
    assert [("u3", None), ("u2", "0.5"), ("u1", None)] == [
        (row["subject"], row["amount"]) for row in answer["events"]
    ]
    assert answer["looked_through"]["records"] == 3
    assert answer["looked_through"]["most"] == 3
    [store] = (await server.ask("GET", "/events", type="store")).payload["events"]
    assert store["event_type"] == "store"
    assert store["state"] == "open"
    assert store["data"] == {"gb": "0.50"}
    assert [] == (await server.ask("GET", "/events", type="old")).payload["events"]
    assert 400 == (await server.ask("GET", "/events", event_type="store")).status


@pytest.mark.parametrize("name", ["start_time", "end_time"])
async def test_an_invalid_time_is_refused_even_if_there_are_no_events(
    server: OperatorServer, name: str
) -> None:
    answer = await server.ask("GET", "/events", **{name: "soon"})
    assert answer.status == 400
    assert name in answer.payload["error"]["message"]


async def test_tail_shows_records_as_they_are_committed(server: OperatorServer) -> None:
    """The stream has records that match the filters, from now on, as the same rows as in the list."""
    await add(server.services.spool.log, call(1, team="search"))
    async with listening(server.url, await signed_in(server), "/tail?team=search&team=ads") as stream:
        await add(
            server.services.spool.log, call(2, team="search"), call(3, team="other"), call(4, team="ads")
        )
        rows = [await stream.event() for _ in range(2)]
    listed = (await server.ask("GET", "/records", sort_key="number", sort_order="asc")).payload["records"]
    assert [("record", listed[1]), ("record", listed[3])] == rows


async def test_tail_says_what_it_skipped(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that arrive faster than the reader reads are skipped, not kept in memory."""
    monkeypatch.setattr(tail, "MOST_AT_ONCE", 2)
    async with listening(server.url, await signed_in(server), "/tail") as stream:
        await add(server.services.spool.log, *[call(number) for number in range(5)])
        assert ("skipped", {"topic": "ai-telemetry", "records": 3}) == await stream.event()
        assert [4, 5] == [(await stream.event())[1]["number"] for _ in range(2)]


async def test_tail_refuses_a_filter_that_does_not_exist(server: OperatorServer) -> None:
    """
    An unknown filter of the tail is refused before the stream starts. The error names the valid filters.
    """
    answer = await server.ask("GET", "/tail", prompt="x")
    assert (400, "invalid_parameter") == answer.error[:2]
    assert "model" in answer.error[2]
