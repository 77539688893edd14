"""A server, and `doctor`, check a Kafka topic and a ClickHouse table like a lake of files."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from exporters.destinations.catalogue import TYPES
from exporters.exporter import StoreRouteMark
from exporters.kafka import recount
from exporters.kafka.messages import TopicProgress, progress_key
from exporters.lake import watch
from exporters.lake.exporter import NOTED_EVERY_S, LandingRecorder
from exporters.settings import DestinationSettings
from gateway.cli.doctor import doctor
from gateway.configuration.sections import Config
from gateway.service.assembly.lakes import lake_states
from spool.deliveries.protocols import LakeVerdict, read_lake_verdict, read_last_lake_write_at
from spool.deliveries.values import Delivery, Settlement
from spool.errors import SpoolUnavailable
from spool.log.values import LogEntry
from tests.exporters.clickhouse.server import Table, served
from tests.exporters.spools import StoppedClock, calls
from tests.integration.lake.lakes import ROUTE, House, opened
from tests.waiting import until

OFTEN_S = 0.01  # seconds between two checks of the destination


async def seen(house: House, wanted: Mapping[str, int], words: str = "") -> LakeVerdict:
    """Wait for a check with these differences. The first difference contains the given text."""
    verdicts = house.context().verdicts
    assert verdicts is not None

    async def wanted_verdict() -> LakeVerdict | None:
        verdict = await read_lake_verdict(verdicts, ROUTE)
        is_wanted = verdict is not None and verdict.differences == wanted and words in verdict.words
        return verdict if is_wanted else None

    verdict = await until(wanted_verdict, f"a check with {wanted}")
    assert verdict is not None
    return verdict


async def test_table_is_counted_while_its_route_delivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Missing rows are a difference until they return. Rows delivered during the check are not."""
    monkeypatch.setattr(watch, "FIRST_S", 0.0)
    table = Table()
    async with served(table) as url, opened(tmp_path / "data") as house:
        began = house.clock.now()
        settings = DestinationSettings(name="lake", type="clickhouse", url=url)
        async with house.forwarding(type="clickhouse", url=url, verify=OFTEN_S):
            await house.add(calls(1, 30))
            await house.until(queued=0)
            await seen(house, {})
            gone = table.rows.pop(4)
            first = await seen(house, {"hole": 1, "missing": 1}, "1 of the numbers 1 to 30 have no row")
            assert first.files == 0
            assert first.rows == 29
            [state] = await lake_states(Config(data_dir=tmp_path, destinations=(settings,)), house.storage)
            assert state.route == ROUTE
            assert first.differences == (state.verdict and state.verdict.differences)
            assert state.landed_at is not None and began <= state.landed_at <= house.clock.now()
            table.rows.append(gone)
            await seen(house, {})


