"""Fixtures that start a queue on a real disk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool, open_spool
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON, Observed

Starter = Callable[..., Awaitable[SqliteSpool]]


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock(NOON)


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
async def start(tmp_path: Path, clock: MovedClock, observed: Observed) -> AsyncIterator[Starter]:
    """
    Yield a function that starts a queue in a directory (default `data`). Records are closed at once by default.
    """
    started: list[SqliteSpool] = []

    async def starter(directory: Path | None = None, **changes: Any) -> SqliteSpool:
        settings = SpoolSettings(**{"hold": 0, **changes})
        one = await open_spool(
            directory or tmp_path / "data", settings=settings, clock=clock, observer=observed
        )
        started.append(one)
        return one

    yield starter
    for one in started:
        if one.lock.is_held:
            await one.close()
