"""
A fixture that turns remembered results off, because tests in this folder compare ways to compute a result.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spool.ledger.days import cached_results
from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed
from tests.spool.ledger.engines import ENGINES, Ledgers


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember no results, because no month counts as finished."""
    monkeypatch.setattr(cached_results, "_can_be_cached", lambda query, now: False)


@pytest.fixture(params=ENGINES)
async def ledgers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Ledgers]:
    found = Ledgers.of(request.param, request, tmp_path)
    yield found
    await found.close()