@asynccontextmanager
async def looking(house: House, settings: DestinationSettings) -> AsyncIterator[None]:
    """Run the background check of a destination without its route."""
    beside = TYPES[settings.type].beside
    assert beside is not None
    run = beside(settings, None, house.clock, house.context())
    assert run is not None
    task: asyncio.Task[None] = asyncio.create_task(run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_progress_of_a_topic_is_compared_with_the_accounting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A progress record that is behind or missing, or from another installation, is a difference."""
    there: dict[bytes, TopicProgress] = {}

    @asynccontextmanager
    async def reader(options: object) -> AsyncIterator[None]:
        yield

    async def progresses(
        reader: None, topic: str, is_wanted: Callable[[bytes], bool]
    ) -> Mapping[bytes, TopicProgress]:
        assert "tollhouse.progress" == topic
        return {key: each for key, each in there.items() if is_wanted(key)}

    monkeypatch.setattr(watch, "FIRST_S", 0.0)
    monkeypatch.setattr(recount, "open_reader", reader)
    monkeypatch.setattr(recount, "read_progresses", progresses)
    settings = DestinationSettings(
        name="lake", type="kafka", url="127.0.0.1:9", tls=False, topics=("ai-telemetry",), verify=OFTEN_S
    )
    async with opened(tmp_path / "data") as house, looking(house, settings):
        await seen(house, {})
        # Deliver the same route into a folder, so that the route has accounting.
        async with house.forwarding(path=tmp_path / "lake", verify=0.0):
            await house.add(calls(1, 30))
            await house.until(queued=0)
        await seen(house, {"missing": 1}, "ends at 0, but the route has sent the numbers up to 30")
        own, other = progress_key("0" * 8, ROUTE), progress_key("0" * 8, "other/ai-telemetry")
        there[other] = TopicProgress(21, 30, "")
        there[own] = TopicProgress(11, 20, "")
        await seen(house, {"missing": 1}, "ends at 20")
        there[own] = TopicProgress(21, 30, "")
        await seen(house, {})
        there[own] = TopicProgress(50_001, 60_000, "")
        await seen(house, {"foreign": 1})


@pytest.mark.parametrize("type", ["kafka", "clickhouse"])
async def test_nobody_looks_where_verify_is_off(type: str, tmp_path: Path) -> None:
    """If a destination has `verify = "0s"`, its stream is not checked."""
    settings = DestinationSettings(name="lake", type=type, url="127.0.0.1:9", verify=0.0)
    beside = TYPES[type].beside
    async with opened(tmp_path / "data") as house:
        assert beside is not None
        assert beside(settings, None, house.clock, house.context()) is None


class Landed:
    """An exporter that lands every delivery."""

    in_flight, max_records = 1, 10

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        return Settlement(delivered=delivery.count, damaged=0)

    async def close(self) -> None: ...


async def test_a_landing_is_noted_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The time of the last landing is noted once a minute. A delivery lands even if this note cannot be written, and
    later landings are noted again.
    """
    clock = StoppedClock()
    async with opened(tmp_path / "data", clock) as house:
        verdicts = house.context().verdicts
        assert verdicts is not None
        landings = LandingRecorder(Landed(), verdicts, ROUTE, clock)
        delivery = Delivery(id=1, route=ROUTE, first=1, last=9, attempts=0, idempotency_key="")

        async def landed() -> float | None:
            async def keep(mark: str) -> None: ...

            async def none() -> AsyncIterator[LogEntry]:
                return
                yield

            assert 9 == (await landings.write_delivery(delivery, none(), keep)).delivered
            return await read_last_lake_write_at(verdicts, ROUTE)

        began = clock.now()
        assert began == await landed()
        clock.move(NOTED_EVERY_S - 1)
        assert began == await landed()
        clock.move(1)
        with monkeypatch.context() as patch:
            patch.setattr(verdicts, "store_pull_state", AsyncMock(side_effect=SpoolUnavailable("away")))
            assert began == await landed()
        clock.move(NOTED_EVERY_S)
        assert began + 2 * NOTED_EVERY_S == await landed()


@pytest.mark.parametrize(
    ("columns", "status", "words"),
    [
        (True, "ok", "with the engine ReplacingMergeTree"),
        (False, "problem", "the table ai_telemetry does not exist"),
    ],
)
async def test_a_table_is_tried_by_doctor(columns: bool, status: str, words: str, tmp_path: Path) -> None:
    """`doctor` reports a missing table as a problem of the destination before any record waits for it."""
    table, file = Table(), tmp_path / "tollhouse.toml"
    if not columns:
        table.columns = {}

    async with served(table) as url:
        destination = f'[[destinations]]\nname = "house"\ntype = "clickhouse"\nurl = "{url}"\n'
        file.write_text(f'data_dir = "{tmp_path}/data"\n{destination}')
        tried = await asyncio.to_thread(CliRunner().invoke, doctor, ["--config", str(file), "--json"])

    [found] = [
        each for each in json.loads(tried.stdout)["doctor"]["found"] if each["about"] == "destination house"
    ]
    assert found["status"] == status, found
    assert words in found["words"], found
    assert [] == table.inserts
