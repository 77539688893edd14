"""
Fixtures that skip flushes to disk, for tests of stored content that do not test power cuts.

A commit to disk takes about 5 ms, mostly waiting, and one to memory takes a hundredth of that. Tests of power
cuts (tests/faults) and tests with the fixture `flushed` check what is flushed and when.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from spool.sqlite import database

FSYNC, SETTINGS = os.fsync, database.SETTINGS
UNFLUSHED = tuple(each.replace("synchronous = FULL", "synchronous = OFF") for each in SETTINGS)


@pytest.fixture(autouse=True, scope="package")
def unflushed() -> Iterator[None]:
    """Skip flushes in all tests of a package whose conftest imports this fixture."""
    assert UNFLUSHED != SETTINGS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "SETTINGS", UNFLUSHED)
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flush as a server does, for a test that checks flushes."""
    monkeypatch.setattr(database, "SETTINGS", SETTINGS)
    monkeypatch.setattr(os, "fsync", FSYNC)
