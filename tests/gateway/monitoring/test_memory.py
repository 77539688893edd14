"""Memory settings of the process. Each test runs its own process, because the settings are global."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import gc, weakref
from gateway.monitoring import memory

class Ring:
    def __init__(self):
        self.itself = self

kept = Ring()
memory.trim_and_freeze_memory()
assert not any(found is kept for found in gc.get_objects())
gone = weakref.ref(Ring())
rest = [[] for _ in range(memory.NEW_OBJECTS - 1000)]
assert gone() is not None
rest += [[] for _ in range(2000)]
assert gone() is None
"""

ROUNDS = """
import asyncio, gc, weakref
from gateway.monitoring import memory

class Ring:
    def __init__(self):
        self.itself = self

async def main():
    gc.set_threshold(10, 2, 2)
    memory.LOOK_EVERY_S, memory.MOST_WAITED_S, memory.NEWER_ROUNDS = 0.001, {patience}, 2
    looks = []

    async def until_idle():
        looks.append(1)
        if not {is_idle}:
            await asyncio.Event().wait()

    async def activity(within_s):
        pass

    task = asyncio.create_task(memory.collect_garbage_when_idle(until_idle, activity))
    await asyncio.sleep(0)
    never = gc.get_threshold()[2]
    memory.trim_and_freeze_memory()
    assert never == gc.get_threshold()[2]  # whichever comes first
    gc.set_threshold(10, 2)
    old = Ring()
    gc.collect(1)
    gone = weakref.ref(old)
    del old
    rest, turns = [], 0
    while gone() is not None and turns < {turns}:
        rest += [[] for _ in range(1000)]
        await asyncio.sleep(0.001)
        turns += bool(looks)
    print(gone() is None)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    print(gc.get_threshold())

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("is_idle", "patience", "is_gone"), [(True, 300, True), (False, 300, False), (False, 0.01, True)]
)
def test_full_rounds_wait_until_no_question_is_pending(is_idle: bool, patience: float, is_gone: bool) -> None:
    """
    Full garbage collections wait until no query is pending, or until `patience` expires. At the end Python
    runs them again by itself.
    """
    code = ROUNDS.format(is_idle=is_idle, patience=patience, turns=10**6 if is_gone else 20)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{is_gone}\n(10, 2, 2)\n"
    assert done.stderr == ""


def test_cycles_are_still_collected_but_not_looked_for_in_what_a_start_made() -> None:
    """New cycles are still collected. No collection visits the objects that were created at startup."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert done.stderr == ""
