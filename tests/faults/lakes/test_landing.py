"""kill -9 at the steps of a landing, in any order: every record is in the lake once, and all counts agree."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from exporters.destinations.catalogue import destination_secret
from exporters.lake import names, parquet
from exporters.lake.destination import open_store
from exporters.lake.stores import LakeStore
from exporters.lake.verification import DATA, LakeDifference, VerifiedLake, read_manifests, verify_files
from exporters.lake.watch import compare_with_store
from exporters.settings import DestinationSettings
from tests.faults.scenarios import Trial
from tests.integration.lake import victim
from tests.integration.lake.lakes import ROUTE, opened
from tests.integration.lake.s3 import BUCKET, s3_server
from tests.rounds import part

KILLS = 8  # kills per lake; one delivery lands before the first kill, and at most one more after each


@dataclass(frozen=True)
class Judged:
    ids: list[str]  # the record ids of all rows in all files
    verified: VerifiedLake
    differences: list[LakeDifference]


async def judge(data: Path, store: LakeStore, scratch: Path) -> Judged:
    """Read the whole lake, and compare it with its manifests, the stored manifests, and the accounting."""
    scratch.mkdir()
    ids = []
    async for each in store.list_objects(names.DATA):
        await store.fetch(each.name, scratch / "there")
        ids += [id for (id,) in parquet.read_rows(scratch / "there", ["id"])]
    verified = await verify_files(store, read_manifests(store, "lake", scratch), level=DATA, scratch=scratch)
    async with opened(data) as house:
        kept = await compare_with_store(store, house.context(), ROUTE)
    return Judged(ids, verified, [*verified.differences, *kept.differences])


def places(rng: Random) -> list[str]:
    """Return steps in random order, some of them more than once. The last process ends without a kill."""
    return [*rng.choices(victim.PLACES[:-1], k=KILLS), victim.PLACES[-1]]


@pytest.mark.proves("One call, one record")
@pytest.mark.fault("F50")
@pytest.mark.parametrize("kind", part(["file", "s3"], every=2))
def test_kills_at_the_places_of_a_landing(trial: Trial, kind: str, tmp_path: Path) -> None:
    """
    After kills at the steps of a landing, no record is missing or duplicated, in a folder and on an S3 server.
    """
    secret = tmp_path / "secret"
    secret.write_text("testing\ntesting-secret\n")
    with ExitStack() as stack:
        address = stack.enter_context(s3_server(tmp_path)) if kind == "s3" else ""
        for number, rng in enumerate(trial.rounds(short=1, full=25)):
            place = tmp_path / f"round-{number}"
            place.mkdir()
            fields: dict[str, Any] = {"path": place / "lake"}
            if address:
                url = f"s3://{BUCKET}/{place.name}"
                fields = {"type": kind, "url": url, "endpoint": address, "secret_file": secret}
            victim.kill_at_each_place(place / "data", places(rng), **fields)
            settings = DestinationSettings(**{"name": "lake", "type": kind, **fields})
            store = open_store(settings, destination_secret(settings))
            found = asyncio.run(judge(place / "data", store, place / "scratch"))
            there = len(set(found.ids))
            trial.count(
                acknowledged=victim.RECORDS, lost=victim.RECORDS - there, duplicates=len(found.ids) - there
            )
            assert [] == found.differences
            assert there == victim.RECORDS
            assert len(found.ids) == victim.RECORDS
            assert found.verified.rows == victim.RECORDS
            assert found.verified.spend == "9.5"
