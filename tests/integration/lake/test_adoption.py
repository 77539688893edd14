"""A restored copy learns what its lake already has, and gets back the records that it lacks."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from exporters.lake.past.adoption import LakeAdoption
from exporters.lake.stores import FolderStore
from exporters.lake.verification import DATA, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from gateway.cli.lake.filling import adopt_lake
from gateway.devices.states import device_revoker
from spool.deliveries.protocols import LANDINGS
from spool.deliveries.values import PARKED
from spool.erasing import erase_from_storage
from spool.erasure import Erasure, new_erasure
from spool.errors import NotAllowed
from spool.record import AI_TELEMETRY, NS, Correction, Record
from spool.registry.operators import Actor
from tests.exporters.spools import call, calls, counter, record_id
from tests.integration.conftest import Serve
from tests.integration.lake.lakes import ROUTE, House, configured, opened, query
from tests.integration.lake.s3 import BUCKET
from tests.integration.test_two_gateways import shared_config
from tests.rounds import IS_LONG
from tests.spool.postgres_cluster import Schema
from tests.waiting import until

AT_NS = 1_790_000_000 * NS
PAID: dict[str, Any] = {"cost": "0.1", "cost_source": "reported"}


async def restored(directory: Path, beyond: Sequence[Record], since: Sequence[Record], **fields: Any) -> None:
    """
    Prepare an original and a restored copy. The original landed records 1 to 10. A backup was made after it
    had also received 11 to 15. Then the original landed 11 to 20 and `beyond`. The copy, restored from the
    backup, received `since`.
    """
    lake = fields or {"path": directory / "lake"}
    async with opened(directory / "data") as house:
        async with house.forwarding(**lake):
            await house.add(calls(1, 10, **PAID))
            await house.until(queued=0)
        await house.add(calls(11, 15, **PAID))
    shutil.copytree(directory / "data", directory / "original")
    async with opened(directory / "original") as house:
        await house.add([*calls(16, 20, **PAID), *beyond])
        async with house.forwarding(**lake):
            await house.until(queued=0)
    async with opened(directory / "data") as house:
        await house.storage.deliveries.reopen_after_restore(unknown_outcome_reason=None)
        await house.storage.small.open_table(LANDINGS).begin_log_edition()
        if since:
            await house.add(since)


def run(directory: Path, *words: str) -> Result:
    config = configured(directory, spool='hold = "0s"', linger="0s", batch_records=10)
    return CliRunner().invoke(command, ["adopt", "--config", str(config), "--json", *words])


def adopted(directory: Path, *words: str) -> list[int]:
    result = run(directory, *words)
    assert 0 == result.exit_code, result.output
    found = json.loads(result.stdout)["adopted"]
    return [found[name] for name in ("settled", "brought", "known", "left")]


async def landed(directory: Path) -> tuple[list[str], dict[str, int]]:
    """
    Let the copy continue. Return the differences that a verification of the lake and a recount find, and
    the copy's accounting.
    """
    async with opened(directory / "data") as house:
        async with house.forwarding(path=directory / "lake"):
            await house.add(calls(90, 94, **PAID))
            await house.until(queued=0)
        found = await differences(house, directory)
        return found, await house.terms()


async def differences(house: House, directory: Path) -> list[str]:
    store, scratch = FolderStore(directory / "lake"), directory / "scratch"
    scratch.mkdir(exist_ok=True)
    seen = await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    kept = await compare_with_store(store, house.context(), ROUTE)
    return [f"{each.kind} {each.name}: {each.words}" for each in (*seen.differences, *kept.differences)]


def test_restored_copy_continues_where_its_lake_is(tmp_path: Path) -> None:
    """
    A restored copy continues where its lake is: nothing is in the lake twice, and the copy lacks nothing. Neither a
    verification of the lake nor a recount finds a difference.
    """
    asyncio.run(restored(tmp_path, calls(21, 35, **PAID), calls(51, 53, **PAID)))
    assert [5, 20, 0, 0] == adopted(tmp_path, "--dry-run")
    assert 4 == len(list((tmp_path / "lake/_manifest").rglob("*.json")))
    assert [5, 20, 0, 0] == adopted(tmp_path)
    # Of the new manifests, three adopt deliveries with more records, and two are for deliveries
    # of imported records.
    assert 4 + 3 + 2 == len(list((tmp_path / "lake/_manifest").rglob("*.json")))
    assert [0, 0, 0, 0] == adopted(tmp_path)
    found, terms = asyncio.run(landed(tmp_path))
    assert found == []
    assert terms["delivered"] == 43
    assert [(43, 43, Decimal("4.3"))] == sums(tmp_path / "lake")


def test_records_from_a_lake_bring_no_erased_name_back(tmp_path: Path) -> None:
    """
    If a person was erased in the copy, records that are read back from the lake do not bring the person's name
    back, although the lake still has it.
    """
    asyncio.run(restored(tmp_path, calls(21, 35, user="ada", **PAID), []))

    async def erased() -> Erasure:
        async with opened(tmp_path / "data") as house:
            assert house.storage.registry is not None
            erasure = new_erasure([house.storage.registry.people.erasure_digest("ada")], time.time())
            actor = Actor("root@example.com", "local")
            await erase_from_storage(house.storage, erasure, revoke_device=device_revoker(""), actor=actor)
            return erasure

    async def users() -> set[str | None]:
        async with opened(tmp_path / "data") as house:
            log = house.storage.log
            found = await log.read(AI_TELEMETRY, 1, log.next_number(AI_TELEMETRY), includes_open_records=True)
            return {getattr(each, "user", None) for entry in found for each in entry.records}

    erasure = asyncio.run(erased())
    assert 20 == adopted(tmp_path)[1]
    assert {None, *erasure.names.values()} == asyncio.run(users())


@pytest.mark.proof
def test_restored_copy_continues_where_its_lake_is_in_s3(s3: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("testing\ntesting-secret\n")
    there = {"type": "s3", "url": f"s3://{BUCKET}/adopted", "endpoint": s3, "secret_file": secret}
    asyncio.run(restored(tmp_path, calls(21, 35, **PAID), calls(51, 53, **PAID), **there))
    config = configured(tmp_path, spool='hold = "0s"', **there)

    def done(*words: str) -> Any:
        result = CliRunner().invoke(command, [*words, "--config", str(config), "--json"])
        assert 0 == result.exit_code, result.output
        return json.loads(result.stdout)

    assert {"settled": 5, "brought": 20, "known": 0, "left": 0} == done("adopt")["adopted"]
    assert {"settled": 0, "brought": 0, "known": 0, "left": 0} == done("adopt")["adopted"]
    found = done("verify", "--data")
    assert found["rows"] == 35
    assert found["differences"] == []


def test_ids_decide(tmp_path: Path) -> None:
    """
    If senders repeated records meanwhile, their ids show that, so they are not imported again. A correction
    stays only in the lake.
    """
    changed = call(30, **{**PAID, "cost": "0.3"})
    correction = Correction(
        id=record_id(40),
        source="test",
        corrects=record_id(30),
        before=call(30, **PAID),
        after=changed,
        reason="late_usage",
        known_at=AT_NS,
        start_time=AT_NS,
    )
    asyncio.run(restored(tmp_path, [call(30, **PAID), counter(31), correction], calls(19, 20, **PAID)))
    assert [5, 5, 2, 1] == adopted(tmp_path)
    found, terms = asyncio.run(landed(tmp_path))
    assert found == []
    assert terms["delivered"] == 10 + 5 + 5 + 2 + 5


def test_what_the_copy_never_had_may_stay_in_the_lake_alone(tmp_path: Path) -> None:
    """
    With `--leave`, records that only the lake has stay there. The copy continues, and later checks
    find no difference.
    """
    asyncio.run(restored(tmp_path, calls(21, 35, **PAID), []))
    assert [5, 0, 0, 20] == adopted(tmp_path, "--leave")
    found, terms = asyncio.run(landed(tmp_path))
    assert found == []
    assert terms["delivered"] == 20
    assert [(40, 40, Decimal("4.0"))] == sums(tmp_path / "lake")


def test_nothing_is_imported_if_lake_equals_the_copy(tmp_path: Path) -> None:
    """If the lake has exactly the copy's records, nothing is imported and no adoption is noted."""

    async def settle() -> None:
        async with opened(tmp_path / "data") as house:
            async with house.forwarding(path=tmp_path / "lake"):
                await house.add(calls(1, 15, **PAID))
                await house.until(queued=0)
            await house.add(calls(16, 20, **PAID))
        shutil.copytree(tmp_path / "data", tmp_path / "original")
        async with opened(tmp_path / "original") as house, house.forwarding(path=tmp_path / "lake"):
            await house.until(queued=0)
        async with opened(tmp_path / "data") as house:
            await house.storage.deliveries.reopen_after_restore(unknown_outcome_reason=None)
            await house.storage.small.open_table(LANDINGS).begin_log_edition()

    asyncio.run(settle())
    assert [5, 0, 0, 0] == adopted(tmp_path)
    assert [] == list((tmp_path / "lake").rglob("adopted"))
    found, terms = asyncio.run(landed(tmp_path))
    assert found == []
    assert terms["delivered"] == 25
    assert [(25, 25, Decimal("2.5"))] == sums(tmp_path / "lake")


