"""
Nothing waits for the disk where tests look at what is kept, and not at what outlives a loss of power.

A commit to a disk takes some 5 ms, most of it waiting, and one to the memory of the machine a hundredth of that.
What is flushed, and when, is held by tests of power cuts (tests/faults) and by those that take `flushed`.
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
    """For all tests of a package whose conftest imports this."""
    assert UNFLUSHED != SETTINGS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "SETTINGS", UNFLUSHED)
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test that looks at flushes: as on a server."""
    monkeypatch.setattr(database, "SETTINGS", SETTINGS)
    monkeypatch.setattr(os, "fsync", FSYNC)
