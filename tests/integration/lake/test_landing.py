"""Records in a lake: each once, despite kills, restores and foreign writers."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from exporters.lake import manifest, ndjson
from spool.clock import SystemClock
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import PARKED
from spool.leases import lease_name
from spool.record import NS
from tests.exporters.spools import StoppedClock, call, calls, counter
from tests.integration.lake import victim
from tests.integration.lake.lakes import ROUTE, House, begin_copy, opened, query

PAID = {"cost": "0.1", "cost_source": "reported"}


async def manifests(house: House) -> list[manifest.LakeManifest]:
    landed = await house.storage.small.open_table(LANDINGS).lake_deliveries_after(
        ROUTE, after_number=0, max_deliveries=1000
    )
    return [manifest.decode_manifest(one.body) for one in landed]


async def test_every_record_is_in_the_lake_once(tmp_path: Path) -> None:
    """
    The rows equal the accounting. Sums need no special rules for reference-only records, cached
    calls or corrections.
    """
    lake = tmp_path / "lake"
    records = [
        *calls(1, 20, **PAID), call(21, shadow=True, **PAID), call(22, status="cached", **PAID), counter(23), call(24),
        counter(25, value="12.5", unit="EUR"),  # this currency has no rate, so no dollar sum includes the amount
    ]  # fmt: skip
    async with opened(tmp_path / "data") as house, house.forwarding(path=lake):
        await house.add(records)
        await house.until(queued=0)
        assert {"delivered": 25} == {name: n for name, n in (await house.terms()).items() if n > 0}
        made = await manifests(house)
    assert [(25, 25, 24, 22, Decimal("2.0"))] == query(
        lake,
        "SELECT count(*), count(DISTINCT id), count(*) FILTER (counted), sum(calls), sum(spend) FROM lake",
    )
    assert [(1, 10), (11, 20), (21, 25)] == [(one.first, one.last) for one in made]
    assert Decimal(2) == sum(Decimal(one.counted.spend) for one in made)


async def test_manifests_are_a_chain_of_what_is_there(tmp_path: Path) -> None:
    """
    Each manifest in the lake equals the stored one. It names each file with its size, and the previous manifest.
    """
    lake = tmp_path / "lake"
    async with opened(tmp_path / "data") as house, house.forwarding(path=lake):
        await house.add(calls(1, 20))
        await house.until(queued=0)
        landed = await house.storage.small.open_table(LANDINGS).lake_deliveries_after(
            ROUTE, after_number=0, max_deliveries=10
        )
    bodies = [one.body for one in landed]
    first, second = map(manifest.decode_manifest, bodies)
    assert first.before is None
    assert manifest.sha256_hex(bodies[0]) == second.before
    kept = lake / f"_manifest/ai_telemetry/{first.edition}/000000000001-000000000010.json"
    assert bodies[0] == kept.read_bytes()
    assert [file.bytes for file in first.files] == [(lake / file.key).stat().st_size for file in first.files]
    assert [] == [path for path in lake.rglob("*") if path.name.startswith(".")]


@pytest.mark.proof
def test_a_kill_at_any_place_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """
    Gateways are killed at each step of a landing, one after the other. In the end every row exists once.
    """
    data, lake = tmp_path / "data", tmp_path / "lake"
    victim.kill_at_each_place(data, path=lake)
    found = query(
        lake, "SELECT count(*), count(DISTINCT number), min(number), max(number), sum(spend) FROM lake"
    )
    assert [(victim.RECORDS, victim.RECORDS, 1, victim.RECORDS, Decimal("9.5"))] == found
    assert 10 == len(list(lake.glob("_manifest/*/*/*.json")))


async def test_what_others_wrote_is_never_overwritten(tmp_path: Path) -> None:
    """If a delivery's file name is taken by other rows, the route parks and the file stays."""
    lake = tmp_path / "lake"
    clock = SystemClock()
    async with opened(tmp_path / "data") as house:
        (edition,) = await house.storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, 1)
        await house.add(calls(1, 10))
        today = datetime.fromtimestamp(clock.now(), UTC).strftime("%Y-%m-%d")
        name = f"ai_telemetry/v1/date={today}/lake-{edition}-000000000001-000000000010.parquet"
        (lake / name).parent.mkdir(parents=True)
        (lake / name).write_bytes(b"other rows")
        async with house.forwarding(path=lake):
            state = await house.until(state=PARKED)
    assert state.reason is not None and "contains other records" in state.reason
    assert b"other rows" == (lake / name).read_bytes()


