"""
Records of every topic are read back from a lake: into another lake, and into the log of a restored copy.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli.lake.command import lake as command
from spool.deliveries.protocols import LANDINGS
from spool.identity import RecordIdentity
from spool.log.values import Submission
from spool.record import TOPICS, HourlyBillingFile, Record, UnitCostOperation, UsageEvent, record_to_json
from tests.exporters.spools import record_id
from tests.integration.lake.lakes import House, configured, opened
from tests.integration.lake.test_topics import AT_NS, RECORDS, landed
from tests.rounds import part

OTHERS = ("usage-events", "unit-cost", "billing-data")


def run(directory: Path, verb: str, *words: str, lake: str = "lake", topic: str = "usage-events") -> Any:
    fields = {"type": "file", "path": directory / lake, "linger": "0s", "topics": TOPICS}
    config = configured(directory, spool='hold = "0s"', **fields)
    options = ["--config", str(config), "--topic", topic, "--json"]
    result = CliRunner().invoke(command, [verb, *words, *options])
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def fill(directory: Path, format: str) -> None:
    async def work() -> None:
        async with opened(directory / "data") as house:
            await landed(house, path=directory / "lake", format=format)

    asyncio.run(work())


def only_file(directory: Path, topic: str, lake: str = "lake") -> Path:
    table = topic.replace("-", "_")
    (found,) = (directory / lake).glob(f"{table}/v1/*/*")
    return found


@pytest.mark.parametrize("topic", OTHERS)
@pytest.mark.parametrize("source", part(["parquet", "ndjson", "record file"], every=2))
def test_a_topic_is_imported_once(topic: str, source: str, tmp_path: Path) -> None:
    """
    Each kind of file is imported with its values. A second import changes nothing, and every proof holds.
    """
    fill(tmp_path, "parquet" if source == "record file" else source)
    file = only_file(tmp_path, topic)
    if source == "record file":
        file = tmp_path / "old.ndjson"
        file.write_bytes(orjson.dumps(record_to_json(RECORDS[topic])) + b"\n")
    for _ in range(2):
        (done,) = run(tmp_path, "import", str(file), lake="other", topic=topic)["imported"]
        assert done["rows"] == 1
        assert done["known"] == 0
        assert done["left_out"] == 0
    found = run(tmp_path, "verify", "--data", "--without-books", lake="other", topic=topic)
    assert found["rows"] == 1
    assert found["imported"] == 1
    assert found["differences"] == []
    if source == "parquet":
        original, brought = (rows(path) for path in (file, only_file(tmp_path, topic, "other")))
        assert original == brought


def rows(path: Path) -> list[dict[str, Any]]:
    """Return a file's rows without their log numbers and commit times."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    found: list[dict[str, Any]] = table.drop(["edition", "number", "committed_at"]).to_pylist()
    return found


@pytest.mark.parametrize("topic", OTHERS)
def test_another_topic_is_refused(topic: str, tmp_path: Path) -> None:
    """A file of calls is no file of events, so nothing is written."""
    source = tmp_path / "calls.ndjson"
    source.write_bytes(orjson.dumps(record_to_json(RECORDS["ai-telemetry"])) + b"\n")
    with pytest.raises(AssertionError, match=f"row 1 is not a record of {topic}"):
        run(tmp_path, "import", str(source), topic=topic)
    assert not (tmp_path / "lake").exists()


def record_of(topic: str, number: int) -> Record:
    own = record_id(number)
    if topic == "usage-events":
        return UsageEvent(
            id=own, source="/app", event_type="seat", start_time=AT_NS, data={"n": number}, tags={"a": "b"}
        )
    if topic == "unit-cost":
        return UnitCostOperation(
            id=own, stream="seats", stream_type="metric", operation="sum", start_time=AT_NS, granularity="DAILY",
            element_name=f"n{number}", dimensions={"region": ["eu"]}, value="0.5",
        )  # fmt: skip
    return HourlyBillingFile(
        id=own, connection_id="con-1", month="2026-09", operation="replace_drop", rows=1, body=b'{"n": %d}' % number,
        start_time=AT_NS,
    )  # fmt: skip


async def add(house: House, topic: str, first: int, last: int) -> None:
    records = [record_of(topic, number) for number in range(first, last + 1)]
    identities = [RecordIdentity(record.id) for record in records]
    await house.storage.log.append_submission(
        Submission(topic=topic, received=len(records), records=records, identities=identities)
    )


async def restored(directory: Path, topic: str) -> None:
    """Restore a copy that has records 1 to 4, while the original has already landed records 1 to 8."""
    lake: dict[str, Any] = {"path": directory / "lake", "topics": (topic,)}
    async with opened(directory / "data") as house, house.forwarding(**lake):
        await add(house, topic, 1, 4)
        await house.until(f"lake/{topic}", queued=0)
    shutil.copytree(directory / "data", directory / "original")
    async with opened(directory / "original") as house, house.forwarding(**lake):
        await add(house, topic, 5, 8)
        await house.until(f"lake/{topic}", queued=0)
    async with opened(directory / "data") as house:
        await house.storage.deliveries.reopen_after_restore(unknown_outcome_reason=None)
        await house.storage.small.open_table(LANDINGS).begin_log_edition()


async def kept(directory: Path, topic: str) -> list[Record]:
    async with opened(directory / "data") as house:
        entries = await house.storage.log.read(topic, 1, 100)
        return [record for entry in entries for record in entry.records if record is not None]


@pytest.mark.parametrize("topic", part([*OTHERS], every=3))
def test_a_copy_adopts_each_topic(topic: str, tmp_path: Path) -> None:
    """
    After an adoption, records of each topic that the copy lacked are in its log again, unchanged. A second run
    finds nothing to do.
    """
    asyncio.run(restored(tmp_path, topic))
    done = run(tmp_path, "adopt", topic=topic)["adopted"]
    assert done["brought"] == 4
    assert done["known"] == 0
    assert done["left"] == 0
    assert [record_of(topic, number) for number in range(1, 9)] == asyncio.run(kept(tmp_path, topic))
    again = run(tmp_path, "adopt", topic=topic)["adopted"]
    assert again["brought"] == 0
    assert again["known"] == 0
    assert again["left"] == 0
    found = run(tmp_path, "verify", "--data", "--without-books", topic=topic)
    assert found["rows"] == 8
    assert found["differences"] == []
