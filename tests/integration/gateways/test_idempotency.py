"""Each address with an idempotency key accepts only one body under a key."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest

from gateway.service.addresses.table import ADDRESSES
from spool.record import record_to_json
from spool.registry.scopes import BILLING_DROP, CREATE_EVENT
from spool.sqlite.reserve import FILE as RESERVE
from tests.integration.conftest import ACTOR, Answer, Serve, Serving
from tests.integration.receivers.test_topics import (
    CREATE,
    DROP,
    DROPS,
    EVENT,
    MANAGE,
    READ,
    ROW,
    SUM,
    body,
    kept,
    said,
    usage,
    values,
)
from tests.rounds import part

TOPICS = ("usage-events", "unit-cost", "billing-data")
KEY = {"Idempotency-Key": "k1"}


class Door(NamedTuple):
    """An address, its first body, and the other bodies that follow under the same key."""

    path: str
    first: bytes
    others: list[bytes]


def drop(month: str, *costs: str) -> bytes:
    rows = [{**ROW, "time/usage_start": f"{month}-01T10:00:00Z", "cost/cost": cost} for cost in costs]
    return orjson.dumps({"month": month, "operation": "replace_drop", "data": rows})


def event(**changes: Any) -> dict[str, Any]:
    """Return an event without an id, so that only the idempotency key identifies a repeat."""
    return {"type": "api.call", "data": {"count": 3}, **changes}


RECORDS = [
    body(usage(value=9)),
    body(usage(value=2), usage(value=3), usage(value=4)),
    body(usage(value=2), usage()),
]
DOORS = {
    "billing drop": Door(
        DROPS.format("external"), drop("2026-11", "1"), [drop("2026-10", "1", "2", "3"), drop("2026-11", "2")]
    ),
    "unit cost": Door(SUM, body(usage(value=2)), RECORDS),
    "fewer items": Door(SUM, body(usage(value=2), usage(value=3)), [body(usage(value=2))]),
    "of streams": Door(
        "/unit-cost/v1/telemetry",
        body({**usage(value=2), "telemetry-stream": "api-calls"}),
        [body({**usage(value=2), "telemetry-stream": "other"})],
    ),
    "replace": Door(SUM.replace("/sum", "/replace"), body(usage(value=2)), [body(usage(value=9))]),
    "usage event": Door(
        "/v1/events",
        orjson.dumps(event()),
        [orjson.dumps(event(data={"count": 4})), orjson.dumps([event(), event()])],
    ),
    "event with an id": Door(
        "/v1/events", orjson.dumps(EVENT), [orjson.dumps({**EVENT, "data": {"count": 4}})]
    ),
}


async def sender(serving: Serving) -> str:
    await serving.make_connection()
    scopes = [MANAGE, READ, CREATE, DROP, CREATE_EVENT, BILLING_DROP]
    return await serving.make_key("of all topics", scopes=scopes)


async def everything(serving: Serving) -> list[dict[str, Any]]:
    return [record_to_json(record) for topic in TOPICS for record in await kept(serving, topic)]


def deleted() -> dict[str, Any]:
    return {name: value for name, value in usage().items() if name != "value"}


def counts(answer: Answer) -> tuple[int, bytes, str]:
    """Return the content of an answer without the receipt's id."""
    return answer.status, answer.body, answer.headers["Tollhouse-Receipt"].partition("; ")[2]


@pytest.mark.proves("one idempotency key, two bodies")
@pytest.mark.parametrize("door", part([*DOORS], every=2))
async def test_idempotency_key_belongs_to_one_body(serve: Serve, tmp_path: Path, door: str) -> None:
    """
    Under one idempotency key, the same body gets the first answer again, and another body is refused. Both
    hold after a crash.
    """
    path, first, others = DOORS[door]
    serving = await serve()
    key = await sender(serving)
    answered = await serving.send(path, first, key=key, headers=KEY)
    assert 200 == answered.status
    there = await everything(serving)
    assert there
    not_kept = shutil.ignore_patterns(RESERVE, "*.new", "*.sock", "operator.*")
    # copy the files as a kill would leave them
    shutil.copytree(tmp_path / "data-0", tmp_path / "data-1", ignore=not_kept)
    for gateway in (serving, await serve(key_name="of the second process")):
        again = await gateway.send(path, first, key=key, headers=KEY)
        packed = await gateway.send(
            path, gzip.compress(first), key=key, headers={**KEY, "Content-Encoding": "gzip"}
        )
        assert counts(answered) == counts(again) == counts(packed)
        for other in others:
            refused = await gateway.send(path, other, key=key, headers=KEY)
            assert refused.status == 422, other
            assert said(refused)["error"]["type"] == "idempotency_key_reused", other
            assert "Tollhouse-Receipt" not in refused.headers
        assert there == await everything(gateway)


async def test_a_repeat_is_answered_as_the_first_time_whatever_was_changed_since(serving: Serving) -> None:
    """
    A repeated request gets the answer that was lost, even if its stream was replaced or its connection disabled
    since then.
    """
    key = await sender(serving)
    stream, drops = SUM.removesuffix("/sum"), DROPS.format("external")
    sums = [await serving.send(SUM, body(usage()), key=key, headers=KEY)]
    deletes = [await serving.send(stream + "/delete", body(deleted()), key=key, headers=KEY)]
    dropped = [await serving.send(drops, drop("2026-11", "1"), key=key, headers=KEY)]
    gone = stream.replace("/allocation", "")
    assert 200 == (await serving.send(gone, b"true", method="DELETE", key=key)).status
    assert 201 == (await serving.send(stream, b'{"granularity":"MONTHLY"}', method="PUT", key=key)).status
    connections = serving.app.services.single.billing_connections
    await connections.change("connection-1", {"is_enabled": False}, actor=ACTOR)
    sums.append(await serving.send(SUM, body(usage()), key=key, headers=KEY))
    deletes.append(await serving.send(stream + "/delete", body(deleted()), key=key, headers=KEY))
    dropped.append(await serving.send(drops, drop("2026-11", "1"), key=key, headers=KEY))
    assert [200, 201, 200] == [answers[0].status for answers in (sums, deletes, dropped)]
    for first, again in (sums, deletes, dropped):
        assert counts(first) == counts(again)
    assert [] == await values(serving, key)


async def test_an_event_in_headers_has_a_body_of_them(serving: Serving) -> None:
    """
    If the attributes of an event are in headers, they belong to the body, so another attribute under the same
    idempotency key counts as another body.
    """
    key = await sender(serving)
    told = {**KEY, "ce-specversion": "1.0", "ce-id": "7", "ce-source": "/app", "ce-type": "api.call"}
    for subject, expected in (("a", 200), ("a", 200), ("b", 422)):
        answer = await serving.send("/v1/events", b"{}", key=key, headers={**told, "ce-subject": subject})
        assert expected == answer.status
    assert 1 == len(await kept(serving, "usage-events"))


async def test_addresses_that_take_the_header_are_documented() -> None:
    """Exactly the addresses listed here accept the header, and the document of each lists the refusal."""
    taking = {row.name for row in ADDRESSES if row.takes_idempotency_key}
    records = {"sum_records_of_streams", "sum_records_of_stream", "manage_records"}
    assert {"create_billing_drop", "create_events", *records} == taking
    assert all(422 in row.documented_refusals for row in ADDRESSES if row.takes_idempotency_key)
