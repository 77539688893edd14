"""The endpoints of usage events, unit cost and billing data, over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.http.address import WHOLE_BYTES
from gateway.http.turns import LARGE
from gateway.normalise import billing
from spool.record import (
    BILLING_DATA,
    UNIT_COST,
    USAGE_EVENTS,
    HourlyBillingFile,
    Record,
    UnitCostOperation,
    UsageEvent,
)
from spool.registry.scopes import CREATE_EVENT, SEND_BILLING_DATA
from spool.settings import SpoolSettings
from tests.gateway.normalise.reading.test_content import CONTENT
from tests.integration.conftest import Answer, Serve, Serving
from tests.rounds import part

MANAGE = "unit-cost_v1:manage_telemetry_records"
READ = "unit-cost_v1:read_telemetry"
CREATE = "unit-cost_v1:create_telemetry_stream"
DROP = "unit-cost_v1:delete_telemetry_stream"
SUM = "/unit-cost/v1/telemetry/allocation/api-calls/sum"


async def kept(serving: Serving, topic: str) -> list[Record]:
    log = serving.app.services.storage.log
    entries = await log.read(topic, 1, log.lowest_open_number(topic) - 1)
    return [record for entry in entries for record in entry.records if record is not None]


def said(answer: Answer) -> Any:
    return orjson.loads(answer.body)


def usage(**changes: Any) -> dict[str, Any]:
    record = {
        "timestamp": "2026-11-01T10:20:00Z",
        "granularity": "HOURLY",
        "element_name": "acme",
        "filter": {"Region": ["eu"]},
        "value": 1,
    }
    return {**record, **changes}


def body(*records: dict[str, Any]) -> bytes:
    return orjson.dumps({"records": list(records)})


# -- usage events --------------------------------------------------------------------------------------------

EVENT = {"specversion": "1.0", "id": "1", "source": "/app", "type": "api.call", "data": {"count": 3}}


@pytest.mark.parametrize(
    ("sent", "content_type", "count"),
    part(
        [
            (orjson.dumps(EVENT), "application/cloudevents+json; charset=utf-8", 1),
            (orjson.dumps([EVENT, {**EVENT, "id": "2"}]), "application/cloudevents-batch+json", 2),
            (orjson.dumps(EVENT) + b"\n" + orjson.dumps({**EVENT, "id": "2"}), "application/x-ndjson", 2),
            (orjson.dumps({"type": "signup", "data": {"plan": "pro"}}), "application/json", 1),
            (orjson.dumps([{"type": "signup"}, {"type": "signup"}]), "application/json", 2),
        ],
        every=2,
    ),
)
async def test_events_in_every_envelope(serving: Serving, sent: bytes, content_type: str, count: int) -> None:
    """
    A single event, an array, lines, and structured or batched CloudEvents are accepted. The answer
    counts every item.
    """
    key = await serving.make_key("events", scopes=[CREATE_EVENT])
    answer = await serving.send("/v1/events", sent, content_type, key=key)
    assert answer.status == 200
    assert said(answer)["accepted"] == count
    assert count == len(await kept(serving, USAGE_EVENTS))
    assert f"records={count}" in answer.headers["Tollhouse-Receipt"]


async def test_a_binary_cloud_event(serving: Serving) -> None:
    """Attributes are percent-encoded headers, and the body is the data. Further attributes become tags."""
    key = await serving.make_key("events", scopes=[CREATE_EVENT])
    headers = {
        "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/caf%C3%A9", "ce-type": "tokens", "ce-subject": "acme",
        "ce-time": "2026-11-01T10:00:00Z", "ce-region": "eu",
    }  # fmt: skip
    answer = await serving.send("/v1/events", b'{"tokens": 12, "model": "m"}', key=key, headers=headers)
    assert 200 == answer.status
    (record,) = await kept(serving, USAGE_EVENTS)
    assert isinstance(record, UsageEvent)
    assert record.source == "/café"
    assert record.event_id == "7"
    assert record.event_type == "tokens"
    assert record.subject == "acme"
    assert record.data == {"tokens": 12, "model": "m"}
    assert record.tags == {"region": "eu"}


async def test_an_event_counts_once_and_bad_neighbours_are_named(serving: Serving) -> None:
    """
    An event counts once: its source and id are the dedup key. If one event of a request is bad, only that event is
    rejected and named. If all are bad, the answer is 400.
    """
    key = await serving.make_key("events", scopes=[CREATE_EVENT])
    bad = {"specversion": "1.0", "source": "/app", "type": "api.call"}
    first = await serving.send("/v1/events", orjson.dumps([EVENT, bad, EVENT]), key=key)
    assert ["accepted", "rejected", "accepted"] == [item["status"] for item in said(first)["events"]]
    assert "id is required and must be non-empty text" == said(first)["events"][1]["error"]["message"]
    await serving.send("/v1/events", orjson.dumps(EVENT), key=key)
    assert 1 == len(await kept(serving, USAGE_EVENTS))
    assert 400 == (await serving.send("/v1/events", orjson.dumps([bad]), key=key)).status


async def test_events_are_read_back(serving: Serving) -> None:
    """
    Keys that may read telemetry can read events back with every field, filtered by time. A key that may only send
    gets an error with the missing scope.
    """
    sender = await serving.make_key("events", scopes=[CREATE_EVENT])
    reader = await serving.make_key("reader", scopes=[READ])
    first = {**EVENT, "subject": "acme", "time": "2026-11-01T10:00:00.5Z", "region": "eu"}
    second = {**EVENT, "id": "2", "source": "/other", "type": "seat", "time": "2026-11-02T10:00:00Z"}

    async def page(path: str = "/v1/events", *, status: int = 200, key: str = reader) -> Any:
        answer = await serving.send(path, b"", method="GET", key=key)
        assert status == answer.status, answer.body
        return said(answer)

    wrong = "/v1/events?start_time=soon"  # refused even if there are no events
    assert "start_time" in (await page(wrong, status=400))["error"]["message"]
    await serving.send("/v1/events", orjson.dumps([first, second]), key=sender)
    one = (await page("/v1/events?type=api.call&source=%2Fapp&subject=acme"))["events"][0]
    assert "api.call" == one["event_type"] and {"count": 3} == one["data"] and {"region": "eu"} == one["tags"]
    assert one["source"] == "/app"
    assert one["event_id"] == "1"
    assert one["subject"] == "acme"
    assert ["2", "1"] == [each["event_id"] for each in (await page())["events"]]
    span = "/v1/events?start_time=2026-11-01T10:00:00.5Z&end_time=2026-11-02T10:00:00Z"
    assert ["1"] == [each["event_id"] for each in (await page(span))["events"]]
    assert 2 == (await page())["looked_through"]["records"]
    types = (await page("/v1/events/types"))["event_types"]
    assert [("api.call", 1), ("seat", 1)] == [(each["type"], each["count"]) for each in types]
    assert READ in (await page(status=403, key=sender))["error"]["message"]


async def test_events_are_bounded_and_hold_no_content(serving: Serving) -> None:
    """Content, long text and non-scalar values never reach the disk."""
    key = await serving.make_key("events", scopes=[CREATE_EVENT])
    data = {
        "prompt": "CANARY",
        "messages": ["CANARY"],
        "nested": {"input": "CANARY", "tokens": 5},
        "long": "x" * 300,
    }
    data |= dict.fromkeys(CONTENT, "CANARY")
    await serving.send("/v1/events", orjson.dumps({**EVENT, "data": data, "body": "CANARY"}), key=key)
    (record,) = await kept(serving, USAGE_EVENTS)
    assert isinstance(record, UsageEvent)
    assert record.data == {"nested.tokens": 5}
    assert record.tags == {}


# -- unit cost -----------------------------------------------------------------------------------------------


async def writer(serving: Serving) -> str:
    return await serving.make_key("writer", scopes=[MANAGE, READ, CREATE, DROP])


async def values(serving: Serving, key: str, stream: str = "api-calls") -> list[str]:
    answer = await serving.send(f"/unit-cost/v1/telemetry/{stream}/records", b"", method="GET", key=key)
    assert 200 == answer.status
    return [record["value"] for record in said(answer)["records"]]


async def test_sum_replace_and_delete(serving: Serving) -> None:
    """
    A sum adds to the hour's record, a replace sets it, and a delete removes it. Each is visible at once.
    """
    key = await writer(serving)
    await serving.send(SUM, body(usage(value=1.5), usage(value="2")), key=key)
    await serving.send(SUM, body(usage(timestamp="2026-11-01T10:59:59Z", value=0.1)), key=key)
    assert ["3.6"] == await values(serving, key)
    await serving.send(SUM.replace("sum", "replace"), body(usage(value=10)), key=key)
    assert ["10"] == await values(serving, key)
    gone = usage()
    del gone["value"]
    answer = await serving.send(SUM.replace("sum", "delete"), body(gone), key=key)
    assert 201 == answer.status
    assert [] == await values(serving, key)


async def test_a_sum_repeated_under_its_idempotency_key_counts_once(serving: Serving) -> None:
    """
    A sum that is repeated under the same idempotency key counts once. Under another key, or without one, it is
    another sum.
    """
    key = await writer(serving)
    for _ in range(3):
        await serving.send(SUM, body(usage(value=5)), key=key, headers={"Idempotency-Key": "a"})
    await serving.send(SUM, body(usage(value=5)), key=key, headers={"Idempotency-Key": "b"})
    await serving.send(SUM, body(usage(value=5)), key=key)
    assert ["15"] == await values(serving, key)


@pytest.mark.proof
async def test_five_hundred_agents_sum_into_one_stream(serving: Serving) -> None:
    """500 agents sum into one stream. The total is exact however requests are grouped into commits."""
    key = await writer(serving)

    async def agent(n: int) -> None:
        answer = await serving.send(SUM, body(usage(value=n)), key=key)
        assert 200 == answer.status

    await asyncio.gather(*(agent(n) for n in range(1, 501)))
    assert [str(500 * 501 // 2)] == await values(serving, key)


async def test_requests_that_create_one_stream_otherwise_do_not_both_pass(serving: Serving) -> None:
    """
    Requests that create the same stream are processed one at a time. The first defines the stream, and
    conflicting requests are refused.
    """
    key = await writer(serving)
    requests = [
        body(*(usage(element_name=f"c{n}", filter={dimension: ["eu"]}) for n in range(400)))
        for dimension in ("Region", "Zone") * 4
    ]
    answers = await asyncio.gather(*(serving.send(SUM, request, key=key) for request in requests))
    assert {200: 4, 400: 4} == Counter(answer.status for answer in answers)
    assert 1 == len({answer.status for answer in answers[::2]})
    path = "/unit-cost/v1/telemetry/allocation/api-calls/records"
    records = said(await serving.send(path, b"", method="GET", key=key))["records"]
    assert len(records) == 400
    assert len({tuple(record["filter"]) for record in records}) == 1
    assert {str(record["value"]) for record in records} == {"4"}


async def test_older_forms(serving: Serving) -> None:
    """
    Older forms of requests still work: the bare stream path is a sum, and so is the oldest form, whose records name
    their stream. Old field names work as well.
    """
    key = await writer(serving)
    old = usage(value=1)
    old["element-name"] = old.pop("element_name")
    await serving.send(SUM.removesuffix("/sum"), body(old), key=key)
    await serving.send("/unit-cost/v1/telemetry", body({**old, "telemetry-stream": "api-calls"}), key=key)
    assert ["2"] == await values(serving, key)


async def test_streams_are_created_read_and_dropped(serving: Serving) -> None:
    """
    PUT defines a stream, reads have the usual envelope, and a stream with records can be deleted only with `force`.
    """
    key = await writer(serving)
    path = "/unit-cost/v1/telemetry/allocation/api-calls"
    made = await serving.send(path, b'{"granularity": "HOURLY", "filter": ["Region"]}', method="PUT", key=key)
    again = await serving.send(path, b'{"granularity": "DAILY"}', method="PUT", key=key)
    assert made.status == 201
    assert again.status == 409
    refused = await serving.send(SUM, body(usage(granularity="DAILY")), key=key)
    assert refused.status == 400
    assert said(refused)["error"]["type"] == "invalid_records"
    await serving.send(SUM, body(*(usage(element_name=f"c{n}") for n in range(5))), key=key)
    page = said(await serving.send(f"{path}/records?limit=2", b"", method="GET", key=key))
    assert len(page["records"]) == 2
    assert page["pagination"]["total_count"] == 5
    assert page["pagination"]["page_count"] == 3
    gone = "/unit-cost/v1/telemetry/api-calls"
    assert 409 == (await serving.send(gone, b"", method="DELETE", key=key)).status
    assert 200 == (await serving.send(gone, b"true", method="DELETE", key=key)).status
    assert 404 == (await serving.send(f"{path}/records", b"", method="GET", key=key)).status


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_what_is_decoded_in_one_go_is_small(serving: Serving, method: str) -> None:
    """
    60 MB of empty lists once blocked the event loop for seconds and took a gigabyte. A body at the limit is
    still read and refused as invalid.
    """
    key = await writer(serving)
    path = (
        "/unit-cost/v1/telemetry/api-calls"
        if method == "DELETE"
        else "/unit-cost/v1/telemetry/metric/api-calls"
    )
    for size, status in ((WHOLE_BYTES, 400), (WHOLE_BYTES + 1, 413)):
        answer = await serving.send(path, b" " * (size - 2) + b"[]", method=method, key=key)
        assert status == answer.status


async def test_totals_and_what_streams_are_outlive_a_restart(serve: Serve) -> None:
    """After a restart the totals are unchanged, and a record with another shape is refused as before."""
    first = await serve()
    key = await writer(first)
    await first.send(SUM, body(usage(value=7)), key=key)
    config = dataclasses.replace(
        Config(spool=SpoolSettings(hold=0)),
        data_dir=first.app.config.data_dir,
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
    )
    await first.app.stop()
    from gateway.service.app import TollhouseApp

    again = TollhouseApp(config, version="0")
    await again.start()
    try:
        storage = again.services.storage
        assert ["7"] == [total.value for total in await storage.streams.stream_totals("api-calls")]
        known = storage.book.find_stream("api-calls")
        assert known is not None
        assert known.type == "allocation"
        assert known.granularity == "HOURLY"
        assert known.keys == ("Region",)
        assert [] == list((await storage.log.verify()).imbalances)
    finally:
        await again.stop()
        first.app = again


# -- billing data --------------------------------------------------------------------------------------------

ROW = {
    "time/usage_start": "2026-11-01T10:00:00Z",
    "cost/cost": "1.25",
    "resource/id": "r",
    "resource/tag:team": "a",
}
DROPS = "/v2/connections/billing/{}/connection-1/billing_drops"
VALIDATE = "/v2/connections/billing/{}/validate_billing_drop"


async def test_large_drop_is_checked_off_the_event_loop(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A large drop is checked off the event loop. Checking 80,000 rows takes half a second, in which no other request
    would be answered.
    """
    places = []

    def read(body: bytes, *, max_tags: int) -> billing.BillingFile:
        places.append(threading.current_thread() is threading.main_thread())
        return real(body, max_tags=max_tags)

    real = billing.read_billing_file
    monkeypatch.setattr(billing, "read_billing_file", read)
    key = await serving.make_key("billing", use_cases=[SEND_BILLING_DATA])
    for count in (1, LARGE // 100):
        drop = orjson.dumps({"month": "2026-11", "data": [ROW] * count})
        answer = await serving.send(VALIDATE.format("external"), drop, key=key)
        assert said(answer)["connection"]["is_valid"]
    assert [True, False] == places


@pytest.mark.parametrize("segment", ["external", "anycost"])
async def test_billing_drop_is_stored_unchanged(serving: Serving, segment: str) -> None:
    """A valid drop is stored unchanged under both path words, and the answer has the published form."""
    key = await serving.make_key("billing", use_cases=[SEND_BILLING_DATA])
    await serving.make_connection()
    sent = b'{"month":  "2026-11", "operation": "sum", "data": [' + orjson.dumps(ROW) + b"]}"
    answer = await serving.send(DROPS.format(segment), sent, key=key)
    assert 200 == answer.status
    drop = said(answer)["connection"]
    assert drop["month"] == "2026-11"
    assert drop["row_count"] == 1
    assert set(drop) == {"drop_id", "month", "row_count"}
    (record,) = await kept(serving, BILLING_DATA)
    assert isinstance(record, HourlyBillingFile)
    assert record.body == sent
    assert record.connection_id == "connection-1"
    assert record.operation == "sum"


BROKEN_DROPS: Sequence[tuple[dict[str, Any], str]] = [
    ({"data": []}, "at least one row"),
    ({"operation": "append"}, "operation must be one of"),
    ({"month": "11/2026"}, "month must have the form YYYY-MM"),
    ({"month": "2026-10"}, "belong to the same month"),
    ({"data": [{**ROW, "cost/cost": "1e3"}]}, "cost/cost must be a decimal number without an exponent"),
    ({"data": [{**ROW, "cost/cost": 1.5}]}, "must be text, even if it is a number"),
    ({"data": [{"cost/cost": "1"}]}, "time/usage_start is required"),
    ({"data": [{**ROW, "colour": "red"}]}, "unknown column 'colour'"),
    ({"data": [{**ROW, "resource/tag:team": "N/A"}]}, "must not be empty"),
    ({"data": [{**ROW, "lineitem/type": "Fee"}]}, "lineitem/type must be one of"),
    (
        {"data": [{name: value for name, value in ROW.items() if name != "resource/id"}]},
        "resource/id is required",
    ),
    ({"data": [ROW, {**ROW, "time/usage_start": "2026-12-01T00:00:00Z"}]}, "belong to the same month"),
]


async def test_drops_that_break_a_rule(serving: Serving) -> None:
    """
    A billing file that breaks a rule is refused with the rule, and the validating endpoint returns the same
    with a 200. Nothing is stored.
    """
    key = await serving.make_key("billing", use_cases=[SEND_BILLING_DATA])
    await serving.make_connection()
    for change, words in BROKEN_DROPS:
        sent = orjson.dumps({"month": "2026-11", "operation": "sum", "data": [ROW], **change})
        refused = await serving.send(DROPS.format("external"), sent, key=key)
        assert refused.status == 400, (change, words)
        assert said(refused)["error"]["type"] == "invalid_drop", (change, words)
        assert words in said(refused)["error"]["message"], (change, words)
        checked = said(await serving.send(VALIDATE.format("external"), sent, key=key))["connection"]
        assert checked["is_valid"] is False, (change, words)
        assert any(words in error for error in checked["errors"]), (change, words)
        assert [] == await kept(serving, BILLING_DATA), (change, words)


async def test_operations_are_recognized_by_ids_of_another_tollhouse(serve: Serve) -> None:
    """If its key may chain, a repeated operation is recognized by the id from the other Tollhouse."""
    serving = await serve(chain_keys=("*",))
    key = await writer(serving)
    for _ in range(2):
        await serving.send(SUM, body(usage(tollhouse_id="ab" * 16, value=4)), key=key)
    (record,) = await kept(serving, UNIT_COST)
    assert isinstance(record, UnitCostOperation)
    assert record.id.hex() == "ab" * 16
    assert await values(serving, key) == ["4"]
