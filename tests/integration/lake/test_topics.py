"""Every topic has its own table in a lake, with the same names, proofs and repairs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from exporters.destinations.catalogue import destination_secret
from exporters.lake import names
from exporters.lake.destination import open_store
from exporters.lake.file_checks import find_file_format
from exporters.lake.repair import LakeRepair
from exporters.lake.stores import LakeStore
from exporters.lake.tables import OPTIONAL, TABLES, table_for_route
from exporters.lake.verification import DATA, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from spool.deliveries.protocols import LANDINGS
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import NS, TOPICS, HourlyBillingFile, Record, UnitCostOperation, UsageEvent
from tests.exporters.spools import call, record_id
from tests.integration.lake.lakes import House, configured, opened
from tests.integration.lake.s3 import BUCKET
from tests.integration.lake.test_content import texts
from tests.rounds import part

AT_NS = 1_790_000_000 * NS
BODY = b'{"operation":"replace_drop","rows":[{"cost":1.5}]}'
RECORDS: dict[str, Record] = {
    "ai-telemetry": call(1, start_time=AT_NS),
    "usage-events": UsageEvent(
        id=record_id(2), source="/app", event_id="e-1", event_type="image.made", subject="acme", start_time=AT_NS,
        data={"images": 3, "size": "1024"}, tags={"traceparent": "00-1"},
    ),
    "unit-cost": UnitCostOperation(
        id=record_id(3), stream="per_user", stream_type="metric", operation="sum", start_time=AT_NS,
        granularity="DAILY", element_name="ada", dimensions={"region": ["eu"]}, value="0.000000000000001",
    ),
    "billing-data": HourlyBillingFile(
        id=record_id(4), connection_id="con-1", month="2026-09", operation="replace_drop", rows=1, body=BODY,
        start_time=AT_NS,
    ),
}  # fmt: skip
SHOWN: dict[str, dict[str, Any]] = {
    "usage-events": {
        "event_id": "e-1", "event_type": "image.made", "subject": "acme", "data": '{"images":3,"size":"1024"}',
        "tags": {"traceparent": "00-1"}, "kind": "usage_event", "source": "/app",
    },
    "unit-cost": {
        "stream": "per_user", "stream_type": "metric", "operation": "sum", "granularity": "DAILY",
        "element_name": "ada", "dimensions": '{"region":["eu"]}', "value": Decimal("1e-15"), "kind": "unit_cost",
    },
    "billing-data": {
        "connection_id": "con-1", "month": "2026-09", "operation": "replace_drop", "rows": 1, "body": BODY.decode(),
        "upstream_id": None, "kind": "billing_drop",
    },
}  # fmt: skip


async def landed(house: House, records: Mapping[str, Record] = RECORDS, **fields: Any) -> None:
    """Land a record of each topic."""
    async with house.forwarding(topics=TOPICS, **fields):
        for topic, record in records.items():
            await house.storage.log.append_submission(
                Submission(topic=topic, received=1, records=[record], identities=[RecordIdentity(record.id)])
            )
        await house.until_all_is_sent()


async def row_of(store: LakeStore, topic: str, scratch: Path) -> dict[str, Any]:
    """Return the only row of a table, with the columns that are read."""
    table = TABLES[topic]
    [file] = [each.name async for each in store.list_objects(names.data_prefix(table.name))]
    await store.fetch(file, scratch / "file")
    format = find_file_format(file)
    assert format is not None
    columns = list(table.columns)
    [values] = format.read_rows(scratch / "file", columns)
    row = dict(zip(columns, values, strict=True))
    row["tags"] = dict(row.get("tags") or ())
    return row


async def differences(store: LakeStore, house: House, route: str, scratch: Path) -> list[str]:
    """Return the differences that a verification of the table and a recount of its route find."""
    scratch.mkdir(exist_ok=True)
    table = table_for_route(route).name
    read = read_manifests(store, "lake", scratch, table=table)
    found = await verify_files(store, read, level=DATA, scratch=scratch, table=table)
    assert 1 == found.rows
    seen = await compare_with_store(store, house.context(), route)
    return [each.kind for each in (*found.differences, *seen.differences)]


@pytest.mark.parametrize("format", ["parquet", "ndjson"])
@pytest.mark.parametrize("place", part(["folder", "s3"], every=2))
async def test_each_topic_has_a_table(
    place: str, format: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """
    Each topic has a table of its own in the lake, with its own names. Values have all digits. Neither a
    verification nor a recount finds a difference.
    """
    (tmp_path / "secret").write_text("testing\ntesting-secret\n")
    fields: dict[str, Any] = {"type": "file", "path": tmp_path / "lake"}
    if place == "s3":
        address = request.getfixturevalue("s3")
        fields = {
            "type": "s3",
            "url": f"s3://{BUCKET}/topics-{format}",
            "endpoint": address,
            "secret_file": tmp_path / "secret",
        }
    settings = DestinationSettings(name="lake", **fields)
    store = open_store(settings, destination_secret(settings))
    async with opened(tmp_path / "data") as house:
        await landed(house, format=format, **fields)
        for topic, shown in SHOWN.items():
            row = await row_of(store, topic, tmp_path)
            if format == "ndjson" and "value" in row:
                row["value"] = Decimal(row["value"])
            assert shown == {name: row[name] for name in shown}
            assert row["number"] == 1
            assert RECORDS[topic].id.hex() == row["id"]
            assert row["counted"] is False
        for topic, table in TABLES.items():
            [name] = [each.name async for each in store.list_objects(names.data_prefix(table.name))]
            assert name.startswith(f"{table.name}/v1/date=2026-09-21/lake-")
            assert [] == await differences(store, house, f"lake/{topic}", tmp_path / "scratch")


async def test_a_missing_file_of_a_topic_is_put_again(tmp_path: Path) -> None:
    """
    If a topic's file is missing, it is written again under its name with its rows. Tables of other topics
    do not change.
    """
    async with opened(tmp_path / "data") as house:
        await landed(house, path=tmp_path / "lake")
        store = open_store(DestinationSettings(name="lake", type="file", path=tmp_path / "lake"), None)
        for topic, table in TABLES.items():
            [name] = [each.name async for each in store.list_objects(names.data_prefix(table.name))]
            kept = (tmp_path / "lake" / name).read_bytes()
            (tmp_path / "lake" / name).unlink()
            assert ["missing"] * 2 == await differences(store, house, f"lake/{topic}", tmp_path / "scratch")
            repair = LakeRepair(
                store=store, landings=house.storage.small.open_table(LANDINGS), log=house.storage.log,
                clock=house.clock, destination="lake", topic=topic, directory=tmp_path / "work",
            )  # fmt: skip
            assert [name] == list((await repair.repair_files(dry_run=False)).put)
            assert kept == (tmp_path / "lake" / name).read_bytes()
            assert [] == await differences(store, house, f"lake/{topic}", tmp_path / "scratch")


WORD = "kept-7b2c"
PLANTED: dict[str, Record] = {
    "ai-telemetry": call(1, start_time=AT_NS, user=WORD, session=WORD, tags={"a": WORD}),
    "usage-events": UsageEvent(
        id=record_id(2), source=WORD, event_id=WORD, event_type=WORD, subject=WORD, start_time=AT_NS,
        data={WORD: WORD}, tags={WORD: WORD},
    ),
    "unit-cost": UnitCostOperation(
        id=record_id(3), stream=WORD, stream_type="metric", operation="sum", start_time=AT_NS, granularity="DAILY",
        element_name=WORD, dimensions={WORD: [WORD]}, value="1",
    ),
    "billing-data": HourlyBillingFile(
        id=record_id(4), connection_id=WORD, month="2026-09", operation="replace_drop", rows=1, body=WORD.encode(),
        start_time=AT_NS, upstream_id=WORD,
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", ["parquet", "ndjson"])
@pytest.mark.parametrize("left_out", [OPTIONAL, ()], ids=["left out", "kept"])
async def test_what_is_left_out_is_in_no_table(
    tmp_path: Path, format: str, left_out: tuple[str, ...]
) -> None:
    """
    A left-out value is in no row, footer, statistic or manifest. Without `leave_out`, each table has it.
    """
    async with opened(tmp_path / "data") as house:
        await landed(house, PLANTED, path=tmp_path / "lake", format=format, leave_out=left_out)
    found = dict(texts(tmp_path / "lake"))
    del found["_tollhouse.json"]
    tables = {name.partition("/")[0] for name, text in found.items() if WORD in text}
    assert (set() if left_out else {table.name for table in TABLES.values()}) == tables
    assert 2 * len(TABLES) == len(found)


def test_commands_accept_only_topics_that_the_destination_receives(tmp_path: Path) -> None:
    """The default topic is AI telemetry. A topic that the destination does not receive is refused."""

    async def fill() -> None:
        async with opened(tmp_path / "data") as house:
            await landed(house, path=tmp_path / "lake")

    asyncio.run(fill())
    config = configured(
        tmp_path, type="file", path=tmp_path / "lake", topics=["ai-telemetry", "usage-events", "unit-cost"]
    )

    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(command, [*words, "--config", str(config)])
        assert code == result.exit_code, result.output
        return result.output

    [event] = (tmp_path / "lake").glob("usage_events/v1/*/*")
    event.unlink()
    assert 1 == json.loads(run("verify", "--json"))["rows"]
    assert "missing: usage_events/v1/" in run("verify", "--topic", "usage-events", code=1)
    [made] = json.loads(run("manifest", "--topic", "unit-cost"))
    assert "lake/unit-cost" == made["route"]
    assert "written: usage_events/v1/" in run("repair")
    run("verify", "--topic", "usage-events", "--data")
    assert "has no topic 'billing-data'" in run("verify", "--topic", "billing-data", code=2)