class Cut(Exception):
    """The process ends at this point."""


class Steps:
    """Counts down the steps that change something, and ends the process when none is left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def of(self, service: Any, *names: str) -> Any:
        return _Watched(service, names, self)


class _Watched:
    def __init__(self, service: Any, names: Sequence[str], steps: Steps) -> None:
        self._service, self._names, self._steps = service, names, steps

    def __getattr__(self, name: str) -> Any:
        if name in self._names:
            self._steps.left -= 1
            if self._steps.left < 0:
                raise Cut
        return getattr(self._service, name)


async def adopt_until(directory: Path, steps: Steps) -> bool:
    """Return False if the adoption was interrupted."""
    scratch = directory / "work"
    scratch.mkdir(exist_ok=True)
    async with opened(directory / "data") as house:
        storage = house.storage
        adoption = LakeAdoption(
            store=steps.of(FolderStore(directory / "lake"), "create_object"),
            landings=storage.small.open_table(LANDINGS),
            deliveries=steps.of(storage.deliveries, "take_due_delivery", "settle", "retry"),
            log=steps.of(storage.log, "append"),
            reports=storage.partial_reports,
            clock=house.clock,
            destination="lake",
            writer=1,
            batch_records=10,
            directory=scratch,
        )
        try:
            await adoption.adopt_records(leaves_in_lake=False, dry_run=False)
        except Cut:
            return False
    return True


def test_an_adoption_that_is_cut_off_anywhere_ends_as_if_it_was_not(tmp_path: Path) -> None:
    """
    An adoption that is interrupted ends like an uninterrupted one. The test interrupts it at every eighth step, in
    long rounds at each. A gateway that runs before the next attempt lands nothing, because its route parks.
    """
    asyncio.run(restored(tmp_path / "first", calls(21, 35, **PAID), calls(51, 53, **PAID)))

    async def parked(place: Path) -> None:
        async with opened(place / "data") as house, house.forwarding(path=place / "lake"):
            await house.until(state=PARKED)

    steps, is_whole = 0, False
    while not is_whole:
        place = tmp_path / str(steps)
        shutil.copytree(tmp_path / "first", place)
        is_whole = asyncio.run(adopt_until(place, Steps(steps)))
        if not (place / "lake/_manifest/ai_telemetry/adopted").exists():
            asyncio.run(parked(place))
        assert asyncio.run(adopt_until(place, Steps(1000)))
        found, terms = asyncio.run(landed(place))
        assert found == [], steps
        assert terms["delivered"] == 43, steps
        assert [(43, 43, Decimal("4.3"))] == sums(place / "lake")
        steps += 1 if IS_LONG else 8
    assert steps > 10


def test_a_lake_of_another_log_is_refused(tmp_path: Path) -> None:
    """The numbers of another log mean other records, so nothing is settled or written."""
    asyncio.run(restored(tmp_path, calls(21, 35, **PAID), []))

    async def other() -> None:
        async with opened(tmp_path / "other") as house:
            async with house.forwarding(path=tmp_path / "elsewhere"):
                await house.add(calls(1, 10, **PAID))
                await house.until(queued=0)
            await house.add([*calls(61, 64, **PAID), call(15, **PAID)])
            await house.storage.small.open_table(LANDINGS).begin_log_edition()

    asyncio.run(other())
    with sqlite3.connect(tmp_path / "data/spool.sqlite") as one:
        (edition,) = one.execute(
            "SELECT edition FROM lake_editions WHERE route = '' ORDER BY first"
        ).fetchone()
    with sqlite3.connect(tmp_path / "other/spool.sqlite") as one:
        one.execute("UPDATE lake_editions SET edition = ? WHERE first = 0", (edition,))
    one.close()
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "other").rename(tmp_path / "data")
    before = sorted((tmp_path / "lake").rglob("*"))
    result = run(tmp_path)
    assert 1 == result.exit_code
    assert "the number 11 is a different record here than in the data lake" in result.output
    assert before == sorted((tmp_path / "lake").rglob("*"))


async def test_no_other_gateway_may_run(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """Gateways on PostgreSQL share its records, so each must be stopped. The refusal names those that run."""
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path, node_name="gateway-1")
    gateway = await serve(config=config)

    async def is_seen() -> bool:
        return any(node.is_live for node in await gateway.app.services.storage.leases.node_states())

    await until(is_seen)
    lake = DestinationSettings(name="lake", type="file", path=tmp_path / "lake")
    alone = replace(config, data_dir=tmp_path / "copy")
    with pytest.raises(NotAllowed, match="stop every gateway first; still running: gateway-1"):
        await adopt_lake(alone, lake, AI_TELEMETRY, leaves_records_only_in_lake=False, dry_run=True)


def test_what_is_held_back_is_settled_by_hand_first(tmp_path: Path) -> None:
    asyncio.run(restored(tmp_path, [], []))

    async def hold() -> None:
        async with opened(tmp_path / "data") as house:
            await house.storage.deliveries.reopen_after_restore(unknown_outcome_reason="of a backup")

    asyncio.run(hold())
    result = run(tmp_path)
    assert 1 == result.exit_code
    assert "deliveries of lake/ai-telemetry are held back" in result.output


def sums(lake: Path) -> list[tuple[Any, ...]]:
    return query(lake, "SELECT count(*), count(DISTINCT id), sum(spend) FROM lake")
