"""A process whose stop hangs ends anyway, and logs where it hung."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HANGS = """
import asyncio, sys, threading, time
from gateway.monitoring import logs
from gateway.cli import serve

class App:
    @property
    def services(self): return self
    single = health = services
    async def is_live(self): return True
    async def start(self): pass
    async def wait_for_handover(self): await asyncio.sleep(3600)
    async def wait_for_failure(self): return "something"
    async def stop(self):
        if sys.argv[1] == "loop":
            time.sleep(3600)
        await self.part_that_waits()
    async def part_that_waits(self):
        if sys.argv[1] == "task":
            await asyncio.create_task(asyncio.sleep(3600), name="a part of the app")

async def announce(): pass

within = serve.exit_process_if_block_takes_longer
serve.exit_process_if_block_takes_longer = lambda loop: within(loop, within_s=float(sys.argv[2]))
logs.start_logging("info")
code = asyncio.run(serve.run_app_until_stopped(App(), announce))
timers = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
sys.exit(code + 6 + any(not each.finished.is_set() for each in timers))
"""


def stopped(how: str, *, within_s: float) -> tuple[int, list[dict[str, object]]]:
    program = [sys.executable, "-c", HANGS, how, str(within_s)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("how", ["task", "loop"])
def test_a_stop_that_hangs_is_ended(how: str) -> None:
    """
    Whether a task never ends or the event loop is blocked, the exit code is 1 and the log names what
    was still running.
    """
    code, log = stopped(how, within_s=0.3)
    assert code == 1
    assert [line["action"] for line in log] == ["stop_cut"]
    assert ("a part of the app" in str(log[0]["tasks"])) == (how == "task")


def test_a_stop_that_ends_is_left_alone() -> None:
    """The timer ends with the stop, so it cannot end the process later. The process has its own exit code."""
    assert (7, []) == stopped("not at all", within_s=120)
