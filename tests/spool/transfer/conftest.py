from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed
from tests.spool.postgres.waiting_commits import waiting as waiting
from tests.spool.postgres_cluster import Schema
from tests.spool.transfer.places import Places


@pytest.fixture
def places(tmp_path: Path, unmade_schemas: Callable[[], Schema]) -> Places:
    return Places(tmp_path, {"postgres": unmade_schemas(), "other postgres": unmade_schemas()})


@pytest.fixture
async def receipt(places: Places) -> str:
    """The receipt of the third call in `files`, which this fixture fills."""
    return await places.fill()
