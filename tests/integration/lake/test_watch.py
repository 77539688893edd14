"""A server checks its lakes regularly. The result is stored for insights, metrics and `doctor`."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from exporters.errors import Retryable
from exporters.lake import watch
from exporters.lake.stores import FolderStore, LakeStore, StoredObject
from exporters.lake.watch import AGAIN_S, RETRY_S, LakeWatch, check_lake_files
from spool.deliveries.protocols import read_lake_verdict
from tests.exporters.spools import StoppedClock, calls
from tests.integration.lake.lakes import ROUTE, House, opened
from tests.waiting import until

DAY_S = 86400.0


class AwayStore(FolderStore):
    def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        raise Retryable("nobody answers", answered=False)


def watch_of(house: House, store: LakeStore) -> LakeWatch:
    context = house.context()
    assert context.verdicts is not None
    seen = partial(check_lake_files, store, context, ROUTE)
    return LakeWatch(check=seen, verdicts=context.verdicts, route=ROUTE, every_s=DAY_S, clock=house.clock)


async def differences(house: House, lake: Path) -> dict[str, int]:
    return dict((await watch_of(house, FolderStore(lake)).check_and_log()).differences)


async def test_what_differs_is_found_without_reading_a_file(tmp_path: Path) -> None:
    """
    The regular check finds differences without reading a file: it compares the stored manifests with one list of
    objects. It shows deleted, truncated, foreign and duplicate objects, and a missing manifest.
    """
    lake = tmp_path / "lake"
    async with opened(tmp_path / "data") as house, house.forwarding(path=lake):
        assert {} == await differences(house, lake)
        await house.add(calls(1, 30))
        await house.until(queued=0)
        assert {} == await differences(house, lake)
        first, second, _ = sorted(lake.glob("ai_telemetry/v1/*/*.parquet"))
        kept = first.read_bytes()
        first.unlink()
        assert {"missing": 1} == await differences(house, lake)
        first.write_bytes(kept[:-9])
        assert {"size": 1} == await differences(house, lake)
        first.write_bytes(kept)
        shutil.copy(second, second.with_name("copy.parquet"))
        assert {"foreign": 1} == await differences(house, lake)
        second.with_name("copy.parquet").unlink()
        manifest = sorted(lake.glob("_manifest/*/*/*.json"))[1]
        manifest.rename(manifest.with_name("000000000011-000000000019.json"))
        assert {"missing": 1, "foreign": 1} == await differences(house, lake)


async def test_a_delivery_that_lands_is_no_difference(tmp_path: Path) -> None:
    """
    A delivery that is being landed is no difference: files with the next numbers, which are not settled yet, are
    not foreign. Files of another edition are.
    """
    lake = tmp_path / "lake"
    async with opened(tmp_path / "data") as house, house.forwarding(path=lake):
        await house.add(calls(1, 10))
        await house.until(queued=0)
        [landed] = lake.glob("ai_telemetry/v1/*/*.parquet")
        following = landed.name.replace("000000000001-000000000010", "000000000011-000000000020")
        shutil.copy(landed, landed.with_name(following))
        assert {} == await differences(house, lake)
        edition = following.split("-")[1]
        shutil.copy(landed, landed.with_name(following.replace(edition, "0" * 8)))
        assert {"foreign": 1} == await differences(house, lake)


async def test_it_looks_when_it_is_time(tmp_path: Path) -> None:
    """
    A server checks its lakes once a day, and once an hour while there are differences. A store that cannot be
    reached is tried again.
    """
    lake, clock = tmp_path / "lake", StoppedClock()
    async with opened(tmp_path / "data", clock) as house:
        async with house.forwarding(path=lake):
            await house.add(calls(1, 10))
            await house.until(queued=0)
        look = watch_of(house, FolderStore(lake))

        async def seen() -> float:
            verdict = await read_lake_verdict(look.verdicts, ROUTE)
            assert verdict is not None
            return verdict.at

        assert AGAIN_S == await look.check_if_due_and_return_wait_s()
        began = await seen()
        clock.move(DAY_S - 60)
        assert 60 == await look.check_if_due_and_return_wait_s()
        assert began == await seen()
        next(lake.glob("ai_telemetry/v1/*/*.parquet")).unlink()
        clock.move(60)
        assert AGAIN_S == await look.check_if_due_and_return_wait_s()
        assert began + DAY_S == await seen()
        clock.move(AGAIN_S)
        await look.check_if_due_and_return_wait_s()
        assert began + DAY_S + AGAIN_S == await seen()
        clock.move(AGAIN_S)
        assert RETRY_S == await watch_of(house, AwayStore(lake)).check_if_due_and_return_wait_s()


async def test_lake_check_runs_and_stops_with_its_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A running route checks its lake and stops checking when it stops. With `verify = "0s"` there is no check.
    """
    monkeypatch.setattr(watch, "FIRST_S", 0.0)
    async with opened(tmp_path / "data") as house:
        verdicts = house.context().verdicts
        assert verdicts is not None
        async with house.forwarding(path=tmp_path / "lake", verify=0.0):
            await house.add(calls(1, 10))
            await house.until(queued=0)
            assert not [task for task in asyncio.all_tasks() if task.get_name() == f"beside {ROUTE}"]
        assert await read_lake_verdict(verdicts, ROUTE) is None
        async with house.forwarding(path=tmp_path / "lake"):
            verdict = await until(partial(read_lake_verdict, verdicts, ROUTE))
        assert verdict is not None
        assert verdict.files == 1
        assert verdict.rows == 10
        assert verdict.differences == {}
        assert not [task for task in asyncio.all_tasks() if task.get_name() == f"beside {ROUTE}"]