async def test_a_prefix_belongs_to_one_installation(tmp_path: Path) -> None:
    """
    A prefix of a store belongs to one installation. Another installation writes nothing there and says why. The
    first one continues after a restart.
    """
    lake = tmp_path / "lake"
    for records in (calls(1, 10), calls(11, 20)):
        async with opened(tmp_path / "first") as house, house.forwarding(path=lake):
            await house.add(records)
            await house.until(queued=0)
            owner = house.context().installation
    assert owner == json.loads((lake / "_tollhouse.json").read_bytes())["installation"]
    before = sorted(lake.rglob("*"))
    async with opened(tmp_path / "second") as house, house.forwarding(path=lake):
        await house.add(calls(31, 40))
        state = await house.until(state=PARKED)
    assert state.reason is not None and f"belongs to another installation ({owner}" in state.reason
    assert before == sorted(lake.rglob("*"))


async def test_outdated_copy_pauses_and_sends_nothing_again(tmp_path: Path) -> None:
    """
    If the lake already has numbers that a restored copy would send, the copy sends none of them again. It reports
    this and waits.
    """
    lake = tmp_path / "lake"
    async with opened(tmp_path / "original") as house, house.forwarding(path=lake):
        await house.add(calls(1, 10))
        await house.until(queued=0)
        editions = await house.storage.small.open_table(LANDINGS).find_or_begin_log_editions(ROUTE, 1)
        await house.add(calls(11, 20))
        await house.until(queued=0)
        begin_copy(tmp_path / "copy", house.storage)
    async with opened(tmp_path / "copy") as house:
        await house.add(calls(1, 10))
        async with house.forwarding(path=tmp_path / "elsewhere"):
            await house.until(queued=0)
    assert 1 == len(editions)
    await _take_edition(tmp_path / "copy", editions[0])
    async with opened(tmp_path / "copy") as house:
        await house.storage.small.open_table(LANDINGS).begin_log_edition()
        await house.add(calls(31, 40))
        async with house.forwarding(path=lake):
            state = await house.until(state=PARKED)
    assert state.reason is not None and "numbers 11 to 20" in state.reason
    assert [(20,)] == query(lake, "SELECT count(*) FROM lake")


async def _take_edition(data: Path, edition: str) -> None:
    """Give a copy its original's edition."""
    import sqlite3

    connection = sqlite3.connect(data / "spool.sqlite")
    with connection:
        connection.execute("UPDATE lake_editions SET edition = ?", (edition,))
    connection.close()


async def test_files_wait_from_the_commit_of_a_record(tmp_path: Path) -> None:
    """A restart creates no file early. A full delivery is sent at once, the rest when it is old enough."""
    lake = tmp_path / "lake"
    clock = StoppedClock(1_793_000_000.0)
    async with opened(tmp_path / "data", clock) as house:
        async with house.forwarding(path=lake, linger=900.0):
            await house.add(calls(1, 12))
            await house.until(queued=2)
        async with house.forwarding(path=lake, linger=900.0):
            await house.add([call(13)])
            clock.move(899)
            await house.until(queued=3)
            clock.move(2)
            await house.until(queued=0)
        assert [(1, 10), (11, 13)] == [(one.first, one.last) for one in await manifests(house)]


async def test_waiting_records_land_at_once_on_request(tmp_path: Path) -> None:
    """An operator can land waiting records at once, before a file is old enough. Later commits wait as before."""
    clock = StoppedClock(1_793_000_000.0)
    async with opened(tmp_path / "data", clock) as house:
        async with house.forwarding(path=tmp_path / "lake", linger=900.0) as forwarder:
            await house.add(calls(1, 3))
            forwarder.retry_now()  # wake the forwarder as a changed secret does; this must not create a file early
            await house.until(queued=3)
            await house.storage.leases.wake_tasks(lease_name(ROUTE))
            await house.until(queued=0)
            clock.move(1)
            await house.add(calls(4, 5))
            await house.until(queued=2)
        assert [(1, 3)] == [(one.first, one.last) for one in await manifests(house)]


async def test_lines_of_json_need_no_library(tmp_path: Path) -> None:
    """A file of JSON lines has the known columns, amounts with every digit, and its proof at the end."""
    lake = tmp_path / "lake"
    async with opened(tmp_path / "data") as house, house.forwarding(path=lake, format="ndjson"):
        start = int(house.clock.now()) * NS
        await house.add(
            [call(1, cost="0.000000000000000000000000001", cost_source="reported", start_time=start)]
        )
        await house.until(queued=0)
        (made,) = await manifests(house)
    (file,) = made.files
    path = lake / file.key
    assert [(1, "0.000000000000000000000000001", 1, None)] == list(
        ndjson.read_rows(path, ["number", "spend", "input_tokens", "user"])
    )
    assert made.digest == ndjson.read_metadata(path.read_bytes())["tollhouse.digest"]
