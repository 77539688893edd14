"""A stop that hangs, in a process of its own: it ends, and says where it hung."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HANGS = """
import asyncio, sys, time
from gateway.monitoring import logs
from gateway.cli import forced_exit, serve

class App:
    @property
    def services(self): return self
    health = services
    async def live(self): return True
    async def start(self): pass
    async def handed_over(self): await asyncio.sleep(3600)
    async def failure(self): return "something"
    async def stop(self):
        if sys.argv[1] == "loop":
            time.sleep(3600)
        await self.part_that_waits()
    async def part_that_waits(self):
        if sys.argv[1] == "task":
            await asyncio.create_task(asyncio.sleep(3600), name="a part of the app")

async def announce(): pass

within = forced_exit.exit_after
forced_exit.exit_after = lambda loop: within(loop, within_s=0.3)
logs.configure("info")
code = asyncio.run(serve.run_app(App(), announce))
time.sleep(0.6)
sys.exit(code + 6)
"""


def stopped(how: str) -> tuple[int, list[dict[str, object]]]:
    done = subprocess.run([sys.executable, "-c", HANGS, how], capture_output=True, text=True, timeout=60)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("how", ["task", "loop"])
def test_a_stop_that_hangs_is_ended(how: str) -> None:
    """Exit code 1, whether a task never ends or the loop does not turn, and the log names what still ran."""
    code, log = stopped(how)
    assert (1, ["stop_cut"]) == (code, [line["action"] for line in log])
    assert ("a part of the app" in str(log[0]["tasks"])) == (how == "task")


def test_a_stop_that_ends_is_left_alone() -> None:
    """The timer goes with it: the process lives on past the bound and has its own exit code."""
    assert (7, []) == stopped("not at all")
