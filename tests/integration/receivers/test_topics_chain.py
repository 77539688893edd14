"""Two gateways in a row: events, operations and drops arrive unchanged at the second."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from exporters import marked_call
from exporters.settings import UpstreamKey, UpstreamSettings
from gateway.configuration.sections import Config
from spool.record import (
    AI_TELEMETRY,
    BILLING_DATA,
    UNIT_COST,
    USAGE_EVENTS,
    HourlyBillingFile,
    UnitCostOperation,
)
from spool.registry.scopes import CREATE_EVENT, INGEST, SEND_BILLING_DATA
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
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
    usage,
)
from tests.waiting import until

SCOPES = [CREATE_EVENT, MANAGE, DROP]


async def settled(serving: Serving, topics: tuple[str, ...]) -> None:
    """Wait until no record of the topics waits to be sent."""

    async def is_settled() -> bool:
        states = await serving.app.services.storage.deliveries.route_states()
        routes = {route.topic: route for route in states}
        return all(routes[topic].queued == 0 and routes[topic].delivered for topic in topics)

    await until(is_settled, f"{topics} are sent")


async def ids(serving: Serving, topic: str) -> list[bytes]:
    """Return the ids, except that of a stream deletion, whose request has no field for one."""
    records = await kept(serving, topic)
    return [one.id for one in records if not (isinstance(one, UnitCostOperation) and one.operation == "drop")]


@pytest.mark.proves("attributes that Tollhouse sends to another Tollhouse (`tollhouse.*`)")
async def test_topics_pass_through_two_gateways(serve: Serve, tmp_path: Path) -> None:
    """
    Records of all topics pass through two gateways: ids, totals, order and bytes are equal in both. A repeat at the
    first gateway is a duplicate at the second.
    """
    site = await serve(chain_keys=("topics", "billing"))
    (tmp_path / "topics.key").write_text(await site.make_key("topics", scopes=SCOPES))
    (tmp_path / "billing.key").write_text(await site.make_key("billing", use_cases=[SEND_BILLING_DATA]))
    upstream = UpstreamSettings(
        base_url=site.url,
        kind="tollhouse",
        keys=(
            UpstreamKey(name="topics", secret_file=tmp_path / "topics.key", scopes=tuple(SCOPES)),
            UpstreamKey(name="billing", secret_file=tmp_path / "billing.key", use_cases=(SEND_BILLING_DATA,)),
        ),
    )
    first = await serve(config=Config(spool=SpoolSettings(hold=0), upstream=upstream))
    key = await first.make_key("all", scopes=[CREATE_EVENT, MANAGE, READ, CREATE, DROP])
    billing = await first.make_key("drops", use_cases=[SEND_BILLING_DATA])
    await first.send("/v1/events", orjson.dumps([EVENT, {"type": "plain"}]), key=key)
    for value in (1, 2.5):
        await first.send(SUM, body(usage(value=value)), key=key)
    await first.send(
        SUM.replace("sum", "replace").replace("api-calls", "other"), body(usage(value=7)), key=key
    )
    await first.send("/unit-cost/v1/telemetry/other", b"true", method="DELETE", key=key)
    await first.make_connection(upstream_id="there-1")
    await site.make_connection("there-1")
    drop = b'{"operation": "sum",  "data": [' + orjson.dumps(ROW) + b"]}"
    await first.send(DROPS.format("anycost"), drop, key=billing)
    topics = (USAGE_EVENTS, UNIT_COST, BILLING_DATA)
    await settled(first, topics)
    for topic in topics[:2]:
        assert await ids(first, topic) == await ids(site, topic)
    (there,) = await kept(site, BILLING_DATA)
    assert isinstance(there, HourlyBillingFile)
    assert there.body == drop
    assert there.connection_id == "there-1"
    totals = {
        total.stream: total.value
        for total in await site.app.services.storage.streams.stream_totals("api-calls")
    }
    assert {"api-calls": "3.5"} == totals
    assert ["api-calls"] == [stream.name for stream in site.app.services.storage.book.all()]
    for serving in (first, site):
        assert [] == list((await serving.app.services.storage.log.verify()).imbalances)


@pytest.mark.proves("records of another Tollhouse")
async def test_by_default_no_key_brings_records_of_another_tollhouse(serve: Serve) -> None:
    """
    By default, records of another Tollhouse are rejected. Otherwise a sender could choose the key, user and
    team of such a record freely.
    """
    serving = await serve()
    forged = json_span(attributes=[{"key": "tollhouse.id", "value": {"stringValue": "ab" * 16}}])
    answer = await serving.send("/v1/traces", json_traces(forged, json_span()))
    told = orjson.loads(answer.body)["partialSuccess"]
    assert "server.chain_keys" in told["errorMessage"]
    assert bytes.fromhex("ab" * 16) not in {record.id for record in await serving.records()}


@pytest.mark.proves("A sender claims another sender's calls as records of another Tollhouse")
async def test_only_keys_that_may_chain_bring_records_of_another_tollhouse(serve: Serve) -> None:
    """
    Only keys in server.chain_keys may send records of another Tollhouse. Otherwise anybody with an
    application's key could claim calls under a chosen id, at no cost.
    """
    serving = await serve(chain_keys=("site-*",))
    forged = json_span(attributes=[{"key": "tollhouse.id", "value": {"stringValue": "ab" * 16}}])
    event, operation = {**EVENT, "tollhouseid": "cd" * 16}, usage(tollhouse_id="ef" * 16, value=4)
    for name, is_taken in (("app", False), ("site-1", True)):
        key = await serving.make_key(name, scopes=[INGEST, CREATE_EVENT, CREATE, MANAGE])
        answer = await serving.send("/v1/traces", json_traces(forged, json_span()), key=key)
        rejected = orjson.loads(answer.body).get("partialSuccess", {})
        assert answer.status == 200
        assert (not is_taken) == ("server.chain_keys" in rejected.get("errorMessage", ""))
        assert 200 == (await serving.send("/v1/events", orjson.dumps({**event, "id": name}), key=key)).status
        assert 200 == (await serving.send(SUM, body(operation), key=key)).status
    forged_ids = {bytes.fromhex(word * 16) for word in ("ab", "cd", "ef")}
    records = [record for topic in (USAGE_EVENTS, UNIT_COST) for record in await kept(serving, topic)]
    assert forged_ids <= {record.id for record in [*records, *await serving.records()]}
    assert 2 == sum(record.id in forged_ids for record in records)


async def test_a_marked_call_is_accepted_or_rejected_and_counts_nowhere(serve: Serve) -> None:
    """
    With such a call, `check` of another Tollhouse learns only whether its key may chain. The call is counted
    as ignored or rejected and never stored, however often it arrives.
    """
    serving = await serve(chain_keys=("site",))
    kind = "application/x-protobuf"
    for name, is_listed in (("app", False), ("site", True)):
        key = await serving.make_key(name, scopes=[INGEST])
        for _ in range(2):
            answer = await serving.send(
                "/v1/traces", marked_call.encode_test_call(1_790_000_000.0), kind, key=key
            )
            counts = "ignored=1; rejected=0" if is_listed else "ignored=0; rejected=1"
            assert f"records=0; {counts}" in answer.headers["Tollhouse-Receipt"]
            assert is_listed != (b"server.chain_keys" in answer.body)
    assert [] == await serving.records()
    books = await serving.app.services.storage.log.books()
    terms = {term: n for term, n in books.topics[AI_TELEMETRY].items() if n}
    assert {"received": 4, "ignored.check": 2, "rejected.may_not_chain": 2} == terms
    assert [] == list(books.imbalances)
