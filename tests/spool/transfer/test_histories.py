"""After any history, a log that was copied to PostgreSQL and back is equal to the original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

import spool.sqlite.spool
from spool.engines import load_engine
from spool.record import Correction
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from spool.transfer.copying import copy_storage
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON, add, call, everything
from tests.spool.contract.test_machine import SETTINGS, Engines
from tests.spool.postgres_cluster import Schema


async def there_and_back(files: StorageOptions, schema: Schema, place: Path) -> Path:
    """Copy a directory to a database and from there to another directory and return that directory."""
    (place / "node").mkdir(parents=True)
    storage = schema.settings(place)
    assert storage.secret_file is not None
    storage.secret_file.unlink()
    database = replace(files, directory=place / "node", storage=storage)
    back = replace(files, directory=place / "back")
    for source, target in ((files, database), (database, back)):
        engines = [load_engine(one.storage.engine) for one in (source, target)]
        await copy_storage(source, engines[0], target, engines[1])
    return back.directory


class CopiedEngines(Engines):
    """The contract's engines, where the one on disk is sometimes copied through a database."""

    copies = 0
    unmade_schemas: Callable[[], Schema]

    @rule()
    def it_is_copied_there_and_back(self) -> None:
        """A copy changes nothing: an open record stays open for the rest of its time."""
        self.run(self.disk.close())
        place = self.root / f"copy-{next(self.lives)}"
        files = StorageOptions(directory=self.directory, settings=SETTINGS, clock=self.clock)
        self.directory = self.run(there_and_back(files, type(self).unmade_schemas(), place))
        self.disk = self.run(
            spool.sqlite.spool.open_spool(self.directory, settings=SETTINGS, clock=self.clock)
        )
        type(self).copies += 1


@pytest.mark.proof
def test_a_copy_changes_nothing(
    unmade_schemas: Callable[[], Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the copy both engines return the same from every method, and continue equally."""
    monkeypatch.setattr(CopiedEngines, "unmade_schemas", staticmethod(unmade_schemas), raising=False)
    run_state_machine_as_test(
        CopiedEngines,
        settings=settings(
            max_examples=6,
            stateful_step_count=14,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{CopiedEngines.copies} copies there and back")
    assert CopiedEngines.copies


async def test_a_copy_knows_the_calls_of_the_last_hour(
    unmade_schemas: Callable[[], Schema], tmp_path: Path
) -> None:
    """A report after the copy corrects a call whose id was in a run before the copy."""
    clock = MovedClock(NOON)
    files = StorageOptions(directory=tmp_path / "data", settings=SpoolSettings(), clock=clock)
    before = await spool.sqlite.spool.open_spool(files.directory, settings=files.settings, clock=clock)
    await add(before.log, call(1, output_tokens=None))
    clock.move(86_300)
    await add(before.log, call(2, output_tokens=None))
    clock.move(200)
    await add(before.log, call(3))  # this call is a day after the first, so that the ids of both are in runs
    await before.close()

    directory = await there_and_back(files, unmade_schemas(), tmp_path / "copies")
    after = await spool.sqlite.spool.open_spool(directory, settings=files.settings, clock=clock)
    await add(after.log, call(2))
    clock.move(11)
    assert isinstance((await everything(after.log))[-1], Correction)
    await after.close()
