"""Two gateways on one PostgreSQL behave as one installation, whichever receives a request."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import pytest_asyncio

from gateway.configuration.sections import Config
from gateway.operations.money.insights import make_insight_updater
from spool.errors import SpoolUnavailable
from spool.postgres.registry.follower import RegistryChangeFollower
from spool.record import AI_TELEMETRY
from spool.registry import changes
from spool.registry.insights import ADDRESSED, InsightDraft
from spool.registry.notices import NOT_ARRIVING
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_BILLING_DATA
from spool.settings import LOCAL, POSTGRES, REPLICATED, SpoolSettings, StorageSettings
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.receivers.test_topics import DROPS, ROW, SUM, body, usage, writer
from tests.spool.postgres_cluster import Pair, Schema
from tests.waiting import until

TRACES = "/v1/traces"


def shared_config(
    dsn: str, schema: str, directory: Path, *, commit_wait: float = 60.0, **settings: object
) -> Config:
    """Return the configuration of a node. All nodes with the same directory share its secret."""
    dsn_file, secret_file = directory / "tollhouse.dsn", directory / "installation.secret"
    dsn_file.write_text(dsn)
    secret_file.write_bytes(b"s" * 32)
    storage = StorageSettings(
        engine=POSTGRES, dsn_file=dsn_file, schema=schema, secret_file=secret_file, durability=LOCAL
    )
    return Config(
        storage=replace(storage, **settings),  # type: ignore[arg-type]
        spool=SpoolSettings(hold=0, counter_wait=0, commit_wait=commit_wait),
    )


@pytest_asyncio.fixture
async def gateways(new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path) -> tuple[Serving, Serving]:
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    return await serve(config=config), await serve(config=config, key_name="other sender")


async def takes(gateway: Serving, body: bytes, key: str) -> bool:
    return (await gateway.send(TRACES, body, key=key)).status == 200


async def have_same_records(gateways: Sequence[Serving], count: int) -> bool:
    found = [await gateway.records() for gateway in gateways]
    return len(found[0]) == count and found[0] == found[1]


async def probe(gateway: Serving, path: str) -> int:
    async with gateway.client.get(gateway.url + path) as response:
        return response.status


async def has_records(gateway: Serving, count: int) -> bool:
    """Return False while the database is unreachable."""
    try:
        return len(await gateway.records()) == count
    except SpoolUnavailable:
        await asyncio.sleep(0.1)
        return False


async def test_they_are_one_installation(gateways: tuple[Serving, Serving]) -> None:
    """
    A key of one gateway works at the other, a call that both receive is one record, and both show
    the same accounting.
    """
    one, other = gateways
    span = json_traces(json_span())
    assert (await one.send(TRACES, span, key=one.key)).status == 200
    await until(lambda: takes(other, span, one.key))
    assert (await other.send(TRACES, json_traces(json_span()), key=one.key)).status == 200
    await until(lambda: have_same_records(gateways, 2))
    books = [await each.app.services.storage.log.books() for each in gateways]
    assert books[0] == books[1]
    assert books[0].imbalances == []
    terms = {term: n for term, n in books[0].topics[AI_TELEMETRY].items() if n}
    assert terms == {"received": 3, "duplicates": 1, "accepted": 2, "kept": 2}


async def metrics(gateway: Serving) -> dict[str, float]:
    """Return the metrics that have only one series, the metric that names the installation, and open insights."""
    text = (await gateway.send("/metrics", b"", method="GET", key=None)).body.decode()
    return {
        name: float(value)
        for name, value in re.findall(r"^([a-z_]+(?:{(?:installation|detector)=.*})?) (\S+)$", text, re.M)
    }


@pytest.mark.proof
async def test_both_gateways_report_the_same_about_the_database(gateways: tuple[Serving, Serving]) -> None:
    """
    Both gateways report two nodes and the same installation. On a busy machine the database may not answer
    for a moment, so the metrics are compared once it does.
    """
    found: list[dict[str, float]] = []

    async def both_are_seen() -> bool:
        found[:] = [await metrics(each) for each in gateways]
        said = {(each.get("tollhouse_nodes"), each.get("tollhouse_storage_answers")) for each in found}
        return {(2.0, 1.0)} == said

    await until(both_are_seen)
    one, other = found
    (installation,) = (name for name in one if name.startswith("tollhouse_installation"))
    assert installation in other
    assert one["tollhouse_postgres_max_connections"] == other["tollhouse_postgres_max_connections"]
    assert "tollhouse_postgres_synchronous_standbys" not in one  # durability = "local" needs no standby


@pytest.mark.proof
async def test_both_show_the_same_open_insights(gateways: tuple[Serving, Serving]) -> None:
    """An insight that one gateway stores is in the metrics of both, until it is addressed at the other."""
    one, other = (gateway.app.services.storage.registry for gateway in gateways)
    assert one is not None
    assert other is not None

    async def both_show(open_insights: float) -> bool:
        series = 'tollhouse_insights{detector="",severity="critical"}'
        return [open_insights] * 2 == [(await metrics(each)).get(series, 0.0) for each in gateways]

    note = await one.insights.create(InsightDraft(title="a note", category=NOT_ARRIVING), actor=ACTOR)
    await until(lambda: both_show(1.0))
    await other.insights.change(note.id, status=ADDRESSED, actor=ACTOR)
    await until(lambda: both_show(0.0))


async def tells_that_storage_answers(node: Serving) -> bool:
    return (await metrics(node))["tollhouse_storage_answers"] == 1


@pytest.mark.proof
async def test_acknowledged_records_survive_the_loss_of_the_primary(
    serve: Serve, pair: Pair, tmp_path: Path
) -> None:
    """
    Acknowledged records survive a failover to the standby, and none is stored twice.

    Without a standby that confirms, the answer is 503, and nothing is lost.
    """
    waits = {"commit_wait": 2.0, "commit_timeout": 1.0}
    config = shared_config(pair.dsn, "tollhouse", tmp_path, durability=REPLICATED, **waits)
    node = await serve(config=config)
    first, second = json_traces(json_span()), json_traces(json_span())
    await until(lambda: takes(node, first, node.key))  # wait until the standby follows the primary
    await until(lambda: tells_that_storage_answers(node))
    async with node.client.get(node.url + "/readyz") as response:
        assert (await response.json())["storage"]["durability"] == REPLICATED
    pair.standby.stop()
    assert (await node.send(TRACES, second)).status == 503
    pair.standby.start()
    await until(lambda: takes(node, second, node.key))  # wait until the standby has caught up
    pair.primary.stop()
    assert (await node.send(TRACES, first)).status == 503
    assert await probe(node, "/livez") == 200
    assert await probe(node, "/readyz") == 503
    assert (await metrics(node))["tollhouse_storage_answers"] == 0
    later = asyncio.ensure_future(serve(config=config, key_name="later"))  # this start waits for the database
    pair.promote()
    # The server itself starts, but without a standby its key cannot be created.
    with pytest.raises(SpoolUnavailable, match="the standby is gone"):
        await later
    await until(lambda: has_records(node, 2))
    third = json_traces(json_span())
    # the new primary names no synchronous standby, so nothing may be acknowledged
    assert (await node.send(TRACES, third)).status == 503
    pair.standby.change(synchronous_standby_names="nobody")
    assert (await node.send(TRACES, third)).status == 503  # the named standby does not exist


async def test_a_deleted_key_is_dead_on_the_other_at_once(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A deleted key is refused at once, even if the other gateway's cache still knows it. Operations that only
    read need a recent look at the changes.
    """

    async def no_look(self: RegistryChangeFollower) -> None:
        """Hide all changes from the other gateway."""

    monkeypatch.setattr(RegistryChangeFollower, "read_registry_changes", no_look)
    # the changes that were read at the start stay recent enough
    monkeypatch.setattr(changes, "LOOKED_S", 3600.0)
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    await one.make_connection()
    billing = await one.make_key("billing", use_cases=[SEND_BILLING_DATA])
    unit_cost = await writer(one)
    other = await serve(config=config, key_name="other sender")
    sent = {
        "sender": (TRACES, json_traces(json_span()), one.key),
        "writer": (SUM, body(usage()), unit_cost),
        "billing": (DROPS.format("anycost"), orjson.dumps({"data": [ROW]}), billing),
    }
    registry = one.app.services.storage.registry
    assert registry is not None
    for name, (path, content, key) in sent.items():
        assert 200 == (await other.send(path, content, key=key)).status
        await registry.keys.delete(name, confirm=name, actor=Actor("ada@example.com", "127.0.0.1"))
        before = await other.app.services.storage.log.books()
        answer = await other.send(path, content, key=key)
        assert 401 == answer.status, name
        assert b"was deleted" in answer.body
        assert before == await other.app.services.storage.log.books(), name
    assert (await other.send(TRACES, json_traces(json_span()), key=other.key)).status == 200
    monkeypatch.setattr(changes, "LOOKED_S", -1.0)
    refused = await other.send("/v2/budgets", b"", None, method="GET", key=other.key)
    assert 503 == refused.status
    assert b"keys_unavailable" in refused.body
    assert (await other.send(TRACES, json_traces(json_span()), key=other.key)).status == 200


