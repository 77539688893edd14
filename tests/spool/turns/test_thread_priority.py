"""Threads that compute results have a lower priority than threads that answer senders."""

from __future__ import annotations

import ctypes
import os
import platform
import sqlite3
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spool.sqlite.database import Database
from spool.turns.threads import SHORT_SLICE_NS, STEPS_LOWER, lower_priority, shorten_thread_time_slices

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="threads have priorities of their own on Linux alone"
)


def own_priority(_: sqlite3.Connection | None = None) -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_thread_is_lowered_by_itself() -> None:
    """Lowering one thread keeps the priority of other threads."""
    before = own_priority()
    with ThreadPoolExecutor(1, initializer=lower_priority) as executor:
        assert min(19, before + STEPS_LOWER) == executor.submit(own_priority).result()
    assert before == own_priority()


async def test_queries_have_a_lower_priority_than_commits(tmp_path: Path) -> None:
    """The thread of the read-only connection has a lower priority than the thread that commits."""
    database = await Database.open(tmp_path / "one.sqlite", lambda connection: None)
    try:
        assert own_priority() == await database.transaction(own_priority)
        assert min(19, own_priority() + STEPS_LOWER) == await database.read(own_priority)
    finally:
        await database.close()


SCHED_GETATTR = {"x86_64": 315, "aarch64": 275}


def own_slice(_: sqlite3.Connection | None = None) -> int:
    """Return the nanoseconds of processor time that the kernel gives the thread at once."""
    attributes = ctypes.create_string_buffer(48)
    assert ctypes.CDLL(None).syscall(SCHED_GETATTR[platform.machine()], 0, attributes, 48, 0) == 0
    return int(struct.unpack("IIQiIQQQ", attributes.raw)[5])


@pytest.mark.skipif(
    sys.platform != "linux"
    or platform.machine() not in SCHED_GETATTR
    or tuple(map(int, platform.release().split(".")[:2])) < (6, 12)
    or os.sched_getscheduler(0) != os.SCHED_OTHER,
    reason="slices can be chosen from Linux 6.12 on",
)
async def test_commits_have_short_slices_and_questions_usual_ones(tmp_path: Path) -> None:
    """
    Threads that are started after `shorten_thread_time_slices` inherit short slices, except threads with a lower
    priority.
    """
    own, priority = own_slice(), own_priority()
    # A separate thread is used, so that the test's own thread keeps its priority and time slice.
    with ThreadPoolExecutor(1, initializer=shorten_thread_time_slices) as executor:
        threads = executor.submit(lambda: ThreadPoolExecutor(1)).result()
        lowered = ThreadPoolExecutor(1, initializer=lower_priority)
        inherited = executor.submit(lambda: threads.submit(own_slice).result()).result()
        assert inherited == SHORT_SLICE_NS
        assert executor.submit(lambda: lowered.submit(own_slice).result()).result() > SHORT_SLICE_NS
        assert executor.submit(own_priority).result() == priority
        threads.shutdown()
        lowered.shutdown()
    assert own_slice() == own


@pytest.mark.skipif(sys.platform != "linux", reason="the policy is Linux's")
def test_a_policy_that_was_chosen_for_the_service_stays() -> None:
    """systemd's CPUSchedulingPolicy=batch still applies after a start."""

    def chosen() -> int:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        shorten_thread_time_slices()
        return os.sched_getscheduler(0)

    with ThreadPoolExecutor(1) as executor:
        assert executor.submit(chosen).result() == os.SCHED_BATCH
