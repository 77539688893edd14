"""Here every answer is added up: the tests compare the ways to do so."""

from __future__ import annotations

import pytest

from spool.ledger.days import remembered
from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """No month is over."""
    monkeypatch.setattr(remembered, "_is_over", lambda query, now: False)
