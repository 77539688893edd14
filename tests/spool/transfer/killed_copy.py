"""
A process that copies a storage and is killed at a certain moment: `python -m ... MOMENT TIME SOURCE TARGET`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from spool.engines import load_engine
from spool.transfer.copying import copy_storage
from tests.moved_clock import MovedClock
from tests.spool.transfer.places import options_described


async def run(moment: str, now: float, source: str, target: str) -> None:
    def told(what: str, rows: int) -> None:
        if what == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    clock = MovedClock(now)
    one, other = options_described(source, clock), options_described(target, clock)
    await copy_storage(one, load_engine(one.storage.engine), other, load_engine(other.storage.engine), told)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]))