async def test_streams_that_are_defined_twice_at_once(
    gateways: tuple[Serving, Serving], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If two gateways get different definitions of a stream at the same time, the second is refused, even at a gateway
    that has not seen the first one. An equal definition is accepted at both.
    """

    async def no_look(self: RegistryChangeFollower) -> None:
        """Hide new streams from both gateways."""

    monkeypatch.setattr(RegistryChangeFollower, "read_tables_without_announcements", no_look)
    scopes = ["unit-cost_v1:create_telemetry_stream", "unit-cost_v1:manage_telemetry_records"]
    keys = [
        await gateway.make_key(f"streams {place}", scopes=scopes) for place, gateway in enumerate(gateways)
    ]
    statuses = []
    for gateway, key, type in (
        (0, keys[0], "allocation"),
        (1, keys[1], "metric"),
        (1, keys[1], "allocation"),
    ):
        path = f"/unit-cost/v1/telemetry/{type}/calls"
        answer = await gateways[gateway].send(path, b"{}", method="PUT", key=key)
        statuses.append(answer.status)
    assert [201, 409, 200] == statuses
    record = {
        "timestamp": "2026-11-01T00:00:00Z",
        "granularity": "DAILY",
        "element_name": "acme",
        "value": "1",
    }
    statuses = []
    for gateway, name in ((0, "Region"), (1, "Zone"), (1, "Region")):
        body = json.dumps({"records": [{**record, "filter": {name: ["eu"]}}]}).encode()
        path = "/unit-cost/v1/telemetry/allocation/calls/sum"
        statuses.append((await gateways[gateway].send(path, body, key=keys[gateway])).status)
    assert [200, 400, 200] == statuses
    [total] = await gateways[0].app.services.storage.streams.stream_totals("calls")
    assert total.value == "2"
    assert total.dimensions == {"Region": ["eu"]}


@pytest.mark.proves("insights at two gateways")
async def test_an_insight_is_one_whichever_gateway_looks(gateways: tuple[Serving, Serving]) -> None:
    """The inspection may run on either gateway. Both find the same insights, and none ends and reopens."""
    one, other = gateways
    storage = one.app.services.storage
    assert (await one.send(TRACES, json_traces(json_span()))).status == 200
    await until(lambda: have_same_records(gateways, 1))
    await storage.ledger.catch_up(storage.log)
    await storage.ledger._change_rows(lambda rows: rows.set_state(missed=3, settled=3))
    found = []
    for gateway in (one, other, one, other):
        report = await make_insight_updater(gateway.app.services.operators).find_and_store_insights()
        registry = gateway.app.services.storage.registry
        assert registry is not None
        found.append((await registry.insights.detector_insights(), report.merged))
    first, merged = found[0]
    assert "missed_records" in {(each.finding or "").partition(":")[0] for each in first}
    for insights, again in found[1:]:
        assert [(each.id, each.status) for each in first] == [(each.id, each.status) for each in insights]
        assert again.new == 0
        assert merged.new == again.again
        assert again.reopened == 0
        assert again.gone == 0
