"""What the process does about its memory: in a process of its own, because it holds for all of one."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc, weakref
from gateway.monitoring import memory

class Ring:
    def __init__(self):
        self.itself = self

kept = Ring()
memory.settle_after_start()
assert not any(found is kept for found in gc.get_objects())
gone = weakref.ref(Ring())
rest = [[] for _ in range(memory.NEW_OBJECTS - 1000)]
assert gone() is not None
rest += [[] for _ in range(2000)]
assert gone() is None
"""


def test_cycles_are_still_collected_but_not_looked_for_in_what_a_start_made() -> None:
    """A cycle goes once as many new objects have come; what was there before is in no round."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
