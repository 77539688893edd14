"""A server without requests leaves the processor to others."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

WINDOWS = 60  # single windows may contain work that follows a start
WINDOW_S = 1.0
MOST_PER_S = 5.0  # a process with one task that wakes ten times a second exceeds this number


def wakeups(pid: int) -> int:
    """Return how often threads of the process have waited and then continued."""
    text = "".join((task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("voluntary_ctxt"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts context switches per thread in /proc")
def test_an_idle_server_wakes_a_few_times_a_second(installations: Any) -> None:
    """
    Without requests, no task of the server wakes several times a second. gRPC is off, because its library wakes seven
    times a second.
    """
    one = installations()
    one.start()
    rates: list[float] = []
    while not rates or min(rates) > MOST_PER_S:
        assert len(rates) < WINDOWS, rates
        began, before = time.monotonic(), wakeups(one.process.pid)
        time.sleep(WINDOW_S)
        rates.append((wakeups(one.process.pid) - before) / (time.monotonic() - began))
