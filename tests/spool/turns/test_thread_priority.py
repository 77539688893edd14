"""Threads that compute answers are behind those that answer senders."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spool.sqlite.database import Database
from spool.turns.thread_priority import STEPS_LOWER, lower_priority

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="threads have priorities of their own on Linux alone"
)


def own_priority(_: sqlite3.Connection | None = None) -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_is_lowered_by_itself() -> None:
    """The others keep theirs."""
    before = own_priority()
    with ThreadPoolExecutor(1, initializer=lower_priority) as executor:
        assert min(19, before + STEPS_LOWER) == executor.submit(own_priority).result()
    assert before == own_priority()


@pytest.mark.asyncio
async def test_questions_are_behind_commits(tmp_path: Path) -> None:
    """The connection that only reads has a thread of lower priority than the one that commits."""
    database = await Database.open(tmp_path / "one.sqlite", lambda connection: None)
    try:
        assert own_priority() == await database.transaction(own_priority)
        assert min(19, own_priority() + STEPS_LOWER) == await database.read(own_priority)
    finally:
        await database.close()
