"""Whatever was reported and sent: a log that was copied to PostgreSQL and back is the one that it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

import spool.sqlite
from spool.engines import engine_of
from spool.storage import StorageOptions
from spool.transfer.copying import copy_storage
from tests.spool.contract.test_machine import SETTINGS, Engines
from tests.spool.postgres_cluster import Schema


class CopiedEngines(Engines):
    """The engines of the contract, of which the one on disk goes through a database now and then."""

    copies = 0
    unmade_schemas: Callable[[], Schema]

    @rule()
    def it_is_copied_there_and_back(self) -> None:
        """Nothing may be different afterwards: what was open is open for the rest of its time."""
        self.run(self.disk.close())
        place = self.root / f"copy-{next(self.lives)}"
        (place / "node").mkdir(parents=True)
        files = StorageOptions(directory=self.directory, settings=SETTINGS, clock=self.clock)
        storage = type(self).unmade_schemas().settings(place)
        assert storage.secret_file is not None
        storage.secret_file.unlink()
        database = replace(files, directory=place / "node", storage=storage)
        back = replace(files, directory=place / "back")
        for source, target in ((files, database), (database, back)):
            engines = [engine_of(one.storage.engine) for one in (source, target)]
            self.run(copy_storage(source, engines[0], target, engines[1]))
        self.directory = back.directory
        self.disk = self.run(spool.sqlite.open_spool(self.directory, settings=SETTINGS, clock=self.clock))
        type(self).copies += 1


def test_a_copy_changes_nothing(
    unmade_schemas: Callable[[], Schema], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both engines answer alike after it, by every verb, and go on alike."""
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
